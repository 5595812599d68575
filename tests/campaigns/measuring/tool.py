"""The command that is measured."""

import subprocess
import sys
from functools import cache
from pathlib import Path

#: The command of this environment.
SCRIPT = Path(sys.prefix) / "bin" / "fallback-tier"


@cache
def version_of(script: Path) -> str:
    """What the tool calls itself; of this checkout's own also the commit."""
    reported = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    name = reported.stdout.strip()
    if script != SCRIPT:
        return name
    describe = ["git", "describe", "--always", "--dirty=+changes"]
    here = Path(__file__).parent
    commit = subprocess.run(describe, cwd=here, capture_output=True, text=True).stdout.strip()
    return f"{name} at {commit}" if commit else name
