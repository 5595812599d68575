"""Appending to the audit trail, and checking it, in a warm process (goals 9 and 10).

The events are those of whole, valid fixes. ``store``: ``production`` (the contract judged inside the
transaction, checkpoints signed at the end of each fix and every 256 events), ``bare`` (the store by
itself), ``postgres`` (production, at ``url``), or ``raw``: psycopg writing the same rows, and no more.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import Link, make_link
from fallback_audit.ports import AuditStore, Record
from fallback_audit.stores.appending import timestamp, utc_now
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.stores.sqlite_schema import connect, uri_of
from fallback_audit.verifying.report import Listed
from fallback_audit.verifying.walk import Position, Walk
from fallback_tier.wiring.trail import RecordSettings, open_trail

sys.path.append(str(Path(__file__).parents[3]))  # last: only helpers come from the checkout
from tests.campaigns.bench import audit_store

Prepared = tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]
Append = Callable[[Sequence[Record]], object]

#: Events of a batch.
BATCH = 16

#: What an append writes at least, on average: header, payload and leaf. (SQLite writes whole pages.)
_EVENT_BYTES = 640

_ROWS = "SELECT seq, header, leaf, payload FROM audit_header JOIN audit_payload USING (seq) ORDER BY seq"


def prepare(place: Path, work: str, store: str = "", url: str = "") -> Prepared:
    """``one`` event, ``sixteen`` one by one, or a ``batch`` of them; ``sync``; or a check of the store
    in ``place``: ``scan``, ``integrity``, ``merkle``, ``contract``."""
    if work == "sync":
        return _syncing(place / "bytes"), dict
    if work in _CHECKS:
        return lambda: _CHECKS[work](place), dict
    append = _raw(url) if store == "raw" else _opened(store, place, url).append_all
    return _appending(append, work), dict


def _opened(store: str, place: Path, url: str) -> AuditStore:
    state = place / f"state-{os.getpid()}"
    if store == "bare":
        return SqliteAuditStore(state / "audit.db")
    settings = {"keys": state / "keys"} | ({"database": url} if store == "postgres" else {})
    return open_trail(state, RecordSettings.model_validate(settings))


def _appending(append: Append, work: str) -> Callable[[], None]:
    records = audit_store.records()

    def one() -> None:
        append((next(records),))

    def sixteen() -> None:
        for record in islice(records, BATCH):
            append((record,))

    def batch() -> None:
        append(tuple(islice(records, BATCH)))

    return {"one": one, "sixteen": sixteen, "batch": batch}[work]


def _raw(url: str) -> Append:
    """The same links by psycopg, a transaction a call: no trigger, no computed column, no guard."""
    import psycopg

    connection = psycopg.connect(url)
    name = f"raw_{os.getpid()}"
    connection.execute(f"CREATE SCHEMA {name}")
    connection.execute(f"SET search_path = {name}")
    connection.execute("CREATE TABLE header (seq bigint PRIMARY KEY, header bytea, leaf text)")
    connection.execute("CREATE TABLE payload (seq bigint PRIMARY KEY, payload bytea)")
    connection.commit()
    tip: list[Any] = [0, GENESIS]

    def append(records: Sequence[Record]) -> None:
        made: list[Link] = []
        for record in records:
            now = timestamp(utc_now())
            made.append(make_link(*record, seq=tip[0] + 1, previous_leaf=tip[1], recorded_at=now))
            tip[:] = made[-1].event.seq, made[-1].event.leaf
        with connection.transaction(), connection.cursor() as cursor:
            payloads = [(link.event.seq, link.payload) for link in made]
            cursor.executemany("INSERT INTO payload VALUES (%s, %s)", payloads)
            headers = [(link.event.seq, link.header, link.event.leaf) for link in made]
            cursor.executemany("INSERT INTO header VALUES (%s, %s, %s)", headers)

    return append


def _syncing(path: Path) -> Callable[[], None]:
    """One write of as many bytes, behind those before it, and one fdatasync."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    content = b"x" * _EVENT_BYTES

    def sync() -> None:
        os.write(descriptor, content)
        os.fdatasync(descriptor)

    return sync


def _scan(place: Path) -> None:
    """Every header and payload read in order, and hashed."""
    with closing(connect(uri_of(place / "audit.db", "mode=ro"))) as db:
        for _, header, _, payload in db.execute(_ROWS):
            sha256(header).hexdigest()
            sha256(payload).hexdigest()


def _integrity(place: Path) -> None:
    _walk(place, Position(frontier=None))


def _merkle(place: Path) -> None:
    _walk(place, Position())


def _contract(place: Path) -> None:
    audit_store.verified(place)


def _walk(place: Path, position: Position) -> None:
    problems: Listed[Any] = Listed()
    with closing(open_readonly(place / "audit.db")) as reader, reader.snapshot() as snapshot:
        Walk(position, problems).rows(snapshot.rows())
    if problems.count or not position.seq:
        raise AssertionError(problems.items)


_CHECKS: Mapping[str, Callable[[Path], None]] = {
    "scan": _scan,
    "integrity": _integrity,
    "merkle": _merkle,
    "contract": _contract,
}
