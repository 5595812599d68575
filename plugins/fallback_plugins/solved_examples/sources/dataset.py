"""Records from a file: our own format, or a data set of real fixes with their diffs.

A line of the data set has an advisory (``id``, ``aliases``, ``summary``, ``details``, ``cwe_ids``),
a package (``ecosystem``, ``packages``) and a fix (``diff``, ``commit_subject``, ``fix_commit``,
``fix_commit_url``, ``repo``, ``repo_licence``, ``language``); further fields are not read. What can't be
used is skipped with a reason, never silently.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from fallback_plugins.solved_examples.sources.diff_edits import LeftOut, edits_of
from fallback_plugins.solved_examples.store.records import lines, not_valid, one_line, parse_record
from fallback_tier.errors import InputError
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

#: "package.json:MIT" says where the licence was read.
_LICENCE_SOURCE = "package.json:"


class Format(StrEnum):
    """What a line of a file is. ``auto``: told by the file's first line."""

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


@dataclass(frozen=True)
class Imported:
    """A record, and what of its diff became no edit."""

    example: SolvedExample
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """A record that is not taken. ``place`` names file and line."""

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
    """The records of a file (plain, gzip or xz), one at a time.

    Raises InputError, naming file and line: unreadable, or a line that is not of the format.
    """
    found = lines(path)
    first = next(found, None)
    if first is None:
        return
    is_dataset = (_detect(*first) if format is Format.AUTO else format) is Format.DATASET
    for place, line in chain([first], found):
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
            # A diff does not say what the whole files were: never replayed.
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
