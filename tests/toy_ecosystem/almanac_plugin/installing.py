"""Installs what a lock names into the cache, and runs commands with it in the sandbox."""

import shutil
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from almanac_plugin.files import LOCK, read_lock
from almanac_plugin.registry import published

from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext


def install(context: GateContext, tree: RepoContext) -> Path:
    """A folder that holds exactly what the lock names, by its hashes. Raises ValueError where that can't
    be had, ToolError."""
    lock = tree.read_text(LOCK)
    folder = context.cache.resolve() / f"almanac-{sha256(lock.encode()).hexdigest()[:32]}"
    if folder.is_dir():
        return folder
    making = folder.with_suffix(".part")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    for one in read_lock(lock):
        text = published(one.name, context.clients).get(one.version)
        if text is None:
            raise ValueError(f"{one.name} {one.version} was never published")
        if one.hash != f"sha256:{sha256(text.encode()).hexdigest()}":
            raise ValueError(f"{one.name} {one.version} is not what its hash says")
        (making / f"{one.name}.sh").write_text(text)
    return making.rename(folder)


def run(
    context: GateContext, tree: RepoContext, argv: Sequence[str], timeout_s: float | None
) -> CommandResult:
    """Raises as ``install`` does, SandboxError."""
    place = install(context, tree)
    done = context.sandbox.run(
        argv,
        worktree=tree.tree,
        timeout_s=timeout_s or context.timeout_s,
        env={"ALMANAC": str(place)},
        readable=[place],
    )
    output = done.output.replace(f"{tree.root}/", "").replace(str(place), "ALMANAC")
    return done.model_copy(update={"output": output})
