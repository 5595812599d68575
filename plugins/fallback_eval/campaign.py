"""The runner of campaigns: drawn cases, a row per case, resume, a page made of the rows, a check of all.

A campaign declares a ``Campaign`` and calls its ``main``. One that is shaped otherwise uses the parts:
``Rows`` (or ``AppendedRows``) and ``measure``. Nothing of the product is imported here: what judges the
product uses it (ADR-0124).
"""

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

RESULTS, REPORT = "results.jsonl", "report.md"

#: Free disk without which no case begins: on a full disk it would fail for the machine, not for the tool.
LEAST_FREE_BYTES = 4 * 1024**3

#: Rows are read, changed and written as a whole.
_WRITING = threading.Lock()


class RowError(ValueError):
    """A line of a file of rows is not a row of its kind. ``fault``: what pydantic says of it."""

    def __init__(self, place: str, fault: ValidationError) -> None:
        super().__init__(f"{place} is not a row: {fault.error_count()} error(s)")
        self.place = place
        self.fault = fault


class DiskFullError(Exception):
    """The disk of temporary files has too little room for another case."""


class Half(StrEnum):
    """Half of the cases is set aside, and looked at once."""

    SEEN = "seen"
    SET_ASIDE = "set aside"


class Case(Protocol):
    """A case: its name is unique in its campaign."""

    @property
    def name(self) -> str:
        """Return the name."""
        ...


class Row(Protocol):
    """What the runner prints of a row."""

    @property
    def name(self) -> str:
        """Return its case's name."""
        ...

    @property
    def seconds(self) -> float:
        """Return how long the case took."""
        ...


_Case = TypeVar("_Case", bound=Case)
_Kept = TypeVar("_Kept")
_Row = TypeVar("_Row", bound=Row)
_Name = TypeVar("_Name", bound=Case)
_Key = TypeVar("_Key", bound=Hashable)


# --- drawn cases ----------------------------------------------------------------------------------


def alternately(names: Iterable[str], seed: str) -> dict[str, Half]:
    """Return the half of each name: alternately in the order of a seeded hash, so that no person chose."""
    drawn = sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).hexdigest())
    return {name: (Half.SEEN, Half.SET_ASIDE)[place % 2] for place, name in enumerate(drawn)}


def may_look(halves: Iterable[Half | None], campaign: str, *, meant: bool) -> bool:
    """Return False, after a message on standard error, if a half set aside would be looked at too early."""
    if meant or Half.SET_ASIDE not in set(halves):
        return True
    sys.stderr.write(
        f"{campaign}: that half is set aside, to be looked at once.\n"
        "  next: Say --look-at-what-was-set-aside where now is that time.\n"
    )
    return False


# --- rows and their page --------------------------------------------------------------------------


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write each file whole or not at all: another run may read. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        part = folder / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(folder / name)


@dataclass(frozen=True)
class Rows(Generic[_Kept, _Key]):
    """Rows as JSON lines, one per key, and the page that is made of them and of nothing else.

    ``order`` sorts the rows; None keeps them as they were made. ``dump`` is a row's line, by default
    pydantic's JSON.
    """

    kind: type[_Kept]
    key: Callable[[_Kept], _Key]
    page: Callable[[Sequence[_Kept]], str] | None = None
    order: Callable[[_Kept], tuple[str, ...] | str] | None = None
    dump: Callable[[_Kept], str] | None = None
    name: str = RESULTS
    page_name: str = REPORT

    def read(self, folder: Path) -> tuple[_Kept, ...]:
        """Return the rows, none without a file. Raises OSError, RowError."""
        place = folder / self.name
        text = place.read_text(encoding="utf-8") if place.exists() else ""
        return tuple(_parsed(text, place, TypeAdapter(self.kind)))

    def by_key(self, folder: Path) -> dict[_Key, _Kept]:
        """Return the rows by key. Raises OSError, RowError."""
        return {self.key(row): row for row in self.read(folder)}

    def shown(self, folder: Path) -> str:
        """Return the page as it is in the folder, empty if it isn't. Raises OSError."""
        place = folder / self.page_name
        return place.read_text(encoding="utf-8") if place.exists() else ""

    def write(self, rows: Iterable[_Kept], folder: Path) -> None:
        """Write these rows and their page. Raises OSError."""
        found = list(rows) if self.order is None else sorted(rows, key=self.order)
        adapter = TypeAdapter(self.kind)
        dump = self.dump or (lambda row: adapter.dump_json(row).decode())
        texts = {self.name: "".join(f"{dump(row)}\n" for row in found)}
        if self.page is not None:
            texts[self.page_name] = self.page(found)
        write_files(folder, texts)

    def keep(
        self, row: _Kept, folder: Path, *, only: Callable[[_Kept], bool] | None = None
    ) -> None:
        """Put a row in place of the one of its key, next to what other runs wrote meanwhile.

        ``only``: which of the other rows stay. Raises OSError, RowError.
        """
        key = self.key(row)
        with _WRITING:
            others = (one for one in self.read(folder) if self.key(one) != key)
            self.write([*(one for one in others if only is None or only(one)), row], folder)

    def faults(self, rows: Sequence[_Kept], shown: str) -> list[str]:
        """Return what is wrong with rows and the page that is shown: another page, two rows of a key."""
        found = []
        if self.page is not None and shown != self.page(rows):
            found.append(f"{self.page_name} is not made from {self.name}: --remake")
        counts = Counter(map(self.key, rows))
        return found + [
            f"{count} rows of {' '.join(key) if isinstance(key, tuple) else key}"
            for key, count in counts.items()
            if count > 1
        ]


