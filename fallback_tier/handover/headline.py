"""How a fix with a patch ended, in one line: "fixed" never stands alone, what shows it stands beside it."""

from collections.abc import Iterator

from fallback_audit.event_types import ProvedProject
from fallback_audit.vocabulary import PROOF_GATE, TESTS_GATE, GateStatus, ProofLevel, TestsLevel
from fallback_tier.fix_result import Patched, WithPatch, compared_parts
from fallback_tier.gate_ports import GateVerdict

#: Nothing was seen of the flaw itself.
UNSHOWN = "patched; tests pass; nothing shows the flaw"

_VERSIONS = {ProofLevel.RESOLVED_TREE, ProofLevel.PINS}

_COMPARED_IN_PART = "compared with the base commit's in part"
_NOT_COMPARED = "not compared with the base commit's"

_READ = {
    ProofLevel.RESOLVED_TREE: "read from what is installed",
    ProofLevel.PINS: "read from what is declared",
}


def headline(result: WithPatch) -> str:
    """``fixed; versions proved, tests not run``, ``patched; tests pass; nothing shows the flaw`` …"""
    if isinstance(result, Patched):
        return UNSHOWN.replace("tests pass", _passing(_verdict(result, TESTS_GATE)))
    return f"fixed; {', '.join(_shown(result))}"


def proof_of(project: ProvedProject) -> str:
    """``requirements.txt: idna 3.7, read from what is installed``: one project's level, in words."""
    versions = ", ".join(project.versions)
    held = (
        f"{project.package} {versions}" if versions else f"{project.package} is not in it any more"
    )
    return f"{project.project}: {held}, {_READ[project.proof_level]}"


def status_of(result: WithPatch, gate: str) -> GateStatus | None:
    """How a gate judged the patch; None where it was not among the fix's gates."""
    verdict = _verdict(result, gate)
    return None if verdict is None else verdict.status


def _shown(result: WithPatch) -> Iterator[str]:
    if status_of(result, PROOF_GATE) is GateStatus.PASSED:
        yield "the proof passes"
    for verdict in result.verdicts:
        if verdict.status is GateStatus.PASSED and verdict.proof_level in _VERSIONS:
            yield verdict.proof_level.label
    tests = _verdict(result, TESTS_GATE)
    if tests is not None and tests.status is GateStatus.PASSED:
        yield _passing(tests)
    elif tests is not None and tests.tests_level is TestsLevel.RAN:
        yield f"tests ran, {_NOT_COMPARED}"
    else:  # a gate that ran something and learnt nothing has a log
        yield "tests could not be judged" if tests is not None and tests.log else "tests not run"


def _passing(tests: GateVerdict | None) -> str:
    """Tests that failed before may be about the flaw, so they are never passed over."""
    before = () if tests is None else tests.failing_before
    words = f"tests pass, but for {len(before)} that failed before" if before else "tests pass"
    match None if tests is None else tests.tests_level:
        case TestsLevel.RAN if tests is not None and compared_parts(tests.tests):
            words += f", {_COMPARED_IN_PART}"
        case TestsLevel.RAN:
            words += f", {_NOT_COMPARED}"
        case TestsLevel.NOT_JUDGED:
            words += ", not judged in every project"
    return words


def _verdict(result: WithPatch, gate: str) -> GateVerdict | None:
    return next((verdict for verdict in result.verdicts if verdict.gate == gate), None)
