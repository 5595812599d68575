"""What a person asks of a campaign of thousands: why fixes ended so, and which are stuck."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from statistics import median

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.campaign_list import FixState, FleetFix
from fallback_tier.fleet.store.store import FleetStore, fixes_of

#: Reasons that are told; the vocabulary and the codes of errors are fewer.
MAX_REASONS = 100

#: Stuck fixes of one kind that are told; the list of fixes has the others.
MAX_STUCK = 50

#: Fixes that ended last: their median is what a fix usually takes. Fewer than the least say nothing yet.
SAMPLE, LEAST = 1_000, 5

#: This many times as long as usual is long, and never less than this (seconds): gates take minutes.
LONG_TIMES, LONG_AT_LEAST_S = 3.0, 600.0

#: Ended by themselves, so their time is a fix's time.
_WORKED = (FixState.FIXED, FixState.PARTLY, FixState.REFUSED, FixState.ESCALATED)


class Reason(Frozen):
    """How many fixes ended so. ``sentence``: one of theirs, in words."""

    state: FixState
    why: str
    sentence: str | None
    fixes: int


class StuckKind(StrEnum):
    """``left``: running by the list, and no runner has it; ``long``: running for far longer than others;
    ``again``: it waits for another start, for a reason; ``asks``: it waits for a person; ``undelivered``:
    it is proved, and its patch is not where it was asked for."""

    LEFT = "left"
    LONG = "long"
    AGAIN = "again"
    ASKS = "asks"
    UNDELIVERED = "undelivered"


class Stuck(Frozen):
    """A fix that doesn't get on. ``since``: when it began, or was escalated (RFC 3339)."""

    kind: StuckKind
    fix: FleetFix
    since: str | None


def reasons(reader: FleetStore, name: str) -> tuple[Reason, ...]:
    """Of fixes that ended, the most frequent first. Raises FleetStoreError."""
    with reader.tables.reading() as session:
        found = session.rows(
            "SELECT state, why, MIN(sentence) AS sentence, COUNT(*) AS how_many FROM fixes"
            " WHERE campaign = ? AND why IS NOT NULL AND state NOT IN ('queued', 'running')"
            " GROUP BY state, why ORDER BY how_many DESC, state, why LIMIT ?",
            (name, MAX_REASONS),
        )
    return tuple(
        Reason(
            state=FixState(row["state"]),
            why=row["why"],
            sentence=row["sentence"],
            fixes=row["how_many"],
        )
        for row in found
    )


def usual_seconds(reader: FleetStore, name: str) -> float | None:
    """What a fix takes, first event to end: the median of those that ended last. None: too few have."""
    marks = ",".join("?" * len(_WORKED))
    with reader.tables.reading() as session:
        found = session.rows(
            f"SELECT started_at, ended_at FROM fixes WHERE campaign = ? AND state IN ({marks})"  # noqa: S608
            " AND started_at IS NOT NULL AND ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT ?",
            (name, *(state.value for state in _WORKED), SAMPLE),
        )
    took = [_unix(row["ended_at"]) - _unix(row["started_at"]) for row in found]
    return max(0.0, median(took)) if len(took) >= LEAST else None


def stuck(reader: FleetStore, name: str) -> tuple[Stuck, ...]:
    """MAX_STUCK of each kind, who has waited longest first. Raises FleetStoreError.

    A fix that a person let go on counts from its first start: the list has no other time.
    """
    now, usual = reader.clock(), usual_seconds(reader, name)
    with reader.tables.reading() as session:
        running = fixes_of(session, "campaign = ? AND state = 'running'", name)
        left = {
            row["fix_id"]
            for row in session.rows(
                "SELECT fix_id FROM fixes WHERE campaign = ? AND state = 'running' AND lease < ?",
                (name, now),
            )
        }
        again = fixes_of(
            session,
            "campaign = ? AND state = 'queued' AND why IS NOT NULL ORDER BY number LIMIT ?",
            name,
            MAX_STUCK,
        )
        asks = fixes_of(
            session,
            "campaign = ? AND state = 'escalated' ORDER BY ended_at, number LIMIT ?",
            name,
            MAX_STUCK,
        )
    oldest = sorted(running, key=lambda it: (it.started_at or "", it.number))
    limit = now if usual is None else now - max(LONG_TIMES * usual, LONG_AT_LEAST_S)
    long = [
        it
        for it in oldest
        if it.fix_id not in left and usual is not None and _unix(it.started_at, now) < limit
    ]
    return (
        *_of(StuckKind.LEFT, [it for it in oldest if it.fix_id in left]),
        *_of(StuckKind.LONG, long),
        *_of(StuckKind.AGAIN, again),
        *(Stuck(kind=StuckKind.ASKS, fix=it, since=it.ended_at) for it in asks),
        *(
            Stuck(kind=StuckKind.UNDELIVERED, fix=it, since=it.ended_at)
            for it in reader.undelivered(name, MAX_STUCK)
        ),
    )


def _of(kind: StuckKind, found: Sequence[FleetFix]) -> list[Stuck]:
    return [Stuck(kind=kind, fix=it, since=it.started_at) for it in found[:MAX_STUCK]]


def _unix(text: str | None, otherwise: float = 0.0) -> float:
    """RFC 3339; what says no zone is UTC."""
    if text is None:
        return otherwise
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
