"""The token bucket: what holds of it for any limits, any calls, any clock."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_tier.fleet.store_limiter import (
    MAX_BACKOFF_S,
    Bucket,
    ProviderLimits,
    overloaded,
    settle,
    take,
)

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
