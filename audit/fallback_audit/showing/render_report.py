"""A verification's report for people: the verdict, the first bad event, then every finding."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fallback_audit.contract.table import Violation
from fallback_audit.showing.describe import visible
from fallback_audit.verifying.report import (
    Flag,
    OpenFix,
    Problem,
    UncoveredFix,
    VerificationReport,
)

if TYPE_CHECKING:
    from rich.console import Console

Finding = Problem | Violation | OpenFix | UncoveredFix | Flag


def render_report(
    report: VerificationReport,
    console: "Console",
    completed: Callable[[str], str] = lambda text: text,
) -> None:
    """Print a report. Stored text is neutralised, and never used as console markup.

    ``completed`` changes the commands that a line suggests so that they work as printed.
    """
    from rich.text import Text

    for text, style in report_lines(report):
        console.print(Text(visible(completed(text)), style=style), soft_wrap=True)


def report_lines(report: VerificationReport) -> Iterator[tuple[str, str]]:
    """Yield each line with its style."""
    verdict, style = ("INTACT", "bold green") if report.ok else ("NOT INTACT", "bold red")
    if report.ok and report.end_known is False:
        verdict, style = "INTACT, as far as it goes", "bold yellow"
    yield (
        f"{verdict}: {report.events:,} events, {report.gate_transitions:,} gate transitions",
        style,
    )
    if report.first_bad is not None:
        yield f"First: {_finding_message(report.first_bad)}", "red"
        yield f"  next: {report.first_bad.next_step}", "red"
    for title, items, count in _findings(report):
        if count:
            yield f"{title} ({count:,}):", "bold"
        yield from ((f"  {_finding_message(item)}", "") for item in items)
        if count > len(items):
            yield f"  … and {count - len(items):,} more", ""
    yield from ((line, "") for line in _summary(report))


def _findings(
    report: VerificationReport,
) -> tuple[tuple[str, Sequence[Finding], int], ...]:
    uncovered = report.uncovered_fixes
    return (
        ("Integrity", report.integrity_problems, report.integrity_problem_count),
        ("Checkpoints", report.checkpoint_problems, report.checkpoint_problem_count),
        ("Trace contract", report.contract_violations, report.contract_violation_count),
        ("Evidence", report.evidence_problems, report.evidence_problem_count),
        ("Flagged when appended", report.flags, report.flag_count),
        ("Open fixes", report.open_fixes, report.open_fix_count),
        ("Fixes with events that no checkpoint covers", uncovered, len(uncovered)),
    )


def _summary(report: VerificationReport) -> Iterator[str]:
    if report.sealed_events:
        yield f"Sealed events: 1 to {report.sealed_events:,}"
    if report.redacted_events:
        yield f"Redacted events: {report.redacted_events:,}"
    if report.evidence_checked is not None:
        removed = report.evidence_removed
        removed_note = f", {removed:,} removed by retention, on record" if removed else ""
        yield f"Evidence files checked: {report.evidence_checked:,}{removed_note}"
    if not report.contract_judged:
        yield "The trace contract was not judged."
    yield f"Tip: {report.tip}"
    if report.root is not None:
        yield f"Merkle root: {report.root}"
    if report.covered_to is None:
        yield f"{report.uncovered_events:,} events, and no checkpoint was looked at."
    else:
        uncovered = report.uncovered_events
        after = (
            f"{uncovered:,} events after it are not covered" if uncovered else "nothing after it"
        )
        yield (
            f"Checkpoints verified: {report.checkpoints_checked:,}; covered to event"
            f" {report.covered_to:,}; {after}."
        )
    yield from report.notes


def _finding_message(item: Finding) -> str:
    match item:
        case Problem():
            event = "the store" if item.seq is None else f"event {item.seq}"
            fix = f", fix {item.fix_id}" if item.fix_id else ""
            return f"{event}{fix}: {item.reason}"
        case Violation():
            return f"event {item.seq}, fix {item.fix_id}: {item.rule}: {item.detail}"
        case OpenFix():
            return f"fix {item.fix_id}: last event {item.last_seq} ({item.last_kind})"
        case UncoveredFix():
            ended = ", its end among them" if item.ended else ""
            return f"fix {item.fix_id}: {item.events:,} events{ended}"
        case Flag():
            return f"event {item.seq}, fix {item.fix_id}: {item.rule}"
