"""Audit trails and reports for people (rich) and for programs (JSON).

Stored text is untrusted: it is neutralised (``describe.visible``) and printed as plain text, never
as console markup. JSON carries it as it stands, escaped by JSON itself.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fallback_audit.contract.table import Violation
from fallback_audit.contract.trail import Asked
from fallback_audit.errors import EvidenceError
from fallback_audit.events import (
    TERMINAL_KINDS,
    AttemptStarted,
    GateJudged,
    GroundingJudged,
    RetrievalQueried,
)
from fallback_audit.evidence.account import account_lines, read_account
from fallback_audit.ports import EvidenceStore, StoredEvent
from fallback_audit.showing.describe import AttemptLine, excerpt_of, sentence, summarise, visible
from fallback_audit.showing.describe_model import grounded_words
from fallback_audit.verifying.verify import OpenFix, Problem, VerificationReport
from fallback_audit.vocabulary import PromptShape

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    "FixVerified": "bold green",
    "FixRefused": "bold yellow",
    "FixEscalated": "bold yellow",
    "SandboxDisabled": "bold red",
    "AttemptFailed": "red",
    "PlanRejected": "yellow",
    "RepeatedPatchRejected": "yellow",
    "RagSkippedOnRetry": "cyan",
    "LowConfidenceFlagged": "bold yellow",
    "BudgetReached": "bold yellow",
    "BudgetRaised": "cyan",
    "AnswerReused": "cyan",
    "StrategyDegraded": "yellow",
    "FixResumed": "cyan",
    "ReviewDecided": "bold cyan",
    "TransitionReopened": "bold cyan",
}


def log_json(events: Iterable[StoredEvent]) -> list[dict[str, Any]]:
    """One JSON object a gate transition."""
    return [summary.model_dump(mode="json") for summary in summarise(events)]


def fix_json(
    events: Iterable[StoredEvent], evidence: EvidenceStore | None = None
) -> dict[str, Any]:
    """The transitions of one fix with their attempts, and every event as it is stored.

    With ``evidence`` also why each retrieval answered as it did: its account, or the problem with it.
    """
    stored = list(events)
    document: dict[str, Any] = {
        "transitions": log_json(stored),
        "events": [event.model_dump(mode="json") for event in stored],
    }
    if evidence is not None:
        document["retrievals"] = [
            {"seq": link.seq, **_account_json(link.payload, evidence)}
            for link in stored
            if isinstance(link.payload, RetrievalQueried)
        ]
    return document


def _account_json(event: RetrievalQueried, evidence: EvidenceStore) -> dict[str, Any]:
    try:
        account = read_account(event, evidence)
    except EvidenceError as error:
        return {"account": None, "problem": error.problem}
    return {"account": account.model_dump(mode="json") if account else None, "problem": None}


class Renderer:
    """Prints to one rich Console."""

    def __init__(self, console: "Console") -> None:
        self._console = console

    def render_log(self, events: Iterable[StoredEvent]) -> None:
        """A line a gate transition, a line each of its attempts: nothing is cut off to fit."""
        fixes = summarise(events)
        if not fixes:
            self._line("The audit trail is empty.")
        for fix in fixes:
            ended = (fix.outcome, fix.delivered) if fix.delivered else (fix.outcome,)
            cells = (fix.fix_id, fix.advisory_id, fix.repository, *ended)
            style = {"verified": "green"}.get(fix.outcome.partition(":")[0], "yellow")
            self._line("  ".join(map(visible, cells)), style)
            for attempt in fix.attempts:
                self._line(f"    {_how(attempt)}")

    def render_fix(
        self, events: Iterable[StoredEvent], evidence: EvidenceStore | None = None
    ) -> None:
        """The timeline of one fix. A retry says what it is, and what stood in place of examples.

        With ``evidence`` a retrieval also says why: scores, floors, what was dropped.
        """
        links = list(events)
        asked = {(s.scope, s.payload.attempt) for s in links if isinstance(s.payload, Asked)}
        for stored in links:
            event = stored.payload
            if isinstance(event, AttemptStarted):
                # An attempt may end before any model is asked: by a recipe, by a replay, refused.
                called = (stored.scope, event.attempt) in asked
                shape = event.prompt_shape if called else PromptShape.NONE
                self._line(f"── Attempt {event.attempt}: {shape.label}", "bold cyan")
            style = _STYLES.get(event.kind, "")
            if isinstance(event, GroundingJudged):
                style = "green" if event.supported else "yellow"
            if isinstance(event, GateJudged):
                style = {"passed": "green", "failed": "red"}.get(event.status, "yellow")
            where = f"{stored.seq:>6}  {visible(stored.recorded_at)}"
            self._line(f"{where}  {sentence(event)}", style)
            for line in (excerpt_of(event) or "").splitlines():
                self._line(f"          │ {line}", "dim")
            if evidence is not None and isinstance(event, RetrievalQueried):
                for line in account_lines(event, evidence):
                    self._line(f"          │ {line}", "dim")
            if event.kind in TERMINAL_KINDS:
                self._line("")

    def render_report(self, report: VerificationReport) -> None:
        """The verdict first, then every finding, then what verification can't promise."""
        verdict, style = ("INTACT", "bold green") if report.ok else ("NOT INTACT", "bold red")
        size = f"{report.events:,} events, {report.gate_transitions:,} gate transitions"
        self._line(f"{verdict}: {size}", style)
        if report.first_bad:
            self._line(f"First: {_problem(report.first_bad)}", "red")
        findings: tuple[tuple[str, Sequence[Problem | Violation | OpenFix], int], ...] = (
            ("Integrity", report.integrity_problems, report.integrity_problem_count),
            ("Trace contract", report.contract_violations, report.contract_violation_count),
            ("Evidence", report.evidence_problems, report.evidence_problem_count),
            ("Open fixes", report.open_fixes, report.open_fix_count),
        )
        for title, items, count in findings:
            if count:
                self._line(f"{title} ({count:,}):", "bold")
            for item in items:
                self._line(f"  {_finding(item)}")
            if count > len(items):
                self._line(f"  … and {count - len(items):,} more")
        if report.evidence_checked is not None:
            self._line(f"Evidence files checked: {report.evidence_checked:,}")
        self._line(f"Tip: {report.tip}")
        self._line(f"{report.uncovered_events:,} events without a checkpoint. {report.note}")

    def _line(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(text, style=style), soft_wrap=True)


def _how(attempt: AttemptLine) -> str:
    tier = f"{attempt.tier}, " if attempt.tier else ""
    judged = "" if attempt.grounded is None else f", {grounded_words(attempt.grounded)}"
    flag = ", LOW CONFIDENCE" if attempt.low_confidence else ""
    return visible(f"{attempt.attempt}: {tier}{attempt.shape}, {attempt.outcome}{judged}{flag}")


def _finding(item: Problem | Violation | OpenFix) -> str:
    match item:
        case Problem():
            return _problem(item)
        case Violation():
            return visible(f"event {item.seq}, fix {item.fix_id}: {item.rule}: {item.detail}")
        case OpenFix():
            return visible(f"fix {item.fix_id}: last event {item.last_seq} ({item.last_kind})")


def _problem(problem: Problem) -> str:
    event = "the store" if problem.seq is None else f"event {problem.seq}"
    fix = f", fix {problem.fix_id}" if problem.fix_id else ""
    return visible(f"{event}{fix}: {problem.reason}")
