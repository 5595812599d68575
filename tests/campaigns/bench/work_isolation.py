"""Isolation as the gate runner pays it, in a process that has a state folder already (goals 4 and 5).

``side`` "isolate": a worktree opened, the patch applied, its result judged, one trivial command in the
sandbox over it (which mounts the layers), closed. "retry": what a further attempt adds before its gates:
reset, apply, judge.
"""

import atexit
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fallback_tier.gates.trees.worktrees import RunnerWorktree, Worktrees
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import BubblewrapSandbox

Prepared = tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]

#: One trivial command: a minute means that it hangs.
_TIMEOUT_S = 60.0


def prepare(place: Path, repository: str, side: str) -> Prepared:
    """Over ``place/repository``, whose patch is ``repository.diff``. Layers or nothing: a checkout here
    would be another figure."""
    root = place / repository
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    )
    repo = RepoContext(
        root=root,
        base_commit=head.stdout.strip(),
        tracked_files=(),
        manifests=(),
        fix_id=f"{repository}-{side}",
        gate_transition_id="gate",
    )
    diff = (place / f"{repository}.diff").read_text()
    sandbox = BubblewrapSandbox()
    worktrees = Worktrees(place / f"state-{repository}", SubprocessClients(), sandbox, layered=True)
    opened = ExitStack()
    began = time.perf_counter()
    kept = opened.enter_context(worktrees.open(repo))
    cold_s = time.perf_counter() - began

    def patch(worktree: RunnerWorktree) -> None:
        worktree.apply(diff)
        if len(worktree.changed()) != 1:
            raise AssertionError("the patch changes one file")

    def retry() -> None:
        kept.reset()
        patch(kept)

    def isolate() -> None:
        with worktrees.open(repo) as worktree:
            patch(worktree)
            done = sandbox.run(["true"], worktree=worktree.tree, timeout_s=_TIMEOUT_S)
            if not done.ok:
                raise AssertionError(done.output)

    if side == "isolate":
        opened.close()
    atexit.register(opened.close)
    return (isolate if side == "isolate" else retry), lambda: {"cold_base_s": round(cold_s, 3)}
