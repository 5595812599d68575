"""Why the memory answered as it did, in words."""

from collections.abc import Iterator, Mapping

from fallback_audit.errors import EvidenceError
from fallback_audit.events import RetrievalQueried
from fallback_audit.evidence.account import AccountRead, Score, read_account
from fallback_audit.ports import EvidenceStore
from fallback_audit.showing.describe import visible

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
