"""The audit trail, read through the service: one shared reader, pages of events, exports, verifications."""

import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from fallback_audit.errors import AuditError
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting.export import Exporter
from fallback_audit.ports import StoredEvent
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.verify import verify
from fallback_tier.files.folders import writing_below
from fallback_tier.service.database import service_dir
from fallback_tier.service.refusals import BusyError
from fallback_tier.wiring.commands import command, completed, locations
from fallback_tier.wiring.trail import (
    ReadOnlyTrail,
    RecordSettings,
    evidence_dir,
    open_evidence,
    open_trail,
    read_checkpoints,
    read_trail,
    segment_dir,
)


class TrailAndEvidence:
    """The audit trail and the evidence of one state folder."""

    def __init__(self, state_dir: Path, settings: RecordSettings) -> None:
        self.state_dir = state_dir
        self.settings = settings
        self._lock = threading.Lock()
        self._reader: ReadOnlyTrail | None = None

    def command(self, text: str) -> str:
        """Return a suggested command with this audit trail's locations, for a shell of this machine."""
        return command(text, locations(self.state_dir, self.settings))

    def completed(self, text: str) -> str:
        """Return a text in which each command between backticks has these locations."""
        return completed(text, locations(self.state_dir, self.settings))

    def make(self) -> None:
        """Create the audit trail before the first fix. Raises AuditStoreError, KeyringError."""
        open_trail(self.state_dir, self.settings).close()

    @property
    def evidence(self) -> FileEvidenceStore:
        """Return the evidence store."""
        return open_evidence(self.state_dir)

    @contextmanager
    def reading(self) -> Iterator[ReadOnlyTrail]:
        """Yield the shared reader, locked: read to the end inside the block. After a failure (a
        database that was restarted) the next call reopens it. Raises AuditStoreError.
        """
        with self._lock:
            if self._reader is None:
                self._reader = read_trail(self.state_dir, self.settings)
            try:
                yield self._reader
            except AuditError:
                self._close()
                raise

    @contextmanager
    def reading_long(self) -> Iterator[ReadOnlyTrail]:
        """Yield a separate reader, for long reads."""
        with closing(read_trail(self.state_dir, self.settings)) as reader:
            yield reader

    def events(self, fix_id: str, *, after: int = 0) -> list[StoredEvent]:
        """Return all events of a fix after this number."""
        with self.reading() as reader:
            return list(reader.events(fix_id, after=after))

    def close(self) -> None:
        """Close the shared reader. Idempotent."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


#: Maximum number of events on one page.
MAX_EVENTS = 500


@dataclass(frozen=True)
class Audits:
    """Pages, exports and verifications of one audit trail. Exports and verifications read all of it, so
    only one of them runs at a time.
    """

    record: TrailAndEvidence
    _one: threading.Lock = field(default_factory=threading.Lock)

    def events(
        self,
        *,
        after: int = 0,
        limit: int = MAX_EVENTS,
        fix_id: str | None = None,
        kinds: Collection[str] = (),
        since: str | None = None,
    ) -> list[StoredEvent]:
        """Return events in chain order, after number ``after``. Raises AuditStoreError,
        AuditIntegrityError.
        """
        wanted_kinds = frozenset(kinds) or None
        events: list[StoredEvent] = []
        with self.record.reading() as reader:
            for stored in reader.events(fix_id, kinds=wanted_kinds, since=since, after=after):
                events.append(stored)
                if len(events) >= min(limit, MAX_EVENTS):
                    break
        return events

    def export(self, *, fix_id: str | None = None, with_evidence: bool = False) -> BinaryIO:
        """Return an export as an unnamed file, at its start: the system deletes it when it is closed,
        even if this process dies. The caller closes it. Raises RequestError if there is no such fix;
        BusyError.
        """
        record = self.record
        folder = exports_dir(record.state_dir)
        checkpoints = read_checkpoints(record.state_dir, record.settings)
        with self._alone(), record.reading_long() as reader, reader.snapshot() as snapshot:
            with writing_below(record.state_dir):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                file = cast("BinaryIO", tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 (handed on)
            try:
                exporter = Exporter(
                    snapshot,
                    checkpoints,
                    origin=checkpoints.keyring.origin_if_any,
                    evidence=record.evidence if with_evidence else None,
                )
                _ = exporter.fix(file, fix_id) if fix_id else exporter.trail(file)
                file.seek(0)
            except BaseException:
                file.close()
                raise
        return file

    def verify(self, *, with_evidence: bool = True) -> VerificationReport:
        """Verify as ``fallback-tier audit verify`` does. Raises BusyError."""
        record = self.record
        state, settings = record.state_dir, record.settings
        reads_evidence = with_evidence and evidence_dir(state).is_dir()
        with self._alone(), record.reading_long() as reader:
            return verify(
                reader,
                checkpoints=read_checkpoints(state, settings),
                evidence=record.evidence if reads_evidence else None,
                sealed=segment_dir(state),
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._one.acquire(blocking=False):
            raise BusyError(
                "The whole record is being exported or verified already.",
                next_step="Ask again when that is done.",
                kind="in_use",
            )
        try:
            yield
        finally:
            self._one.release()


def exports_dir(state_dir: Path) -> Path:
    """Return the folder of exports: they are as large as the audit trail, too large for the system's
    temporary folder.
    """
    return service_dir(state_dir) / "exports"
