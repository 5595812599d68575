"""Audit trails for people (rich) and for programs (JSON).

Stored text is untrusted: it is neutralised (``describe.visible``) and printed as plain text, never
as console markup. JSON carries it as it stands, escaped by JSON itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fallback_audit.contract.trail import Asked
from fallback_audit.errors import EvidenceError
from fallback_audit.events import (
    CLOSING_KINDS,
    AttemptStarted,
    GateJudged,
    RetrievalQueried,
    grounded_words,
)
from fallback_audit.evidence.account import AccountRead, Score, read_account
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import EvidenceStore, StoredEvent
from fallback_audit.showing.describe import (
    AttemptLine,
    FixSummary,
    excerpt_of,
    sentence,
    summarise,
    tests_lines,
    visible,
)
from fallback_audit.vocabulary import PromptShape

if TYPE_CHECKING:
    from rich.console import Console


#: Dropped examples that a reader is shown; the evidence has all of them.
MAX_DROPPED_SHOWN = 10


def account_lines(event: RetrievalQueried, evidence: EvidenceStore) -> Iterator[str]:
    """Scores, floors and what was dropped, as lines that are safe to print; one line where missing."""
    try:
        account = read_account(event, evidence)
    except EvidenceError as error:
        yield visible(f"why: {error.problem}")
        return
    if account is None:
        yield "why: no account is on record"
    else:
        yield from map(visible, _lines(account))


def _lines(account: AccountRead) -> Iterator[str]:
    floors = (f"{one.name} floor: {one.score} ≥ {_number(one.value)}" for one in account.floors)
    yield ", ".join((f"mode: {account.mode}", *floors))
    if account.rewrites:
        yield f"asked again {account.rewrites} times with other words"
    for name in account.returned:
        yield f"returned {name}{_scores(account.scores.get(name, {}))}"
    for one in account.dropped[:MAX_DROPPED_SHOWN]:
        yield f"dropped {one.example_id} ({one.reason}){_scores(one.scores)}"
    if len(account.dropped) > MAX_DROPPED_SHOWN:
        yield f"… and {len(account.dropped) - MAX_DROPPED_SHOWN:,} more dropped"
    yield from (f"note: {note}" for note in account.notes)


def _scores(scores: Mapping[str, Score]) -> str:
    message = ", ".join(f"{name} {_number(value)}" for name, value in scores.items())
    return f": {message}" if message else ""


def _number(score: Score) -> str:
    return "no number" if score is None else f"{score:.3f}"


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
            ended = (fix.headline, fix.delivered) if fix.delivered else (fix.headline,)
            cells = (_minute(fix.started_at), fix.fix_id, fix.advisory_id, fix.repository, *ended)
            self._line("  ".join(map(visible, cells)), _style_of(fix))
            for attempt in fix.attempts:
                self._line(f"    {_how(attempt)}")

    def render_status(self, events: Iterable[StoredEvent]) -> None:
        """How one fix stands: its last gate transition's outcome, in a line."""
        (*_, fix) = summarise(events)
        ended = (fix.headline, fix.delivered) if fix.delivered else (fix.headline,)
        begun = f"begun {_minute(fix.started_at)}"
        cells = (*ended, fix.fix_id, fix.advisory_id, fix.repository, begun)
        self._line("  ".join(map(visible, cells)), f"bold {_style_of(fix)}")

    def render_fix(
        self, events: Iterable[StoredEvent], evidence: EvidenceStore | None = None
    ) -> None:
        """The timeline of one fix. A retry says what it is, and what stood in place of examples. A text
        that several events have is printed with the first of them.

        With ``evidence`` a retrieval also says why: scores, floors, what was dropped; tests that were not
        compared, where their log is.
        """
        links = list(events)
        printed: set[str] = set()
        asked = {(s.scope, s.payload.attempt) for s in links if isinstance(s.payload, Asked)}
        for stored in links:
            event = stored.payload
            if isinstance(event, AttemptStarted):
                # An attempt may end before any model is asked: by a recipe, by a replay, refused.
                called = (stored.scope, event.attempt) in asked
                shape = event.prompt_shape if called else PromptShape.NONE
                self._line(f"── Attempt {event.attempt}: {shape.label}", "bold cyan")
            where = f"{stored.seq:>6}  {visible(stored.recorded_at)}"
            self._line(f"{where}  {sentence(event)}", event.badge.style)
            excerpt = excerpt_of(event) or ""
            for line in ["(as above)"] if excerpt in printed else excerpt.splitlines():
                self._line(f"          │ {line}", "dim")
            printed.update(filter(None, [excerpt]))
            if isinstance(event, GateJudged):
                for line in _uncompared(event, evidence):
                    self._line(f"          │ {line}", "dim")
            if evidence is not None and isinstance(event, RetrievalQueried):
                for line in account_lines(event, evidence):
                    self._line(f"          │ {line}", "dim")
            if event.kind in CLOSING_KINDS:
                self._line("")

    def _line(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(text, style=style), soft_wrap=True)


def _uncompared(judged: GateJudged, evidence: EvidenceStore | None) -> list[str]:
    """What a person needs to judge tests that were not compared; their reason is in the sentence."""
    lines = [line for tests in judged.tests for line in tests_lines(tests)[1:]]
    if lines and judged.evidence_sha256 and isinstance(evidence, FileEvidenceStore):
        lines.append(visible(f"log: {evidence.path(judged.evidence_sha256)}"))
    return lines


def _minute(recorded_at: str) -> str:
    """A time of the record, to the minute (UTC)."""
    return recorded_at[:16].replace("T", " ")


def _style_of(fix: FixSummary) -> str:
    is_delivered = fix.headline.startswith("fixed")
    return "green" if fix.outcome == "verified" and is_delivered else "yellow"


def _how(attempt: AttemptLine) -> str:
    tier = f"{attempt.tier}, " if attempt.tier else ""
    judged = "" if attempt.grounded is None else f", {grounded_words(attempt.grounded)}"
    flag = ", LOW CONFIDENCE" if attempt.low_confidence else ""
    message = f"{attempt.attempt}: {tier}{attempt.shape}, {attempt.outcome}{judged}{flag}"
    return visible(f"{message}; {on}" if (on := _stood_on(attempt)) else message)


def _stood_on(attempt: AttemptLine) -> str:
    """What the prompt had beside the advisory and the code; empty where no model was asked."""
    if attempt.prompt_shape is PromptShape.NONE:
        return ""
    if attempt.in_place_of_examples is not None:
        first, _, more = attempt.in_place_of_examples.strip().partition("\n")
        return f"in place of examples, the last failure: {first}{' …' if more else ''}"
    return f"examples: {', '.join(attempt.examples)}" if attempt.examples else "no examples"
