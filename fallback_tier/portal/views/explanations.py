"""Why a fix was escalated and what is not proved, each in one sentence."""

from fallback_audit.vocabulary import EscalationReason, GateStatus

#: What each reason says to who has not followed the fix.
_WHY = {
    EscalationReason.RETRY_CAP_REACHED: "Every attempt failed its gates, and no retry is left.",
    EscalationReason.SAME_FAILURE_REPEATED: "The same failure came back, so more tries would repeat it.",
    EscalationReason.GATE_INFRASTRUCTURE: "A gate could not do its work, so nothing was judged.",
    EscalationReason.MODEL_UNAVAILABLE: "The model gave no answer.",
    EscalationReason.BUDGET_EXHAUSTED: "The next question to the model would pass the budget.",
    EscalationReason.RETRY_REFUSED: "The retry was refused.",
    EscalationReason.NOTHING_PROVED: "No gate failed, and none showed anything either.",
    EscalationReason.TESTS_CONTRADICT_PATCH: (
        "Tests of the base commit fail with the patch, and they may assert the flaw itself."
    ),
    EscalationReason.GATES_FAILED_AGAIN: "Run again, a gate failed this patch once more.",
    EscalationReason.GATES_UNDECIDED: "A gate could not hold the patch against the base commit.",
}

#: What a failed or missing gate leaves open.
_OPEN = {
    "applies": "that the patch applies",
    "declared_set": "that it changes only what it says",
    "policy": "that it touches only what a patch may",
    "resolves": "that the dependencies install",
    "not_vulnerable": "that no affected version is left",
    "typecheck": "that the types hold",
    "build": "that it builds",
    "tests": "that the tests pass",
    "capability": "that it reaches for nothing undeclared",
    "proof": "that the flaw is gone",
}


def why_escalated(reason: EscalationReason) -> str:
    """One sentence."""
    return _WHY[reason]


def not_proved(verdicts: dict[str, GateStatus], *, shows: frozenset[str], has_patch: bool) -> str:
    """What nothing has shown, and what was not looked at, by the gates' last verdicts.

    ``shows``: gates whose pass shows the flaw gone.
    """
    if not has_patch:
        return "There is no patch, so nothing is proved."
    passed = {gate for gate, status in verdicts.items() if status is GateStatus.PASSED}
    skipped = [gate for gate, status in verdicts.items() if status is GateStatus.SKIPPED]
    left = [] if passed & shows else ["that the flaw is gone"]
    for gate, status in verdicts.items():
        if status in (GateStatus.FAILED, GateStatus.UNDECIDED):
            left.append(_OPEN.get(gate, f"what gate {gate} looks at"))
    also = f" Gates skipped: {', '.join(skipped)}." if skipped else ""
    if not left:
        return f"What ran passed on the patch asked about; something else is asked.{also}"
    return f"Not proved: {_listed(list(dict.fromkeys(left)))}.{also}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
