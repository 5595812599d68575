"""The record for auditors: its events page by page, an export, a verification."""

import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from fallback_audit.exporting.export import Exporter
from fallback_audit.ports import StoredEvent
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.verify import verify
from fallback_tier.files.folders import writing_below
from fallback_tier.service.database import service_dir
from fallback_tier.service.operations.record import TrailAndEvidence
from fallback_tier.service.refusals import BusyError
from fallback_tier.wiring.trail import evidence_dir, read_checkpoints, segment_dir

#: Events in one page.
MAX_EVENTS = 500


@dataclass(frozen=True)
class Audits:
    """Of one record. Exports and verifications read all of it, so there is one of them at a time."""

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
        """In chain order, behind number ``after``. Raises AuditStoreError, AuditIntegrityError."""
        wanted = frozenset(kinds) or None
        found: list[StoredEvent] = []
        with self.record.reading() as reader:
            for stored in reader.events(fix_id, kinds=wanted, since=since, after=after):
                found.append(stored)
                if len(found) >= min(limit, MAX_EVENTS):
                    break
        return found

    def export(self, *, fix_id: str | None = None, with_evidence: bool = False) -> BinaryIO:
        """A file without a name, at its beginning: with its last reader it is gone, whatever becomes of
        this process. The caller closes it. Raises RequestError: no such fix; BusyError."""
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
        """As ``fallback-tier audit verify``. Raises BusyError."""
        record = self.record
        state, settings = record.state_dir, record.settings
        asked = with_evidence and evidence_dir(state).is_dir()
        with self._alone(), record.reading_long() as reader:
            return verify(
                reader,
                checkpoints=read_checkpoints(state, settings),
                evidence=record.evidence if asked else None,
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
    """Where exports are made: as large as the record, so not where the system keeps small files."""
    return service_dir(state_dir) / "exports"
