"""Checks have a limit on their time, say what went wrong, and are not run more often than they must."""

import threading

from fallback_tier.errors import SandboxError
from fallback_tier.observing.health.running import (
    Check,
    Checks,
    CheckState,
    Finding,
    Health,
    degraded,
    failed,
    ok,
)
from tests.waiting import becomes


def only(health: Health) -> tuple[CheckState, str, str]:
    (one,) = health.checks
    return one.state, one.reason, one.next_step


def test_ready_is_that_none_has_failed() -> None:
    checks = (
        Check("a", lambda: ok("well")),
        Check("b", lambda: degraded("less", "do")),
    )
    health = Checks(checks).run()
    assert health.ready
    assert [(one.check, one.state) for one in health.checks] == [("a", "ok"), ("b", "degraded")]
    health = Checks((*checks, Check("c", lambda: failed("bad", "act")))).run()
    assert not health.ready
    assert health.checks[2].next_step == "act"


def test_an_error_of_ours_is_told_as_it_is() -> None:
    def look() -> Finding:
        raise SandboxError("No sandbox.", next_step="Install it.")

    health = Checks((Check("sandbox", look),)).run()
    assert only(health) == (CheckState.FAILED, "No sandbox.", "Install it.")


def test_a_check_that_breaks_is_a_finding() -> None:
    def defect() -> Finding:
        raise RuntimeError("a secret is not here\nsecond line")

    def system() -> Finding:
        raise PermissionError(13, "Permission denied", "/state")

    state, reason, _ = only(Checks((Check("a", defect),)).run())
    assert (state, reason) == (
        CheckState.FAILED,
        "A defect of the check itself: RuntimeError: a secret is not here.",
    )
    state, reason, _ = only(Checks((Check("a", system),)).run())
    assert (state, reason) == (CheckState.FAILED, "/state: Permission denied.")


def test_a_check_that_hangs_has_failed_and_is_not_begun_again() -> None:
    begun: list[int] = []
    let_go = threading.Event()

    def hangs() -> Finding:
        begun.append(1)
        let_go.wait(300)
        return ok("late, but well")

    checks = Checks((Check("disk", hangs), Check("keys", lambda: ok("well"))), timeout_s=0.2)
    for _ in range(3):
        health = checks.run()
        assert not health.ready
        assert health.checks[0].kind == "late"
        assert health.checks[0].duration_ms is None
        assert health.checks[1].state is CheckState.OK
    assert begun == [1]
    let_go.set()
    becomes(lambda: checks.run().ready, "the check has answered")


def test_a_finding_is_good_for_a_moment() -> None:
    now = [100.0]
    runs: list[int] = []

    def look() -> Finding:
        runs.append(1)
        return ok(str(len(runs)))

    checks = Checks((Check("a", look, fresh_s=30.0),), clock=lambda: now[0])
    assert only(checks.run())[1] == "1"
    now[0] += 29.9
    assert only(checks.run())[1] == "1"
    now[0] += 0.2
    assert only(checks.run())[1] == "2"
