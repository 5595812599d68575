"""Verdicts over several project folders: which of them is the gate's."""

from itertools import permutations
from pathlib import Path

import pytest

from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.shared.gates import gating
from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.sandbox.launching import MAX_OUTPUT_BYTES
from fallback_tier.sandbox.process import BoundedOutput
from tests.kinds import OfKind

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


def test_a_failure_and_what_fails_on_both_sides_is_undecided_beside_another_setting() -> None:
    beside = VERDICTS[2].model_copy(update={"failing_before": ("a test",)})
    for verdict in (*VERDICTS, beside):
        found = gating.beside_another_setting(verdict, "here all of it; at the base commit in part")
        asked = verdict.status is GateStatus.FAILED or verdict is beside
        assert found.status is (GateStatus.UNDECIDED if asked else verdict.status)
        assert gating.beside_another_setting(verdict, "") == verdict


@pytest.mark.parametrize("folders", [1, 2, 5])
def test_the_longest_logs_of_several_folders_are_recorded(tmp_path: Path, folders: int) -> None:
    """Bytes that are no text become three each."""
    printed = BoundedOutput(MAX_OUTPUT_BYTES)
    printed.add(b"\xff" * 2 * MAX_OUTPUT_BYTES)
    one = gating.failed("tests", FailureKind.TESTS_FAILED, "a", f"{printed.text()}\nthe end\n")
    log = gating.combined("tests", [one] * folders).log
    FileEvidenceStore(tmp_path).put(log.encode())
    assert log.count("\nthe end\n") == folders
    assert log.count(" bytes left out ...]\n") >= folders


@pytest.mark.parametrize(
    "output",
    ["npm error code E503", "npm error code ENOTFOUND", 'Request failed "502 Bad Gateway"'],
)
def test_a_registry_that_does_not_answer_is_told(output: str) -> None:
    with pytest.raises(ToolFailedError, check=OfKind("registry_unreachable")):
        gating.check_reachable("npm", said(output))


def test_a_package_that_is_called_as_a_code_is_none() -> None:
    gating.check_reachable("uv", said("Because e512 was not found and you require e512==1"))


def said(output: str) -> CommandResult:
    return CommandResult(argv=("npm",), exit_code=1, output=output, duration_ms=1)
