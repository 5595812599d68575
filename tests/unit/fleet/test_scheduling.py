"""Scheduling: what holds of it for any list and any limits."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_tier.fleet.campaign_list import NOT_DELIVERED, FixState, FleetFix, Risk
from fallback_tier.fleet.scheduling import (
    SHARE_POINTS,
    Candidate,
    StartLimits,
    cap_of,
    in_order,
    may_start,
    priority,
)
from tests.unit.fleet.made import fix

RISKS = st.builds(
    Risk,
    severity=st.none() | st.floats(0, 10),
    epss=st.none() | st.floats(0, 1),
    kev=st.booleans(),
)
NAMES = st.sampled_from(["a", "b", "c", "d"])
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        repository=NAMES,
        advisory_id=st.integers(0, 60).map("GHSA-{}".format),
        ecosystem=st.just("npm"),
        priority=RISKS.map(priority),
    ),
    max_size=80,
)


@given(RISKS, RISKS)
def test_a_priority_grows_with_each_of_its_parts(one: Risk, other: Risk) -> None:
    assert 0 <= priority(one) <= 100
    worse = Risk(
        severity=max(one.severity or 0, other.severity or 0, 5.0),
        epss=max(one.epss or 0, other.epss or 0),
        kev=one.kev or other.kev,
    )
    assert priority(worse) >= max(priority(one), priority(other))


def test_what_is_exploited_comes_before_any_score() -> None:
    assert priority(Risk(severity=0, kev=True)) >= priority(Risk(severity=10))


@given(CANDIDATES)
def test_the_queue_loses_nothing_and_does_not_depend_on_the_order(found: list[Candidate]) -> None:
    queue = in_order(found)
    assert sorted(queue) == sorted(set(found))
    assert queue == in_order(reversed(found))
    for name in "abcd":
        own = [one.priority for one in queue if one.repository == name]
        assert own == sorted(own, reverse=True)


@given(CANDIDATES)
def test_no_repository_starves(found: list[Candidate]) -> None:
    """Whatever the others have, each one's first fix is behind a bounded number of any other's."""
    most = 100 / SHARE_POINTS + 1
    before: Counter[str] = Counter()
    seen: set[str] = set()
    for one in in_order(found):
        if one.repository not in seen:
            seen.add(one.repository)
            assert all(count <= most for name, count in before.items() if name != one.repository)
        before[one.repository] += 1


def test_many_urgent_ones_of_one_repository_do_not_hold_up_the_others() -> None:
    urgent = [Candidate("big", f"KEV-{n:03}", "npm", 100.0) for n in range(500)]
    queue = in_order([*urgent, Candidate("small", "LOW-1", "npm", 0.0)])
    assert queue.index(Candidate("small", "LOW-1", "npm", 0.0)) <= 21


FIXES = st.lists(
    st.tuples(
        NAMES,
        st.integers(0, 5),
        st.sampled_from([0.0, 50.0, 200.0]),
        st.booleans(),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=12,
)


@settings(max_examples=300)
@given(FIXES, st.integers(0, 6), st.none() | st.integers(0, 40), st.integers(0, 10))
def test_what_starts_fits(
    drawn: list[tuple[str, int, float, bool, bool]], at_once: int, cap: int | None, fix_cap: int
) -> None:
    now = 100.0
    made: list[FleetFix] = [
        fix(
            number,
            name,
            cost=cost,
            not_before=later,
            state=FixState.RUNNING if runs else FixState.QUEUED,
            cap=fix_cap if runs and capped else None,
        )
        for number, (name, cost, later, runs, capped) in enumerate(drawn)
    ]
    running = list({one.repository: one for one in made if one.state is FixState.RUNNING}.values())
    waiting = [one for one in made if one.state is FixState.QUEUED]
    used = sum(one.cost or 0 for one in waiting)
    limits = StartLimits(fixes_at_once=at_once, cap=cap, fix_cap=fix_cap)
    chosen = may_start(waiting, running, used, limits, now)
    assert len(chosen) <= max(0, at_once - len(running))
    busy = [one.repository for one in [*running, *chosen]]
    assert len(busy) == len(set(busy))
    assert all(one.not_before <= now for one in chosen)
    if cap is not None and chosen:
        assert all(one.cap is not None for one in running)  # no bound is known of such a one
        rest = used - sum(one.cost or 0 for one in chosen)
        most = sum(max(one.cost or 0, fix_cap) for one in [*running, *chosen])
        assert rest + most <= cap
    # Nothing that could start is left: the first of a free repository, while there is room and money.
    if len(running) + len(chosen) < at_once and cap is None:
        left = {one.repository for one in waiting if one.not_before <= now} - set(busy)
        assert not left


def test_a_cap_that_a_person_raised_counts() -> None:
    limits = StartLimits(fixes_at_once=1, cap=20, fix_cap=5)
    assert cap_of(fix(0, cap=9), limits) == 9
    assert cap_of(fix(0, cap=3), limits) == 5
    assert may_start([fix(0, cap=9)], [], 12, limits, 0.0) == []
    assert may_start([fix(0)], [], 12, limits, 0.0) == [fix(0)]


def test_a_delivery_needs_no_money() -> None:
    limits = StartLimits(fixes_at_once=2, cap=20, fix_cap=5)
    proved = fix(0, "a", cost=3, why=NOT_DELIVERED)
    for used in (20, 21):  # a call may cost more than was thought, or the cap is a lower one now
        assert may_start([fix(1, "b"), proved], [], used, limits, 0.0) == [proved]
