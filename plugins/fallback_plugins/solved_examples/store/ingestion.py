"""Adding one record to an example store, in the caller's transaction, and withdrawing one that is wrong.

A withdrawn record is never returned again, and stays on file with the reason.
"""

import json
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.interfaces import Chunker, ChunkKind
from fallback_plugins.solved_examples.store.records import content_sha256
from fallback_plugins.solved_examples.store.schema import State
from fallback_tier.errors import InputError
from fallback_tier.retrieval import SolvedExample

_COLUMNS = "example_id, content_sha256, reason, by, at"


class Withdrawal(Frozen):
    """Who took which record out, when (UTC) and why."""

    example_id: str
    content_sha256: Digest
    reason: str
    by: str
    at: datetime


def withdraw(connection: sqlite3.Connection, withdrawal: Withdrawal, row: int) -> None:
    """Take the live record ``row`` out. Its chunks go; its vectors die with them."""
    drop(connection, row, State.WITHDRAWN)
    connection.execute(
        f"INSERT INTO withdrawals ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
        [*withdrawal.model_dump(exclude={"at"}).values(), withdrawal.at.isoformat()],
    )


def drop(connection: sqlite3.Connection, row: int, state: State) -> None:
    """A live record becomes ``state``; nothing of it is searched from here on."""
    connection.execute("UPDATE examples SET state = ? WHERE id = ?", [state.value, row])
    connection.execute("DELETE FROM chunks WHERE example = ?", [row])


def is_withdrawn(connection: sqlite3.Connection, example_id: str, content: Digest) -> bool:
    """By id or by content: a corrected record takes an id of its own.

    By content alone, a data set that says the same in other words would bring a wrong fix back.
    """
    found = connection.execute(
        "SELECT 1 FROM withdrawals WHERE example_id = ? OR content_sha256 = ?",
        [example_id, content],
    )
    return found.fetchone() is not None


def all_withdrawals(connection: sqlite3.Connection) -> tuple[Withdrawal, ...]:
    """Every withdrawal, oldest first."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM withdrawals ORDER BY id")  # noqa: S608
    fields = Withdrawal.model_fields
    return tuple(Withdrawal.model_validate(dict(zip(fields, row, strict=True))) for row in rows)


def require_text(value: str, what: str) -> str:
    """Raises InputError for an empty reason or name: a withdrawal without one explains nothing."""
    if not value.strip():
        raise InputError(
            f"A withdrawal needs a {what}.", next_step=f"State the {what}.", kind="text_missing"
        )
    return value.strip()


#: Every retrieval's event on the audit trail names its examples, and an event must stay small.
MAX_ID_CHARS = 512


class Outcome(StrEnum):
    """What became of one record: the fields of IngestCounts."""

    ADDED = "added"
    DUPLICATE = "duplicates"
    REVISED = "revised"
    WITHDRAWN = "withdrawn"


class IngestCounts(Frozen):
    """What an ingest did, in records: new ones; ones whose content was there; new versions of known
    ones; ones refused because they were withdrawn before."""

    added: int = 0
    duplicates: int = 0
    revised: int = 0
    withdrawn: int = 0

    def plus(self, outcome: Outcome) -> "IngestCounts":
        """One record more."""
        return self.model_copy(update={outcome.value: getattr(self, outcome.value) + 1})


def add(
    connection: sqlite3.Connection, example: SolvedExample, chunker: Chunker, now: datetime
) -> Outcome:
    """Store one record and its chunks, unless it is there or was withdrawn.

    Raises InputError for a record without provenance, licence or edits, or with an unusable id.
    """
    _require(example)
    digest = content_sha256(example)
    if is_withdrawn(connection, example.example_id, digest):
        return Outcome.WITHDRAWN
    if connection.execute("SELECT 1 FROM examples WHERE content_sha256 = ?", [digest]).fetchone():
        return Outcome.DUPLICATE
    before = connection.execute(
        "SELECT id, version FROM examples WHERE example_id = ? AND state = 'live'",
        [example.example_id],
    ).fetchone()
    if before is not None:
        drop(connection, before[0], State.SUPERSEDED)
    values: dict[str, str | int] = {
        **columns(example),
        "content_sha256": digest,
        "version": 1 if before is None else before[1] + 1,
        "state": State.LIVE.value,
        "record": example.model_dump_json(),
        "chunker": chunker.version,
        "added_at": now.isoformat(),
    }
    names = ", ".join(values)
    row = connection.execute(
        f"INSERT INTO examples ({names}) VALUES (:{', :'.join(values)})",  # noqa: S608
        values,
    ).lastrowid
    cut(connection, int(row or 0), example, chunker)
    return Outcome.ADDED if before is None else Outcome.REVISED


def columns(example: SolvedExample) -> dict[str, str]:
    """What the store filters by, as it stands beside the record."""
    from fallback_tier.advisory import canonical_name  # a reader needs nothing of it

    return {
        "example_id": example.example_id,
        "ecosystem": example.ecosystem,
        "package": canonical_name(example.ecosystem, example.package),
        "language": example.language,
        "cwe": json.dumps(example.cwe),
    }


def cut(connection: sqlite3.Connection, row: int, example: SolvedExample, chunker: Chunker) -> None:
    """The chunks of the live record ``row``, in place of those that it had."""
    connection.execute("DELETE FROM chunks WHERE example = ?", [row])
    connection.executemany(
        "INSERT INTO chunks (example, ordinal, kind, context, text, tokens, edits) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(row, *chunk) for chunk in chunk_rows(example, chunker)],
    )
    connection.execute("UPDATE examples SET chunker = ? WHERE id = ?", [chunker.version, row])


def chunk_rows(
    example: SolvedExample, chunker: Chunker
) -> Iterator[tuple[int, str, str, str, int, str]]:
    """A record's chunks as the store keeps them: ordinal, kind, context, text, tokens, edits.

    Code stands under the fix's summary: it has the words of the flaw that code lacks.
    """
    for ordinal, chunk in enumerate(chunker.chunks(example)):
        above = [example.fix_summary] if chunk.kind is ChunkKind.CODE else []
        context = "\n".join(filter(None, (*above, chunk.context)))
        edits = json.dumps(chunk.edits)
        yield ordinal, chunk.kind.value, context, chunk.text, chunk.tokens, edits


def _require(example: SolvedExample) -> None:
    name = example.example_id
    if not name.strip() or len(name) > MAX_ID_CHARS:
        raise InputError(
            f"An example's id {name[:40]!r} has {len(name):,} characters.",
            next_step=f"Give it one of 1 to {MAX_ID_CHARS}, with more than blanks.",
            kind="bad_id",
        )
    if not example.edits:
        raise InputError(
            f"Example {name!r} has no edits.",
            next_step="State what fixed it; an advisory alone is no solved example.",
            kind="no_edits",
        )
    for field, value in (("provenance", example.provenance.source), ("licence", example.licence)):
        if not value.strip():
            raise InputError(
                f"Example {name!r} has no {field}.",
                next_step=f"State its {field}; examples of unknown origin are not stored.",
                kind="no_origin",
            )
