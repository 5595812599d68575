"""The rows of a store, read and put back behind its triggers, by somebody who has the file."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from fallback_audit.canonical import GENESIS, canonical_bytes, leaf_digest, payload_digest
from tests.unit.audit.tamper import behind_the_triggers

_ROWS = "SELECT seq, header, leaf, payload FROM audit_header JOIN audit_payload USING (seq) ORDER BY seq"


class Row(NamedTuple):
    seq: int
    header: bytes
    leaf: str
    payload: bytes

    @property
    def members(self) -> dict[str, Any]:
        return dict(json.loads(self.header))


def read_rows(path: Path) -> list[Row]:
    with closing(sqlite3.connect(path)) as connection:
        return [Row._make(row) for row in connection.execute(_ROWS)]


def put_rows(path: Path, rows: Sequence[Row]) -> None:
    """In place of all that are there."""
    with behind_the_triggers(path) as connection:
        connection.execute("BEGIN")
        for table in ("audit_header", "audit_payload"):
            connection.execute(f"DELETE FROM {table}")
        for row in rows:
            connection.execute("INSERT INTO audit_payload VALUES (?, ?)", (row.seq, row.payload))
            connection.execute(
                "INSERT INTO audit_header (seq, header, leaf) VALUES (?, ?, ?)", row[:3]
            )
        connection.execute("COMMIT")


def rechained(rows: Sequence[Row], start: int) -> list[Row]:
    """From index ``start`` on: numbers, payload digests, links and leaves made right again."""
    made = list(rows[:start])
    leaf = made[-1].leaf if made else GENESIS
    for seq, row in enumerate(rows[start:], start=start + 1):
        members = {
            **row.members,
            "seq": seq,
            "payload_sha256": payload_digest(row.payload),
            "previous_leaf": leaf,
        }
        header = canonical_bytes(members)
        leaf = leaf_digest(header)
        made.append(Row(seq, header, leaf, row.payload))
    return made


def flipped(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]
