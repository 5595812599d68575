"""``fallback-tier fix``: a proved patch, or an honest reason."""

import argparse
from pathlib import Path

from rich.console import Console

from fallback_audit.vocabulary import EscalationReason, GateStatus, RefusalReason
from fallback_tier.advisory import Advisory, AdvisorySet, load_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.handover import Landed, Put, hand_over, setup_of
from fallback_tier.cli.options import advisories, configuration
from fallback_tier.cli.output import print_json, print_patch
from fallback_tier.cli.progress import FixProgress
from fallback_tier.cli.remediation import line, safe, show_remediation
from fallback_tier.cli.usage import report_usage, usage_document
from fallback_tier.errors import AdvisoryError, ConfigurationError
from fallback_tier.gates.journal.holding import holding
from fallback_tier.gates.journal.inputs import Setup
from fallback_tier.gates.judges.proof_given import PROOF
from fallback_tier.gates.result import (
    Escalated,
    FixResult,
    Patched,
    RefusedFix,
    Verified,
    WithPatch,
)
from fallback_tier.handover.delivery import deliver
from fallback_tier.handover.headline import headline
from fallback_tier.installed import look_at
from fallback_tier.outcome import Applied
from fallback_tier.patch.diff import new_files
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services, open_services
from fallback_tier.wiring.gates import check_proofs


def run(arguments: argparse.Namespace) -> int:
    """Fix, prove, deliver, report. The exit code says how it ended."""
    given = _given(arguments)
    about = {name for advisory in given.advisories for name in advisory.ecosystems}
    with open_services(configuration(arguments), ecosystems=about) as services:
        return run_with(given, services, arguments)


def run_with(given: AdvisorySet, services: Services, arguments: argparse.Namespace) -> int:
    """One advisory goes down the whole chain; several are planned together."""
    if len(given.advisories) == 1 and not given.findings:
        services.plugin_for(given.advisories[0])  # an ecosystem that nobody serves: bad input
    settings = services.configuration.settings
    repo = look_at(Path(arguments.repository), services.clients, settings)
    only = _only_one(given, repo, services)
    if only is None:
        if arguments.resume is not None:
            raise ConfigurationError(
                "--resume goes on with the fix of one advisory, and several are given here.",
                next_step="Give the advisory that the fix began with.",
            )
        if services.configuration.proof is not None:
            raise ConfigurationError(
                "--proof shows one advisory's flaw in one ecosystem, and this is about several.",
                next_step="Fix that advisory alone with --proof, then the others.",
            )
        from fallback_tier.cli.fix_several import fix_several

        return fix_several(given, repo, services, arguments)
    if given.skipped and not arguments.json:
        from fallback_tier.cli.plan import show_unused

        show_unused(Console(stderr=True), given)
    return _fix_one(only, repo, services, arguments)


def _given(arguments: argparse.Namespace) -> AdvisorySet:
    """All that --advisory names; one record that names only commits is for the package's own source."""
    try:
        return advisories(arguments)
    except AdvisoryError:
        if len(arguments.advisory) > 1:
            raise
        try:
            return AdvisorySet(advisories=(load_advisory(Path(arguments.advisory[0])),))
        except AdvisoryError:
            pass
        raise


def _only_one(given: AdvisorySet, repo: RepoContext, services: Services) -> Advisory | None:
    """The one advisory to fix, narrowed to the one ecosystem that it concerns here; None: several."""
    if len(given.advisories) != 1 or given.findings:
        return None
    concerned = services.concerned(given.advisories[0], repo)
    return concerned[0] if len(concerned) == 1 else None


def _fix_one(
    advisory: Advisory, repo: RepoContext, services: Services, arguments: argparse.Namespace
) -> int:
    setup = setup_of(arguments, [advisory.id], repo, services.clients)
    if arguments.resume is not None:
        from fallback_tier.cli.resume import go_on

        fix_id = arguments.resume
        return go_on(fix_id, advisory, repo.root, services, setup, as_json=arguments.json)
    inputs = services.inputs_on(repo, advisory, fix_id=repo.fix_id)
    with holding(services.configuration.state_dir, inputs.repo_ctx.fix_id):
        with FixProgress(Console(stderr=True, quiet=arguments.json)) as progress:
            runner = services.gate_runner(
                advisory, progress, setup, repo=inputs.repo_ctx, tell=progress.tell
            )
            check_proofs(runner, inputs, progress.tell_of_proof)
            result = runner.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)
        repo = inputs.repo_ctx
        return finish(result, advisory, repo, services, setup, deliver, as_json=arguments.json)


def finish(
    result: FixResult,
    advisory: Advisory,
    repo: RepoContext,
    services: Services,
    setup: Setup,
    put: Put,
    *,
    as_json: bool,
) -> int:
    """Deliver a proved patch and report the end; returns the exit code. ``put`` as ``hand_over`` says."""
    landed = Landed()
    if isinstance(result, WithPatch):
        fixed = [(result, advisory)]
        landed = hand_over(fixed, result.application, repo, services, setup, put)
    code = exit_code(result)
    if as_json:
        print_json({**document(result), **landed.document(), "exit_code": code})
    else:
        report(result, Console(), landed)
    return code