@dataclass(frozen=True)
class AppendedRows(Generic[_Kept, _Key]):
    """Rows that are only ever added to a file; the last one of a key counts.

    For rows that are large, or that took minutes each: adding one does not write the others again.
    """

    kind: type[_Kept]
    key: Callable[[_Kept], _Key]

    def read(self, path: Path) -> dict[_Key, _Kept]:
        """Return the last row of each key. A line that a stop cut short is removed from the file's end.
        Raises OSError, RowError."""
        if not path.exists():
            return {}
        text = path.read_text(encoding="utf-8", errors="replace")
        whole, _, rest = text.rpartition("\n")
        if rest:
            path.write_text(whole + "\n" if whole else "", encoding="utf-8")
        return {self.key(row): row for row in _parsed(whole, path, TypeAdapter(self.kind))}

    def add(self, row: _Kept, path: Path) -> None:
        """Add a row; it is durable when this returns. Raises OSError."""
        line = TypeAdapter(self.kind).dump_json(row).decode()
        with path.open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")
            stream.flush()
            os.fsync(stream.fileno())


def _parsed(text: str, path: Path, adapter: TypeAdapter[_Kept]) -> Iterable[_Kept]:
    # Not splitlines(): a JSON string may hold a line separator of Unicode's.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield adapter.validate_json(line)
            except ValidationError as error:
                raise RowError(f"{path}, line {number}", error) from error


# --- the loop -------------------------------------------------------------------------------------


