"""Where to start reading for "everything since": found by bisection, not by reading the store.

The chain is in order of recording, its times nearly so: clocks are set back. An index over times
would cost each append; bisection costs some thousand headers, of a store of any size, and no payload.
"""

from datetime import UTC, datetime, timedelta
from typing import Protocol

from fallback_audit.errors import AuditStoreError
from fallback_audit.stores.appending import timestamp

#: How far clocks may have been set back: more than any time zone mistake, leap or correction does.
CLOCK_STEP = timedelta(days=1)

#: Consecutive events that must all be old before what stands ahead of them counts as old: one event
#: that was written with a wrong clock proves nothing.
PROBE_ROWS = 64


#: What a date can be.
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Dates(Protocol):
    """The times of a chain's events. An event whose header says none counts as of any time."""

    def newest(self) -> int:
        """The number of the last event; 0 where there is none."""
        ...

    def reached(self, seq: int, moment: str) -> bool:
        """Is one of the PROBE_ROWS events from ``seq`` on dated ``moment`` or later?"""
        ...

    def first(self, after: int, moment: str) -> int | None:
        """The first event behind number ``after`` that is dated ``moment`` or later."""
        ...


def last_before(dates: Dates, since: str) -> int:
    """The number of the last event that is certainly older than ``since``; 0 where none is.

    What comes after it begins with the first event dated ``since`` or later, and leaves out nothing
    behind that, whatever its date: it was recorded later. Older dates stand there only where a clock
    was set back. An event dated ``since`` or later is missed only where PROBE_ROWS consecutive events
    after it are all dated more than CLOCK_STEP before ``since``: then its own clock was ahead.
    Raises AuditStoreError where ``since`` is no time.
    """
    moment, old = _bounds(since)
    low, high = 0, dates.newest()
    newest = high
    while high - low > 2 * PROBE_ROWS:
        middle = (low + high) // 2
        if dates.reached(middle, old):
            high = middle
        else:
            low = middle
    first = dates.first(low, moment)
    return newest if first is None else first - 1


def moment_of(since: str) -> datetime:
    """A time as it is asked for; without a zone it is UTC's. Raises AuditStoreError."""
    try:
        moment = datetime.fromisoformat(since)
    except ValueError as error:
        raise AuditStoreError(
            f"{since!r} is no time: {error}.",
            next_step="Give an RFC 3339 time, e.g. 2026-01-02T00:00:00Z.",
            kind="not_a_time",
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # hours before the first year, or behind the last
        return _FIRST if moment.year == _FIRST.year else _LAST


def _bounds(since: str) -> tuple[str, str]:
    moment = moment_of(since)
    old = moment - CLOCK_STEP if moment - _FIRST > CLOCK_STEP else _FIRST
    return timestamp(moment), timestamp(old)
