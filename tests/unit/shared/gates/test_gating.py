"""Verdicts over several project folders: which of them is the gate's."""

from itertools import permutations

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.shared.gates import gating

VERDICTS = (
    gating.failed("tests", FailureKind.TESTS_FAILED, "a"),
    gating.undecided("tests", "b"),
    gating.passed("tests", "c"),
    gating.skipped("tests", "d"),
)


def test_a_failure_decides_then_what_is_undecided_then_a_pass() -> None:
    for first in range(len(VERDICTS)):
        for some in permutations(VERDICTS[first:]):
            assert gating.combined("tests", some).status is VERDICTS[first].status


def test_only_a_failure_is_undecided_beside_another_setting() -> None:
    for verdict in VERDICTS:
        found = gating.beside_another_setting(verdict, "here all of it; at the base commit in part")
        failed = verdict.status is GateStatus.FAILED
        assert found.status is (GateStatus.UNDECIDED if failed else verdict.status)
        assert gating.beside_another_setting(verdict, "") == verdict
