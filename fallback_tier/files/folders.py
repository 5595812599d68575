"""Our folders: the user's locations, writing on a disk that may be full, removal of any content, measuring,
and the current boot of the system."""

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

from fallback_tier.errors import StateFolderError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def users_folder(kind: Literal["state", "config", "cache"]) -> Path:
    """Return the user's folder for this program, by the XDG base directories. Raises StateFolderError if
    the user has no home."""
    import platformdirs

    find = {
        "state": platformdirs.user_state_path,
        "config": platformdirs.user_config_path,
        "cache": platformdirs.user_cache_path,
    }
    try:
        return find[kind]("fallback-tier")
    except RuntimeError as error:  # HOME is not set, and the system does not know this user
        raise StateFolderError(
            "There is no home folder: HOME is not set to an absolute path, and the system knows no other.",
            next_step=f"Set HOME, or XDG_{kind.upper()}_HOME, to one; --state-dir and --keys name folders"
            " too.",
            kind="no_home",
        ) from error


@contextmanager
def writing_below(workspace: Path) -> Iterator[None]:
    """Convert the system's errors inside the block to StateFolderError, which names the state folder."""
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"The state folder {workspace} can't be written: {error.strerror}.",
            next_step="Free space there, or set another one with --state-dir.",
        ) from error


def boot_id() -> str:
    """Return an identifier of the system's current boot. Files are not synced, so a file of an earlier boot
    may be incomplete."""
    return _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""


def remove_tree(folder: Path) -> None:
    """Remove a folder with all content, whatever a command did to its modes, and however deeply folders are
    nested. Idempotent. Raises OSError."""
    if not folder.exists():
        return
    try:
        make_removable(folder)
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # deeper than the limits of the stack, paths or descriptors
        _remove_flat(folder)


def make_removable(tree: Path) -> None:
    """Restore our access to folders that a command made unreadable. Links are not followed."""
    tree.chmod(stat.S_IMODE(tree.stat().st_mode) | stat.S_IRWXU)
    waiting = [os.fspath(tree)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                folders = [
                    (entry.path, entry.stat(follow_symlinks=False).st_mode)
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False)
                ]
        except OSError:  # removed meanwhile, or deeper than the limit of paths
            continue
        for path, mode in folders:
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                Path(path).chmod(stat.S_IRWXU)
            waiting.append(path)


def _remove_flat(root: Path) -> None:
    """Remove a folder. Each subfolder is moved to the top before it is read, so none is ever deep."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    top = os.open(root, flags)
    try:
        names = (f"{secrets.token_hex(8)}-{number}" for number in count())
        waiting = _emptied(top, top, names)
        while waiting:
            name = waiting.pop()
            folder = os.open(name, flags, dir_fd=top)
            try:
                waiting += _emptied(folder, top, names)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    root.rmdir()


def _emptied(folder: int, top: int, names: Iterator[str]) -> list[str]:
    """Empty the folder, and return the new names of its subfolders in ``top``."""
    with os.scandir(folder) as entries:
        names_and_kinds = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    moved = []
    for name, is_folder in names_and_kinds:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        os.chmod(name, stat.S_IRWXU, dir_fd=folder)  # we need write permission on what is moved
        moved.append(next(names))
        os.rename(name, moved[-1], src_dir_fd=folder, dst_dir_fd=top)
    return moved


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder. A file with several names counts for each."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 (as above)
    return total
