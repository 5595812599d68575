"""The simulation against what can be reckoned by hand."""

import pytest

from tests.campaigns.fleet_simulation.scale import TIERS, cost_a_fix, kinds
from tests.campaigns.fleet_simulation.simulation import Machine, Phase, simulate


def test_one_worker_takes_the_sum_of_all_phases() -> None:
    fix = (Phase(cpu=2.0, pause=1.0), Phase(pause=3.0, lines={"record": 0.5}))
    assert simulate([fix], 10, 1).seconds == pytest.approx(65.0)


def test_workers_that_share_nothing_divide_the_time() -> None:
    assert simulate([(Phase(pause=1.0),)], 100, 4).seconds == pytest.approx(25.0)


def test_a_line_that_is_always_busy_bounds_any_number_of_workers() -> None:
    came = simulate([(Phase(pause=1.0, lines={"record": 0.1}),)], 1_000, 500)
    assert came.seconds == pytest.approx(1_000 * 0.1 + 1.0)
    assert came.busy["record"] == pytest.approx(1.0, abs=0.02)


def test_a_free_line_makes_nobody_wait() -> None:
    """Four in step: the last of them waits for three others, once."""
    came = simulate([(Phase(pause=1.0, lines={"record": 0.01}),)], 4, 4)
    assert came.seconds == pytest.approx(1.04)


def test_more_workers_than_cores_are_slower() -> None:
    fix = (Phase(cpu=1.0),)
    assert simulate([fix], 8, 2, Machine(cores=2)).seconds == pytest.approx(4.0)
    assert simulate([fix], 8, 1, Machine(cores=2, others=3)).seconds == pytest.approx(16.0)


def test_fewer_fixes_than_workers() -> None:
    assert simulate([(Phase(pause=1.0),)], 2, 50).seconds == pytest.approx(1.0)


def test_the_same_seed_draws_the_same_fixes() -> None:
    mixed = [(Phase(pause=1.0),), (Phase(pause=5.0),)]
    assert simulate(mixed, 50, 3) == simulate(mixed, 50, 3)


def test_what_saturates_first_at_scale_is_as_reckoned() -> None:
    """Half a call a fix: tokens read are the provider's narrowest line, whatever the tier."""
    for tier in TIERS.values():
        came = simulate(kinds(tier, chains=1), 2_000, 500)
        assert max(came.busy, key=lambda line: came.busy[line]) == "tokens read"


def test_a_model_is_most_of_what_a_fix_costs() -> None:
    costs = cost_a_fix(kinds(TIERS["scale"], chains=1), worker_s=100.0)
    assert costs["model"] == pytest.approx(0.5 * 0.075)
    assert costs["model"] > costs["workers"] > 0
