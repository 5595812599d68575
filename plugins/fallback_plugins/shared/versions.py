"""Which versions of programs are here: what one version installs or runs tells nothing about another's."""

import platform
import sys
import sysconfig
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from fallback_tier.errors import ToolMissingError
from fallback_tier.execution import ClientRunner

#: Wall clock of a program that only says its version.
_TIMEOUT_S = 60.0


def today() -> str:
    """The day: what nobody pins is installed in the releases of the day."""
    return datetime.now(UTC).date().isoformat()


@lru_cache
def version_of(tool: str, clients: ClientRunner) -> str:
    """In the tool's own words, asked once a run. Raises ToolMissingError."""
    return clients.run(tool, ["--version"], cwd=Path("/"), timeout_s=_TIMEOUT_S).output.strip()


def this_python() -> tuple[str, ...]:
    """Our interpreter, which environments are made with, and the machine that wheels must be for."""
    return sys.version, sysconfig.get_platform(), *platform.libc_ver()


def interpreters(clients: ClientRunner) -> str:
    """What every command in a sandbox finds beside what is installed: our Python, and node if there is one.

    A Python project's tests may run node, and a proof of an npm package's flaw Python.
    """
    try:
        node = version_of("node", clients)
    except ToolMissingError:
        node = "none"
    return f"Python {sys.version}, node {node}"
