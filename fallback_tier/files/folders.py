"""Folders of ours: where the user's are, written on a disk that may be full, removed whatever is in them,
measured, and the run of the system they are of."""

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
    """The user's own folder for ours, by the XDG base directories. Raises StateFolderError where the user
    has no home."""
    import platformdirs

    find = {
        "state": platformdirs.user_state_path,
        "config": platformdirs.user_config_path,
        "cache": platformdirs.user_cache_path,
    }
    try:
        return find[kind]("fallback-tier")
    except RuntimeError as error:  # HOME is not set, and nobody knows this user
        raise StateFolderError(
            "There is no home folder: HOME is not set to an absolute path, and the system knows no other.",
            next_step=f"Set HOME, or XDG_{kind.upper()}_HOME, to one; --state-dir and --keys name folders"
            " too.",
            kind="no_home",
        ) from error


@contextmanager
def writing_below(workspace: Path) -> Iterator[None]:
    """Raises StateFolderError, which names the state folder, for the system's own errors of what is done
    inside."""
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"The state folder {workspace} can't be written: {error.strerror}.",
            next_step="Free space there, or set another one with --state-dir.",
        ) from error


def boot_id() -> str:
    """Which run of the system this is; files are not synced, so what an earlier one wrote may be half."""
    return _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""


def remove_tree(place: Path) -> None:
    """Remove a folder and all that is in it, whatever a command did to its modes, and however deep folders
    lie in it. Idempotent. Raises OSError."""
    if not place.exists():
        return
    try:
        make_removable(place)
        shutil.rmtree(place)
    except (OSError, RecursionError):  # deeper than a stack, or a path, or descriptors go
        _remove_flat(place)


def make_removable(tree: Path) -> None:
    """Give ourselves back the folders that a command made unreadable. Links are not followed."""
    tree.chmod(stat.S_IMODE(tree.stat().st_mode) | stat.S_IRWXU)
    waiting = [os.fspath(tree)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = [
                    (entry.path, entry.stat(follow_symlinks=False).st_mode)
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False)
                ]
        except OSError:  # gone, or deeper than a path goes
            continue
        for path, mode in found:
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                Path(path).chmod(stat.S_IRWXU)
            waiting.append(path)


def _remove_flat(place: Path) -> None:
    """Each folder that is found is moved to the top before it is looked into: nothing is ever deep."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    top = os.open(place, flags)
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
    place.rmdir()


def _emptied(folder: int, top: int, names: Iterator[str]) -> list[str]:
    """Nothing is left in the folder. Where its folders are now, in ``top``."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    moved = []
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        os.chmod(name, stat.S_IRWXU, dir_fd=folder)  # what is moved must be ours to write
        moved.append(next(names))
        os.rename(name, moved[-1], src_dir_fd=folder, dst_dir_fd=top)
    return moved


def size_of(folder: Path) -> int:
    """Bytes of all files below it. A file with several names counts at each."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            total += os.lstat(os.path.join(at, name)).st_size  # noqa: PTH118 (as above)
    return total
