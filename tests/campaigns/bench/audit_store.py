"""Audit stores of any size for the rows and runs about them: a real chain of valid trails, made fast.

``python audit_store.py make FOLDER EVENTS`` or ``verify FOLDER``. Run by path, in the environment under
test: only the trails come from the checkout, which stands last on the path.
"""

import json
import random
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from fallback_audit.canonical import GENESIS, canonical_bytes, leaf_digest, payload_digest
from fallback_audit.chain import canonical_header
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.writer import Checkpointer
from fallback_audit.events import AuditEvent
from fallback_audit.ports import Record, Scope
from fallback_audit.stores.appending import timestamp
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.verifying.sources import LogCheckpoints
from fallback_audit.verifying.verify import verify

sys.path.append(str(Path(__file__).parents[3]))
from tests.unit.audit.trails import recipe_verified, verified_on_retry

#: Rows of a transaction of the maker: large, since nobody waits for one event.
_ROWS = 50_000

#: The maker's page cache, in KiB: fix identifiers are random, so every page of their index is written to.
_CACHE_KIB = 2_000_000

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Made(NamedTuple):
    """An event of a trail, as bytes."""

    kind: str
    payload: bytes
    digest: str


def trails() -> tuple[Sequence[AuditEvent], ...]:
    """Two valid ones: by a language model, on the second attempt, and by recipe."""
    return verified_on_retry(), recipe_verified()


def records() -> Iterator[Record]:
    """Endless: the same trails, each as a fix of its own."""
    numbers = random.Random(0)
    for trail in cycle(trails()):
        scope = _scope(numbers)
        yield from (Record(scope, event) for event in trail)


def make(folder: Path, count: int) -> None:
    """A store of about ``count`` events, whole fixes only, with one checkpoint over all of them."""
    path = folder / "audit.db"
    with closing(SqliteAuditStore(path)), closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        rows = _rows(count)
        while block := [row for _, row in zip(range(_ROWS), rows, strict=False)]:
            db.executemany("INSERT INTO audit_payload VALUES (?, ?)", [r[:2] for r in block])
            headers = ((seq, header, leaf) for seq, _, header, leaf in block)
            db.executemany("INSERT INTO audit_header VALUES (?, ?, ?)", headers)
            db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with closing(open_readonly(path)) as reader:
        Checkpointer(reader, CheckpointLog(folder / "checkpoints"), folder / "keys").checkpoint()


def verified(folder: Path) -> dict[str, object]:
    """Verify it with its checkpoint; what the run says of itself. Raises AssertionError: not sound."""
    source = LogCheckpoints(CheckpointLog(folder / "checkpoints"), Keyring.load(folder / "keys"))
    with closing(open_readonly(folder / "audit.db")) as reader:
        report = verify(reader, checkpoints=source)
    if not report.ok or report.uncovered_events or not report.events:
        raise AssertionError(report.model_dump_json())
    return {"events": report.events, "gate_transitions": report.gate_transitions}


def _rows(count: int) -> Iterator[tuple[int, bytes, bytes, str]]:
    seq, leaf = 0, GENESIS
    numbers = random.Random(count)
    for trail in cycle([[_made(event) for event in trail] for trail in trails()]):
        if seq + len(trail) > count:
            return
        scope = _scope(numbers)
        recorded_at = timestamp(_BEGAN + timedelta(seconds=seq))
        for kind, payload, digest in trail:
            seq += 1
            header = canonical_header(scope, kind, seq, recorded_at, digest, leaf)
            leaf = leaf_digest(header)
            yield seq, payload, header, leaf


def _scope(numbers: random.Random) -> Scope:
    fix, transition = numbers.getrandbits(64), numbers.getrandbits(64)
    return Scope(fix_id=f"fix-{fix:016x}", gate_transition_id=f"transition-{transition:016x}")


def _made(event: AuditEvent) -> Made:
    payload = canonical_bytes(event.model_dump(mode="json"))
    return Made(event.kind, payload, payload_digest(payload))


def main(action: str, folder: str, count: str = "0") -> None:
    """The two actions."""
    if action == "make":
        make(Path(folder), int(count))
    else:
        sys.stdout.write(json.dumps(verified(Path(folder))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