def check_disk(least_bytes: int = LEAST_FREE_BYTES) -> None:
    """Raise DiskFullError if the disk of temporary files has too little room for another case."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < least_bytes:
        raise DiskFullError(
            f"{free / 1024**3:.1f} GiB are free for temporary files; a case needs "
            f"{least_bytes / 1024**3:.0f}. Free room, and run this again: it resumes."
        )


def measure(
    cases: Sequence[_Name],
    run: Callable[[_Name], _Kept],
    keep: Callable[[_Kept, str], None],
    *,
    jobs: int,
    pool: Callable[[int], Executor] = ThreadPoolExecutor,
) -> None:
    """Run each case; ``keep`` gets its row as it ends, and which of how many it is.

    A case that raises (its repository, a client, the harness) has no row; it is named on standard error,
    and a full disk once. ``pool`` makes what runs them, threads by default.
    """
    is_full = False
    with pool(jobs) as workers:
        running = {workers.submit(run, case): case for case in cases}
        for done, future in enumerate(as_completed(running), start=1):
            try:
                row = future.result()
            except DiskFullError as error:
                sys.stderr.write("" if is_full else f"{error}\n")
                is_full = True
            except Exception as error:  # noqa: BLE001 (whatever it is, the next case must run)
                sys.stderr.write(f"{running[future].name}: {error!r}\n")
            else:
                keep(row, f"{done}/{len(cases)}")


def print_faults(faults: Sequence[str]) -> int:
    """Print what a check found, one per line, on standard error; return the exit code."""
    sys.stderr.writelines(f"{line}\n" for line in faults)
    return 1 if faults else 0


def parser_of(prog: str, about: str | None, folder: Path) -> argparse.ArgumentParser:
    """Return a parser with the options of every campaign."""
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a case")
    parser.add_argument("--again", action="store_true", help="run also what has a row already")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases side by side")
    parser.add_argument("--json", action="store_true", help="one JSON object per case")
    parser.add_argument("--check", action="store_true", help="run nothing: does all fit together?")
    parser.add_argument(
        "--remake",
        action="store_true",
        help="run nothing: the page again, without rows of cases that are gone",
    )
    parser.add_argument("--folder", type=Path, default=folder, help="results and report")
    return parser


def add_halves(parser: argparse.ArgumentParser) -> None:
    """Add the options of a campaign of which half of the cases is set aside."""
    parser.add_argument("--half", choices=[*map(str, Half)], default=str(Half.SEEN))
    parser.add_argument("--look-at-what-was-set-aside", action="store_true", help="mean it")


def _always(*_: object) -> bool:
    return True


def _newer(row: _Row, _former: _Row | None) -> _Row:
    return row


@dataclass(frozen=True)
class Campaign(Generic[_Case, _Row, _Key]):
    """A campaign over named cases.

    ``parser``: at least the options of ``parser_of``, and those of ``add_halves`` if there is ``half_of``.
    ``cases`` loads those that are named, or all. ``key``: of a case's row in this run.
    ``prepare`` gets the cases to run, which may be none, and returns what runs one. It is called once.
    ``is_done``: is a case with this row (None: it has none) left out when a run resumes?
    ``follow`` makes of a new row and the earlier one of its key the row that is kept.
    ``sentence`` is printed of a row, ``holds`` decides the exit code.
    ``faults``: what a check finds besides another page and double rows.
    """

    name: str
    parser: Callable[[], argparse.ArgumentParser]
    rows: Rows[_Row, _Key]
    cases: Callable[[Sequence[str]], Sequence[_Case]]
    key: Callable[[_Case, argparse.Namespace], _Key]
    prepare: Callable[[argparse.Namespace, Sequence[_Case]], Callable[[_Case], _Row]]
    is_done: Callable[[_Row | None, _Case, argparse.Namespace], bool]
    sentence: Callable[[_Row], str]
    holds: Callable[[_Row], bool] = _always
    faults: Callable[[Sequence[_Row]], Iterable[str]] = field(default=lambda _: ())
    half_of: Callable[[_Case], Half | None] | None = None
    follow: Callable[[_Row, _Row | None], _Row] = _newer

    def main(self, words: Sequence[str] | None = None) -> int:
        """Parse and ``run``."""
        return self.run(self.parser().parse_args(words))

    def run(self, arguments: argparse.Namespace) -> int:
        """Return 0 if every chosen case has a row that holds (with --check: if all fits), else 1.

        2: a half set aside would be looked at.
        """
        if arguments.check:
            return print_faults(self.check(arguments.folder))
        if arguments.remake:
            self.remake(arguments.folder)
            return 0
        cases = self.chosen(arguments)
        if cases is None:
            return 2
        return self._measure(cases, arguments)

    def check(self, folder: Path) -> list[str]:
        """Return what does not fit: page and rows, rows and cases. Raises OSError, RowError."""
        rows = self.rows.read(folder)
        return [*self.rows.faults(rows, self.rows.shown(folder)), *self.faults(rows)]

    def remake(self, folder: Path) -> None:
        """Make the page again, without rows of cases that are gone. Raises OSError, RowError."""
        self.rows.write(filter(self._has_case(), self.rows.read(folder)), folder)

    def chosen(self, arguments: argparse.Namespace) -> Sequence[_Case] | None:
        """Return the cases named with --only, else those of --half; None if they may not be looked at."""
        named = self.cases(arguments.only)
        if self.half_of is None:
            return named
        half_of = self.half_of
        halves = set(map(half_of, named)) if arguments.only else {Half(arguments.half)}
        if not may_look(halves, self.name, meant=arguments.look_at_what_was_set_aside):
            return None
        return [case for case in named if half_of(case) in halves]

    def _measure(self, cases: Sequence[_Case], arguments: argparse.Namespace) -> int:
        known = self.rows.by_key(arguments.folder)
        again = arguments.again or bool(arguments.only)

        def is_due(case: _Case) -> bool:
            row = known.get(self.key(case, arguments))
            return again or not self.is_done(row, case, arguments)

        due = [case for case in cases if is_due(case)]
        run, has_case = self.prepare(arguments, due), self._has_case()

        def begin(case: _Case) -> _Row:
            check_disk()
            return run(case)

        def keep(row: _Row, which: str) -> None:
            former = self.rows.by_key(arguments.folder).get(self.rows.key(row))
            row = self.follow(row, former)
            self.rows.keep(row, arguments.folder, only=has_case)
            if arguments.json:
                line = TypeAdapter(self.rows.kind).dump_json(row).decode()
            else:
                line = f"{which} {row.name}: {self.sentence(row)} ({row.seconds:.0f} s)"
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

        measure(due, begin, keep, jobs=arguments.jobs)
        rows = self.rows.by_key(arguments.folder)
        found = [rows.get(self.key(case, arguments)) for case in cases]
        return 0 if all(row is not None and self.holds(row) for row in found) else 1

    def _has_case(self) -> Callable[[_Row], bool]:
        names = {case.name for case in self.cases(())}
        return lambda row: row.name in names
