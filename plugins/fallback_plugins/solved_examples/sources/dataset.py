"""Records from a file: our own format, or a data set of real fixes with their diffs.

A line of the data set has an advisory (``id``, ``aliases``, ``summary``, ``details``, ``cwe_ids``),
a package (``ecosystem``, ``packages``) and a fix (``diff``, ``commit_subject``, ``fix_commit``,
``fix_commit_url``, ``repo``, ``repo_licence``, ``language``); further fields are not read. A record that
can't be used is skipped with a reason, never silently.

A unified diff (as git makes it) becomes search/replace edits: one hunk, one edit. ``old`` is what the hunk
removes with the context around it, ``new`` what replaces it, both exactly as in the diff, with line ends. A
diff contains less than its files: an ``old`` may be in the file twice, so such edits are shown and never
replayed (ADR-0013). Changes that search and replace can't express are left out, and named: a new or deleted
file, a binary one, a merge's combined diff, and an insertion without context (no text to search for).
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from fallback_plugins.solved_examples.store.records import lines, not_valid, one_line, parse_record
from fallback_tier.errors import InputError
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import ExampleOrigin, ExampleProvenance, SolvedExample

#: Licences (SPDX, and the family name that some data sets give) that let a fix be shown in a prompt
#: and its idea be used in any repository.
PERMISSIVE = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BlueOak-1.0.0",
        "BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
        "Zlib",
        "ZPL-2.1",
    }
)

#: Prefix in "package.json:MIT", which says where the licence was read.
_LICENCE_SOURCE = "package.json:"


class Format(StrEnum):
    """The type of a file's lines. ``auto``: detected from the first line."""

    AUTO = "auto"
    RECORDS = "records"
    DATASET = "dataset"


class SkipReason(StrEnum):
    """Why a record of a data set is not taken."""

    WITHDRAWN = "its advisory was withdrawn"
    NO_LICENCE = "no licence"
    LICENCE = "not a permissive licence"
    NO_TEXT = "no advisory text"
    NO_EDIT = "no usable edit"


class LeftOutReason(StrEnum):
    """Why a part of a diff became no edit."""

    NEW_FILE = "new file"
    DELETED_FILE = "deleted file"
    BINARY = "binary file"
    COMBINED = "combined diff of a merge"
    NO_ANCHOR = "insertion without context"
    BROKEN = "broken hunk"


@dataclass(frozen=True)
class LeftOut:
    """A part of a diff that did not become an edit: one hunk, or one file."""

    path: str
    reason: LeftOutReason


@dataclass(frozen=True)
class Imported:
    """A record, and the parts of its diff that did not become edits."""

    example: SolvedExample
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """A record that was skipped. ``place`` names file and line."""

    example_id: str
    reason: SkipReason
    place: str
    left_out: tuple[LeftOut, ...] = ()


class _Row(BaseModel):
    id: Annotated[str, Field(min_length=1)]
    aliases: tuple[str, ...] = ()
    summary: str | None = None
    details: str | None = None
    cwe_ids: tuple[str, ...] = ()
    ecosystem: Annotated[str, Field(min_length=1)]
    packages: Annotated[tuple[str, ...], Field(min_length=1)]
    language: str | None = None
    diff: str
    repo: str = ""
    repo_licence: str | None = None
    fix_commit: str = ""
    fix_commit_url: Annotated[str, Field(min_length=1)]
    commit_subject: str | None = None
    withdrawn: bool = False


def read_examples(path: Path, format: Format = Format.AUTO) -> Iterator[Imported | Skipped]:  # noqa: A002
    """Yield the records of a file (plain, gzip or xz), one at a time.

    Raises InputError, naming file and line, if it can't be read, or a line is not of the format.
    """
    numbered_lines = lines(path)
    first = next(numbered_lines, None)
    if first is None:
        return
    is_dataset = (_detect(*first) if format is Format.AUTO else format) is Format.DATASET
    for place, line in chain([first], numbered_lines):
        yield _import(line, place) if is_dataset else Imported(parse_record(line, place))


def _detect(place: str, line: bytes) -> Format:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        if "example_id" in fields:
            return Format.RECORDS
        if {"id", "diff"} <= fields.keys():
            return Format.DATASET
    raise InputError(
        f"{place} is neither a solved example (`example_id`, `edits` …) nor a fix of a data set "
        "(`id`, `diff` …).",
        next_step="Give one JSON object a line; `--format` says which format is meant.",
        kind="unknown_format",
    )


def _import(line: bytes, place: str) -> Imported | Skipped:
    try:
        row = _Row.model_validate_json(line)
    except ValidationError as error:
        raise not_valid(place, "a fix of a data set", error, kind="not_valid") from error
    text = "\n\n".join(part.strip() for part in (row.summary, row.details) if part and part.strip())
    licence = (row.repo_licence or "").removeprefix(_LICENCE_SOURCE).strip()
    edits, left_out = edits_of(row.diff)
    for missing, reason in (
        (row.withdrawn, SkipReason.WITHDRAWN),
        (not licence, SkipReason.NO_LICENCE),
        (licence not in PERMISSIVE, SkipReason.LICENCE),
        (not text, SkipReason.NO_TEXT),
        (not edits, SkipReason.NO_EDIT),
    ):
        if missing:
            return Skipped(row.id, reason, place, left_out)
    return Imported(
        SolvedExample(
            example_id=row.id,
            advisory_id=row.id,
            advisory_aliases=row.aliases,
            advisory_text=text,
            ecosystem=row.ecosystem,
            package=row.packages[0],
            cwe=row.cwe_ids,
            language=(row.language or "").lower(),
            edits=edits,
            # A diff does not contain the whole files, so the record is never replayed.
            file_sha256={},
            provenance=ExampleProvenance(
                origin=ExampleOrigin.DATASET,
                source=row.fix_commit_url,
                repository=row.repo,
                revision=row.fix_commit,
            ),
            licence=licence,
            fix_summary=one_line(row.commit_subject or ""),
        ),
        left_out,
    )


