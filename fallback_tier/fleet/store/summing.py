"""Sums over a campaign of thousands of fixes: reasons of their ends, and stuck fixes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from statistics import median

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.campaign_list import FixState, FleetFix
from fallback_tier.fleet.store.store import FleetStore, fixes_of

#: Maximum number of reasons in an answer: more than the vocabulary and the error codes have.
MAX_REASONS = 100

#: Maximum number of stuck fixes of one kind in an answer; the list of fixes has the others.
MAX_STUCK = 50

#: Number of last ended fixes whose median is the usual time, and the fewest that suffice.
SAMPLE, LEAST = 1_000, 5

#: A fix runs long if it takes this many times the usual time, and at least so long (seconds): gates take
#: minutes.
LONG_TIMES, LONG_AT_LEAST_S = 3.0, 600.0

#: States of fixes that ended without interruption, so that their time counts.
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
    """A fix without progress. ``since``: when it began, or was escalated (RFC 3339)."""

    kind: StuckKind
    fix: FleetFix
    since: str | None


def reasons(reader: FleetStore, name: str) -> tuple[Reason, ...]:
    """Return the reasons of ended fixes, the most frequent first. Raises FleetStoreError."""
    with reader.tables.reading() as session:
        rows = session.rows(
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
        for row in rows
    )


def usual_seconds(reader: FleetStore, name: str) -> float | None:
    """Return the median time from first event to end of the last ended fixes, or None if they are too
    few.
    """
    placeholders = ",".join("?" * len(_WORKED))
    with reader.tables.reading() as session:
        rows = session.rows(
            f"SELECT started_at, ended_at FROM fixes WHERE campaign = ? AND state IN ({placeholders})"  # noqa: S608
            " AND started_at IS NOT NULL AND ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT ?",
            (name, *(state.value for state in _WORKED), SAMPLE),
        )
    durations_s = [_unix(row["ended_at"]) - _unix(row["started_at"]) for row in rows]
    return max(0.0, median(durations_s)) if len(durations_s) >= LEAST else None


def stuck(reader: FleetStore, name: str) -> tuple[Stuck, ...]:
    """Return MAX_STUCK fixes of each kind, those that have waited longest first. Raises FleetStoreError.

    The time of a fix that a person continued counts from its first start: the list has no other time.
    """
    now, usual_s = reader.clock(), usual_seconds(reader, name)
    with reader.tables.reading() as session:
        running = fixes_of(session, "campaign = ? AND state = 'running'", name)
        left_ids = {
            row["fix_id"]
            for row in session.rows(
                "SELECT fix_id FROM fixes WHERE campaign = ? AND state = 'running' AND lease < ?",
                (name, now),
            )
        }
        waiting = fixes_of(
            session,
            "campaign = ? AND state = 'queued' AND why IS NOT NULL ORDER BY number LIMIT ?",
            name,
            MAX_STUCK,
        )
        escalated = fixes_of(
            session,
            "campaign = ? AND state = 'escalated' ORDER BY ended_at, number LIMIT ?",
            name,
            MAX_STUCK,
        )
    oldest = sorted(running, key=lambda fix: (fix.started_at or "", fix.number))
    limit = now if usual_s is None else now - max(LONG_TIMES * usual_s, LONG_AT_LEAST_S)
    long = [
        fix
        for fix in oldest
        if fix.fix_id not in left_ids and usual_s is not None and _unix(fix.started_at, now) < limit
    ]
    return (
        *_of(StuckKind.LEFT, [fix for fix in oldest if fix.fix_id in left_ids]),
        *_of(StuckKind.LONG, long),
        *_of(StuckKind.AGAIN, waiting),
        *(Stuck(kind=StuckKind.ASKS, fix=fix, since=fix.ended_at) for fix in escalated),
        *(
            Stuck(kind=StuckKind.UNDELIVERED, fix=fix, since=fix.ended_at)
            for fix in reader.undelivered(name, MAX_STUCK)
        ),
    )


def _of(kind: StuckKind, fixes: Sequence[FleetFix]) -> list[Stuck]:
    return [Stuck(kind=kind, fix=fix, since=fix.started_at) for fix in fixes[:MAX_STUCK]]


def _unix(text: str | None, otherwise: float = 0.0) -> float:
    """Return an RFC 3339 time as Unix time; one without a zone is UTC."""
    if text is None:
        return otherwise
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
