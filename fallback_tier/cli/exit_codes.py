"""The exit codes of all commands: the one table, which the README and ``--help`` print."""

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fallback_audit.vocabulary import RefusalReason

OK = 0
BAD_INPUT = 2
ESCALATED = 3
REFUSED = 4
NOT_AFFECTED = 5
ENVIRONMENT = 6
TRAIL_BROKEN = 7
PATCHED = 8
UNKNOWN = 9
UNTESTED = 10
VULNERABLE = 11

#: As a shell reports a program that SIGINT ended, and SIGTERM.
INTERRUPTED = 130
TERMINATED = 143

#: The argument of KeyboardInterrupt if SIGTERM raised it.
TERMINATION = "SIGTERM"

MEANING = {
    OK: "fixed, and a gate saw the flaw gone (fix), all can be fixed (plan), a patch (attempt), intact "
    "(audit verify), answered (review), nothing vulnerable (scan)",
    BAD_INPUT: "bad input; nothing was done",
    ESCALATED: "escalated: a person must decide",
    REFUSED: "refused: no patch is possible, or not for all, with the reason",
    NOT_AFFECTED: "not affected: nothing to fix",
    ENVIRONMENT: "a tool, the sandbox or a store is missing or failed",
    TRAIL_BROKEN: "the audit trail is damaged, or breaks its contract",
    PATCHED: "patched, and the tests pass; nothing shows the flaw gone (fix)",
    UNKNOWN: "unknown: a source that may hold the package was not read or resolved",
    UNTESTED: "a patch as with 0 or 8, whose tests were not compared with the base commit's "
    "(--require-tests)",
    VULNERABLE: "vulnerable: an installed package is affected (scan)",
    INTERRUPTED: "interrupted (Ctrl-C)",
    TERMINATED: "terminated (SIGTERM)",
}


#: The worst first: a missing tool, a person's decision, what is left, what is unknown, what is not tested,
#: what is not shown.
_WORST_FIRST = (ENVIRONMENT, ESCALATED, REFUSED, UNKNOWN, UNTESTED, PATCHED, OK)


def worst(codes: "Collection[int]", default: int) -> int:
    """Return the code of several fixes together; ``default``: if none of the codes is that of a fix."""
    return next((code for code in _WORST_FIRST if code in codes), default)


def of_refusal(reason: "RefusalReason") -> int:
    """Return the exit code of an attempt or a fix that gave no patch."""
    from fallback_audit.vocabulary import RefusalReason

    match reason:
        case RefusalReason.NOT_AFFECTED:
            return NOT_AFFECTED
        case RefusalReason.TOOL_MISSING:
            return ENVIRONMENT
        case RefusalReason.UNKNOWN:
            return UNKNOWN
        case _:
            return REFUSED


def epilog(meaning: "Mapping[int, str]" = MEANING) -> str:
    """Return the table as ``--help`` prints it, or part of it with a command's own meaning of a code."""
    lines = [f"  {code}  {description}" for code, description in meaning.items()]
    return "exit codes:\n" + "\n".join(lines)
