"""What a gate's command does at the base commit, where the patch can't be the reason for it.

What was seen there is kept in the cache that outlives attempts: a commit does not change.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fallback_plugins.shared.gates import gating
from fallback_tier.files import whole
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext

Seen = TypeVar("Seen")

#: Changed with what is kept, and with how a log is read: what an older version saw counts for nothing.
_FORMAT = 11


def run_at_base(context: GateContext, run: Callable[[RepoContext], Seen]) -> Seen:
    """Run something over fresh files of the base commit. Raises what ``run`` raises, ToolError."""
    with context.worktree.fresh(patched=False) as tree:
        return run(context.repo.laid_out(tree))


def place_of(context: GateContext, gate: str, folder: str, on: str, *parts: object) -> Path:
    """Where is kept what a gate saw at the base commit, in one folder.

    ``on``: the interpreter and what is installed there, to the byte; another is another run. With the
    sandbox or without: what fails for want of a network in the one excuses nothing in the other.
    """
    where = type(context.sandbox).__qualname__
    commit = context.repo.base_commit
    key = gating.content_key(_FORMAT, commit, gate, folder, on, sys.version, where, *parts)
    return context.cache / "base" / f"{key}.json"


def kept(place: Path) -> Any:
    """Return what was kept there, as JSON gives it; None if nothing was."""
    try:
        return json.loads(whole.kept(place) or b"null")
    except ValueError:
        return None


def keep(place: Path, what: object) -> None:
    """Keep it, with as many others as a folder has room for: a reader sees the old or the new."""
    whole.keep(place, json.dumps(what).encode())
