"""How sure a reviewer may be of a verified fix: a rule over recorded facts.

Only objective signals count (ADR-0031): what gates saw, not what a model thinks of its own work. A
judge's doubt lowers the level; nothing that a model says raises it.
"""

from enum import StrEnum

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import PROOF_GATE, TESTS_GATE, GateStatus, ProofLevel
from fallback_tier.gates.result import Patched, WithPatch, shown_by
from fallback_tier.handover.headline import status_of

#: Names of tests that one signal repeats.
_NAMED_TESTS = 3


class Level(StrEnum):
    """How much stands behind a verified fix.

    ``high``: it was shown that the flaw is gone (a proof test, or no affected version in a resolved tree),
    the tests pass, and nothing is to be looked at twice. ``low``: nothing was shown but that the tests
    pass, if that, or a judge doubts the plan. ``medium``: everything between.
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Signal(Frozen):
    """One fact, and whether it speaks for the fix (True), against it (False), or is missing (None)."""

    name: str
    speaks_for: bool | None
    detail: str


class Confidence(Frozen):
    """The level, and everything that it was derived from."""

    level: Level
    signals: tuple[Signal, ...]


def confidence(result: WithPatch) -> Confidence:
    """Derive the level of a fix from its verdicts and its patch's own account."""
    shown = is_shown_gone(result)
    tests = status_of(result, TESTS_GATE)
    warnings = _warnings(result)
    signals = (
        _gate_signal(result, PROOF_GATE, "no proof test was given"),
        _versions(result),
        _gate_signal(result, TESTS_GATE, "no tests ran"),
        *warnings,
    )
    doubted = result.application.low_confidence is not None
    # A suite with tests that fail as before shows less: one of them may be about the flaw.
    whole = tests is GateStatus.PASSED and not any(one.failing_before for one in result.verdicts)
    unshown = isinstance(result, Patched) or not (shown or whole)
    if doubted or unshown:
        level = Level.LOW
    elif shown and tests is GateStatus.PASSED and not warnings:
        level = Level.HIGH
    else:
        level = Level.MEDIUM
    return Confidence(level=level, signals=signals)


def is_shown_gone(result: WithPatch) -> bool:
    """A gate has seen that the flaw is gone: a proof test passed, or a client resolved a tree without it.

    Pins alone don't show what gets installed, and a passing suite only shows that nothing else broke.
    """
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
