"""Commands that their own time limit is to end, on a machine where a start takes as long as it takes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fallback_tier.errors import SandboxError
from fallback_tier.execution import CommandResult

#: A start takes milliseconds; on a busy machine it took longer than the first of these.
LIMITS_S = (1.0, 10.0, 100.0)

#: What a sandbox says that the clock ended before the command began.
_TOO_EARLY = "did not start in time"


class Runner(Protocol):
    """The part of a sandbox that is asked."""

    def run(self, argv: Sequence[str], *, worktree: Path, timeout_s: float) -> CommandResult:
        """As ``execution.Sandbox`` has it."""
        ...


def ended_by_the_clock(
    runner: Runner, command: Sequence[str], worktree: Path, limits_s: Sequence[float] = LIMITS_S
) -> CommandResult:
    """Of a command that says something first and never ends: with the first limit in which it has begun."""
    for limit_s in limits_s[:-1]:
        try:
            result = runner.run(command, worktree=worktree, timeout_s=limit_s)
        except SandboxError as error:
            if _TOO_EARLY not in str(error):
                raise
        else:
            if result.output:
                return result
    return runner.run(command, worktree=worktree, timeout_s=limits_s[-1])
