"""The measured command in forks that have it imported: where a measure itself is tested, and not taken."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaigns.measuring.process import Done
from tests.campaigns.measuring.tool import SCRIPT
from tests.e2e.forked import run_forked


def run_to_end(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> Done:
    """As ``process.run_to_end``, of the command of this environment alone. Raises TimeoutExpired."""
    script, *words = map(str, command)
    assert script == str(SCRIPT)
    return Done(*run_forked(words, cwd=cwd, env=env, stdin="", timeout_s=timeout_s))
