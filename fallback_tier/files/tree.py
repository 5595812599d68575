"""A tree of files, read from outside: one folder, or layers that a sandbox mounts one over the other.

Layers follow overlayfs (kernel documentation, filesystems/overlayfs.rst, option ``userxattr``): a character
device 0:0 hides the entry below it, and so does a folder that is marked opaque.
"""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fallback_audit.disk_errors import raise_failed
from fallback_audit.frozen import Frozen

#: The mark of a folder that hides its lower layers, usable without privileges.
OPAQUE = "user.overlay.opaque"

_WHITEOUT = os.makedev(0, 0)


#: git's mode of a missing entry.
ABSENT = "000000"


class RawChange(Frozen):
    """How one path differs from the base commit. Modes as git prints them; ``ABSENT`` where absent."""

    path: str
    status: str
    old_mode: str
    new_mode: str


class FileTree(Frozen):
    """Files that a command finds at ``root``.

    ``lower``: layers that nobody writes to, the lowest first; ``upper`` takes what is written, ``work``
    is the kernel's own (same file system). A plain folder has none of the three. ``is_disposable``: no git
    outside a sandbox reads it, so that its ``.git`` may be written too.
    """

    root: Path
    lower: tuple[Path, ...] = ()
    upper: Path | None = None
    work: Path | None = None
    is_disposable: bool = False

    @property
    def layers(self) -> tuple[Path, ...]:
        """The folders that contain the files, the topmost first."""
        upper = () if self.upper is None else (self.upper,)
        return (*upper, *reversed(self.lower)) or (self.root,)

    def locate(self, path: str) -> Path:
        """Return the real location of a relative path, without following links. Raises OSError: ENOENT if
        it is missing, ELOOP if it is, or is below, a link."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        entries = list(self.layers)
        for part in pure.parts:
            entries = merged(entries, part)
            if not entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if entries[0].is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return entries[0]

    def find(self, path: str) -> Path | None:
        """Do the same as ``locate``, but return None if nothing is there without following a link."""
        try:
            return self.locate(path)
        except OSError as error:
            raise_failed(error, path)
            return None

    def has_folder(self, path: str) -> bool:
        """Return whether there is a folder of this name that is not a link."""
        entry = self.find(path)
        return entry is not None and entry.is_dir()

    def over(self, layer: Path) -> "FileTree":
        """Return the same files with one more read-only layer below all others."""
        return self.model_copy(update={"lower": (layer, *self.lower)})

    def add(self, path: str, content: bytes) -> None:
        """Write a new file and its folders. Raises FileExistsError if another entry is in the way,
        FileNotFoundError if the path leads out of the tree."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        top = self.layers[0]
        for folder in [*reversed(pure.parents)][1:]:
            existing = self.entry(folder)
            if existing is not None and not stat.S_ISDIR(existing.lstat().st_mode):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
            (top / folder).mkdir(exist_ok=True)
        if self.entry(pure) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with (top / path).open("xb") as file:
            file.write(content)

    def entry(self, path: PurePosixPath) -> Path | None:
        """Return the entry of this name, which may be a link itself; the caller has checked its folders."""
        folders = list(self.layers)
        for part in path.parts:
            folders = merged(folders, part)
        return folders[0] if folders else None


def merged(folders: Sequence[Path], name: str) -> list[Path]:
    """Return the parts of an entry of merged folders (topmost first): one file or link, the folders that
    are merged, or nothing."""
    parts: list[Path] = []
    for number, folder in enumerate(folders, start=1):
        path = folder / name
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if is_whiteout(status):
            break
        if not stat.S_ISDIR(status.st_mode):
            return parts or [path]
        parts.append(path)
        if number < len(folders) and is_opaque(path):
            break
    return parts


def is_whiteout(status: os.stat_result) -> bool:
    """Return whether this entry marks a removal."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == _WHITEOUT


def is_opaque(folder: Path) -> bool:
    """Return whether this folder hides the folders below it, instead of being merged with them."""
    try:
        return os.getxattr(folder, OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def write_whiteout(path: Path) -> None:
    """Hide the entries of this name in the layers below. No privilege is needed since Linux 5.8."""
    os.mknod(path, stat.S_IFCHR | 0o600, _WHITEOUT)
