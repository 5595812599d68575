"""The memory's file: records in versions, and the chunks of those that are live (ADR-0019).

Every call opens the file anew, so that any thread may call. Siblings search and index through
``reading`` and ``writing``.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fallback_audit.events import Digest
from fallback_plugins.solved_examples.interfaces import Chunker, ExampleStoreError
from fallback_plugins.solved_examples.store import ingestion, manifest, schema
from fallback_plugins.solved_examples.store.ingestion import IngestCounts, Withdrawal
from fallback_plugins.solved_examples.store.manifest import Manifest
from fallback_plugins.solved_examples.store.records import as_ingested
from fallback_plugins.solved_examples.store.schema import (
    Meta,
    State,
    read_snapshot,
    write_transaction,
)
from fallback_tier.errors import InputError
from fallback_tier.retrieval import SolvedExample

Clock = Callable[[], datetime]

#: Called with (records done, records in all).
Progress = Callable[[int, int], None]

#: Records that are read, or cut again, at once: memory stays flat, and a kill loses little work.
_PAGE = 200

_LIVE = "SELECT count(*) FROM examples WHERE state = 'live'"


@dataclass(frozen=True)
class StoredExample:
    """A version of a record as it was ingested. ``row``: ``examples.id``."""

    row: int
    example: SolvedExample
    content_sha256: Digest
    version: int
    state: State
    added_at: datetime


def utc_now() -> datetime:
    """The clock of production."""
    return datetime.now(UTC)


class ExampleStore:
    """Solved examples in one file. ``chunker`` None: StructureChunker, as the product cuts."""

    def __init__(
        self, path: Path, *, chunker: Chunker | None = None, clock: Clock = utc_now
    ) -> None:
        self.path = path
        self._chunker = chunker
        self._clock = clock

    @property
    def vectors_path(self) -> Path:
        """Where the vector file of this store is, if there is one."""
        return self.path.with_name(f"{self.path.name}.vectors")

    @property
    def chunker(self) -> Chunker:
        """What cuts the records. The product's loads its parsers here, and not before."""
        if self._chunker is None:
            from fallback_plugins.solved_examples.chunking.chunker import StructureChunker

            self._chunker = StructureChunker()
        return self._chunker

    # --- For siblings ------------------------------------------------------------------------------

    @contextmanager
    def reading(self, *, as_is: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection that can't write, on one state of the store.

        Raises ExampleStoreError: missing, no example store, another format, or cut by another
        chunker; ``as_is`` takes the last one as it is.
        """
        with read_snapshot(self.path) as connection:
            self._check(connection, as_is=as_is)
            yield connection

    @contextmanager
    def writing(self, *, create: bool = False, as_is: bool = False) -> Iterator[sqlite3.Connection]:
        """One immediate transaction, the manifest with it; nothing stays where it fails.

        ``create`` makes a missing file. Raises ExampleStoreError as ``reading`` does.
        """
        with write_transaction(self.path, create=create) as connection:
            if create and schema.is_new(connection):
                schema.create(connection)
            self._check(connection, as_is=as_is)
            yield connection
            manifest.record(connection)

    def _check(self, connection: sqlite3.Connection, *, as_is: bool) -> None:
        schema.check_format(connection, str(self.path))
        if not as_is:
            schema.check_chunker(connection, str(self.path), self.chunker.version)

    # --- Changes -----------------------------------------------------------------------------------

    def ingest(self, examples: Iterable[SolvedExample]) -> IngestCounts:
        """Add records and cut them, all or none; the file is made where it is missing.

        Content that is there already, in any version, counts as a duplicate, whatever its id; a
        known id with other content becomes the next version, and the one before is superseded. A
        record that was withdrawn is refused. Memory stays flat however many there are. Raises
        InputError for a record without provenance, licence or edits, or with an unusable id;
        ExampleStoreError.
        """
        counts = IngestCounts()
        with self.writing(create=True) as connection:
            schema.set_meta(connection, Meta.CHUNKER, self.chunker.version)
            for example in examples:
                outcome = ingestion.add(connection, example, self.chunker, self._clock())
                counts = counts.plus(outcome)
        return counts

    def withdraw(self, example_id: str, *, reason: str, by: str) -> Withdrawal:
        """Take a record out: it is never found again, and never comes back by an ingest.

        Raises InputError for an id that is not there or was withdrawn before, or without a reason
        and a name; ExampleStoreError.
        """
        reason = ingestion.require_text(reason, "reason")
        by = ingestion.require_text(by, "name")
        with self.writing(as_is=True) as connection:
            found = connection.execute(
                "SELECT id, content_sha256, state FROM examples WHERE example_id = ? "
                "ORDER BY version DESC",
                [example_id],
            ).fetchone()
            if found is None or found[2] != State.LIVE:
                raise _not_live(example_id, self.path, known=found is not None)
            taken = Withdrawal(
                example_id=example_id,
                content_sha256=found[1],
                reason=reason,
                by=by,
                at=self._clock(),
            )
            ingestion.withdraw(connection, taken, found[0])
        return taken

    def rechunk(self, progress: Progress | None = None) -> int:
        """Cut again what another chunker version has cut; how many records that were.

        Some at a time, each a transaction: after a kill it goes on where it was. Until the end the
        store stays one of the old version. Raises ExampleStoreError.
        """
        done, total, last = 0, None, 0
        while True:
            with self.writing(as_is=True) as connection:
                total = total or schema.number(
                    connection, f"{_LIVE} AND chunker != ?", [self.chunker.version]
                )
                page = _stored_where(
                    connection,
                    "id > ? AND state = 'live' AND chunker != ? ORDER BY id LIMIT ?",
                    [last, self.chunker.version, _PAGE],
                )
                for stored in page:
                    ingestion.cut(connection, stored.row, stored.example, self.chunker)
                if len(page) < _PAGE:
                    schema.set_meta(connection, Meta.CHUNKER, self.chunker.version)
            done, last = done + len(page), page[-1].row if page else last
            if progress is not None:
                progress(done, total)
            if len(page) < _PAGE:
                return done

    # --- Reading -----------------------------------------------------------------------------------

    def count(self) -> int:
        """How many live records there are. Raises ExampleStoreError."""
        with self.reading(as_is=True) as connection:
            return schema.number(connection, _LIVE)

    def of_package(self, ecosystem: str, packages: Sequence[str]) -> tuple[StoredExample, ...]:
        """Live records of these packages (canonical names), by id. Raises ExampleStoreError."""
        with self.reading(as_is=True) as connection:
            return tuple(
                stored
                for package in packages
                for stored in _stored_where(
                    connection,
                    "ecosystem = ? AND package = ? AND state = 'live' ORDER BY example_id",
                    [ecosystem, package],
                )
            )

    def records(self, rows: Sequence[int]) -> tuple[StoredExample, ...]:
        """Live records by their rows (``examples.id``), in that order; unknown ones are left out.

        Raises ExampleStoreError, also where a record is not what was ingested.
        """
        with self.reading(as_is=True) as connection:
            return tuple(
                stored
                for row in rows
                for stored in _stored_where(connection, "id = ? AND state = 'live'", [row])
            )

    def live(self) -> Iterator[StoredExample]:
        """Every live record by row, some at a time. Raises ExampleStoreError."""
        last = 0
        while True:
            with self.reading(as_is=True) as connection:
                page = _stored_where(
                    connection, "id > ? AND state = 'live' ORDER BY id LIMIT ?", [last, _PAGE]
                )
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1].row

    def versions(self, example_id: str) -> tuple[StoredExample, ...]:
        """Every version of a record, newest first; empty where there is none. Raises
        ExampleStoreError."""
        with self.reading(as_is=True) as connection:
            return _stored_where(connection, "example_id = ? ORDER BY version DESC", [example_id])

    def manifest(self) -> Manifest:
        """What it is made of, as the last change left it. Raises ExampleStoreError."""
        with self.reading(as_is=True) as connection:
            return manifest.recorded(connection)

    def withdrawals(self) -> tuple[Withdrawal, ...]:
        """Every withdrawal, oldest first. Raises ExampleStoreError."""
        with self.reading(as_is=True) as connection:
            return ingestion.all_withdrawals(connection)


def _stored_where(
    connection: sqlite3.Connection, where: str, values: Sequence[object]
) -> tuple[StoredExample, ...]:
    """``where`` is ours, never input."""
    rows = connection.execute(
        "SELECT id, record, content_sha256, version, state, added_at FROM examples "  # noqa: S608
        f"WHERE {where}",
        values,
    )
    return tuple(_stored(*row) for row in rows)


def _stored(
    row: int, record: str, digest: Digest, version: int, state: str, added_at: str
) -> StoredExample:
    """The record as it was ingested. Raises ExampleStoreError where it was altered since."""
    example = as_ingested(record, digest)
    if example is None:
        raise ExampleStoreError(
            f"The example with content {digest} is not what was ingested.",
            next_step="`fallback-tier examples validate` lists what was altered; ingest the examples "
            "into a new file.",
            kind="record_altered",
        )
    return StoredExample(
        row, example, digest, version, State(state), datetime.fromisoformat(added_at)
    )


def _not_live(example_id: str, path: Path, *, known: bool) -> InputError:
    if known:
        return InputError(
            f"Example {example_id!r} was withdrawn before.",
            next_step=f"`fallback-tier examples show {example_id} --store {path}` says why.",
            kind="withdrawn_before",
        )
    return InputError(
        f"There is no example {example_id!r} in {str(path)!r}.",
        next_step="`fallback-tier examples list` shows those that are there.",
        kind="no_such_example",
    )
