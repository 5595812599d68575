"""A sample of the fixed cases through the whole command, gates and sandbox included."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.campaigns.recipes_bench.cases import Case, Group
from tests.campaigns.recipes_bench.judge import Ending, Verdict
from tests.campaigns.recipes_bench.run import repository

#: Installing a project and resolving it twice, on a slow registry.
_TIMEOUT_S = 1_800


def proved(verdicts: Sequence[Verdict], cases: Sequence[Case], count: int) -> Iterator[str]:
    """One line a case: its exit code (0: proved by every gate) and the command's first line."""
    by_name = {case.name: case for case in cases}
    fixed = [
        one.case
        for one in verdicts
        if one.ending is Ending.FIXED and one.group is not Group.FIXTURE
    ]
    step = max(1, len(fixed) // count)
    for name in fixed[::step][:count]:
        code, words = _fix(by_name[name])
        yield f"{name}: exit code {code}: {words}"


def _fix(case: Case) -> tuple[int | str, str]:
    with tempfile.TemporaryDirectory(prefix="gates-") as folder:
        place = Path(folder)
        root = repository(case.before, place / "repository")
        advisories = case.folder / "advisories"
        files = case.advisory_files
        command = [
            *(str(Path(sys.executable).parent / "fallback-tier"), "fix", str(root), "--dry-run"),
            *("--advisory", str(files[0] if len(files) == 1 else advisories)),
            *("--state-dir", str(place / "state")),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "none", f"not done after {_TIMEOUT_S} s"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return done.returncode, " ".join(lines[:1])
