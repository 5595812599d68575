"""An audit store in SQLite at one moment, as ``verify`` reads it: the stored bytes, whole."""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from fallback_audit.chain import StoredRow
from fallback_audit.stores.sqlite_errors import is_unread
from fallback_audit.stores.sqlite_schema import schema_problems, table_names

# A damaged or altered file may hold values of any type: they are read as bytes, which no digest fits.
LINK = "seq, CAST(header AS BLOB), CAST(leaf AS TEXT), CAST(payload AS BLOB)"
ROWS = f"SELECT {LINK} FROM audit_header LEFT JOIN audit_payload USING (seq)"  # noqa: S608 (ours)

_NUMBERS = (
    "SELECT (SELECT count(*) FROM {0} NOT INDEXED {1}), (SELECT min(seq) FROM {0} {1}),"
    " (SELECT max(seq) FROM {0} {1})"
)
_STRAY_TOMBSTONES = (
    "SELECT count(*) FROM audit_tombstone LEFT JOIN audit_payload USING (seq) WHERE"
    " tombstone IS NOT payload AND seq > (SELECT coalesce(max(last_seq), 0) FROM audit_segment)"
)
_BEHIND = "WHERE seq > :after"
_ORPHANS = (
    "SELECT seq, NULL, NULL, CAST(payload AS BLOB) FROM audit_payload WHERE (seq > :after OR :after = 0)"
    " AND NOT EXISTS (SELECT 1 FROM audit_header WHERE audit_header.seq = audit_payload.seq)"
    " ORDER BY seq"
)

# ``StoredRow._make`` without its Python frame: this is called for each event of a verification.
_as_row: Callable[[tuple[object, ...]], StoredRow] = partial(tuple.__new__, StoredRow)


class SqliteSnapshot:
    """A consistent view of the stored bytes for ``verify``, streamed: memory stays flat."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def schema_problems(self) -> list[str]:
        """What is missing of the tables, the index and the append-only safeguards; and tombstones that
        stand where nothing was redacted."""
        problems = schema_problems(self._connection)
        if {"audit_tombstone", "audit_payload"} <= table_names(self._connection):
            ((stray,),) = self._connection.execute(_STRAY_TOMBSTONES)
            problems += [f"{stray} tombstones that no payload was replaced by"] if stray else []
        return problems

    def index_problems(self) -> list[str]:
        """Where the index of fixes is not what the table says: whoever asks for one fix gets a part of
        it. Reads the table and the index to their ends. Raises OSError where the system failed to read
        them: SQLite says so among its findings, and what it then finds missing is no damage."""
        checked = self._connection.execute("PRAGMA integrity_check(audit_header)")
        found = [reported for (reported,) in checked if reported != "ok"]
        if any(map(is_unread, found)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return [f"audit_header: {reported}" for reported in found]

    def segments(self) -> list[bytes]:
        """The statements of all segments, in order."""
        return segments(self._connection)

    def tombstones(self) -> frozenset[int]:
        """Numbers of the redacted events whose tombstone is kept apart."""
        if "audit_tombstone" not in table_names(self._connection):
            return frozenset()
        rows = self._connection.execute("SELECT seq FROM audit_tombstone")
        return frozenset(seq for (seq,) in rows)

    def rows(self, after: int = 0) -> Iterator[StoredRow]:
        """Every row behind ``after`` by number (None where its payload is gone), then payloads
        without a header."""
        linked = self._connection.execute(f"{ROWS} WHERE seq > ? ORDER BY seq", (after,))
        return chain(map(_as_row, linked), self._orphans(after))

    def _orphans(self, after: int) -> Iterator[StoredRow]:
        """Payloads without a header. Two unbroken sets of numbers with the same ends are the same set:
        that is counted first, at a third of what looking for each number costs."""
        headers, payloads = (
            self._connection.execute(
                _NUMBERS.format(table, "" if after == 0 else _BEHIND), {"after": after}
            ).fetchone()
            for table in ("audit_header", "audit_payload")
        )
        count, first, last = headers
        if headers == payloads and (count == 0 or last - first + 1 == count):
            return
        orphans = self._connection.execute(_ORPHANS, {"after": after})
        yield from map(_as_row, orphans)

    def rows_by_trail(self, fix_ids: frozenset[str] | None = None) -> Iterator[StoredRow]:
        """Complete rows only, gate transition by gate transition, each in chain order; of all fixes,
        or of these."""
        sql = f"SELECT {LINK} FROM audit_header JOIN audit_payload USING (seq)"  # noqa: S608
        if fix_ids is None:
            rows: Iterator[tuple[object, ...]] = self._connection.execute(
                f"{sql} ORDER BY fix_id, gate_transition_id, seq"
            )
        else:
            one_fix = f"{sql} WHERE fix_id = ? ORDER BY gate_transition_id, seq"
            rows = chain.from_iterable(
                self._connection.execute(one_fix, (fix_id,)) for fix_id in sorted(fix_ids)
            )
        return map(_as_row, rows)


def segments(connection: sqlite3.Connection) -> list[bytes]:
    """The statements of all segments, in order."""
    if "audit_segment" not in table_names(connection):  # only read since migration 2 was released
        return []
    rows = connection.execute("SELECT statement FROM audit_segment ORDER BY number")
    # A damaged page may hold anything: what is no statement is refused by whoever opens it.
    return [statement if isinstance(statement, bytes) else b"" for (statement,) in rows]
