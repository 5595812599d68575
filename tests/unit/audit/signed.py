"""A record with checkpoints, as the trail makes it: store, log, keys, and what an attacker does to them."""

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fallback_audit.checkpoints.checkpoint import Span
from fallback_audit.checkpoints.keyring import Keyring, generate
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.writer import Checkpointer
from fallback_audit.events import AuditEvent, PayloadRedacted, SegmentSealed
from fallback_audit.exporting.format import Base, ExportWriter, Head
from fallback_audit.ports import MAINTENANCE, Record, Scope, Segment, StoredEvent
from fallback_audit.showing.describe import WORDS
from fallback_audit.statements import (
    SEGMENT_DOMAIN,
    TOMBSTONE_DOMAIN,
    SegmentStatement,
    Tombstone,
    sign_statement,
)
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.verifying.report import VerificationReport, VerifiedState
from fallback_audit.verifying.sources import KeptNote, LogCheckpoints
from fallback_audit.verifying.verify import verify
from tests.unit.audit.tamper import behind_the_triggers, fixed_clock

ORIGIN = "example.org/audit"


@dataclass
class TrailFolder:
    """One record in one folder."""

    place: Path

    @property
    def path(self) -> Path:
        return self.place / "audit.db"

    @property
    def log(self) -> CheckpointLog:
        return CheckpointLog(self.place / "checkpoints")

    @property
    def keyring(self) -> Keyring:
        return Keyring.load(self.place / "keys")

    @property
    def segments(self) -> Path:
        return self.place / "segments"

    def store(self) -> SqliteAuditStore:
        return SqliteAuditStore(
            self.path,
            clock=fixed_clock,
            verifiers=generate(self.place / "keys", ORIGIN).verifiers(),
        )

    def append(self, fix: str, events: Sequence[AuditEvent], *, cover: bool = True) -> None:
        """One fix, and the checkpoint that its end makes."""
        with closing(self.store()) as store:
            scope = Scope(fix_id=fix, gate_transition_id="t")
            store.append_all([Record(scope, event) for event in events])
            if cover:
                self.checkpoint(store)

    def checkpoint(self, store: SqliteAuditStore | None = None) -> None:
        """As the one process that wrote everything."""
        with closing(store or self.store()) as opened:
            Checkpointer(
                opened, self.log, self.place / "keys", segments=opened.segments
            ).checkpoint([Span(1, opened.tip()[0])])

    def source(
        self, *extra: Path, max_uncovered: int | None = None, keyring: Keyring | None = None
    ) -> LogCheckpoints:
        notes = tuple(KeptNote(path, path.read_bytes()) for path in extra)
        return LogCheckpoints(
            self.log, keyring or self.keyring, extra=notes, max_uncovered=max_uncovered
        )

    def verify(
        self,
        source: LogCheckpoints | None = None,
        *,
        since: VerifiedState | None = None,
        sealed: bool = True,
        contract: bool = True,
    ) -> VerificationReport:
        with closing(open_readonly(self.path, verifiers=self.keyring.verifiers())) as reader:
            return verify(
                reader,
                checkpoints=source or self.source(),
                since=since,
                sealed=self.segments if sealed else None,
                contract=contract,
            )

    def tampered(self, change: Callable[[sqlite3.Connection], object]) -> VerificationReport:
        with behind_the_triggers(self.path) as connection:
            change(connection)
        return self.verify()

    def events(self) -> list[StoredEvent]:
        with closing(open_readonly(self.path, verifiers=self.keyring.verifiers())) as reader:
            return list(reader.events())

    def redact(self, seq: int, field: str, *, reported: bool = True, by: str = "Ann") -> bytes:
        """A tombstone made by hand, in place, and the event that names it."""
        stored = next(event for event in self.events() if event.seq == seq)
        stone = Tombstone(
            seq=seq,
            leaf=stored.leaf,
            payload_sha256=stored.payload_sha256,
            fields=(field,),
            residue={**stored.payload.model_dump(mode="json"), field: "[redacted]"},
            by=by,
            reason="asked to",
            at="2026-01-02T03:04:05.000006Z",
        )
        signed = sign_statement(
            TOMBSTONE_DOMAIN, stone.model_dump(mode="json"), self.keyring.signers()
        )
        if reported:
            event = PayloadRedacted(
                seq=seq,
                payload_sha256=stored.payload_sha256,
                tombstone_sha256=hashlib.sha256(signed).hexdigest(),
                fields=(field,),
                by=by,
                reason="asked to",
            )
            with closing(self.store()) as store:
                store.replace_payload(seq, signed, Record(stored.scope, event))
                self.checkpoint(store)
        return signed

    def seal(self, last: int) -> SegmentStatement:
        """The events to ``last`` go to a file."""
        with closing(self.store()) as store:
            statements = store.segments()
            with store.snapshot() as snapshot:
                rows = [row for row in snapshot.rows() if row.seq <= last]
            tree, first = Frontier(), rows[0].seq
            for row in rows:
                tree.append(row.header or b"")
            self.segments.mkdir(exist_ok=True)
            name = f"{len(statements) + 1}.jsonl"
            base = Base(seq=0, leaf="0" * 64)
            head = Head(words=WORDS, origin=ORIGIN, first_seq=first, last_seq=last, base=base)
            with (self.segments / name).open("wb") as file:
                writer = ExportWriter(file, head)
                for row in rows:
                    writer.event(row)
                sha256 = writer.close().sha256
            statement = SegmentStatement(
                number=1,
                first_seq=first,
                last_seq=last,
                previous_leaf=self.previous(rows[0].header),
                tip=rows[-1].leaf or "",
                frontier=tuple(digest.hex() for digest in tree.hashes),
                root=tree.root().hex(),
                file=name,
                sha256=sha256,
                sealed_at="2026-01-02T03:04:05.000006Z",
                by="Ann",
                reason="old",
            )
            signed = sign_statement(
                SEGMENT_DOMAIN, statement.model_dump(mode="json"), self.keyring.signers()
            )
            event = SegmentSealed(
                first_seq=first, last_seq=last, sha256=sha256, by="Ann", reason="old"
            )
            store.add_segment(Segment(1, first, last, signed), Record(MAINTENANCE, event))
            self.checkpoint(store)
        return statement

    @staticmethod
    def previous(header: bytes | None) -> str:
        return (header or b"").partition(b'"previous_leaf":"')[2][:64].decode()
