"""The provider's limits per minute, as a token bucket that all workers of a fleet share through the store.

First come, first served, whatever a call's size: a waiting call has a number, and no call takes what calls
with a lower number may use. So many small calls don't starve a large one, and a large one does not delay
them if there is room for all.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from secrets import token_hex
from typing import NamedTuple

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import ModelFailureKind
from fallback_tier.errors import FallbackError, ModelError
from fallback_tier.fleet.store.tables import Session, Tables

#: The first wait after an overload, and the longest (seconds). The wait doubles with each overload in a
#: row.
FIRST_BACKOFF_S, MAX_BACKOFF_S = 10.0, 600.0


class ProviderLimits(Frozen):
    """The provider's limits per minute, all workers together; None: no limit. ``name``: campaigns that
    name the same provider share its limits.
    """

    name: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class Bucket(Frozen):
    """The remaining requests and tokens at a moment. Below zero: a call needed more than a minute allows.

    ``blocked_until``: the end of a provider's overload; ``strikes``: overloads in a row. Times are Unix
    times.
    """

    requests: float
    tokens: float
    at: float
    blocked_until: float = 0.0
    strikes: int = 0

    @classmethod
    def full(cls, limits: ProviderLimits, now: float) -> "Bucket":
        """Return a bucket of which nothing was used yet."""
        return cls(
            requests=float(limits.requests_per_minute or 0),
            tokens=float(limits.tokens_per_minute or 0),
            at=now,
        )


class Ahead(NamedTuple):
    """The most that earlier waiting calls may use."""

    requests: int = 0
    tokens: int = 0


#: No call waits.
NOBODY = Ahead()


class Granted(NamedTuple):
    """The bucket afterwards. ``wait_s``: 0 if the amount was taken; otherwise nothing was, and this is
    the shortest wait.
    """

    bucket: Bucket
    wait_s: float


def take(
    bucket: Bucket,
    limits: ProviderLimits,
    *,
    requests: int,
    tokens: int,
    now: float,
    ahead: Ahead = NOBODY,
) -> Granted:
    """Take what a call may use at most, and leave what those ``ahead`` may use. An amount of more than
    a minute's limit is granted from a full bucket, which becomes negative: waiting longer would not
    help.
    """
    filled = refill(bucket, limits, now)
    if filled.blocked_until > now:
        return Granted(filled, filled.blocked_until - now)
    waits_s = [
        _wait(filled.requests - ahead.requests, requests, limits.requests_per_minute),
        _wait(filled.tokens - ahead.tokens, tokens, limits.tokens_per_minute),
    ]
    if (wait_s := max(waits_s)) > 0:
        return Granted(filled, wait_s)
    remaining = {"requests": filled.requests - requests, "tokens": filled.tokens - tokens}
    return Granted(filled.model_copy(update=remaining), 0.0)


def _wait(available: float, amount: int, per_minute: int | None) -> float:
    if per_minute is None:
        return 0.0
    missing = min(amount, per_minute) - available
    return max(0.0, missing * 60.0 / per_minute)


def refill(bucket: Bucket, limits: ProviderLimits, now: float) -> Bucket:
    """Return the bucket with what was refilled since. A clock that was set back changes nothing."""
    elapsed_s = max(0.0, now - bucket.at)

    def grown(available: float, per_minute: int | None) -> float:
        return (
            0.0
            if per_minute is None
            else min(float(per_minute), available + elapsed_s * per_minute / 60.0)
        )

    return bucket.model_copy(
        update={
            "requests": grown(bucket.requests, limits.requests_per_minute),
            "tokens": grown(bucket.tokens, limits.tokens_per_minute),
            "at": max(now, bucket.at),
        }
    )


def settle(
    bucket: Bucket, limits: ProviderLimits, *, reserved: int, used: int, now: float
) -> Bucket:
    """Return the tokens that a call did not use, after it has ended. An answered call shows that the
    provider is not overloaded any more.
    """
    filled = refill(bucket, limits, now)
    limit = float(limits.tokens_per_minute or 0)
    tokens = min(limit, filled.tokens + reserved - used)
    strikes = 0 if used else bucket.strikes
    return filled.model_copy(update={"tokens": tokens, "strikes": strikes})


def overloaded(bucket: Bucket, now: float) -> Bucket:
    """Block all calls for a while, as the provider has no room (429, 529), and longer each time in a
    row. Several reports of the same overload count once.
    """
    if bucket.blocked_until > now:
        return bucket
    wait_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(bucket.strikes, 16))
    return bucket.model_copy(update={"blocked_until": now + wait_s, "strikes": bucket.strikes + 1})


#: The longest that a call waits for its turn (seconds): a longer wait is not caused by a temporary
#: overload.
MAX_WAIT_S = 3_600.0

#: Longest pause between two tries (seconds), as others may return what they did not use.
MAX_LOOK_S = 5.0

#: A waiting call that has not tried for so long is dead, and loses its place (seconds): some tries of a
#: busy machine. It blocks those after it for so long at most.
GONE_S = 30.0

#: Random bytes that identify a waiting call: no two of a fleet are ever alike.
_TOKEN_BYTES = 8

#: Random share of a wait, so that waiting calls don't all try at the same moment.
_SPREAD = 0.2


@dataclass(frozen=True)
class StoreLimiter:
    """Implements CallLimiter."""

    tables: Tables
    limits: ProviderLimits
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def take(self, tokens: int) -> None:
        """Wait for one request of at most this many tokens."""
        waited_s, place = 0.0, _Place()
        try:
            while wait_s := self._try(tokens, place):
                if waited_s >= MAX_WAIT_S:
                    raise ModelError(
                        f"The provider {self.limits.name!r} has had no room for this call for "
                        f"{waited_s / 60:.0f} minutes.",
                        next_step="Raise the campaign's limits of a minute, or run fewer fixes at once.",
                        failure=ModelFailureKind.WITHHELD,
                        kind="no_room",
                    )
                spread = 1 + random.random() * _SPREAD  # noqa: S311 (a pause)
                pause_s = min(wait_s, MAX_LOOK_S) * spread
                self.sleep(pause_s)
                waited_s += pause_s
        finally:
            if place.number is not None:
                with suppress(FallbackError), self.tables.writing() as session:
                    self._leave(session, place)

    def _try(self, tokens: int, place: "_Place") -> float:
        """Return 0 if the amount was taken; otherwise the time to wait, at its place."""
        with self.tables.writing() as session:
            bucket = refill(self._bucket(session), self.limits, self.clock())
            self._find(session, place, bucket.at)
            ahead = self._ahead(session, place, bucket.at)
            granted = take(
                bucket, self.limits, requests=1, tokens=tokens, now=bucket.at, ahead=ahead
            )
            self._keep(session, granted.bucket)
            if granted.wait_s:
                self._queue(session, place, tokens, bucket.at)
            else:
                self._leave(session, place)
        return granted.wait_s

    def _ahead(self, session: Session, place: "_Place", now: float) -> Ahead:
        """Return what earlier waiting calls may use. ``now``: the latest time of any worker's clock."""
        condition = "provider = ? AND seen >= ?" + (
            "" if place.number is None else " AND number < ?"
        )
        (row,) = session.rows(
            f"SELECT COUNT(*) AS calls, COALESCE(SUM(tokens), 0) AS tokens FROM turns WHERE {condition}",  # noqa: S608 (ours)
            (self.limits.name, now - GONE_S, *place.number_if_any),
        )
        return Ahead(int(row["calls"]), int(row["tokens"]))

    def _find(self, session: Session, place: "_Place", now: float) -> None:
        """Keep the place, unless it is lost: then another call may have its number."""
        key = (self.limits.name, place.number, place.token)
        if place.number is not None and not session.change(
            "UPDATE turns SET seen = ? WHERE provider = ? AND number = ? AND token = ?",
            (now, *key),
        ):
            place.number = None

    def _queue(self, session: Session, place: "_Place", tokens: int, now: float) -> None:
        """Take the last place, unless the call has one."""
        name = self.limits.name
        if place.number is not None:
            return
        (last,) = session.rows(
            "SELECT COALESCE(MAX(number), 0) AS number FROM turns WHERE provider = ?", (name,)
        )
        session.change("DELETE FROM turns WHERE provider = ? AND seen < ?", (name, now - GONE_S))
        place.number = int(last["number"]) + 1
        session.change(
            "INSERT INTO turns (provider, number, tokens, seen, token) VALUES (?,?,?,?,?)",
            (name, place.number, tokens, now, place.token),
        )

    def _leave(self, session: Session, place: "_Place") -> None:
        """Give up the place, after its turn or without it. If the store can't be written, it expires
        (``GONE_S``).
        """
        if place.number is not None:
            session.change(
                "DELETE FROM turns WHERE provider = ? AND number = ? AND token = ?",
                (self.limits.name, place.number, place.token),
            )
            place.number = None

    def settle(self, reserved: int, used: int) -> None:
        """Return unused tokens to the bucket."""
        with suppress(FallbackError):
            self._change(
                lambda bucket, now: settle(
                    bucket, self.limits, reserved=reserved, used=used, now=now
                )
            )

    def overloaded(self) -> None:
        """Block all calls for a while."""
        with suppress(FallbackError):
            self._change(overloaded)

    def _change(self, change: Callable[[Bucket, float], Bucket]) -> None:
        with self.tables.writing() as session:
            self._keep(session, change(self._bucket(session), self.clock()))

    def _bucket(self, session: Session) -> Bucket:
        rows = session.rows("SELECT bucket FROM buckets WHERE name = ?", (self.limits.name,))
        if rows:
            return Bucket.model_validate_json(rows[0]["bucket"])
        return Bucket.full(self.limits, self.clock())

    def _keep(self, session: Session, bucket: Bucket) -> None:
        name, content = self.limits.name, bucket.model_dump_json()
        if not session.change("UPDATE buckets SET bucket = ? WHERE name = ?", (content, name)):
            session.change("INSERT INTO buckets VALUES (?, ?)", (name, content))


@dataclass
class _Place:
    """A call's place among the waiting ones. ``number`` None: it has no place. ``token``: identifies
    the call, since numbers are reused.
    """

    number: int | None = None
    token: str = field(default_factory=lambda: token_hex(_TOKEN_BYTES))

    @property
    def number_if_any(self) -> tuple[int, ...]:
        return () if self.number is None else (self.number,)
