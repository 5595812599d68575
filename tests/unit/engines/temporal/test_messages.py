"""The limits of a fix's activities, against those of what they wait for."""

import pytest

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from fallback_tier.budget.limiter import MAX_OVERLOADS
from fallback_tier.engines.temporal.messages import Limits
from fallback_tier.fleet.store_limiter import MAX_BACKOFF_S, MAX_LOOK_S, MAX_WAIT_S


def test_a_fix_has_time_for_the_limiters_own_word() -> None:
    """One call's, and an hour of work: a campaign whose calls wait longer says so by ``limits.fix_s``."""
    turn_s, overloads_s = MAX_WAIT_S + 2 * MAX_LOOK_S, MAX_OVERLOADS * MAX_BACKOFF_S
    assert Limits().fix_s > turn_s + overloads_s + 3_600
