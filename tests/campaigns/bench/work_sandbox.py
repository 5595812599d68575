"""One trivial command, started in one of several ways (goal 12).

``side`` "ours": the sandbox as gates start it, over layers where they can be mounted. "bare": bubblewrap
with new namespaces over the whole file system, read-only; no filter, no limits, no parts chosen.
"firejail": with its default profile and without a network.
"""

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fallback_tier.files.tree import FileTree
from fallback_tier.sandbox.runners import BubblewrapSandbox, find_bwrap

Prepared = tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]

#: One trivial command: a minute means that it hangs.
_TIMEOUT_S = 60.0


def prepare(place: Path, side: str) -> Prepared:
    """The start, and its median over all that were made."""
    folder = place / side
    folder.mkdir()
    tree, layered = _tree(folder)
    sandbox = BubblewrapSandbox()
    root = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    bare = (str(find_bwrap()), "--unshare-all", *root, "true")

    def ours() -> None:
        if not sandbox.run(["true"], worktree=tree, timeout_s=_TIMEOUT_S).ok:
            raise AssertionError("true is true")

    def program(*argv: str) -> Callable[[], None]:
        return lambda: _check(argv)

    works = {
        "ours": ours,
        "bare": program(*bare),
        "firejail": program("firejail", "--quiet", "--net=none", "true"),
    }
    times: list[float] = []

    def work() -> None:
        started = time.perf_counter()
        works[side]()
        times.append((time.perf_counter() - started) * 1000)

    return work, lambda: {"start_p50_ms": round(statistics.median(times), 1), "layered": layered}


def _tree(folder: Path) -> tuple[FileTree, bool]:
    if not BubblewrapSandbox().mounts_layers(folder):
        return FileTree(root=folder), False
    places = {name: folder / name for name in ("root", "base", "upper", "work")}
    for path in places.values():
        path.mkdir()
    (places["base"] / "file").touch()
    return FileTree(
        root=places["root"],
        lower=(places["base"],),
        upper=places["upper"],
        work=places["work"],
    ), True


def _check(argv: tuple[str, ...]) -> None:
    subprocess.run(
        argv, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S
    )
