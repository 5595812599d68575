"""The memory's file: records in versions, the chunks of those that are live, and the manifest (ADR-0019).

Every call opens the file itself, so that any thread may call. Siblings search and index through
``reading`` and ``writing``.

A withdrawn record is never returned again, and stays on file with the reason. The manifest says what the
memory is made of; every retrieval states its digest. It is written in the transaction of each change, so
that reading it costs one look-up. ``drift.validate`` reports whether it is still correct.
"""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.interfaces import Chunker, ChunkKind, ExampleStoreError
from fallback_plugins.solved_examples.store import schema
from fallback_plugins.solved_examples.store.records import as_ingested, content_sha256, text_sha256
from fallback_plugins.solved_examples.store.schema import (
    FORMAT,
    Meta,
    State,
    get_meta,
    number,
    read_snapshot,
    set_meta,
    write_transaction,
)
from fallback_tier.errors import InputError
from fallback_tier.retrieval import SolvedExample

Clock = Callable[[], datetime]

#: Called with (records done, records in all).
Progress = Callable[[int, int], None]

#: Records that are read, or cut again, at once: memory stays flat, and a kill loses little work.
_PAGE = 200

#: Every retrieval's event on the audit trail names its examples, and an event must stay small.
MAX_ID_CHARS = 512

_LIVE = "SELECT count(*) FROM examples WHERE state = 'live'"
_STORED = "id, record, content_sha256, version, state, added_at"
_WITHDRAWAL = "example_id, content_sha256, reason, by, at"
_LIVE_DIGESTS = "SELECT content_sha256 FROM examples WHERE state = 'live' ORDER BY content_sha256"
_LISTED = (
    "example_id, version, state, json_extract(record, '$.advisory_id'), ecosystem, package, language, "
    "cwe, json_extract(record, '$.provenance.origin'), content_sha256, added_at"
)


class IngestCounts(Frozen):
    """What an ingest did, in records: new ones; ones whose content was there; new versions of known
    ones; ones refused because they were withdrawn before."""

    added: int = 0
    duplicates: int = 0
    revised: int = 0
    withdrawn: int = 0


class Withdrawal(Frozen):
    """Who took which record out, when (UTC) and why."""

    example_id: str
    content_sha256: Digest
    reason: str
    by: str
    at: datetime


class EmbeddingManifest(Frozen):
    """Which model the vectors are from, and how many live chunks have one."""

    model: str
    sha256: Digest
    dimension: int
    #: Which text of a chunk was embedded (``indexing.EMBEDDED_TEXT``).
    text: str = ""
    vectors: int


