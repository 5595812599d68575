"""The record, for those who read it through the service: one reader for all, opened when it is needed."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fallback_audit.errors import AuditError
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import StoredEvent
from fallback_tier.wiring.commands import command, completed, locations
from fallback_tier.wiring.trail import (
    ReadOnlyTrail,
    RecordSettings,
    open_evidence,
    open_trail,
    read_trail,
)


class TrailAndEvidence:
    """Trail and evidence of one state folder."""

    def __init__(self, state_dir: Path, settings: RecordSettings) -> None:
        self.state_dir = state_dir
        self.settings = settings
        self._lock = threading.Lock()
        self._reader: ReadOnlyTrail | None = None

    def command(self, words: str) -> str:
        """Return a suggested command with the locations of this record, for a shell of this machine."""
        return command(words, locations(self.state_dir, self.settings))

    def completed(self, text: str) -> str:
        """Return a text in which each command between backticks has these locations."""
        return completed(text, locations(self.state_dir, self.settings))

    def make(self) -> None:
        """So that it is there before the first fix. Raises AuditStoreError, KeyringError."""
        open_trail(self.state_dir, self.settings).close()

    @property
    def evidence(self) -> FileEvidenceStore:
        """The evidence store."""
        return open_evidence(self.state_dir)

    @contextmanager
    def reading(self) -> Iterator[ReadOnlyTrail]:
        """The one reader, alone with it: read what is asked to its end. A store that failed (a database
        that was started again) is opened anew the next time. Raises AuditStoreError."""
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
        """A reader of one's own, for what takes its time."""
        with closing(read_trail(self.state_dir, self.settings)) as reader:
            yield reader

    def events(self, fix_id: str, *, after: int = 0) -> list[StoredEvent]:
        """All events of a fix behind this number."""
        with self.reading() as reader:
            return list(reader.events(fix_id, after=after))

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
