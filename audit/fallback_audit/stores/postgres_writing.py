"""One append in PostgreSQL: the chain's lock, the links, and a commit whose outcome is known."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import psycopg
from psycopg.rows import TupleRow

from fallback_audit.chain import Link, StoredRow, read_row
from fallback_audit.errors import AuditStoreError
from fallback_audit.events import Digest
from fallback_audit.ports import StoredEvent
from fallback_audit.stores.appending import tip_of
from fallback_audit.stores.postgres_connection import Session
from fallback_audit.stores.postgres_reading import SEGMENTS, TIP, TRAIL
from fallback_audit.stores.postgres_schema import lock_key

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier

# One message to the server. Each statement in it sees what was committed before it began, so the tip
# is read as the last writer left it. A session that asks for more (remote_apply) keeps that.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT pg_advisory_xact_lock({key});
SELECT set_config('synchronous_commit', 'on', true)
  WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
SELECT current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on', seq, leaf
  FROM (SELECT 1) AS always LEFT JOIN ({tip}) AS tip ON true
"""

_INSERT = (
    "WITH payloads AS (INSERT INTO audit_payload (seq, payload) {payloads})"
    " INSERT INTO audit_header (seq, header, leaf) {headers}"
)
_INSERT_ONE = _INSERT.format(
    payloads="VALUES (%(seq)s, %(payload)s)", headers="VALUES (%(seq)s, %(header)s, %(leaf)s)"
).encode()
_INSERT_SEVERAL = _INSERT.format(
    payloads="SELECT * FROM unnest(%(seq)s::bigint[], %(payload)s::bytea[])",
    headers="SELECT * FROM unnest(%(seq)s::bigint[], %(header)s::bytea[], %(leaf)s::text[])",
).encode()


class PostgresTransaction:
    """The open write transaction of a session: what ``append_in`` asks for, and its end.

    Raises AuditStoreError and psycopg.Error.
    """

    def __init__(self, session: Session, verifiers: "Sequence[Verifier]" = ()) -> None:
        """Take the chain's lock; once more where the connection was lost before it."""
        self._session = session
        self._verifiers = verifiers
        self.connection = session.connection()
        try:
            self._last = self._take_lock()
        except psycopg.OperationalError:
            if not self.connection.closed:
                raise
            self.connection = session.connection()
            self._last = self._take_lock()

    def tip(self) -> tuple[int, Digest]:
        """Number and leaf of the last event, as the lock was taken."""
        return tip_of(self._last, lambda: [row[0] for row in self._rows(SEGMENTS)])

    def insert(self, links: Sequence[Link]) -> None:
        """Add these links behind the tip."""
        rows = [
            {
                "seq": link.event.seq,
                "payload": link.payload,
                "header": link.header,
                "leaf": link.event.leaf,
            }
            for link in links
        ]
        if len(rows) == 1:  # nearly every append: two thirds of the time that arrays take
            self.connection.execute(_INSERT_ONE, rows[0])
        else:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            self.connection.execute(_INSERT_SEVERAL, columns)

    def trail(self, fix_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """The events of one fix behind number ``after``."""
        rows = self._rows(TRAIL, fix_id, after)
        return (read_row(StoredRow._make(row), self._verifiers) for row in rows)

    def roll_back(self) -> None:
        """Where even that fails, the connection goes: the server then ends the transaction itself."""
        try:
            self.connection.rollback()
        except psycopg.Error:
            self._session.drop()

    def commit(self, last: StoredEvent) -> None:
        """Make it durable. ``last`` is the last event of it."""
        try:
            self.connection.commit()
        except psycopg.Error as error:
            if not self.connection.closed:
                raise
            self._settle(last, error)
        except BaseException:
            self._session.drop()
            raise

    def _settle(self, last: StoredEvent, lost: psycopg.Error) -> None:
        """The connection was lost on the way: did the server commit? Raises AuditStoreError unless so.

        The other end of the lost connection holds the chain's lock until its transaction has ended:
        whoever gets the lock sees how it ended.
        """
        what = (
            f"Audit store {self._session.location}: the connection was lost while event {last.seq}"
        )
        try:
            self.connection = self._session.connection()
            self._take_lock()
            found = self._rows("SELECT leaf FROM audit_header WHERE seq = %s", last.seq)
            self.connection.rollback()
        except (psycopg.Error, AuditStoreError):
            self._session.drop()
            raise AuditStoreError(
                f"{what} was committed, and the server can't be asked: the event may be there or not "
                f"(its leaf is {last.leaf}).",
                next_step="When the server is up, check whether `fallback-tier audit log` has it.",
                kind="commit_unknown",
            ) from None
        if found != [(last.leaf,)]:
            raise AuditStoreError(
                f"{what} was committed; the server did not keep it: nothing was recorded.",
                next_step="Try again.",
                kind="not_recorded",
            ) from lost

    def _take_lock(self) -> list[TupleRow]:
        sql = _BEGIN.format(key=lock_key(self._session.location.schema), tip=TIP)
        try:
            cursor = self.connection.execute(sql.encode())
            while cursor.nextset():
                pass
            ((durable, seq, leaf),) = cursor.fetchall()
        except BaseException:
            self.roll_back()
            raise
        if durable:
            return [] if seq is None else [(seq, leaf)]
        self.roll_back()
        raise AuditStoreError(
            f"Audit store {self._session.location}: the server runs with fsync or full_page_writes off: "
            "a power cut may lose events that it acknowledged.",
            next_step="Set both on in postgresql.conf; an audit trail is durable or nothing.",
            kind="not_durable",
        )

    def _rows(self, sql: str, *parameters: object) -> list[TupleRow]:
        with self.connection.cursor(binary=True) as cursor:
            return cursor.execute(sql.encode(), parameters).fetchall()
