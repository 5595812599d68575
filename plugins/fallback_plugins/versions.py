"""Which versions of programs are here: what one version installs or runs tells nothing about another's."""

import platform
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

from fallback_tier.execution import ClientRunner

#: Wall clock of a program that only says its version.
_TIMEOUT_S = 60.0


@lru_cache
def version_of(tool: str, clients: ClientRunner) -> str:
    """In the tool's own words, asked once a run. Raises ToolMissingError."""
    return clients.run(tool, ["--version"], cwd=Path("/"), timeout_s=_TIMEOUT_S).output.strip()


def this_python() -> tuple[str, ...]:
    """Our interpreter, which environments are made with, and the machine that wheels must be for."""
    return sys.version, sysconfig.get_platform(), *platform.libc_ver()
