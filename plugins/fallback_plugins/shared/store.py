"""Store of installed packages, by digests of all that decides them, so that equal installations are
reused (ADR-0041).

An entry is written only when it is created. It is checked whenever it is used: all of its bytes once per
boot, after that sizes, times and names. An entry that was changed is recreated.

What is installed for manifests is resolved once per fix (ADR-0102): the first installation records which
packages it chose, and every later one installs these again.
"""

import hashlib
import json
import os
import stat
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fallback_plugins.shared.installation import Installed
from fallback_plugins.shared.resolution import MAX_RESOLUTIONS, Resolution, ResolvedBy
from fallback_tier.errors import ToolFailedError
from fallback_tier.files import whole
from fallback_tier.files.entries import MARK, Entries, Entry, say_nothing
from fallback_tier.files.folders import boot_id
from fallback_tier.gate_ports import GateContext

#: Installations in a store. Eight commits are kept checked out (ADR-0027); each is proved with its own
#: installation and a patched one, and there is room for a retry's, for a second project folder, and for
#: wheels that were built for them.
MAX_ENTRIES = 64

#: An installation has about 10 MB to 1 GB; files that a client's own cache shares with it count too.
MAX_BYTES = 20 * 1024**3

#: Folder of an entry in which packages were installed.
_CONTENT = "installed"

#: Folder of the entries in a state folder's cache.
FOLDER = "installed"

#: Folder next to that one: the newest resolution of each set of manifests, for the next fix of that day.
_NEWEST = "resolutions"

#: Packages that an error names.
_NAMED = 5


@dataclass(frozen=True)
class Wanted:
    """An installation. ``what``: digest of the manifests and the setting; ``by``: digest of the clients and
    the machine; ``of_fix``: the fix's resolutions by ``what``; ``base``: the installation whose packages
    this one keeps.

    ``fresh``: the day, and what failed builds depend on: another fix's resolution is taken only if it had
    the same. ``admits``: whether such a resolution is what the recipe of this fix resolved, as far as that
    is known by now. Neither is part of any key.
    """

    kind: str
    what: str
    by: str
    of_fix: MutableMapping[str, str]
    fresh: str
    base: "Wanted | None" = None
    admits: Callable[[Resolution], bool] = field(default=lambda _resolution: True, compare=False)

    @property
    def asked(self) -> str:
        """A key of all that decides the installation, except the resolution."""
        return _key(self.kind, self.what, self.by)

    def key(self, resolution: Resolution) -> str:
        """Return the entry's key."""
        return _key(self.kind, self.what, self.by, resolution.digest)


#: Installs into a folder: the packages of a resolution, if there is one.
Make = Callable[[Path, Resolution | None], tuple[Installed, Resolution]]


