"""The proof of a case run by the harness itself, where the tool called a wrong plan fixed.

In an environment made by the case's own commands, which were seen to fail the proof at the flaw's commit
and to pass it with the fix, and have nothing of the tool in them.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from fallback_tier.outcome import SearchReplace
from tests.campaigns.own_code.cases import Case
from tests.campaigns.own_code.checkout import Checkout, proof_files
from tests.campaigns.own_code.upstream import applied

#: One command that makes the environment: a whole install over a slow line.
_PROVISION_TIMEOUT_S = 900

#: One run of the proof: twice what the tool gives it.
_PROOF_TIMEOUT_S = 240


def passes(
    case: Case, checkout: Checkout, edits: Iterable[SearchReplace], place: Path
) -> bool | None:
    """Does the proof pass with these edits? None: its environment could not be made.

    ``place`` is a folder that is not there yet. Raises EditError, RuntimeError.
    """
    root = checkout.copy(place).root
    for edit in edits:
        file = root / edit.path
        file.write_bytes(applied(file.read_bytes().decode(), [edit]).encode())
    for name, content in proof_files(case, checkout).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    environ = _environ(root)
    for command in case.provision:
        shell = ["bash", "-c", command]
        if _run(shell, root, environ, _PROVISION_TIMEOUT_S) != 0:
            return None
    environ = _environ(root)
    program = shutil.which(case.command[0], path=environ["PATH"]) or case.command[0]
    return _run([program, *case.command[1:]], root, environ, _PROOF_TIMEOUT_S) == 0


def _environ(root: Path) -> dict[str, str]:
    """What was installed there comes first; nothing of this process' own environment is seen."""
    folders = [root / "node_modules" / ".bin", *sorted(root.glob(".venv*/bin"))]
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    hidden = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "PATH": path, "CI": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _run(command: list[str], cwd: Path, environ: dict[str, str], timeout_s: int) -> int:
    """The exit code; that of a command which did not start or end is not 0."""
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return -1
