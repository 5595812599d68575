"""How a fix with a patch ended, in one line: "fixed" always comes with what shows it."""

from fallback_audit.event_types import ProvedProject
from fallback_audit.frozen import Frozen
from fallback_audit.showing.headline import headline_of
from fallback_audit.vocabulary import PROOF_GATE, TESTS_GATE, GateStatus, ProofLevel
from fallback_tier.fix_result import Patched, WithPatch, shown_by
from fallback_tier.gate_ports import GateVerdict

_READ = {
    ProofLevel.RESOLVED_TREE: "read from what is installed",
    ProofLevel.PINS: "read from what is declared",
}


def headline(result: WithPatch) -> str:
    """Return ``fixed; versions proved, tests not run``, ``patched; tests pass; nothing shows the flaw
    gone``."""
    return headline_of(result.verdicts, is_shown=not isinstance(result, Patched))


def proof_of(project: ProvedProject) -> str:
    """Return one project's level as text: ``requirements.txt: idna 3.7, read from what is installed``."""
    versions = ", ".join(project.versions)
    content = (
        f"{project.package} {versions}" if versions else f"{project.package} is not in it any more"
    )
    return f"{project.project}: {content}, {_READ[project.proof_level]}"


def status_of(result: WithPatch, gate: str) -> GateStatus | None:
    """Return how a gate judged the patch, or None if it was not among the fix's gates."""
    verdict = _verdict(result, gate)
    return None if verdict is None else verdict.status


def _verdict(result: WithPatch, gate: str) -> GateVerdict | None:
    return next((verdict for verdict in result.verdicts if verdict.gate == gate), None)


#: Most names of tests in one signal.
_NAMED_TESTS = 3


class Signal(Frozen):
    """One fact, and whether it speaks for the fix (True), against it (False), or is missing (None)."""

    name: str
    speaks_for: bool | None
    detail: str


def signals(result: WithPatch) -> tuple[Signal, ...]:
    """Return what gates saw and did not see of a fix, and what to check again."""
    return (
        _gate_signal(result, PROOF_GATE, "no proof test was given"),
        _versions(result),
        _gate_signal(result, TESTS_GATE, "no tests ran"),
        *_warnings(result),
    )


def is_shown_gone(result: WithPatch) -> bool:
    """Return whether a gate saw the vulnerability gone: a proof passed, or a client resolved a tree without
    it. Pins don't show what gets installed, nor do passing tests."""
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


def _words(level: ProofLevel) -> str:
    """Return a level on versions as in the headline, and how they were read."""
    return f"{level.label}, {_READ[level]}"


def _versions(result: WithPatch) -> Signal:
    in_source = None, "the flaw is in source code, so no version shows it"
    fact = {
        ProofLevel.RESOLVED_TREE: (True, _words(ProofLevel.RESOLVED_TREE)),
        ProofLevel.PINS: (None, _words(ProofLevel.PINS)),
        ProofLevel.TESTS_ONLY: (None, ProofLevel.TESTS_ONLY.label),
    }.get(result.proof_level, in_source)
    if fact[0] and shown_by(result.verdicts) is None:
        fact = None, "no gate could look at what is installed"
    return Signal(name="versions", speaks_for=fact[0], detail=fact[1])


def _warnings(result: WithPatch) -> tuple[Signal, ...]:
    application = result.application
    warnings = []
    if application.low_confidence is not None:
        warnings.append(("support", application.low_confidence.reason))
    if application.grounded is False and application.low_confidence is None:
        warnings.append(("support", "a judge found a claim of the plan unsupported"))
    if application.loose_edits:
        warnings.append(("edits", "an edit matched only when white space was left out"))
    flaky = sorted({test for verdict in result.verdicts for test in verdict.flaky})
    if flaky:
        warnings.append(("flaky", f"tests that fail now and then: {', '.join(flaky)}"))
    before = sorted({test for verdict in result.verdicts for test in verdict.failing_before})
    if before:
        shown = ", ".join(before[:_NAMED_TESTS])
        more = f" and {len(before) - _NAMED_TESTS} more" if len(before) > _NAMED_TESTS else ""
        warnings.append(("red", f"tests that failed before fail still: {shown}{more}"))
    return tuple(Signal(name=name, speaks_for=False, detail=detail) for name, detail in warnings)
