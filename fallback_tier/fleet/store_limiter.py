"""The provider's limits per minute, as a token bucket that all workers of a fleet share through the store.

First come, first served, whatever a call's size: a waiting call has a number, and no call takes what those
with a lower number may use. So many small calls don't starve a large one, and it does not hold them up if
there is room for all.
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

#: The first wait after an overload, and the longest (seconds). Doubled each time that it happens again.
FIRST_BACKOFF_S, MAX_BACKOFF_S = 10.0, 600.0


class ProviderLimits(Frozen):
    """What the provider allows in a minute, all workers together; None: no limit. ``name``: campaigns that
    name the same provider share what it allows."""

    name: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class Bucket(Frozen):
    """What of the limits is left at a moment. Below zero: more was needed at once than a minute allows.

    ``blocked_until``: the provider was overloaded; ``strikes``: how often in a row. Times are Unix times.
    """

    requests: float
    tokens: float
    at: float
    blocked_until: float = 0.0
    strikes: int = 0

    @classmethod
    def full(cls, limits: ProviderLimits, now: float) -> "Bucket":
        """Nothing was used yet."""
        return cls(
            requests=float(limits.requests_per_minute or 0),
            tokens=float(limits.tokens_per_minute or 0),
            at=now,
        )


class Ahead(NamedTuple):
    """What calls may use at most that wait, and came before."""

    requests: int = 0
    tokens: int = 0


#: Nobody waits.
NOBODY = Ahead()


class Granted(NamedTuple):
    """The bucket afterwards. ``wait_s``: 0 where it was taken; else nothing was, and this is the soonest
    that it may be."""

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
    """Take what calls may use at most, and leave what those ``ahead`` may use. What is more than a minute
    allows is granted from a full bucket, and owed: waiting longer would not make it smaller."""
    filled = refill(bucket, limits, now)
    if filled.blocked_until > now:
        return Granted(filled, filled.blocked_until - now)
    waits = [
        _wait(filled.requests - ahead.requests, requests, limits.requests_per_minute),
        _wait(filled.tokens - ahead.tokens, tokens, limits.tokens_per_minute),
    ]
    if (wait := max(waits)) > 0:
        return Granted(filled, wait)
    taken = {"requests": filled.requests - requests, "tokens": filled.tokens - tokens}
    return Granted(filled.model_copy(update=taken), 0.0)


def _wait(left: float, wanted: int, a_minute: int | None) -> float:
    if a_minute is None:
        return 0.0
    missing = min(wanted, a_minute) - left
    return max(0.0, missing * 60.0 / a_minute)


def refill(bucket: Bucket, limits: ProviderLimits, now: float) -> Bucket:
    """What has come back since. A clock that was set back gives nothing, and takes nothing."""
    passed = max(0.0, now - bucket.at)

    def grown(left: float, a_minute: int | None) -> float:
        return 0.0 if a_minute is None else min(float(a_minute), left + passed * a_minute / 60.0)

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
    """A call has ended: what it did not use of its tokens comes back. One that was answered shows that the
    provider is not overloaded any more."""
    filled = refill(bucket, limits, now)
    most = float(limits.tokens_per_minute or 0)
    tokens = min(most, filled.tokens + reserved - used)
    strikes = 0 if used else bucket.strikes
    return filled.model_copy(update={"tokens": tokens, "strikes": strikes})


def overloaded(bucket: Bucket, now: float) -> Bucket:
    """The provider has no room (429, 529): nobody asks for a while, and longer each time in a row. Those
    who hear of it at the same time count once."""
    if bucket.blocked_until > now:
        return bucket
    wait = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(bucket.strikes, 16))
    return bucket.model_copy(update={"blocked_until": now + wait, "strikes": bucket.strikes + 1})


#: The longest that a call waits for its turn (seconds): what holds it back then is no passing overload.
MAX_WAIT_S = 3_600.0

#: Between two looks, whatever the bucket says: others give back what they did not use (seconds).
MAX_LOOK_S = 5.0

#: Who waits and has not looked for so long is dead, and loses its place (seconds): some looks of a machine
#: that is busy. For so long at most it holds up those behind it.
GONE_S = 30.0

#: Tells calls apart that wait at the same time: no two of a fleet's are ever alike.
_TOKEN_BYTES = 8

#: So that those who wait don't all come at the same moment (a share of the wait).
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
        """One request of at most this many tokens."""
        waited, place = 0.0, _Place()
        try:
            while wait := self._try(tokens, place):
                if waited >= MAX_WAIT_S:
                    raise ModelError(
                        f"The provider {self.limits.name!r} has had no room for this call for "
                        f"{waited / 60:.0f} minutes.",
                        next_step="Raise the campaign's limits of a minute, or run fewer fixes at once.",
                        failure=ModelFailureKind.WITHHELD,
                        kind="no_room",
                    )
                spread = 1 + random.random() * _SPREAD  # noqa: S311 (a pause)
                pause = min(wait, MAX_LOOK_S) * spread
                self.sleep(pause)
                waited += pause
        finally:
            if place.number is not None:
                with suppress(FallbackError), self.tables.writing() as session:
                    self._leave(session, place)

    def _try(self, tokens: int, place: "_Place") -> float:
        """0: it was taken; else how long it is to wait, at its place."""
        with self.tables.writing() as session:
            bucket = refill(self._bucket(session), self.limits, self.clock())
            self._find(session, place, bucket.at)
            ahead = self._ahead(session, place, bucket.at)
            taken = take(bucket, self.limits, requests=1, tokens=tokens, now=bucket.at, ahead=ahead)
            self._keep(session, taken.bucket)
            if taken.wait_s:
                self._queue(session, place, tokens, bucket.at)
            else:
                self._leave(session, place)
        return taken.wait_s

    def _ahead(self, session: Session, place: "_Place", now: float) -> Ahead:
        """Those who wait, and came before. ``now``: the latest that any worker's clock has said."""
        before = "provider = ? AND seen >= ?" + ("" if place.number is None else " AND number < ?")
        (row,) = session.rows(
            f"SELECT COUNT(*) AS calls, COALESCE(SUM(tokens), 0) AS tokens FROM turns WHERE {before}",  # noqa: S608 (ours)
            (self.limits.name, now - GONE_S, *place.number_if_any),
        )
        return Ahead(int(row["calls"]), int(row["tokens"]))

    def _find(self, session: Session, place: "_Place", now: float) -> None:
        """Keep the place, unless it is lost: then its number may be another call's by now."""
        mine = (self.limits.name, place.number, place.token)
        if place.number is not None and not session.change(
            "UPDATE turns SET seen = ? WHERE provider = ? AND number = ? AND token = ?",
            (now, *mine),
        ):
            place.number = None

    def _queue(self, session: Session, place: "_Place", tokens: int, now: float) -> None:
        """Take the last place, where it has none."""
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
        """It has its turn, or gives it up: where that can't be told, others see it gone in a while."""
        if place.number is not None:
            session.change(
                "DELETE FROM turns WHERE provider = ? AND number = ? AND token = ?",
                (self.limits.name, place.number, place.token),
            )
            place.number = None

    def settle(self, reserved: int, used: int) -> None:
        """What was not used comes back."""
        with suppress(FallbackError):
            self._change(
                lambda bucket, now: settle(
                    bucket, self.limits, reserved=reserved, used=used, now=now
                )
            )

    def overloaded(self) -> None:
        """All wait."""
        with suppress(FallbackError):
            self._change(overloaded)

    def _change(self, change: Callable[[Bucket, float], Bucket]) -> None:
        with self.tables.writing() as session:
            self._keep(session, change(self._bucket(session), self.clock()))

    def _bucket(self, session: Session) -> Bucket:
        found = session.rows("SELECT bucket FROM buckets WHERE name = ?", (self.limits.name,))
        if found:
            return Bucket.model_validate_json(found[0]["bucket"])
        return Bucket.full(self.limits, self.clock())

    def _keep(self, session: Session, bucket: Bucket) -> None:
        name, kept = self.limits.name, bucket.model_dump_json()
        if not session.change("UPDATE buckets SET bucket = ? WHERE name = ?", (kept, name)):
            session.change("INSERT INTO buckets VALUES (?, ?)", (name, kept))


@dataclass
class _Place:
    """Of a call among those that wait; ``number`` None: it has none. ``token``: whose it is; numbers come
    again."""

    number: int | None = None
    token: str = field(default_factory=lambda: token_hex(_TOKEN_BYTES))

    @property
    def number_if_any(self) -> tuple[int, ...]:
        return () if self.number is None else (self.number,)
