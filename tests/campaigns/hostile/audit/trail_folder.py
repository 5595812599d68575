"""A record as in production: a store with its guard, its checkpoints and keys, and evidence beside it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.writer import CheckpointedStore
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting.format import rows_of_file
from fallback_audit.ports import HeaderRow, Record, Scope
from fallback_audit.statements import open_segment
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.sources import LogCheckpoints
from fallback_audit.verifying.verify import verify
from fallback_tier.wiring.trail import RecordSettings, open_evidence, open_trail, read_trail
from tests.unit.audit.trails import VALID

#: Small, so that a short life of a store has many checkpoints in it.
CHECKPOINT_EVENTS = 8


class TrailFolder:
    """One record, opened again and again."""

    def __init__(
        self, place: Path, *, database: str | None = None, events: int = CHECKPOINT_EVENTS
    ) -> None:
        self.place = place
        self.state = place / "state"
        self.settings = RecordSettings(
            database=SecretStr(database) if database else None,
            checkpoints=place / "checkpoints",
            keys=place / "keys",
            checkpoint_events=events,
        )

    def store(self) -> CheckpointedStore:
        return open_trail(self.state, self.settings)

    def bare_store(self) -> SqliteAuditStore:
        """Without checkpoints, as a process leaves it that is killed before the next one."""
        return SqliteAuditStore(self.database)

    @property
    def keys(self) -> Path:
        return self.place / "keys"

    @property
    def log(self) -> CheckpointLog:
        return CheckpointLog(self.place / "checkpoints")

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.state / "audit.db"

    @property
    def segments(self) -> Path:
        return self.state / "segments"

    def evidence(self) -> FileEvidenceStore:
        return open_evidence(self.state)

    @contextmanager
    def reader(self) -> Iterator[Any]:
        with closing(read_trail(self.state, self.settings)) as opened:
            yield opened

    def headers(self) -> list[HeaderRow]:
        """All of them, sealed ones too: of a retired file there is an auditor's copy."""
        keyring = Keyring.load(self.keys)
        with self.reader() as reader:
            found = []
            for statement in reader.segments():
                reported = open_segment(statement, keyring.verifiers())
                places = (self.segments / reported.file, self.place / "copies" / reported.file)
                kept = next(place for place in places if place.is_file())
                for row in rows_of_file(kept, sha256=reported.sha256):
                    found.append(HeaderRow(row.seq, row.header or b"", row.leaf or ""))
            return [*found, *reader.headers()]

    def verify(self, *, evidence: bool = False) -> VerificationReport:
        """As the command line does."""
        source = LogCheckpoints(self.log, Keyring.load(self.keys))
        kept = self.evidence() if evidence else None
        with self.reader() as reader:
            return verify(reader, checkpoints=source, evidence=kept, sealed=self.segments)


def records(name: str) -> Iterator[Record]:
    """Valid trails for ever, one fix after another, each in a scope of its own."""
    number = 0
    while True:
        scope = Scope(fix_id=f"{name}-{number}", gate_transition_id="transition-1")
        for event in VALID[number % len(VALID)]():
            yield Record(scope, event)
        number += 1