class Manifest(Frozen):
    """Which corpus, cut by which chunker, embedded by which model."""

    format: str = FORMAT
    #: Over the content digests of the live records, sorted, one per line.
    corpus_sha256: Digest
    examples: int
    chunks: int
    #: None before the first ingest.
    chunker: str | None = None
    #: None if nothing was embedded: such a store is searched by words alone.
    embedding: EmbeddingManifest | None = None

    @property
    def sha256(self) -> Digest:
        """Digest of the manifest as canonical JSON."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return text_sha256(text)


class Selection(Frozen):
    """Which records are meant: all that agree in what is given."""

    ecosystem: str | None = None
    package: str | None = None
    language: str | None = None
    cwe: str | None = None
    #: None: every state.
    state: State | None = State.LIVE


class Listed(Frozen):
    """One version of a record."""

    example_id: str
    version: int
    state: State
    advisory_id: str
    ecosystem: str
    package: str
    language: str
    cwe: tuple[str, ...]
    origin: str
    content_sha256: Digest
    added_at: datetime


@dataclass(frozen=True)
class StoredExample:
    """A version of a record as it was ingested. ``row``: ``examples.id``."""

    row: int
    example: SolvedExample
    content_sha256: Digest
    version: int
    state: State
    added_at: datetime


class ExampleStore:
    """Solved examples in one file. ``chunker``: by default StructureChunker, as in the product."""

    def __init__(
        self,
        path: Path,
        *,
        chunker: Chunker | None = None,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self.path = path
        self._chunker = chunker
        self._clock = clock

    @property
    def vectors_path(self) -> Path:
        """Path of this store's vector files, without the number of a generation."""
        return self.path.with_name(f"{self.path.name}.vectors")

    @property
    def chunker(self) -> Chunker:
        """The chunker of the records; the product's loads its parsers when it is first used."""
        if self._chunker is None:
            from fallback_plugins.solved_examples.chunking.chunker import StructureChunker

            self._chunker = StructureChunker()
        return self._chunker

    # --- For siblings ------------------------------------------------------------------------------

    @contextmanager
    def reading(self, *, as_is: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield a read-only connection on one state of the store.

        Raises ExampleStoreError if the file is missing, is not an example store, has another format or,
        unless ``as_is``, was cut by another chunker.
        """
        with read_snapshot(self.path) as connection:
            self._check(connection, as_is=as_is)
            yield connection

    @contextmanager
    def writing(self, *, create: bool = False, as_is: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield a connection in one immediate transaction, which also writes the manifest; all or nothing.
        ``create`` creates a missing file. Raises ExampleStoreError as ``reading`` does."""
        with write_transaction(self.path, create=create) as connection:
            if create and schema.is_new(connection):
                schema.create(connection)
            self._check(connection, as_is=as_is)
            yield connection
            current = current_manifest(connection)
            set_meta(connection, Meta.MANIFEST, current.model_dump_json())
            set_meta(connection, Meta.MANIFEST_SHA256, current.sha256)

    def _check(self, connection: sqlite3.Connection, *, as_is: bool) -> None:
        schema.check_format(connection, str(self.path))
        if not as_is:
            schema.check_chunker(connection, str(self.path), self.chunker.version)

    # --- Changes -----------------------------------------------------------------------------------

    def ingest(self, examples: Iterable[SolvedExample]) -> IngestCounts:
        """Add records and cut them, all or none; a missing file is created.

        Known content, in any version, is a duplicate, whatever its id. A known id with other content
        becomes the next version, and the one before is superseded. A withdrawn record is refused. Memory
        use does not grow with the records. Raises InputError for a record without provenance, licence or
        edits, or with an unusable id; ExampleStoreError.
        """
        counts: Counter[str] = Counter()
        with self.writing(create=True) as connection:
            set_meta(connection, Meta.CHUNKER, self.chunker.version)
            for example in examples:
                counts[_add(connection, example, self.chunker, self._clock())] += 1
        return IngestCounts(**counts)

    def withdraw(self, example_id: str, *, reason: str, by: str) -> Withdrawal:
        """Withdraw a record: it is never found again, and no ingest brings it back.

        Raises InputError for an unknown or withdrawn id, or without a reason and a name; ExampleStoreError.
        """
        reason, by = _required(reason, "reason"), _required(by, "name")
        with self.writing(as_is=True) as connection:
            row = connection.execute(
                "SELECT id, content_sha256, state FROM examples WHERE example_id = ? "
                "ORDER BY version DESC",
                [example_id],
            ).fetchone()
            if row is None or row[2] != State.LIVE:
                raise _not_live(example_id, self.path, known=row is not None)
            withdrawal = Withdrawal(
                example_id=example_id,
                content_sha256=row[1],
                reason=reason,
                by=by,
                at=self._clock(),
            )
            _drop(connection, row[0], State.WITHDRAWN)
            connection.execute(
                f"INSERT INTO withdrawals ({_WITHDRAWAL}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
                [*withdrawal.model_dump(exclude={"at"}).values(), withdrawal.at.isoformat()],
            )
        return withdrawal

    def rechunk(self, progress: Progress | None = None) -> int:
        """Cut the records again that another chunker version has cut. Return their number.

        Each page is a transaction: after a kill it continues there. Until the end the store stays one of
        the old version. Raises ExampleStoreError.
        """
        done, total, last = 0, None, 0
        while True:
            with self.writing(as_is=True) as connection:
                total = total or number(
                    connection, f"{_LIVE} AND chunker != ?", [self.chunker.version]
                )
                page = _stored_where(
                    connection,
                    "id > ? AND state = 'live' AND chunker != ? ORDER BY id LIMIT ?",
                    [last, self.chunker.version, _PAGE],
                )
                for stored in page:
                    _cut(connection, stored.row, stored.example, self.chunker)
                if len(page) < _PAGE:
                    set_meta(connection, Meta.CHUNKER, self.chunker.version)
            done, last = done + len(page), page[-1].row if page else last
            if progress is not None:
                progress(done, total)
            if len(page) < _PAGE:
                return done

    # --- Reading -----------------------------------------------------------------------------------

    def count(self) -> int:
        """Return the number of live records. Raises ExampleStoreError."""
        with self.reading(as_is=True) as connection:
            return number(connection, _LIVE)

    def of_package(self, ecosystem: str, packages: Sequence[str]) -> tuple[StoredExample, ...]:
        """Return live records of packages (canonical names), by id. Raises ExampleStoreError."""
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
        """Return live records by their rows (``examples.id``), in that order, without unknown ones. Raises
        ExampleStoreError, also for a record that was altered since its ingest."""
        with self.reading(as_is=True) as connection:
            return tuple(
                stored
                for row in rows
                for stored in _stored_where(connection, "id = ? AND state = 'live'", [row])
            )

    def live(self) -> Iterator[StoredExample]:
        """Yield every live record by row. Raises ExampleStoreError."""
        return (_stored(*row) for row in self._rows(_STORED, "AND state = 'live'"))

    def versions(self, example_id: str) -> tuple[StoredExample, ...]:
        """Return every version of a record, newest first. Raises ExampleStoreError."""
        with self.reading(as_is=True) as connection:
            return _stored_where(connection, "example_id = ? ORDER BY version DESC", [example_id])

    def manifest(self) -> Manifest:
        """Return the manifest, as the last change left it. Raises ExampleStoreError."""
        with self.reading(as_is=True) as connection:
            return recorded_manifest(connection)

    def withdrawals(self) -> tuple[Withdrawal, ...]:
        """Return every withdrawal, oldest first. Raises ExampleStoreError."""
        sql = f"SELECT {_WITHDRAWAL} FROM withdrawals ORDER BY id"  # noqa: S608
        with self.reading(as_is=True) as connection:
            rows = connection.execute(sql).fetchall()
        fields = Withdrawal.model_fields
        return tuple(Withdrawal.model_validate(dict(zip(fields, row, strict=True))) for row in rows)

    def listing(self, selection: Selection) -> Iterator[Listed]:
        """Yield the selected versions in the order in which they were added. Raises ExampleStoreError."""
        where, values = _conditions(selection)
        for _, *row in self._rows(f"id, {_LISTED}", where, values):
            facts = dict(zip(Listed.model_fields, row, strict=True))
            yield Listed.model_validate({**facts, "cwe": json.loads(str(facts["cwe"]))})

    def _rows(
        self, columns: str, where: str, values: Sequence[object] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows by id, the first column; a page at a time, so that no writer waits for the caller."""
        last = 0
        while True:
            with self.reading(as_is=True) as connection:
                page = connection.execute(
                    f"SELECT {columns} FROM examples WHERE id > ? {where} ORDER BY id LIMIT ?",  # noqa: S608
                    [last, *values, _PAGE],
                ).fetchall()
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1][0]


def _stored_where(
    connection: sqlite3.Connection, where: str, values: Sequence[object]
) -> tuple[StoredExample, ...]:
    """Return the records that meet a condition. ``where`` is our own SQL, never input."""
    rows = connection.execute(f"SELECT {_STORED} FROM examples WHERE {where}", values)  # noqa: S608
    return tuple(_stored(*row) for row in rows)


def _stored(
    row: int, record: str, digest: Digest, version: int, state: str, added_at: str
) -> StoredExample:
    """Return the record as it was ingested. Raises ExampleStoreError if it was altered since."""
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


def _conditions(selection: Selection) -> tuple[str, list[str]]:
    """Return SQL and its values. A package's name counts as each ecosystem reads it."""
    from fallback_tier.advisory import canonical_name

    values_by_sql = {
        "ecosystem = ?": selection.ecosystem,
        "language = ?": selection.language,
        "state = ?": selection.state,
        "EXISTS (SELECT 1 FROM json_each(cwe) WHERE value = ?)": selection.cwe,
    }
    conditions = {sql: [str(value)] for sql, value in values_by_sql.items() if value is not None}
    if selection.package is not None:
        names = [canonical_name("PyPI", selection.package), selection.package]
        conditions["package = CASE ecosystem WHEN 'PyPI' THEN ? ELSE ? END"] = names
    return (
        "".join(f"AND {sql} " for sql in conditions),
        [value for values in conditions.values() for value in values],
    )


# --- One record: added, cut, dropped ----------------------------------------------------------------


def _add(
    connection: sqlite3.Connection, example: SolvedExample, chunker: Chunker, now: datetime
) -> str:
    """Store a record and its chunks, unless it is there or was withdrawn. Return the field of
    ``IngestCounts`` that counts it. Raises InputError as ``ExampleStore.ingest``."""
    _check_record(example)
    digest = content_sha256(example)
    # By id and by content: a corrected record has another id, and by content alone a data set with the same
    # fix in other words would bring a wrong fix back.
    withdrawn = connection.execute(
        "SELECT 1 FROM withdrawals WHERE example_id = ? OR content_sha256 = ?",
        [example.example_id, digest],
    )
    if withdrawn.fetchone() is not None:
        return "withdrawn"
    if connection.execute("SELECT 1 FROM examples WHERE content_sha256 = ?", [digest]).fetchone():
        return "duplicates"
    before = connection.execute(
        "SELECT id, version FROM examples WHERE example_id = ? AND state = 'live'",
        [example.example_id],
    ).fetchone()
    if before is not None:
        _drop(connection, before[0], State.SUPERSEDED)
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
    _cut(connection, int(row or 0), example, chunker)
    return "added" if before is None else "revised"


def _drop(connection: sqlite3.Connection, row: int, state: State) -> None:
    """Give a live record the state; from then on it is not searched, and its vectors are dead."""
    connection.execute("UPDATE examples SET state = ? WHERE id = ?", [state.value, row])
    connection.execute("DELETE FROM chunks WHERE example = ?", [row])


def _required(value: str, what: str) -> str:
    """Return the text, stripped. Raises InputError if it is empty: a withdrawal needs a reason and a
    name."""
    if not value.strip():
        raise InputError(
            f"A withdrawal needs a {what}.", next_step=f"State the {what}.", kind="text_missing"
        )
    return value.strip()


def columns(example: SolvedExample) -> dict[str, str]:
    """Return the columns by which the store filters records."""
    from fallback_tier.advisory import canonical_name  # not needed by a reader

    return {
        "example_id": example.example_id,
        "ecosystem": example.ecosystem,
        "package": canonical_name(example.ecosystem, example.package),
        "language": example.language,
        "cwe": json.dumps(example.cwe),
    }


def _cut(
    connection: sqlite3.Connection, row: int, example: SolvedExample, chunker: Chunker
) -> None:
    """Replace the chunks of the live record ``row``."""
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
    """Yield a record's chunks as rows: ordinal, kind, context, text, tokens, edits. The context of code has
    the fix's summary, which describes the vulnerability as code does not."""
    for ordinal, chunk in enumerate(chunker.chunks(example)):
        above = [example.fix_summary] if chunk.kind is ChunkKind.CODE else []
        context = "\n".join(filter(None, (*above, chunk.context)))
        edits = json.dumps(chunk.edits)
        yield ordinal, chunk.kind.value, context, chunk.text, chunk.tokens, edits


def _check_record(example: SolvedExample) -> None:
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


# --- The manifest -----------------------------------------------------------------------------------


def recorded_manifest(connection: sqlite3.Connection) -> Manifest:
    """Return the manifest that is kept in the store. Raises ValueError if that was altered."""
    return Manifest.model_validate_json(get_meta(connection, Meta.MANIFEST) or "")


def recorded_sha256(connection: sqlite3.Connection) -> Digest:
    """Return the recorded manifest's digest, which a retrieval logs; empty if there is none."""
    return get_meta(connection, Meta.MANIFEST_SHA256) or ""


def current_manifest(connection: sqlite3.Connection) -> Manifest:
    """Return the manifest of the store's current content."""
    corpus = hashlib.sha256()
    examples = 0
    for (digest,) in connection.execute(_LIVE_DIGESTS):
        corpus.update(f"{digest}\n".encode())
        examples += 1
    model = get_meta(connection, Meta.EMBEDDING_MODEL)
    embedding = None
    if model is not None:
        embedding = EmbeddingManifest(
            model=model,
            sha256=get_meta(connection, Meta.EMBEDDING_SHA256) or "",
            dimension=int(get_meta(connection, Meta.EMBEDDING_DIMENSION) or 0),
            text=get_meta(connection, Meta.EMBEDDING_TEXT) or "",
            vectors=number(
                connection, "SELECT count(*) FROM vectors JOIN chunks ON chunks.id = vectors.chunk"
            ),
        )
    return Manifest(
        corpus_sha256=corpus.hexdigest(),
        examples=examples,
        chunks=number(connection, "SELECT count(*) FROM chunks"),
        chunker=get_meta(connection, Meta.CHUNKER),
        embedding=embedding,
    )
