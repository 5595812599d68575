"""What nothing has proved of a patch, in one sentence."""

from fallback_audit.vocabulary import GateStatus

#: What a failed or missing gate leaves open.
_OPEN = {
    "applies": "that the patch applies",
    "declared_set": "that it changes only what it says",
    "policy": "that it touches only what a patch may",
    "resolves": "that the dependencies install",
    "not_vulnerable": "that no affected version is left",
    "typecheck": "that the types hold",
    "build": "that it builds",
    "checks": "that the checks of its test script pass",
    "tests": "that the tests pass",
    "capability": "that it reaches for nothing undeclared",
    "proof": "that the flaw is gone",
}


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
