"""``fallback-tier fix``: a proved patch, or an honest reason."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from fallback_audit.vocabulary import EscalationReason, ProofLevel, RefusalReason
from fallback_tier.advisory import Advisory, AdvisorySet, load_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import advisories, configuration
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import FixProgress
from fallback_tier.cli.remediation import line, safe, show_remediation
from fallback_tier.cli.usage import report_usage, usage_document
from fallback_tier.errors import AdvisoryError, ConfigurationError
from fallback_tier.gates.delivery import check_output, deliver, write_patch
from fallback_tier.gates.result import Escalated, FixResult, RefusedFix, Verified
from fallback_tier.installed import look_at
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services, open_services


def run(arguments: argparse.Namespace) -> int:
    """Fix, prove, deliver, report. The exit code says how it ended."""
    given = _given(arguments)
    if arguments.output:
        check_output(Path(arguments.output))
    with open_services(configuration(arguments)) as services:
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
    errors = Console(stderr=True, quiet=arguments.json)
    if arguments.resume is not None:
        result = _resume(advisory, repo, services, errors, arguments.resume)
    else:
        inputs = services.inputs_on(repo, advisory)
        with FixProgress(errors) as progress:
            runner = services.gate_runner(advisory, progress)
            result = runner.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)
    delivered = False
    if isinstance(result, Verified):
        if arguments.output:
            write_patch(Path(arguments.output), result.application.diff)
        if not arguments.dry_run:
            deliver(result.application, repo, services.clients)
            delivered = True
    code = exit_code(result)
    if arguments.json:
        print_json({**document(result), "delivered": delivered, "exit_code": code})
    else:
        report(result, Console(), delivered=delivered)
    return code


def _resume(
    advisory: Advisory, repo: RepoContext, services: Services, errors: Console, fix_id: str
) -> FixResult:
    """The rest of a fix whose budget was raised."""
    from fallback_tier.gates.resume import reopen, resuming

    with resuming(services.configuration.state_dir, fix_id):
        reopened = reopen(
            services.audit,
            services.evidence,
            fix_id,
            advisory=advisory,
            base_commit=repo.base_commit,
        )
        services.check_raised(reopened.raised)
        inputs = services.inputs_on(
            repo, advisory, fix_id=fix_id, gate_transition_id=reopened.gate_transition_id
        )
        with FixProgress(errors) as progress:
            return services.gate_runner(advisory, progress).resume(
                inputs.advisory,
                inputs.repo_ctx,
                inputs.recipe_selection,
                reopened.state,
                unprotected_before=reopened.unprotected,
            )


def document(result: FixResult) -> dict[str, object]:
    """For machines. Logs are evidence, found by digest; a result stays small."""
    said = result.model_dump(mode="json", exclude={"verdicts": {"__all__": {"log"}}})
    said |= usage_document(result)
    return {**said, "proof_level": result.proof_level} if isinstance(result, Verified) else said


def exit_code(result: FixResult) -> int:
    """The documented exit code of a result."""
    match result:
        case Verified():
            return exit_codes.OK
        case Escalated(reason=EscalationReason.GATE_INFRASTRUCTURE):
            return exit_codes.ENVIRONMENT
        case Escalated():
            return exit_codes.ESCALATED
        case RefusedFix(reason=reason):
            return exit_codes.of_refusal(reason)


def report(result: FixResult, console: Console, *, delivered: bool) -> None:
    """The end of the story, for a person."""
    report_end(result, console)
    if isinstance(result, Verified):
        report_patch(result.application, console, delivered=delivered)
    report_usage(result, console)
    report_record(result, console)


def report_end(result: FixResult, console: Console) -> None:
    """How it ended, and what was done."""
    head = safe(result.advisory_id)
    match result:
        case Verified():
            _report_verified(result, head, console)
        case Escalated(reason=reason, question=question):
            line(console, f"[bold yellow]escalated[/]  {head} ({reason})")
            line(console, f"  {safe(question)}")
        case RefusedFix(reason=reason, sentence=sentence):
            what = "not affected" if reason is RefusalReason.NOT_AFFECTED else "no patch"
            line(console, f"[bold]{what}[/]  {head} ({reason})")
            line(console, f"  {safe(sentence)}")


def _report_verified(result: Verified, head: str, console: Console) -> None:
    application = result.application
    line(
        console,
        f"[bold green]fixed and proved[/]  {head} by the {application.tier} tier in "
        f"{result.attempts} attempt(s); proof: {result.proof_level}",
    )
    if application.remediation is not None:
        show_remediation(console, application.remediation)
    if result.proof_level is ProofLevel.SOURCE:
        # A passing suite shows that nothing broke; only a test of the flaw shows it gone.
        line(
            console,
            "  the base commit's tests pass with the patch; whether one of them shows the "
            "vulnerability is for a reviewer to say",
        )
    _report_grounding(application, console)
    for verdict in result.verdicts:
        if verdict.status.value == "skipped":
            line(console, f"  not proved by {safe(verdict.gate)}: {safe(verdict.detail)}")


def _report_grounding(application: Applied, console: Console) -> None:
    """What a reviewer must look at twice; a grounding that nobody judged is no news."""
    for edit in application.loose_edits:
        line(console, f"  matched with other white space: {safe(edit)}")
    for note in application.notes:
        line(console, f"  {safe(note)}")
    flag = application.low_confidence
    if flag is None:
        return
    line(console, f"  [bold yellow]low confidence[/]: {safe(flag.reason)}; double-check:")
    for claim in flag.double_check:
        line(console, f"    - {safe(claim)}")


def report_patch(application: Applied, console: Console, *, delivered: bool) -> None:
    """Where the patch is now: on the working tree, or printed."""
    if delivered:
        files = safe(", ".join(application.files))
        line(console, f"  on the working tree, not committed: {files}")
    else:
        sys.stdout.write(application.diff)


def report_record(result: FixResult, console: Console) -> None:
    """Where the record is."""
    line(console, f"  [dim]record: fallback-tier audit show {safe(result.fix_id)}[/]")
