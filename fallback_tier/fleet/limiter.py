"""The provider's limits, shared by all workers of a fleet through the store."""

import random
import time
from collections.abc import Callable
from contextlib import suppress

from fallback_audit.vocabulary import ModelFailureKind
from fallback_tier.errors import FallbackError, ModelError
from fallback_tier.fleet.policies import (
    Bucket,
    ProviderLimits,
    overloaded,
    settle,
    take,
)
from fallback_tier.fleet.store.tables import Tables

#: The longest that a call waits for its turn (seconds): what holds it back then is no passing overload.
MAX_WAIT_S = 3_600.0

#: Between two looks, whatever the bucket says: others give back what they did not use (seconds).
MAX_LOOK_S = 5.0

#: So that those who wait don't all come at the same moment (a share of the wait).
_SPREAD = 0.2


class StoreLimiter:
    """Implements CallLimiter."""

    def __init__(
        self,
        tables: Tables,
        limits: ProviderLimits,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tables = tables
        self._limits = limits
        self._clock = clock
        self._sleep = sleep

    def take(self, tokens: int) -> None:
        """One request of at most this many tokens."""
        waited = 0.0
        while True:
            wait = self._try(tokens)
            if not wait:
                return
            if waited >= MAX_WAIT_S:
                raise ModelError(
                    f"The provider {self._limits.name!r} has had no room for this call for "
                    f"{waited / 60:.0f} minutes.",
                    next_step="Raise the campaign's limits of a minute, or run fewer fixes at once.",
                    failure=ModelFailureKind.WITHHELD,
                )
            pause = min(wait, MAX_LOOK_S) * (1 + random.random() * _SPREAD)  # noqa: S311 (a pause)
            self._sleep(pause)
            waited += pause

    def _try(self, tokens: int) -> float:
        granted = 0.0

        def change(bucket: Bucket, now: float) -> Bucket:
            nonlocal granted
            taken = take(bucket, self._limits, requests=1, tokens=tokens, now=now)
            granted = taken.wait_s
            return taken.bucket

        self._change(change)
        return granted

    def settle(self, reserved: int, used: int) -> None:
        """What was not used comes back."""
        with suppress(FallbackError):
            self._change(
                lambda bucket, now: settle(
                    bucket, self._limits, reserved=reserved, used=used, now=now
                )
            )

    def overloaded(self) -> None:
        """All wait."""
        with suppress(FallbackError):
            self._change(overloaded)

    def _change(self, change: Callable[[Bucket, float], Bucket]) -> None:
        name, now = self._limits.name, self._clock()
        with self._tables.writing() as session:
            found = session.rows("SELECT bucket FROM buckets WHERE name = ?", (name,))
            bucket = (
                Bucket.model_validate_json(found[0]["bucket"])
                if found
                else Bucket.full(self._limits, now)
            )
            changed = change(bucket, now).model_dump_json()
            if found:
                session.change("UPDATE buckets SET bucket = ? WHERE name = ?", (changed, name))
            else:
                session.change("INSERT INTO buckets VALUES (?, ?)", (name, changed))
