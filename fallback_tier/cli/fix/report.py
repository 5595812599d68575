"""The end of a fix, for people and for machines."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.showing.describe import tests_lines
from fallback_audit.vocabulary import EscalationReason, GateStatus, RefusalReason, TestsLevel
from fallback_tier.budget.listed_prices import listed_prices_as_of
from fallback_tier.budget.prices import PRICES_AS_OF
from fallback_tier.cli import exit_codes
from fallback_tier.cli.output import print_patch
from fallback_tier.cli.remediation import (
    declined_lines,
    line,
    safe,
    show_notes,
    show_remediation,
    show_unread,
)
from fallback_tier.cli.suggesting import command
from fallback_tier.configured import entry_for
from fallback_tier.fix.document import proof_status
from fallback_tier.fix_result import (
    DeliveryOutcome,
    Escalated,
    FixResult,
    Patched,
    RefusedFix,
    Verified,
    WithPatch,
    notes_of,
    projects_of,
    tests_level_of,
)
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.handover.headline import headline, proof_of
from fallback_tier.outcome import Applied
from fallback_tier.patch.diff import new_files
from fallback_tier.wiring.trail import evidence_dir


@dataclass(frozen=True)
class FixReport:
    """The end of a fix, or of a batch: its exit code, and the functions that print it."""

    code: int
    document: Callable[[], dict[str, object]]
    show: Callable[[], None]


def exit_code(result: FixResult, *, require_tests: bool = False) -> int:
    """Return the documented exit code of a result. ``require_tests``: a patch whose tests were not compared
    has a separate one."""
    match result:
        case Verified() | Patched() if require_tests and not _is_compared(result):
            return exit_codes.UNTESTED
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


def next_steps(result: FixResult) -> tuple[str, ...]:
    """Return the commands that follow: an escalated fix asks a person."""
    asks = isinstance(result, Escalated)
    return (f"fallback-tier review show {result.fix_id}",) if asks else ()


def _is_compared(result: FixResult) -> bool:
    return tests_level_of(result.verdicts) is TestsLevel.COMPARED


def report(result: FixResult, console: Console, outcome: DeliveryOutcome, state_dir: Path) -> None:
    """Print the end of a fix, for people. ``state_dir``: the folder of its evidence."""
    report_end(result, console, state_dir)
    if isinstance(result, WithPatch):
        report_patch(result.application, console, outcome)
    _report_usage(result, console)
    report_record(result, console)


def report_end(
    result: FixResult, console: Console, state_dir: Path, *, undelivered: str | None = None
) -> None:
    """Print how it ended, what was done, how far it was tested, and which of the recipe's candidates gates
    refused. ``undelivered``: the headline of a patch that is not delivered."""
    _report_end(result, console, undelivered)
    for verdict in result.verdicts:
        _report_tests(verdict, console, state_dir)
    for failed in result.failed_candidates:
        line(console, f"  {safe(failed.sentence)}")


def _report_end(result: FixResult, console: Console, undelivered: str | None) -> None:
    head = safe(result.advisory_id)
    match result:
        case Verified() | Patched():
            _report_patched(result, head, console, undelivered)
        case Escalated(reason=reason, question=question):
            line(console, f"[bold yellow]escalated[/]  {head} ({reason})")
            line(console, f"  {safe(question)}")
            show_notes(console, notes_of(result.verdicts))
        case RefusedFix(reason=RefusalReason.UNKNOWN, sentence=sentence, unread=unread):
            line(console, f"[bold yellow]unknown[/]  {head}: it may be affected")
            line(console, f"  {safe(sentence)}")
            show_unread(console, unread)
        case RefusedFix(reason=reason, sentence=sentence, declined=declined):
            headline_text = "not affected" if reason is RefusalReason.NOT_AFFECTED else "no patch"
            line(console, f"[bold]{headline_text}[/]  {head} ({reason})")
            line(console, f"  {safe(sentence)}")
            for reason_line in declined_lines(declined, sentence):
                line(console, f"    [dim]{reason_line}[/]")


def _report_tests(verdict: GateVerdict, console: Console, state_dir: Path) -> None:
    """Print what a person needs to judge tests that were not compared."""
    for tests in verdict.tests:
        first, *more = tests_lines(tests) or [""]
        if not first:
            continue
        line(console, f"  [bold yellow]{safe(first)}[/]", verbatim=True)
        for further in more:
            line(console, f"    {safe(further)}", verbatim=True)
        if verdict.evidence_sha256:
            log = FileEvidenceStore(evidence_dir(state_dir)).path(verdict.evidence_sha256)
            line(console, f"    log: {safe(str(log))}", verbatim=True)
        line(
            console,
            "    to have them judged, say how they run (--test-command CMD), or add a gate to",
        )
        line(console, "    .fallback-tier.toml:")
        for row in entry_for(tests.command or "YOUR TEST COMMAND", tests.project).splitlines():
            line(console, f"      {safe(row)}", verbatim=True)


def _report_patched(
    result: WithPatch, head: str, console: Console, undelivered: str | None
) -> None:
    application = result.application
    is_good = undelivered is None and isinstance(result, Verified) and _is_compared(result)
    colour = "green" if is_good else "yellow"
    line(
        console,
        f"[bold {colour}]{undelivered or headline(result)}[/]  {head} by the {application.tier} tier in "
        f"{result.attempts} attempt(s)",
    )
    if application.remediation is not None:
        show_remediation(console, application.remediation)
    projects = projects_of(result.verdicts)
    for project in projects if len(projects) > 1 else ():
        line(console, f"  {safe(proof_of(project))}")
    show_notes(console, notes_of(result.verdicts))
    if proof_status(result) is GateStatus.PASSED:
        line(console, "  the proof given fails at the base commit and passes with the patch")
    if isinstance(result, Patched):
        # A passing suite shows that nothing broke; only a test of the vulnerability shows that it is gone.
        line(
            console,
            "  whether the flaw is gone must be judged by a reviewer, or by a test of it: --proof CMD",
        )
    _report_grounding(application, console)
    for verdict in result.verdicts:
        if verdict.status is GateStatus.SKIPPED and not verdict.tests:
            line(console, f"  gate {safe(verdict.gate)} was skipped: {safe(verdict.detail)}")


def _report_grounding(application: Applied, console: Console) -> None:
    """Print what a reviewer must check again. A grounding that was not judged is not shown."""
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


def report_patch(application: Applied, console: Console, outcome: DeliveryOutcome) -> None:
    """Print where the patch is now: on a branch, on the working tree, or printed."""
    if outcome.committed is not None:
        committed = outcome.committed
        message = "committed to branch"
        if committed.existed:
            message = "no branch was made, this patch is already on the same base commit: branch"
        line(console, f"  {message} {safe(committed.branch)}: {committed.commit[:12]}")
    elif outcome.delivered:
        created = new_files(application.diff)
        paths = (f"{path} (new)" if path in created else path for path in application.files)
        files = safe(", ".join(paths))
        line(console, f"  on the working tree, not committed: {files}")
    else:
        print_patch(application.diff)
    if outcome.folder is not None:
        line(console, f"  for its reviewer: {safe(outcome.folder)}")


def report_record(result: FixResult, console: Console) -> None:
    """Print the command that shows the fix's record."""
    shown = command(f"fallback-tier audit show {result.fix_id}")
    line(console, f"  [dim]record: {safe(shown)}[/]")


def _report_usage(result: FixResult, console: Console) -> None:
    for usage in result.usage:
        tokens = f"{usage.input_tokens:,} tokens in"
        if usage.cache_read_tokens or usage.cache_write_tokens:
            tokens += (
                f" (cache: {usage.cache_read_tokens:,} read, {usage.cache_write_tokens:,} written)"
            )
        line(
            console,
            f"  used by {usage.call_type}: {usage.calls} call(s), {tokens}, {usage.output_tokens:,} out, "
            f"{_estimate(usage.cost_usd_estimate)}",
        )
    if result.unreported is not None:
        line(
            console,
            f"  booked for calls of which no use was reported: {result.unreported.tokens:,} tokens, "
            f"{_estimate(result.unreported.cost_usd_estimate)}",
        )
    if result.usage or result.unreported:
        line(
            console,
            f"  [dim]dollars are estimates from the price table of {PRICES_AS_OF}, else from --price, else "
            f"from {listed_prices_as_of()}[/]",
        )


def _estimate(dollars: str | None) -> str:
    return "price not known" if dollars is None else f"about ${dollars}"
