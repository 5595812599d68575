"""``fallback-tier cache``: entries that make the next fix faster, and their removal."""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

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


class _CacheFolder(NamedTuple):
    """One folder of entries. ``described`` returns an entry's kind and description."""

    name: str
    entries: Entries
    described: Callable[[Entry], tuple[str, str]]


def _shown(folder: _CacheFolder, entry: Entry) -> _Shown:
    kind, description = folder.described(entry)
    return _Shown(
        kept_in=folder.name,
        key=entry.key,
        kind=kind,
        what=description,
        bytes=entry.size,
        last_used=datetime.fromtimestamp(entry.last_used, UTC).isoformat(timespec="seconds"),
        in_use=folder.entries.in_use(entry.key),
    )


def show_list(arguments: argparse.Namespace) -> int:
    """Show every entry, the last used first, and each folder's total against its bounds."""
    entries: list[_Shown] = []
    totals: list[_Total] = []
    for folder in _folders(state_dir(arguments)):
        shown = [_shown(folder, entry) for entry in folder.entries.all()]
        most_bytes = folder.entries.most_bytes
        total = _Total(
            kept_in=folder.name,
            entries=len(shown),
            most_entries=folder.entries.most,
            bytes=sum(entry.bytes for entry in shown),
            most_bytes=None if math.isinf(most_bytes) else int(most_bytes),
        )
        entries += shown
        totals.append(total)
    document = CacheList(entries=tuple(entries), totals=tuple(totals))
    return print_result(arguments, document, *_lines(entries, totals))


def _lines(entries: Sequence[_Shown], totals: Sequence[_Total]) -> Iterator[str]:
    for entry in entries:
        state = "[yellow]in use[/]" if entry.in_use else "      "
        description = f"{safe(entry.what)}  [dim]{safe(entry.key)}[/]"
        size = decimal(entry.bytes)
        yield f"{safe(entry.kind):<9} {size:>9}  {entry.last_used}  {state}  {description}"
    for total in totals:
        bound = "" if total.most_bytes is None else f" of at most {decimal(total.most_bytes)}"
        count = f"{total.entries} of at most {total.most_entries} entries"
        yield f"{total.kept_in}: {count}, {decimal(total.bytes)}{bound}"


def clear(arguments: argparse.Namespace) -> int:
    """Remove what no run uses, and print how much space that freed."""
    age_s = 0 if arguments.older_than is None else arguments.older_than * _DAY_S
    freed, removed, in_use = 0, 0, 0
    for folder in _folders(state_dir(arguments)):
        folder.entries.tidy()  # removes what dead runs left
        for entry in folder.entries.all():
            if time.time() - entry.last_used < age_s:
                continue
            if folder.entries.remove(entry.key):
                freed, removed = freed + entry.size, removed + 1
            else:
                in_use += 1
    lines = [f"removed: {removed:,} entries, {decimal(freed)}"]
    if in_use:
        lines.append(f"  kept        {in_use:,} that a run uses now")
    document = CacheCleared(removed=removed, freed_bytes=freed, in_use=in_use)
    return print_result(arguments, document, *lines)


def _folders(state: Path) -> tuple[_CacheFolder, ...]:
    installed = store.entries_of(state / "cache" / store.FOLDER)
    checked_out = bases.entries_of(state / BASES)
    return (
        _CacheFolder("installed", installed, store.described),
        _CacheFolder("checked out", checked_out, bases.described),
    )