def document(result: FixResult) -> dict[str, object]:
    """For machines. Logs are evidence, found by digest; a result stays small."""
    said = result.model_dump(mode="json", exclude={"verdicts": {"__all__": {"log"}}})
    said |= {**usage_document(result), "proof": proof_status(result)}
    if not isinstance(result, WithPatch):
        return said
    return {**said, "proof_level": result.proof_level, "headline": headline(result)}


def proof_status(result: FixResult) -> GateStatus | None:
    """How the proof that was given ended; None where there was none, or it was not run."""
    found = (verdict.status for verdict in result.verdicts if verdict.gate == PROOF)
    return next(found, None)


def exit_code(result: FixResult) -> int:
    """The documented exit code of a result."""
    match result:
        case Verified():
            return exit_codes.OK
        case Patched():
            return exit_codes.PATCHED
        case Escalated(reason=EscalationReason.GATE_INFRASTRUCTURE):
            return exit_codes.ENVIRONMENT
        case Escalated():
            return exit_codes.ESCALATED
        case RefusedFix(reason=reason):
            return exit_codes.of_refusal(reason)


def report(result: FixResult, console: Console, landed: Landed) -> None:
    """The end of the story, for a person."""
    report_end(result, console)
    if isinstance(result, WithPatch):
        report_patch(result.application, console, landed)
    report_usage(result, console)
    report_record(result, console)


def report_end(result: FixResult, console: Console) -> None:
    """How it ended, and what was done."""
    head = safe(result.advisory_id)
    match result:
        case Verified() | Patched():
            _report_patched(result, head, console)
        case Escalated(reason=reason, question=question):
            line(console, f"[bold yellow]escalated[/]  {head} ({reason})")
            line(console, f"  {safe(question)}")
        case RefusedFix(reason=reason, sentence=sentence):
            what = "not affected" if reason is RefusalReason.NOT_AFFECTED else "no patch"
            line(console, f"[bold]{what}[/]  {head} ({reason})")
            line(console, f"  {safe(sentence)}")


def _report_patched(result: WithPatch, head: str, console: Console) -> None:
    application = result.application
    colour = "green" if isinstance(result, Verified) else "yellow"
    line(
        console,
        f"[bold {colour}]{headline(result)}[/]  {head} by the {application.tier} tier in "
        f"{result.attempts} attempt(s)",
    )
    if application.remediation is not None:
        show_remediation(console, application.remediation)
    if proof_status(result) is GateStatus.PASSED:
        line(console, "  the proof given fails at the base commit and passes with the patch")
    if isinstance(result, Patched):
        # A passing suite shows that nothing broke; only a test of the flaw shows it gone.
        line(
            console,
            "  whether the flaw is gone is for a reviewer to say, or for a test of it: --proof CMD",
        )
    _report_grounding(application, console)
    for verdict in result.verdicts:
        if verdict.status is GateStatus.SKIPPED:
            line(console, f"  could not be judged by {safe(verdict.gate)}: {safe(verdict.detail)}")


def _report_grounding(application: Applied, console: Console) -> None:
    """What a reviewer must look at twice; a grounding that nobody judged is no news."""
    for edit in application.loose_edits:
        line(console, f"  matched with other white space: {safe(edit)}")
    for note in application.notes:
        line(console, f"  {safe(note)}")
    if application.plan is not None and application.plan.capabilities:
        kinds = ", ".join(kind.value for kind in application.plan.capabilities)
        why = safe(application.plan.rationale)
        line(console, f"  [bold yellow]its plan declares[/]: {kinds}; {why}")
    flag = application.low_confidence
    if flag is None:
        return
    line(console, f"  [bold yellow]low confidence[/]: {safe(flag.reason)}; double-check:")
    for claim in flag.double_check:
        line(console, f"    - {safe(claim)}")


def report_patch(application: Applied, console: Console, landed: Landed) -> None:
    """Where the patch is now: on a branch, on the working tree, or printed."""
    if landed.committed is not None:
        where = landed.committed
        said = "committed to branch"
        if where.existed:
            said = "no branch was made, this very patch is on the same base commit already: branch"
        line(console, f"  {said} {safe(where.branch)}: {where.commit[:12]}")
    elif landed.delivered:
        made = new_files(application.diff)
        told = (f"{path} (new)" if path in made else path for path in application.files)
        files = safe(", ".join(told))
        line(console, f"  on the working tree, not committed: {files}")
    else:
        print_patch(application.diff)
    if landed.folder is not None:
        line(console, f"  for its reviewer: {safe(landed.folder)}")


def report_record(result: FixResult, console: Console) -> None:
    """Where the record is."""
    line(console, f"  [dim]record: fallback-tier audit show {safe(result.fix_id)}[/]")
