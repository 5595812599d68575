"""How a fix with a patch ended, in one line: "fixed" never stands alone, what shows it stands beside it."""

from collections.abc import Iterator

from fallback_audit.event_types import ProvedProject
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import PROOF_GATE, TESTS_GATE, GateStatus, ProofLevel, TestsLevel
from fallback_tier.fix_result import Patched, WithPatch, compared_parts, shown_by
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


#: Names of tests that one signal repeats.
_NAMED_TESTS = 3


class Signal(Frozen):
    """One fact, and whether it speaks for the fix (True), against it (False), or is missing (None)."""

    name: str
    speaks_for: bool | None
    detail: str


def signals(result: WithPatch) -> tuple[Signal, ...]:
    """Return what gates saw and did not see of a fix, and what is to be looked at twice."""
    return (
        _gate_signal(result, PROOF_GATE, "no proof test was given"),
        _versions(result),
        _gate_signal(result, TESTS_GATE, "no tests ran"),
        *_warnings(result),
    )


def is_shown_gone(result: WithPatch) -> bool:
    """Return whether a gate saw the flaw gone: a proof passed, or a client resolved a tree without it. Pins
    don't show what gets installed, nor do passing tests."""
    if isinstance(result, Patched):
        return False
    proved = status_of(result, PROOF_GATE) is GateStatus.PASSED
    return proved or shown_by(result.verdicts) is ProofLevel.RESOLVED_TREE


def _gate_signal(result: WithPatch, gate: str, missing: str) -> Signal:
    for verdict in result.verdicts:
        if verdict.gate == gate:
            passed = True if verdict.status is GateStatus.PASSED else None
            return Signal(name=gate, speaks_for=passed, detail=verdict.detail)
    return Signal(name=gate, speaks_for=None, detail=missing)


def _versions(result: WithPatch) -> Signal:
    in_source = None, "the flaw is in source code, so no version shows it"
    reported = {
        ProofLevel.RESOLVED_TREE: (True, "no affected version is in the resolved tree"),
        ProofLevel.PINS: (None, "only the declared pins could be read"),
        ProofLevel.TESTS_ONLY: (None, "no version shows that the flaw is gone"),
    }.get(result.proof_level, in_source)
    if reported[0] and shown_by(result.verdicts) is None:
        reported = None, "no gate could look at the resolved tree"
    return Signal(name="versions", speaks_for=reported[0], detail=reported[1])


def _warnings(result: WithPatch) -> tuple[Signal, ...]:
    application = result.application
    found = []
    if application.low_confidence is not None:
        found.append(("support", application.low_confidence.reason))
    if application.grounded is False and application.low_confidence is None:
        found.append(("support", "a judge found a claim of the plan unsupported"))
    if application.loose_edits:
        found.append(("edits", "an edit matched only when white space was left out"))
    flaky = sorted({test for verdict in result.verdicts for test in verdict.flaky})
    if flaky:
        found.append(("flaky", f"tests that fail now and then: {', '.join(flaky)}"))
    before = sorted({test for verdict in result.verdicts for test in verdict.failing_before})
    if before:
        message = ", ".join(before[:_NAMED_TESTS])
        more = f" and {len(before) - _NAMED_TESTS} more" if len(before) > _NAMED_TESTS else ""
        found.append(("red", f"tests that failed before fail still: {message}{more}"))
    return tuple(Signal(name=name, speaks_for=False, detail=detail) for name, detail in found)
