"""Whether layers can be mounted, and a lock that prevents two mounts of one upper layer at once."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from fallback_audit.files import descriptor_of, lock
from fallback_tier.errors import SandboxError
from fallback_tier.execution import Sandbox
from fallback_tier.files.folders import remove_tree
from fallback_tier.files.tree import FileTree

#: One trivial command over three empty layers; after a minute it hangs.
_PROBE_TIMEOUT_S = 60.0

#: The longest time that a command may take (``configured.MAX_TIMEOUT_S``), and its end.
_MAX_WAIT_S = 3_660.0


@contextmanager
def mounting(tree: FileTree) -> Iterator[None]:
    """Wait until no other process has mounted the tree's upper layer, and keep others out.

    Two mounts of one upper layer succeed, but what they then show is undefined (overlayfs.rst, "Sharing and
    copying layers"). Raises SandboxError if the other one takes longer than any command may.
    """
    if tree.work is None:  # a plain folder can be bound several times
        yield
        return
    with descriptor_of(tree.work, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        try:
            lock(descriptor, fcntl.LOCK_EX, _MAX_WAIT_S)
        except TimeoutError as error:
            raise SandboxError(
                f"Another command has held {tree.root} for {_MAX_WAIT_S / 60:.0f} minutes.",
                next_step=f"See what it does (`fuser {tree.work}`), and end it if it hangs.",
                kind="locked",
            ) from error
        yield


def plain_folder(worktree: FileTree | Path) -> Path:
    """Return the one folder of a tree that needs no mounts. Raises SandboxError."""
    if isinstance(worktree, Path):
        return worktree
    if worktree.lower:
        raise SandboxError(
            f"{worktree.root} is made of layers, which nothing mounts without a sandbox.",
            next_step="Use plain worktrees there (`layered=False`).",
            kind="layers",
        )
    return worktree.root


@lru_cache
def can_mount_layers(sandbox: Sandbox, folder: Path) -> bool:
    """Try it in ``folder``, once: a removal and a new file must be visible where they are read later.

    No kernel before 5.11 lets a user mount layers, no bubblewrap before 0.11 supports it, and some file
    systems (overlayfs itself, in many containers) can't hold an upper layer.
    """
    probe = folder / f"probe-{secrets.token_hex(4)}"
    lower, upper, work = (probe / name for name in ("lower", "upper", "work"))
    tree = FileTree(root=probe / "tree", lower=(lower,), upper=upper, work=work)
    try:
        for layer in (lower, upper, work):
            layer.mkdir(parents=True)
        (lower / "old").touch()
        result = sandbox.run(
            ["sh", "-c", "rm old && : >new"], worktree=tree, timeout_s=_PROBE_TIMEOUT_S
        )
        return result.ok and tree.find("old") is None and tree.find("new") is not None
    except SandboxError:
        return False
    finally:
        remove_tree(probe)
