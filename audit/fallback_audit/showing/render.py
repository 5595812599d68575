"""Audit trails for people (rich) and for programs (JSON).

Stored text is untrusted: it is neutralised (``describe.visible``) and printed as plain text, never as
console markup. JSON has it unchanged, with JSON's own escapes.
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


#: Most dropped examples that are shown; the evidence has all of them.
MAX_DROPPED_SHOWN = 10


def account_lines(event: RetrievalQueried, evidence: EvidenceStore) -> Iterator[str]:
    """Yield scores, floors and dropped examples, as safe lines; one line if the account is missing."""
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
    floors = (
        f"{floor.name} floor: {floor.score} ≥ {_number(floor.value)}" for floor in account.floors
    )
    yield ", ".join((f"mode: {account.mode}", *floors))
    if account.rewrites:
        yield f"asked again {account.rewrites} times with other words"
    for name in account.returned:
        yield f"returned {name}{_scores(account.scores.get(name, {}))}"
    for dropped in account.dropped[:MAX_DROPPED_SHOWN]:
        yield f"dropped {dropped.example_id} ({dropped.reason}){_scores(dropped.scores)}"
    if len(account.dropped) > MAX_DROPPED_SHOWN:
        yield f"… and {len(account.dropped) - MAX_DROPPED_SHOWN:,} more dropped"
    yield from (f"note: {note}" for note in account.notes)


def _scores(scores: Mapping[str, Score]) -> str:
    text = ", ".join(f"{name} {_number(value)}" for name, value in scores.items())
    return f": {text}" if text else ""


def _number(score: Score) -> str:
    return "no number" if score is None else f"{score:.3f}"


def log_json(events: Iterable[StoredEvent]) -> list[dict[str, Any]]:
    """Return one JSON object per gate transition."""
    return [summary.model_dump(mode="json") for summary in summarise(events)]


def fix_json(
    events: Iterable[StoredEvent], evidence: EvidenceStore | None = None
) -> dict[str, Any]:
    """Return the transitions of one fix with their attempts, and every event as stored.

    With ``evidence`` also the account of each retrieval, or the problem with it.
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
    """Printer of audit trails on a rich Console."""

    def __init__(self, console: "Console") -> None:
        self._console = console

    def render_log(self, events: Iterable[StoredEvent]) -> None:
        """Print one line per gate transition and per attempt of it. Lines are not truncated."""
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
        """Print the outcome of a fix's last gate transition, in one line."""
        (*_, fix) = summarise(events)
        ended = (fix.headline, fix.delivered) if fix.delivered else (fix.headline,)
        begun = f"begun {_minute(fix.started_at)}"
        cells = (*ended, fix.fix_id, fix.advisory_id, fix.repository, begun)
        self._line("  ".join(map(visible, cells)), f"bold {_style_of(fix)}")

    def render_fix(
        self, events: Iterable[StoredEvent], evidence: EvidenceStore | None = None
    ) -> None:
        """Print the timeline of one fix.

        A retry says that it is one, and what its prompt had instead of examples. An excerpt that several
        events have is printed with the first. With ``evidence``, a retrieval has its scores, floors and
        dropped examples, and tests that were not compared have the path of their log.
        """
        links = list(events)
        printed: set[str] = set()
        with_model = {
            (stored.scope, stored.payload.attempt)
            for stored in links
            if isinstance(stored.payload, Asked)
        }
        for stored in links:
            event = stored.payload
            if isinstance(event, AttemptStarted):
                # An attempt may end before a model is called: by a recipe, by a replay, refused.
                called_model = (stored.scope, event.attempt) in with_model
                shape = event.prompt_shape if called_model else PromptShape.NONE
                self._line(f"── Attempt {event.attempt}: {shape.label}", "bold cyan")
            position = f"{stored.seq:>6}  {visible(stored.recorded_at)}"
            self._line(f"{position}  {sentence(event)}", event.badge.style)
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
    """Return what, but for the reason, a person needs to judge tests that were not compared."""
    lines = [line for tests in judged.tests for line in tests_lines(tests)[1:]]
    if lines and judged.evidence_sha256 and isinstance(evidence, FileEvidenceStore):
        lines.append(visible(f"log: {evidence.path(judged.evidence_sha256)}"))
    return lines


def _minute(recorded_at: str) -> str:
    """Format a recorded time (UTC) to the minute."""
    return recorded_at[:16].replace("T", " ")


def _style_of(fix: FixSummary) -> str:
    is_delivered = fix.headline.startswith("fixed")
    return "green" if fix.outcome == "verified" and is_delivered else "yellow"


def _how(attempt: AttemptLine) -> str:
    tier = f"{attempt.tier}, " if attempt.tier else ""
    judged = "" if attempt.grounded is None else f", {grounded_words(attempt.grounded)}"
    flag = ", LOW CONFIDENCE" if attempt.low_confidence else ""
    text = f"{attempt.attempt}: {tier}{attempt.shape}, {attempt.outcome}{judged}{flag}"
    return visible(f"{text}; {basis}" if (basis := _stood_on(attempt)) else text)


def _stood_on(attempt: AttemptLine) -> str:
    """Return what the prompt had besides the advisory and the code; empty if no model was called."""
    if attempt.prompt_shape is PromptShape.NONE:
        return ""
    if attempt.in_place_of_examples is not None:
        first, _, more = attempt.in_place_of_examples.strip().partition("\n")
        return f"in place of examples, the last failure: {first}{' …' if more else ''}"
    return f"examples: {', '.join(attempt.examples)}" if attempt.examples else "no examples"
