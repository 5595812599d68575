"""Why the memory answered as it did: the evidence that ``RetrievalQueried`` names, in words.

Its whole model is the memory's own (``fallback_tier.retrieval``); the floor reads the part that it
prints and compares, and lets the rest be.
"""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from fallback_audit.errors import EvidenceError
from fallback_audit.events import Digest, RetrievalQueried
from fallback_audit.ports import EvidenceStore
from fallback_audit.showing.describe import visible

#: Dropped examples that a reader is shown; the evidence has all of them.
MAX_DROPPED_SHOWN = 10


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


#: None: no number (JSON has none for what is infinite).
Score = float | None


class FloorRead(_Read):
    """A safety bound, and the score that it is on."""

    name: str
    score: str
    value: Score


class DroppedRead(_Read):
    """An example that was looked at and not returned."""

    example_id: str
    reason: str
    scores: Mapping[str, Score] = {}


class AccountRead(_Read):
    """The part of an account that readers of a trail use."""

    mode: str
    manifest_sha256: Digest | None = None
    floors: tuple[FloorRead, ...] = ()
    rewrites: int = 0
    returned: tuple[str, ...] = ()
    content_sha256: Mapping[str, Digest] = {}
    scores: Mapping[str, Mapping[str, Score]] = {}
    dropped: tuple[DroppedRead, ...] = ()
    notes: tuple[str, ...] = ()


def read_account(event: RetrievalQueried, evidence: EvidenceStore) -> AccountRead | None:
    """The account of a retrieval; None where the event names none (before schema version 3, or a
    retriever that gives none). Raises EvidenceError: missing, altered, not an account, of another answer.
    """
    if event.account_sha256 is None:
        return None
    content = evidence.get(event.account_sha256)
    try:
        account = AccountRead.model_validate_json(content)
    except ValidationError as error:
        raise _unfit(event.account_sha256, "is no account of a retrieval") from error
    if account.returned != event.example_ids:
        raise _unfit(event.account_sha256, "is of another answer: it returned other examples")
    return account


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
    said = ", ".join(f"{name} {_number(value)}" for name, value in scores.items())
    return f": {said}" if said else ""


def _number(score: Score) -> str:
    return "no number" if score is None else f"{score:.3f}"


def _unfit(digest: Digest, problem: str) -> EvidenceError:
    return EvidenceError(
        f"Evidence {digest} {problem}.",
        next_step="Run `fallback-tier audit verify` and find out who wrote it.",
    )
