"""What a page says of the decision before it."""

from collections.abc import Callable

from fallback_tier.service.operations.reviews import Verdict

_DECISIONS = {
    Verdict.APPROVE: "approved",
    Verdict.REJECT: "rejected",
    Verdict.REOPEN: "reopened in a new gate transition",
    Verdict.GATES_AGAIN: "its gates are run again",
    Verdict.RAISE_BUDGET: "budget raised",
}


def decision_message(done: str, command: Callable[[str], str] = str) -> str | None:
    """``done``: fix, verdict, and how it continues, with dots between; another address gives no message.
    ``command``: of a suggested command, as it works on the service's machine."""
    parts = done.rsplit(".", 2)
    if len(parts) != 3 or parts[1] not in list(Verdict):
        return None
    goes = {
        "queued": " It goes on now.",
        "waits": f" To go on with it: {command(f'fallback-tier resume {parts[0]}')}",
    }
    return f"{parts[0]}: {_DECISIONS[Verdict(parts[1])]}.{goes.get(parts[2], '')}"
