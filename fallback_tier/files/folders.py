"""Folders of ours: where the user's are, removed whatever is in them, measured, and the run of the system
they are of."""

import os
import shutil
import stat
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
        ) from error


def boot_id() -> str:
    """Which run of the system this is; files are not synced, so what an earlier one wrote may be half."""
    return _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""


def remove_tree(place: Path) -> None:
    """Remove a folder and all that is in it, whatever a command did to its modes. Idempotent."""
    if place.exists():
        make_removable(place)
        shutil.rmtree(place)


def make_removable(tree: Path) -> None:
    """Give ourselves back the folders that a command made unreadable. Links are not followed."""
    tree.chmod(stat.S_IMODE(tree.stat().st_mode) | stat.S_IRWXU)
    for folder, names, _files in os.walk(tree):
        for name in names:
            place = os.path.join(folder, name)  # noqa: PTH118 (a Path each folder costs twice)
            mode = os.lstat(place).st_mode
            if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
                Path(place).chmod(stat.S_IRWXU)


def size_of(folder: Path) -> int:
    """Bytes of all files below it. A file with several names counts at each."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            total += os.lstat(os.path.join(at, name)).st_size  # noqa: PTH118 (as above)
    return total
