"""Scheduling of fixes: pure functions of the list, the limits and the clock (ADR-0087)."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.campaign_list import NOT_DELIVERED, FleetFix, Risk

#: Points of a priority, 100 in total. A known exploited vulnerability precedes any score.
KEV_POINTS, SEVERITY_POINTS, EPSS_POINTS = 40.0, 40.0, 20.0

#: Defaults for missing data: a medium severity (CVSS "medium" is 4.0 to 6.9), and no sign of exploitation.
UNKNOWN_SEVERITY, UNKNOWN_EPSS = 5.0, 0.0

#: Points subtracted from a fix for each more urgent one of its repository. So a repository's most urgent
#: fix waits for at most 100 / 5 + 1 fixes of any other repository, whatever their priorities.
SHARE_POINTS = 5.0


def priority(risk: Risk) -> float:
    """Return the priority, 0 to 100."""
    severity = UNKNOWN_SEVERITY if risk.severity is None else risk.severity
    epss = UNKNOWN_EPSS if risk.epss is None else risk.epss
    return round(KEV_POINTS * risk.kev + SEVERITY_POINTS * severity / 10 + EPSS_POINTS * epss, 3)


class Candidate(NamedTuple):
    """A fix to be ordered: its repository, its advisory, and its priority."""

    repository: str
    advisory_id: str
    ecosystem: str
    priority: float


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the queue: by priority, less each repository's share. The input's order does not matter."""
    ranked: list[tuple[float, Candidate]] = []
    earlier: dict[str, int] = {}
    for candidate in sorted(set(candidates), key=lambda it: (-it.priority, it[:3])):
        count = earlier.get(candidate.repository, 0)
        earlier[candidate.repository] = count + 1
        ranked.append((count * SHARE_POINTS - candidate.priority, candidate))
    return [candidate for _, candidate in sorted(ranked)]


class StartLimits(Frozen):
    """Limits for a campaign's running fixes. ``at_most``: how many may start now, by the engine's room;
    ``cap`` and ``fix_cap`` in millionths of a dollar. None: no limit.
    """

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
    """Return those of ``waiting`` (in the queue's order) that may start now: within the limit of fixes at
    once, one per repository, and within the remaining budget.

    ``used``: what all fixes that don't run have used, including those of ``waiting``. While a fix runs that
    was started without a cap, no fix starts if there is a cap: what the running one may still use is not
    bounded.
    """
    if limits.cap is not None and any(fix.cap is None for fix in running):
        return []
    busy = {fix.repository for fix in running}
    room = limits.fixes_at_once - len(running)
    if limits.at_most is not None:
        room = min(room, limits.at_most)
    committed = used + sum(fix.counts for fix in running)
    chosen: list[FleetFix] = []
    for fix in waiting:
        if len(chosen) >= room:
            break
        if fix.repository in busy or fix.not_before > now:
            continue
        needed = _may_still_use(fix, limits)
        is_paid = fix.why == NOT_DELIVERED  # even if more than the cap was used
        if limits.cap is not None and not is_paid and committed + needed > limits.cap:
            continue  # a later fix may need less
        busy.add(fix.repository)
        committed += needed
        chosen.append(fix)
    return chosen


def _may_still_use(fix: FleetFix, limits: StartLimits) -> int:
    """Return what a fix may use beyond its earlier runs, which count already. A proved fix asks no
    model.
    """
    if fix.why == NOT_DELIVERED:
        return 0
    return max(0, (cap_of(fix, limits) or 0) - (fix.cost or 0))


def cap_of(fix: FleetFix, limits: StartLimits) -> int | None:
    """Return a fix's cap: the campaign's cap per fix, or what a person has raised it to."""
    return None if limits.fix_cap is None else max(fix.cap or 0, limits.fix_cap)
