"""Policies: what holds of them for any list, any limits, any clock."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_tier.fleet.model import NOT_DELIVERED, FixState, FleetFix, Risk
from fallback_tier.fleet.policies import (
    MAX_BACKOFF_S,
    SHARE_POINTS,
    Bucket,
    Candidate,
    ProviderLimits,
    StartLimits,
    cap_of,
    in_order,
    may_start,
    overloaded,
    priority,
    settle,
    take,
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


LIMITS = st.builds(
    ProviderLimits,
    name=st.just("p"),
    requests_per_minute=st.none() | st.integers(1, 100),
    tokens_per_minute=st.none() | st.integers(1, 10_000),
)
CALLS = st.lists(
    st.tuples(st.integers(1, 5_000), st.floats(0, 1), st.floats(0, 30)), min_size=1, max_size=40
)


@settings(max_examples=300)
@given(LIMITS, CALLS)
def test_no_minute_is_passed(limits: ProviderLimits, calls: list[tuple[int, float, float]]) -> None:
    """What is granted in any time, less what came back, is at most a full bucket and what the time gives;
    one call that is larger than a minute's limit may be owed."""
    now, bucket, requests, tokens = 0.0, Bucket.full(limits, 0.0), 0, 0.0
    for wanted, share, passed in calls:
        now += passed
        granted = take(bucket, limits, requests=1, tokens=wanted, now=now)
        if granted.wait_s:
            now += granted.wait_s + 1e-6
            granted = take(granted.bucket, limits, requests=1, tokens=wanted, now=now)
        assert granted.wait_s == 0.0
        used = int(wanted * share)
        bucket = settle(granted.bucket, limits, reserved=wanted, used=used, now=now)
        requests, tokens = requests + 1, tokens + used
        if limits.requests_per_minute is not None:
            assert requests <= limits.requests_per_minute * (1 + now / 60) + 1e-3
        if limits.tokens_per_minute is not None:
            largest = max(0, wanted - limits.tokens_per_minute)
            most = limits.tokens_per_minute * (1 + now / 60) + largest + 1e-3
            assert tokens <= most


def test_what_was_reserved_comes_back() -> None:
    limits = ProviderLimits(name="p", tokens_per_minute=600)
    taken = take(Bucket.full(limits, 0), limits, requests=1, tokens=500, now=0).bucket
    assert taken.tokens == 100
    assert take(taken, limits, requests=1, tokens=200, now=0).wait_s == 10.0
    back = settle(taken, limits, reserved=500, used=300, now=0)
    assert back.tokens == 300
    assert take(back, limits, requests=1, tokens=200, now=0).wait_s == 0.0


def test_a_clock_that_was_set_back_gives_nothing() -> None:
    limits = ProviderLimits(name="p", requests_per_minute=60)
    taken = take(Bucket.full(limits, 1_000), limits, requests=60, tokens=0, now=1_000).bucket
    assert take(taken, limits, requests=1, tokens=0, now=10).wait_s > 0
    assert take(taken, limits, requests=1, tokens=0, now=1_001).wait_s == 0


@given(st.integers(1, 40))
def test_an_overload_holds_all_back_longer_each_time(times: int) -> None:
    limits, now = ProviderLimits(name="p", requests_per_minute=60), 0.0
    bucket, last = Bucket.full(limits, now), 0.0
    for _ in range(times):
        bucket = overloaded(bucket, now)
        assert overloaded(bucket, now + 0.1) == bucket  # two hear of the same one
        wait = take(bucket, limits, requests=1, tokens=0, now=now).wait_s
        assert last <= wait <= MAX_BACKOFF_S
        assert wait > 0
        last, now = wait, bucket.blocked_until
    refused = settle(bucket, limits, reserved=100, used=0, now=now)
    assert refused.strikes == times
    answered = settle(bucket, limits, reserved=100, used=1, now=now)
    assert answered.strikes == 0


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