class InstalledStore:
    """The entries of one folder. Entries that it returned are in use for as long as this object lives."""

    def __init__(self, folder: Path, report: Callable[[str], None] = say_nothing) -> None:
        self._report = report
        self._entries = entries_of(folder, report)
        self._uses: dict[str, BinaryIO] = {}
        weakref.finalize(self, _let_go, self._uses)

    @classmethod
    def of(cls, context: GateContext) -> "InstalledStore":
        """Return the store of a gate's state folder."""
        return cls(context.cache / FOLDER, context.report)

    def entry(self, key: str, make: Callable[[Path], Installed]) -> Path:
        """Return the entry's folder, created if it is missing; ``Installed.kept`` reads its record.

        ``key``: of all that decides the entry, ``KIND-DIGEST``. Raises what ``make`` raises, and then
        nothing is stored; OSError; ToolFailedError if another run is creating the entry and does not
        end.
        """
        with self._entries.turn(key) as path:
            if not self._is_whole(path):
                with self._entries.made(key) as part:
                    _fill(part, make)
            self._use(key)
        self._entries.tidy()
        return path / _CONTENT

    def installed(self, wanted: Wanted, make: Make) -> Path:
        """Return the folder of an installation, created if it is missing, and record the fix's resolution.

        Raises as ``entry``; ToolFailedError if the packages of a recorded resolution are not available
        any more.
        """
        recorded = self._recorded(wanted)
        if recorded is not None:
            return self.entry(wanted.key(recorded), lambda folder: _again(folder, recorded, make))
        resolution = self._newest(wanted)
        path = None if resolution is None else self.find(wanted.key(resolution))
        if resolution is None or path is None:
            path, resolution = self._resolve(wanted, make)
        wanted.of_fix[wanted.what] = json.dumps(resolution.model_dump(mode="json"))
        return path

    def resolution(self, wanted: Wanted) -> Resolution | None:
        """Return the fix's resolution, or that of another fix which is still fresh."""
        return self._recorded(wanted) or self._newest(wanted)

    def resolved(self, wanted: Wanted) -> Resolution:
        """Return the resolution of what ``installed`` has installed for this fix."""
        return Resolution.model_validate_json(wanted.of_fix[wanted.what])

    def find_for(self, wanted: Wanted) -> Path | None:
        """Return the folder of an installation that was made and is whole. Raises OSError,
        ToolFailedError."""
        resolution = self.resolution(wanted)
        return None if resolution is None else self.find(wanted.key(resolution))

    def _resolve(self, wanted: Wanted, make: Make) -> tuple[Path, Resolution]:
        request_key, chosen = wanted.asked, list[Resolution]()

        def resolve(folder: Path) -> Installed:
            installed, resolution = make(folder, None)
            chosen.append(resolution)
            return installed

        with self._entries.turn(request_key), self._entries.part(request_key) as part:
            newest = self._newest(wanted)  # another run may have resolved it meanwhile
            if newest is not None and (path := self.find(wanted.key(newest))) is not None:
                return path, newest
            installed = _fill(part, resolve)
            (resolution,) = chosen
            key = wanted.key(resolution)
            with self._entries.turn(key) as path:
                if not self._is_whole(path):
                    self._entries.put(part, key)
                self._use(key)
            lasts = resolution.by is ResolvedBy.LOCK and not installed.unbuilt
            self._keep_newest(wanted, resolution, is_lasting=lasts)
        self._entries.tidy()
        return path / _CONTENT, resolution

    @staticmethod
    def _recorded(wanted: Wanted) -> Resolution | None:
        text = wanted.of_fix.get(wanted.what)
        try:
            return None if text is None else Resolution.model_validate_json(text)
        except ValueError as error:
            raise ToolFailedError(
                "What this fix resolved was recorded by another version, and can't be read.",
                next_step="Resume with the version that started the fix, or start a new fix.",
            ) from error

    def _newest(self, wanted: Wanted) -> Resolution | None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            stored = json.loads(whole.kept(self._newest_file(wanted)) or b"")
            if stored["fresh"] in {"", self._fresh(wanted)}:
                resolution = Resolution.model_validate(stored["resolution"])
                return resolution if wanted.admits(resolution) else None
        return None

    def _fresh(self, wanted: Wanted) -> str | None:
        """Return what another fix's resolution must share; None if the base's resolution is not known
        yet."""
        if wanted.base is None:
            return wanted.fresh
        base = self.resolution(wanted.base)
        return None if base is None else f"{wanted.fresh} {base.digest}"

    def _keep_newest(self, wanted: Wanted, resolution: Resolution, *, is_lasting: bool) -> None:
        fresh = "" if is_lasting else self._fresh(wanted)
        if fresh is None:
            return
        stored = {"fresh": fresh, "resolution": resolution.model_dump(mode="json")}
        whole.keep(self._newest_file(wanted), json.dumps(stored).encode(), MAX_RESOLUTIONS)

    def _newest_file(self, wanted: Wanted) -> Path:
        return self._entries.folder.parent / _NEWEST / f"{wanted.asked}.json"

    def find(self, key: str) -> Path | None:
        """Return an entry's folder if it exists and is unchanged. Raises OSError, ToolFailedError."""
        if not (self._entries.folder / key).is_dir():
            return None
        with self._entries.turn(key) as path:
            if not self._is_whole(path):
                return None
            self._use(key)
        return path / _CONTENT

    @staticmethod
    def digest(folder: Path) -> str:
        """Return the digest of every byte of an entry's folder, as recorded when it was created."""
        mark = json.loads((folder.parent / MARK).read_text(encoding="utf-8"))
        return str(mark["content"])

    def _use(self, key: str) -> None:
        use = self._entries.use(key)
        if (before := self._uses.pop(key, None)) is not None:
            before.close()
        self._uses[key] = use

    def _is_whole(self, path: Path) -> bool:
        """Return whether an entry is unchanged since it was created. All of it is read once per boot, or if
        something differs."""
        if not path.exists():
            return False
        # Parts of it may be gone, or its mark may be damaged.
        with suppress(OSError, ValueError, TypeError, KeyError):
            mark = json.loads((path / MARK).read_text(encoding="utf-8"))
            boot, stats, content = mark["boot"], mark["stats"], mark["content"]
            if boot == boot_id() and stats == _digest(path / _CONTENT, _stats):
                return True
            if content == _digest(path / _CONTENT, _content):
                _mark(path)
                return True
        self._report(f"{MADE_AGAIN}: {path}")
        return False


