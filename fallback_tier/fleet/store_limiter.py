"""The provider's limits, shared by all workers of a fleet through the store.

First come, first served, whatever a call's size: who waits has a number, and nobody takes what those with
a lower one may use. So many small calls don't starve a large one, and it does not hold them up where there
is room for all.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from secrets import token_hex

from fallback_audit.vocabulary import ModelFailureKind
from fallback_tier.errors import FallbackError, ModelError
from fallback_tier.fleet.store.tables import Session, Tables
from fallback_tier.fleet.token_bucket import (
    Ahead,
    Bucket,
    ProviderLimits,
    overloaded,
    refill,
    settle,
    take,
)

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
        """As a statement's values."""
        return () if self.number is None else (self.number,)
