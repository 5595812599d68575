"""Where to start reading for "everything since": found by bisection, not by reading the store.

The chain is in order of recording, its times nearly so: clocks are set back. An index over times
would cost each append; bisection costs some thousand headers, of a store of any size, and no payload.
"""

import sqlite3
from datetime import UTC, datetime, timedelta

from fallback_audit.errors import AuditStoreError

#: How far clocks may have been set back: more than any time zone mistake, leap or correction does.
CLOCK_STEP = timedelta(days=1)

#: Consecutive events that must all be old before what stands ahead of them counts as old: one event
#: that was written with a wrong clock proves nothing.
PROBE_ROWS = 64


def timestamp(moment: datetime) -> str:
    """RFC 3339, UTC, microseconds, always of the same length: sorts as text."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def last_before(connection: sqlite3.Connection, since: str) -> int:
    """The number of the last event that is certainly older than ``since``; 0 where none is.

    What comes after it begins with the first event dated ``since`` or later, and leaves out nothing
    behind that, whatever its date: it was recorded later. Older dates stand there only where a clock
    was set back. An event dated ``since`` or later is missed only where PROBE_ROWS consecutive events
    after it are all dated more than CLOCK_STEP before ``since``: then its own clock was ahead.
    Raises AuditStoreError where ``since`` is no time.
    """
    moment, old = _bounds(since)
    newest = connection.execute("SELECT coalesce(max(seq), 0) FROM audit_header").fetchone()[0]
    low, high = 0, newest
    while high - low > 2 * PROBE_ROWS:
        middle = (low + high) // 2
        if _all_before(connection, middle, old):
            low = middle
        else:
            high = middle
    (first,) = connection.execute(
        "SELECT min(seq) FROM (SELECT seq FROM audit_header WHERE seq > ?"
        " AND coalesce(recorded_at >= ?, TRUE) ORDER BY seq LIMIT 1)",
        (low, moment),
    ).fetchone()
    return int(newest if first is None else first - 1)


def _bounds(since: str) -> tuple[str, str]:
    try:
        moment = datetime.fromisoformat(since)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return timestamp(moment), timestamp(moment - CLOCK_STEP)
    except (ValueError, OverflowError) as error:
        raise AuditStoreError(
            f"{since!r} is no time: {error}.",
            next_step="Give an RFC 3339 time, e.g. 2026-01-02T00:00:00Z.",
        ) from error


def _all_before(connection: sqlite3.Connection, seq: int, old: str) -> bool:
    """Are the PROBE_ROWS events from ``seq`` on older than ``old``? A header that says no time isn't."""
    (newer,) = connection.execute(
        "SELECT count(*) FROM (SELECT recorded_at FROM audit_header WHERE seq >= ?"
        " ORDER BY seq LIMIT ?) WHERE coalesce(recorded_at >= ?, TRUE)",
        (seq, PROBE_ROWS, old),
    ).fetchone()
    return not newer
