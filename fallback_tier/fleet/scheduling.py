"""Which fix comes when: pure functions of the list, the limits and the clock (ADR-0087)."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.campaign_list import NOT_DELIVERED, FleetFix, Risk

#: Points of a priority, 100 together. What is known to be exploited comes before any score.
KEV_POINTS, SEVERITY_POINTS, EPSS_POINTS = 40.0, 40.0, 20.0

#: Where nothing is known: a medium severity (CVSS "medium" is 4.0 to 6.9), and no sign of exploitation.
UNKNOWN_SEVERITY, UNKNOWN_EPSS = 5.0, 0.0

#: Points that a fix gives up for each more urgent one of its own repository. A repository's most urgent
#: fix so waits for at most 100 / 5 + 1 fixes of any other one, whatever those are.
SHARE_POINTS = 5.0


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
