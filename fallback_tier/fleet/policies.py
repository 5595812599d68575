"""Which fix comes when: pure functions of the list, the limits and the clock (ADR-0087)."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.model import NOT_DELIVERED, FleetFix, Risk

#: Points of a priority, 100 together. What is known to be exploited comes before any score.
KEV_POINTS, SEVERITY_POINTS, EPSS_POINTS = 40.0, 40.0, 20.0

#: Where nothing is known: a medium severity (CVSS "medium" is 4.0 to 6.9), and no sign of exploitation.
UNKNOWN_SEVERITY, UNKNOWN_EPSS = 5.0, 0.0

#: Points that a fix gives up for each more urgent one of its own repository. A repository's most urgent
#: fix so waits for at most 100 / 5 + 1 fixes of any other one, whatever those are.
SHARE_POINTS = 5.0

#: The first wait after an overload, and the longest (seconds). Doubled each time that it happens again.
FIRST_BACKOFF_S, MAX_BACKOFF_S = 10.0, 600.0


def priority(risk: Risk) -> float:
    """0 to 100."""
    severity = UNKNOWN_SEVERITY if risk.severity is None else risk.severity
    epss = UNKNOWN_EPSS if risk.epss is None else risk.epss
    return round(KEV_POINTS * risk.kev + SEVERITY_POINTS * severity / 10 + EPSS_POINTS * epss, 3)


class Candidate(NamedTuple):
    """A fix to be put in order: its repository, its advisory, and its priority."""

    repository: str
    advisory_id: str
    ecosystem: str
    priority: float


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The queue: by priority, less a repository's share. The same whatever order they come in."""
    ranked: list[tuple[float, Candidate]] = []
    earlier: dict[str, int] = {}
    for one in sorted(set(candidates), key=lambda it: (-it.priority, it[:3])):
        place = earlier.get(one.repository, 0)
        earlier[one.repository] = place + 1
        ranked.append((place * SHARE_POINTS - one.priority, one))
    return [one for _, one in sorted(ranked)]


class StartLimits(Frozen):
    """What may run at once, of this campaign. ``at_most``: how many may start now, by the engine's room;
    ``cap`` and ``fix_cap`` in millionths of a dollar. None: no limit."""

    fixes_at_once: int
    at_most: int | None = None
    cap: int | None = None
    fix_cap: int | None = None


def may_start(
    waiting: Sequence[FleetFix],
    running: Collection[FleetFix],
    used: int,
    limits: StartLimits,
    now: float,
) -> list[FleetFix]:
    """Those of ``waiting`` (in the queue's order) that may start now: as many at once as is allowed, one a
    repository, and for no more money than is left. ``used``: what all that don't run have used, those of
    ``waiting`` among them. While one runs that was started without a cap, nothing starts below one: what
    it may still use has no bound."""
    if limits.cap is not None and any(one.cap is None for one in running):
        return []
    busy = {one.repository for one in running}
    room = limits.fixes_at_once - len(running)
    if limits.at_most is not None:
        room = min(room, limits.at_most)
    counted = used + sum(one.counts for one in running)
    chosen: list[FleetFix] = []
    for one in waiting:
        if len(chosen) >= room:
            break
        if one.repository in busy or one.not_before > now:
            continue
        more = _may_still_use(one, limits)
        is_paid = one.why == NOT_DELIVERED  # also where more was used than the cap is
        if limits.cap is not None and not is_paid and counted + more > limits.cap:
            continue  # a later one may have less to use
        busy.add(one.repository)
        counted += more
        chosen.append(one)
    return chosen


def _may_still_use(one: FleetFix, limits: StartLimits) -> int:
    """Beyond what it has used in earlier runs, which counts already. What is proved asks no model."""
    if one.why == NOT_DELIVERED:
        return 0
    return max(0, (cap_of(one, limits) or 0) - (one.cost or 0))


def cap_of(one: FleetFix, limits: StartLimits) -> int | None:
    """What it may use at most: the campaign's cap for one, or what a person has raised it to."""
    return None if limits.fix_cap is None else max(one.cap or 0, limits.fix_cap)


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