#: Report on an entry that was changed since it was created.
MADE_AGAIN = "what was installed was changed since, and is made again"


def entries_of(folder: Path, report: Callable[[str], None] = say_nothing) -> Entries:
    """Return the entries of a folder."""
    what = "what is to be installed"
    return Entries(folder, what, most=MAX_ENTRIES, most_bytes=MAX_BYTES, report=report)


def described(entry: Entry) -> tuple[str, str]:
    """Return an entry's kind, and how much of what was declared is in it."""
    kind = entry.key.partition("-")[0]
    try:
        return kind, Installed.kept(entry.place / _CONTENT).level
    except (OSError, ToolFailedError):
        return kind, "nothing that can be read"


def _key(kind: str, *parts: str) -> str:
    return f"{kind}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"


def _fill(part: Path, make: Callable[[Path], Installed]) -> Installed:
    (part / _CONTENT).mkdir()
    installed = make(part / _CONTENT)
    installed.keep(part / _CONTENT)
    _mark(part)
    return installed


def _again(folder: Path, recorded: Resolution, make: Make) -> Installed:
    """Install a recorded resolution. Raises ToolFailedError if other packages are installed now."""
    installed, now = make(folder, recorded)
    if now.digest == recorded.digest:
        return installed
    packages = [
        {(package.key, package.name, package.version) for package in resolution.packages}
        for resolution in (recorded, now)
    ]
    gone = [f"{name} {version}" for _, name, version in sorted(packages[0] - packages[1])]
    what = ", ".join(gone[:_NAMED]) or "further packages are installed"
    raise ToolFailedError(
        f"What {recorded.command.label} installed for this fix on {recorded.made_on} can't be installed "
        f"again: {what}.",
        next_step="Start a new fix, which resolves the base commit again.",
    )


def _let_go(uses: dict[str, BinaryIO]) -> None:
    for use in uses.values():
        use.close()


def _mark(path: Path) -> None:
    """Write the mark of an entry: digests of names, sizes and times, and of every byte. It is replaced
    as a whole: readers have the turn too."""
    top = path / _CONTENT
    mark = {"boot": boot_id(), "stats": _digest(top, _stats), "content": _digest(top, _content)}
    partial = path / f"{MARK}.new"
    partial.write_text(json.dumps(mark), encoding="utf-8")
    partial.replace(path / MARK)


def _digest(top: Path, of: Callable[[bytes, os.stat_result], object]) -> str:
    """Return a digest of everything below a folder: the name, type and permissions of each entry, and what
    ``of`` returns for it."""
    digest = hashlib.sha256()
    start = os.fsencode(top)
    for path, status in _walk(start):
        name = path[len(start) :].hex()
        digest.update(f"{name} {status.st_mode} {of(path, status)}\n".encode())
    return digest.hexdigest()


def _walk(top: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield everything below a folder, in a fixed order; links are not followed."""
    waiting = _last_first(top)
    while waiting:
        entry = waiting.pop()
        yield entry.path, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            waiting += _last_first(entry.path)


def _last_first(folder: bytes) -> list[os.DirEntry[bytes]]:
    return sorted(os.scandir(folder), key=lambda entry: entry.name, reverse=True)


def _stats(_path: bytes, status: os.stat_result) -> object:
    """Return a file's size, modification time and inode; "" for a folder, whose files are compared. The
    change time is not used: it changes if a client's cache makes another link to the file."""
    if stat.S_ISDIR(status.st_mode):
        return ""
    return status.st_size, status.st_mtime_ns, status.st_ino


def _content(path: bytes, status: os.stat_result) -> object:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path).hex()  # noqa: PTH115 (a name that no encoding has)
    if not stat.S_ISREG(status.st_mode):
        return ""
    with open(path, "rb") as file:  # noqa: PTH123 (as above)
        return hashlib.file_digest(file, "sha256").hexdigest()
