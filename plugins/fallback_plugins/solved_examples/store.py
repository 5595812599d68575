"""The SQLite file behind the memory. sqlite_utils is imported on first use: it costs 160 ms."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.records import content_sha256
from fallback_tier.advisory import canonical_name
from fallback_tier.errors import FallbackError, InputError
from fallback_tier.ports import SolvedExample

if TYPE_CHECKING:
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

#: How long a writer waits for another one (milliseconds): an ingest takes well under a second.
_BUSY_TIMEOUT_MS = 10_000


class ExampleStoreError(FallbackError):
    """The store of solved examples can't be read, written, or trusted."""

    code = "example_store"


class IngestCounts(Frozen):
    """What an ingest did: new records, and records whose content was there already."""

    added: int
    duplicates: int


@dataclass(frozen=True)
class StoredExample:
    """A record, and its BM25 rank for a query (lower is better; 0 where nothing was asked)."""

    example: SolvedExample
    rank: float = 0.0


class ExampleStore:
    """Solved examples in one file. Every call opens it anew, so that any thread may call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ingest(self, examples: Iterable[SolvedExample]) -> IngestCounts:
        """Add records, all or none; the file is made where it is missing.

        The same content counts as a duplicate, whatever its id. Raises InputError for a record
        without provenance or licence, or with an id that another content has; ExampleStoreError
        where the file can't be written.
        """
        rows = [_row(example) for example in examples]
        with self._writing() as db:
            added = sum(_add(db, row) for row in rows)
        return IngestCounts(added=added, duplicates=len(rows) - added)

    def count(self) -> int:
        """How many records there are. Raises ExampleStoreError."""
        with self._reading() as db:
            return int(db.execute("SELECT count(*) FROM examples").fetchone()[0])

    def of_package(self, ecosystem: str, packages: Sequence[str]) -> tuple[StoredExample, ...]:
        """Records of these packages (canonical names), by id. Raises ExampleStoreError."""
        with self._reading() as db:
            return tuple(
                _stored(row["record"], row["content_sha256"])
                for package in packages
                for row in db.table("examples").rows_where(
                    "ecosystem = ? AND package = ?", [ecosystem, package], order_by="example_id"
                )
            )

    def document_counts(self, terms: Iterable[str]) -> dict[str, int]:
        """In how many records each term occurs; 0 where in none. Raises ExampleStoreError."""
        counts = dict.fromkeys(terms, 0)
        with self._reading() as db:
            for term in counts:
                # One index look-up a term; counting the matches of a common one takes 160 ms at
                # 100,000 records.
                row = db.execute("SELECT doc FROM examples_terms WHERE term = ?", [term]).fetchone()
                counts[term] = row[0] if row else 0
        return counts

    def search(self, ecosystem: str, terms: Sequence[str], limit: int) -> tuple[StoredExample, ...]:
        """Records of an ecosystem that have any of the terms, best BM25 first.

        ``terms`` are words (letters and digits). Raises ExampleStoreError.
        """
        with self._reading() as db:
            rows = db.execute(
                "SELECT record, content_sha256, bm25(examples_fts) AS rank FROM examples_fts "
                "JOIN examples ON id = examples_fts.rowid "
                "WHERE examples_fts MATCH ? AND ecosystem = ? ORDER BY rank, example_id LIMIT ?",
                [_match(terms), ecosystem, limit],
            )
            return tuple(_stored(*row) for row in rows)

    @contextmanager
    def _reading(self) -> "Iterator[Database]":
        """A read-only connection. A missing file is an error, never an empty new store."""
        from sqlite_utils import Database

        try:
            connection = sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        db = Database(connection, execute_plugins=False)
        try:
            yield db
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        finally:
            db.close()

    @contextmanager
    def _writing(self) -> "Iterator[Database]":
        """One immediate transaction: migrations and rows together, or nothing."""
        from sqlite_utils import Database

        try:
            db = Database(self.path, execute_plugins=False)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            db.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
            db.execute("BEGIN IMMEDIATE")
            _migrations().apply(db)
            yield db
            db.commit()
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        finally:
            db.rollback()
            db.close()

    def _unusable(self, error: sqlite3.Error) -> ExampleStoreError:
        return ExampleStoreError(
            f"The example store {str(self.path)!r} can't be used: {error}.",
            next_step="Check the path, or ingest the examples into a new file.",
        )


def _migrations() -> "Migrations":
    from sqlite_utils.migrations import Migrations

    migrations = Migrations("solved_examples")

    @migrations()
    def m0001_examples(db: "Database") -> None:
        db.table("examples").create(
            {
                # The full-text index points to it; VACUUM would renumber bare rowids.
                "id": int,
                "content_sha256": str,
                "example_id": str,
                "ecosystem": str,
                "package": str,
                "advisory_text": str,
                "record": str,
            },
            pk="id",
            not_null={
                "content_sha256",
                "example_id",
                "ecosystem",
                "package",
                "advisory_text",
                "record",
            },
        )
        db.table("examples").create_index(["content_sha256"], unique=True)
        db.table("examples").create_index(["example_id"], unique=True)
        db.table("examples").create_index(["ecosystem", "package"])
        db.table("examples").enable_fts(
            ["advisory_text"], create_triggers=True, tokenize="unicode61 remove_diacritics 0"
        )
        db.execute("CREATE VIRTUAL TABLE examples_terms USING fts5vocab(examples_fts, row)")

    return migrations


def _row(example: SolvedExample) -> dict[str, str]:
    for field in ("provenance", "licence"):
        if not getattr(example, field).strip():
            raise InputError(
                f"Example {example.example_id!r} has no {field}.",
                next_step=f"State its {field}; examples of unknown origin are not stored.",
            )
    return {
        "content_sha256": content_sha256(example),
        "example_id": example.example_id,
        "ecosystem": example.ecosystem,
        "package": canonical_name(example.ecosystem, example.package),
        "advisory_text": example.advisory_text,
        "record": example.model_dump_json(),
    }


def _add(db: "Database", row: dict[str, str]) -> bool:
    table = db.table("examples")
    if table.count_where("content_sha256 = ?", [row["content_sha256"]]):
        return False
    if table.count_where("example_id = ?", [row["example_id"]]):
        raise InputError(
            f"Example id {row['example_id']!r} is taken by another content.",
            next_step="Give the changed example an id of its own.",
        )
    table.insert(row)
    return True


def _match(terms: Sequence[str]) -> str:
    """An FTS5 query: quoted words joined by OR. Inside quotes only the quote itself is syntax."""
    return " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)


def _stored(record: str, digest: Digest, rank: float = 0.0) -> StoredExample:
    """The record as it was ingested. Raises ExampleStoreError where it was altered since."""
    try:
        example = SolvedExample.model_validate_json(record)
        intact = content_sha256(example) == digest
    except ValueError:
        intact = False
    if not intact:
        raise ExampleStoreError(
            f"The example with content {digest} is not what was ingested.",
            next_step="Ingest the examples into a new file.",
        )
    return StoredExample(example, rank)
