"""``fallback-tier cache``: what is kept to make the next fix faster, and room again."""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.filesize import decimal

from fallback_audit.frozen import Frozen
from fallback_plugins.shared import store
from fallback_tier.cli.options import state_dir
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result
from fallback_tier.files.entries import Entries, Entry
from fallback_tier.gates.trees import bases
from fallback_tier.gates.trees.worktrees import BASES

_DAY_S = 86_400


class _Shown(Frozen):
    """One entry, as JSON has it."""

    kept_in: str
    key: str
    kind: str
    what: str
    bytes: int
    last_used: str
    in_use: bool


class _Total(Frozen):
    """All entries of one folder, and their bounds, as JSON has them. ``most_bytes`` None: none."""

    kept_in: str
    entries: int
    most_entries: int
    bytes: int
    most_bytes: int | None


class CacheList(Frozen):
    """What ``cache list --json`` prints."""

    entries: tuple[_Shown, ...]
    totals: tuple[_Total, ...]


class CacheCleared(Frozen):
    """What ``cache clear --json`` prints. ``in_use``: entries that a run uses now, and that stay."""

    removed: int
    freed_bytes: int
    in_use: int


@dataclass(frozen=True)
class _CacheFolder:
    """One folder of entries. ``described``: an entry's kind, and what it is."""

    name: str
    entries: Entries
    described: Callable[[Entry], tuple[str, str]]

    def shown(self) -> list[_Shown]:
        """Each entry, the last used first."""
        return [self._shown(entry) for entry in self.entries.all()]

    def _shown(self, entry: Entry) -> _Shown:
        when = datetime.fromtimestamp(entry.last_used, UTC).isoformat(timespec="seconds")
        kind, what = self.described(entry)
        return _Shown(
            kept_in=self.name,
            key=entry.key,
            kind=kind,
            what=what,
            bytes=entry.size,
            last_used=when,
            in_use=self.entries.in_use(entry.key),
        )

    def total(self, shown: Sequence[_Shown]) -> _Total:
        """What they come to, against the bounds."""
        most, bound = self.entries.most, self.entries.most_bytes
        size = sum(entry.bytes for entry in shown)
        return _Total(
            kept_in=self.name,
            entries=len(shown),
            most_entries=most,
            bytes=size,
            most_bytes=None if math.isinf(bound) else int(bound),
        )


def show_list(arguments: argparse.Namespace) -> int:
    """Show every entry, and each folder's total against its bounds."""
    shelves = _shelves(state_dir(arguments))
    found = [shelf.shown() for shelf in shelves]
    totals = [shelf.total(shown) for shelf, shown in zip(shelves, found, strict=True)]
    entries = [entry for shown in found for entry in shown]
    document = CacheList(entries=tuple(entries), totals=tuple(totals))
    return print_result(arguments, document, *_lines(entries, totals))


def _lines(entries: Sequence[_Shown], totals: Sequence[_Total]) -> Iterator[str]:
    for entry in entries:
        state = "[yellow]in use[/]" if entry.in_use else "      "
        what = f"{safe(entry.what)}  [dim]{safe(entry.key)}[/]"
        size = decimal(entry.bytes)
        yield f"{safe(entry.kind):<9} {size:>9}  {entry.last_used}  {state}  {what}"
    for total in totals:
        bound = "" if total.most_bytes is None else f" of at most {decimal(total.most_bytes)}"
        count = f"{total.entries} of at most {total.most_entries} entries"
        yield f"{total.kept_in}: {count}, {decimal(total.bytes)}{bound}"


def clear(arguments: argparse.Namespace) -> int:
    """Remove what no run uses, and say how much room that gave."""
    age_s = 0 if arguments.older_than is None else arguments.older_than * _DAY_S
    freed, removed, in_use = 0, 0, 0
    for entries, entry in _entries(state_dir(arguments)):
        if time.time() - entry.last_used < age_s:
            continue
        if entries.remove(entry.key):
            freed, removed = freed + entry.size, removed + 1
        else:
            in_use += 1
    lines = [f"removed: {removed:,} entries, {decimal(freed)}"]
    if in_use:
        lines.append(f"  kept        {in_use:,} that a run uses now")
    document = CacheCleared(removed=removed, freed_bytes=freed, in_use=in_use)
    return print_result(arguments, document, *lines)


def _entries(state: Path) -> Iterator[tuple[Entries, Entry]]:
    for shelf in _shelves(state):
        shelf.entries.tidy()  # what dead runs left is nobody's
        for entry in shelf.entries.all():
            yield shelf.entries, entry


def _shelves(state: Path) -> tuple[_CacheFolder, ...]:
    installed = store.entries_of(state / "cache" / store.FOLDER)
    checked_out = bases.entries_of(state / BASES)
    return (
        _CacheFolder("installed", installed, store.described),
        _CacheFolder("checked out", checked_out, bases.described),
    )
