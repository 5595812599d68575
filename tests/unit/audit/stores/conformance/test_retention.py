"""Redaction, sealing and collection do the same on every store, and it verifies afterwards."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.keyring import Keyring, generate
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.writer import Checkpointer
from fallback_audit.contract.guard import ContractGuard
from fallback_audit.events import FixStarted
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Record, Scope
from fallback_audit.retention.collect import Collector, Limits
from fallback_audit.retention.history import History
from fallback_audit.retention.redact import Redactor
from fallback_audit.retention.seal import SealableStore, Sealer
from fallback_audit.stores.postgres import PostgresAuditStore
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.verifying.sources import LogCheckpoints
from fallback_audit.verifying.verify import verify
from tests.unit.audit import trails
from tests.unit.audit.stores.conformance.backends import Backend, SqliteBackend

WORDS = "Wilhelmina Quackenbush"
LENGTH = len(trails.recipe_verified())


class TrailFolder:
    """A store of either kind, with keys, checkpoints and a clock that a test sets."""

    def __init__(self, backend: Backend, folder: Path) -> None:
        self.folder = folder
        self.keys = generate(folder / "keys")
        self.now = datetime(2026, 6, 1, tzinfo=UTC)
        self.log = CheckpointLog(folder / "checkpoints")
        self.segments = folder / "segments"
        self.evidence = FileEvidenceStore(folder / "evidence")
        self.store = self._opened(backend, self.keys)

    def _opened(self, backend: Backend, keys: Keyring) -> SealableStore:
        guard, verifiers = ContractGuard(), keys.verifiers()
        if isinstance(backend, SqliteBackend):
            return SqliteAuditStore(
                backend.path, guard=guard, verifiers=verifiers, clock=lambda: self.now
            )
        return PostgresAuditStore(
            backend.address, guard=guard, verifiers=verifiers, clock=lambda: self.now
        )

    def fix(self, fix_id: str) -> None:
        scope = Scope(fix_id=fix_id, gate_transition_id=f"{fix_id}-1")
        for event in trails.recipe_verified():
            known = {"repository": WORDS} if isinstance(event, FixStarted) else {}
            self.store.append_all([Record(scope, event.model_copy(update=known))])

    def checkpoint(self) -> SignedCheckpoint | None:
        keys = self.folder / "keys"
        return Checkpointer(self.store, self.log, keys, segments=self.store.segments).checkpoint()

    def check(self) -> None:
        self.checkpoint()
        report = verify(
            self.store,
            checkpoints=LogCheckpoints(self.log, self.keys),
            sealed=self.segments,
        )
        assert report.ok, report


@pytest.fixture
def trail(backend: Backend, tmp_path: Path) -> TrailFolder:
    return TrailFolder(backend, tmp_path)


def test_a_record_is_kept_over_its_life(trail: TrailFolder, backend: Backend) -> None:
    with closing(trail.store):
        for fix_id in ("a", "b", "c"):
            trail.fix(fix_id)
            trail.now += timedelta(days=30)
        signers = trail.keys.signers()
        redactor = Redactor(trail.store, trail.evidence, signers, clock=lambda: trail.now)
        for first in (1, LENGTH + 1, 2 * LENGTH + 1):
            redactor.redact(first, by="A. Keeper", reason="a request")
        with backend.connect() as connection:
            rows = connection.execute("SELECT payload FROM audit_payload").fetchall()
        assert not any(WORDS.encode() in payload for (payload,) in rows)
        trail.check()
        reported = list(trail.store.events())
        assert [event.seq for event in reported if event.redacted] == [
            1,
            LENGTH + 1,
            2 * LENGTH + 1,
        ]

        # A redaction is an event of its fix: it is sealed with it, and not before.
        sealer = Sealer(trail.store, trail.segments, trail.keys, clock=lambda: trail.now)
        before = trail.now
        covered = trail.checkpoint()
        assert sealer.seal(before, covered, by="A. Keeper", reason="retention") is None
        trail.now += timedelta(days=30)
        sealed = sealer.seal(trail.now, covered, by="A. Keeper", reason="retention")
        assert sealed is not None
        assert sealed.last_seq == reported[-1].seq
        trail.check()
        history = History(trail.store, trail.segments, trail.keys.verifiers())
        assert list(history.events())[: len(reported)] == reported
        collector = Collector(trail.store, history, trail.evidence, clock=lambda: trail.now)
        collector.collect(Limits(max_bytes=0), by="A. Keeper", reason="retention")

        sealer.retire(1, by="A. Keeper", reason="over")
        trail.check()
        trail.fix("d")
        trail.check()
        assert [event.kind for event in trail.store.events()][:2] == [
            "SegmentSealed",
            "SegmentRetired",
        ]
