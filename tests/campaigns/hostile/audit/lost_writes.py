"""What may stand on a disk when the power goes, after a recorded sequence of calls.

The model is that of a disk with a cache and of POSIX, not of a kind file system: bytes are sure once
their file was synced, names once their folder was. Of everything else any part may be there: single
sectors of a write, a later write without an earlier one, a name without the bytes behind it.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

_HEAD = struct.Struct("=cQqIII")

SECTORS = (512, 4096)


class Call(NamedTuple):
    """One recorded change: W(rite), T(runcate), S(ync), C(reate), R(ename), L(ink), U(nlink), D(irectory),
    or M(ark): what a process had said by then."""

    op: str
    inode: int
    offset: int
    path: str
    other: str
    data: bytes


def read_calls(recorded: bytes) -> Iterator[Call]:
    at = 0
    while at < len(recorded):
        op, inode, offset, *lengths = _HEAD.unpack_from(recorded, at)
        at += _HEAD.size
        parts = []
        for length in lengths:
            parts.append(recorded[at : at + length])
            at += length
        yield Call(op.decode(), inode, offset, parts[0].decode(), parts[1].decode(), parts[2])


class File:
    """Its bytes that are sure, and the changes that are not: at an offset, or None and a new size."""

    def __init__(self, sure: bytes = b"") -> None:
        self.sure = bytearray(sure)
        self.pending: list[tuple[int | None, bytes, int]] = []

    def sync(self) -> None:
        self.sure = self.with_changes(lambda: True, SECTORS[0])
        self.pending.clear()

    def with_changes(self, taken: Callable[[], bool], sector: int) -> bytearray:
        """The bytes with those pending changes that are ``taken``, each sector for itself."""
        content = bytearray(self.sure)
        for offset, data, size in self.pending:
            if offset is None:
                if taken():
                    _resize(content, size)
                continue
            at = 0
            while at < len(data):
                length = min(sector - (offset + at) % sector, len(data) - at)
                if taken():
                    if len(content) < offset + at:
                        _resize(content, offset + at)
                    content[offset + at : offset + at + length] = data[at : at + length]
                at += length
        return content


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


class Disk:
    """Everything below one folder, call by call. A name stands for a File, or None for a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._inodes: dict[int, File] = {}
        self._names: dict[str, File | None] = {str(root): None}
        for path in sorted(root.rglob("*")):
            self._names[str(path)] = None
            if path.is_file():
                file = File(path.read_bytes())
                self._names[str(path)] = self._inodes[path.stat().st_ino] = file
        self._now = dict(self._names)
        self._pending: list[tuple[str, dict[str, File | None], list[str]]] = []

    def take(self, call: Call) -> None:
        file = self._inodes.get(call.inode)
        if call.op == "W" and file:
            file.pending.append((call.offset, call.data, 0))
        elif call.op == "T" and file:
            file.pending.append((None, b"", call.offset))
        elif call.op == "S" and self._now.get(call.path, self) is None:
            self._sync_folder(call.path)
        elif call.op == "S" and file:
            file.sync()
        elif call.op == "C":
            self._inodes[call.inode] = made = File()
            self._name({call.path: made}, [])
        elif call.op == "D":
            self._name({call.path: None}, [])
        elif call.op in "RL":
            self._name({call.other: self._now[call.path]}, [call.path] if call.op == "R" else [])
        elif call.op == "U":
            self._name({}, [call.path])

    def _name(self, added: dict[str, File | None], removed: list[str]) -> None:
        folder = str(Path(next(iter([*added, *removed]))).parent)
        self._pending.append((folder, added, removed))
        _apply(self._now, added, removed)

    def _sync_folder(self, folder: str) -> None:
        for where, added, removed in self._pending:
            if where == folder:
                _apply(self._names, added, removed)
        self._pending = [change for change in self._pending if change[0] != folder]

    def unsure(self) -> bool:
        return bool(self._pending) or any(file.pending for file in self._inodes.values())

    def lose(self, kind: str, chance: Random, place: Path) -> None:
        """Write to ``place`` what one disk may hold now; ``kind`` is one of KINDS."""
        share, sector = chance.choice((0.1, 0.5, 0.9)), chance.choice(SECTORS)
        data, names = KINDS[kind]
        taken = (lambda: chance.random() < share) if data is None else (lambda: data)
        for path, file in sorted(self._surviving(names, chance).items()):
            target = place / Path(path).relative_to(self._root)
            if file is None:
                target.mkdir(mode=0o700, exist_ok=True, parents=True)
            elif target.parent.is_dir():
                target.write_bytes(file.with_changes(taken, sector))
                target.chmod(0o600)

    def _surviving(self, names: bool | None, chance: Random) -> dict[str, File | None]:
        if names is not None:
            return dict(self._now if names else self._names)
        found = dict(self._names)
        for folder in {where for where, _, _ in self._pending}:  # a folder's changes come in order
            changes = [change for change in self._pending if change[0] == folder]
            for _, added, removed in changes[: chance.randint(0, len(changes))]:
                _apply(found, added, removed)
        return found


def _apply(
    names: dict[str, File | None], added: dict[str, File | None], removed: list[str]
) -> None:
    for name in removed:
        names.pop(name, None)
    names.update(added)


#: Of the bytes and of the names that are not sure: all, none, or (None) some.
KINDS: dict[str, tuple[bool | None, bool | None]] = {
    "only what was synced": (False, False),
    "everything": (True, True),
    "names without bytes": (False, True),
    "bytes without names": (True, False),
    "some sectors, all names": (None, True),
    "some sectors, some names": (None, None),
}
