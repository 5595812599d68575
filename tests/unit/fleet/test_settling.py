"""What becomes of a job whose worker is gone: a campaign retries it, the service tells who submitted it."""

import pytest

from fallback_audit.errors import DiskError
from fallback_tier.fleet.engine_interface import Becomes, EngineState, Phase, Settlement, settle
from fallback_tier.workers.problem import MAX_TAKES, Problem, took_too_long

BROKE = Problem(code="tool", problem="It broke.", next_step="Mend it.")
FULL = Problem(code=DiskError.code, problem="The disk is full.", next_step="Free some.")
KILLED = Problem(code="worker", problem="It was killed.", next_step="Resume it.")


def settled(
    phase: Phase,
    why: Problem | None = None,
    takes: int = 1,
    *,
    retries: bool = True,
    cancelling: bool = False,
    leaving: bool = False,
) -> Settlement:
    found = EngineState(phase=phase, problem=why)
    return settle(
        found, takes, cancelling=cancelling, leaving=leaving, retries=retries, resume="resume it"
    )


@pytest.mark.parametrize("retries", [True, False])
def test_what_holds_for_both(retries: bool) -> None:
    assert settled(Phase.UNKNOWN, retries=retries) == (Becomes.AGAIN, 1, None)
    assert settled(Phase.FAILED, BROKE, retries=retries) == (Becomes.FAILED, 1, BROKE)
    assert settled(Phase.CANCELLED, retries=retries).becomes is Becomes.CANCELLED
    assert settled(Phase.WAITING, retries=retries).becomes is Becomes.STAYS
    died = settled(Phase.UNKNOWN, takes=MAX_TAKES, retries=retries)
    assert died.problem is not None
    assert (died.becomes, died.problem.code) == (Becomes.FAILED, "worker")


@pytest.mark.parametrize("retries", [True, False])
def test_a_problem_is_told_though_it_is_to_be_cancelled(retries: bool) -> None:
    found = settled(Phase.FAILED, BROKE, cancelling=True, retries=retries)
    assert (found.becomes, found.problem) == (Becomes.FAILED, BROKE)
    for phase in (Phase.UNKNOWN, Phase.WAITING):
        assert settled(phase, cancelling=True, retries=retries).becomes is Becomes.CANCELLED
    killed = settled(Phase.UNKNOWN, KILLED, cancelling=True, retries=retries)
    assert killed.becomes is Becomes.CANCELLED


@pytest.mark.parametrize("retries", [True, False])
def test_a_scheduler_that_ends_in_good_order_kills_nothing(retries: bool) -> None:
    found = settled(Phase.UNKNOWN, KILLED, MAX_TAKES, leaving=True, retries=retries)
    assert found == (Becomes.AGAIN, MAX_TAKES - 1, None)


def test_what_passes_is_retried_where_nobody_waits_for_an_answer() -> None:
    assert settled(Phase.FAILED, FULL, MAX_TAKES) == (Becomes.AGAIN, MAX_TAKES - 1, FULL)
    assert settled(Phase.FAILED, FULL, retries=False) == (Becomes.FAILED, 1, FULL)


def test_who_submitted_a_fix_hears_that_its_worker_was_killed() -> None:
    assert settled(Phase.UNKNOWN, KILLED) == (Becomes.AGAIN, 1, None)
    assert settled(Phase.UNKNOWN, KILLED, retries=False) == (Becomes.FAILED, 1, KILLED)


def test_what_is_to_be_cancelled_is_neither_late_nor_retried() -> None:
    late = took_too_long(60.0, "resume it")
    for retries in (True, False):
        found = settled(Phase.FAILED, late, cancelling=True, retries=retries)
        assert found.becomes is Becomes.CANCELLED
    assert settled(Phase.FAILED, FULL, cancelling=True).becomes is Becomes.CANCELLED
