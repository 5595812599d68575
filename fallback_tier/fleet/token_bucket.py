"""What is left of a provider's limits of a minute, as a token bucket: pure functions of the limits and the
clock. ``fallback_tier.fleet.store_limiter`` keeps one for all workers."""

from typing import NamedTuple

from fallback_audit.frozen import Frozen

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