# --- Diffs ------------------------------------------------------------------------------------------

#: Nine digits a number: no file has more lines, and int() raises an error beyond 4,300 digits.
_HUNK = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")

#: Characters that git quotes in a path: three octal digits per byte, or one letter.
_QUOTED = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


@dataclass(frozen=True)
class Hunk:
    """One hunk. ``line``: the line, counted from 1, at which ``old`` begins in the file before."""

    line: int
    edit: SearchReplace


def hunks(diff: str) -> Iterator[Hunk | LeftOut]:
    """Yield every hunk as an edit, in the diff's order, or what was left out and why. Never raises."""
    for header, body in _sections(diff.removesuffix("\n").split("\n")):
        path = _path(header)
        reason = _no_edit(header)
        if reason is not None:
            yield LeftOut(path, reason)
        else:
            yield from (_hunk(path, match, lines) for match, lines in body)


def edits_of(diff: str) -> tuple[tuple[SearchReplace, ...], tuple[LeftOut, ...]]:
    """Return the edits of a diff in its order, and what was left out. Never raises."""
    parts = tuple(hunks(diff))
    return (
        tuple(part.edit for part in parts if isinstance(part, Hunk)),
        tuple(part for part in parts if isinstance(part, LeftOut)),
    )


def _sections(
    lines: Sequence[str],
) -> Iterator[tuple[list[str], list[tuple[re.Match[str], Sequence[str]]]]]:
    """Yield the header and the hunks of each file. A hunk's length is read from its head, as its lines may
    have any content."""
    at = 0
    while at < len(lines):
        if not lines[at].startswith(("diff --git ", "diff --cc ", "diff --combined ", "--- ")):
            at += 1
            continue
        header = [lines[at]]
        at += 1
        while at < len(lines) and not lines[at].startswith(("@@", "diff --")):
            header.append(lines[at])
            at += 1
        hunks_of_file = []
        while at < len(lines) and (match := _HUNK.match(lines[at])):
            start, at = at + 1, _end(lines, at + 1, match)
            hunks_of_file.append((match, lines[start:at]))
        yield header, hunks_of_file


def _end(lines: Sequence[str], at: int, hunk: re.Match[str]) -> int:
    """Return the index after a hunk's last line; the end of the diff if the hunk is cut short."""
    old, new = _count(hunk[2]), _count(hunk[4])
    while at < len(lines) and (old > 0 or new > 0):
        mark = lines[at][:1]
        old -= mark != "+" and mark != "\\"
        new -= mark != "-" and mark != "\\"
        at += 1
    return at + (at < len(lines) and lines[at].startswith("\\"))


def _count(digits: str | None) -> int:
    return 1 if digits is None else int(digits)


def _no_edit(header: Sequence[str]) -> LeftOutReason | None:
    """Return why a whole file is left out; None if it isn't."""
    text = "\n".join(header)
    if header[0].startswith(("diff --cc ", "diff --combined ")):
        return LeftOutReason.COMBINED
    if "\nnew file mode" in text or "--- /dev/null" in header:
        return LeftOutReason.NEW_FILE
    if "\ndeleted file mode" in text or "+++ /dev/null" in header:
        return LeftOutReason.DELETED_FILE
    if "\nBinary files " in text or "\nGIT binary patch" in text:
        return LeftOutReason.BINARY
    return None


def _hunk(path: str, head: re.Match[str], lines: Sequence[str]) -> Hunk | LeftOut:
    old: list[str] = []
    new: list[str] = []
    last: list[list[str]] = []
    for line in lines:
        if line.startswith("\\"):
            for side in last:  # "\ No newline at end of file"
                side[-1] = side[-1][:-1]
            continue
        last = [old] if line[:1] == "-" else [new] if line[:1] == "+" else [old, new]
        for side in last:
            side.append(line[1:] + "\n")
    if (len(old), len(new)) != (_count(head[2]), _count(head[4])) or not path:
        return LeftOut(path, LeftOutReason.BROKEN)
    before = "".join(old)
    if not before.strip():
        return LeftOut(path, LeftOutReason.NO_ANCHOR)
    return Hunk(int(head[1]), SearchReplace(path=path, old=before, new="".join(new)))


def _path(header: Sequence[str]) -> str:
    """Return the file's path before the change, at which ``old`` is found."""
    for mark, prefix in (("--- ", "a/"), ("+++ ", "b/")):
        for line in header:
            # git adds a tab to a path that has blanks.
            path = _unquoted(line.removeprefix(mark).rstrip("\r").removesuffix("\t"))
            if line.startswith(mark) and path != "/dev/null":
                return path.removeprefix(prefix)
    # No text was changed: a binary or an empty file.
    return _unquoted(header[0].rpartition(" ")[2]).removeprefix("b/")


def _unquoted(path: str) -> str:
    r"""Return a path as the file system has it: git writes ``"caf\303\251.py"`` for ``café.py``."""
    if len(path) < 2 or path[0] != '"' or path[-1] != '"':
        return path

    def byte(match: re.Match[bytes]) -> bytes:
        if match[1].isdigit():
            return bytes([int(match[1], 8) & 0xFF])
        return _LETTERS.get(match[1], match[1])

    return _QUOTED.sub(byte, path[1:-1].encode()).decode("utf-8", "replace")
