"""What ``verify`` reads of a store."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from fallback_audit.chain import StoredRow


class Snapshot(Protocol):
    """The stored bytes at one moment."""

    def schema_problems(self) -> list[str]:
        """Tables, index and append-only safeguards that are not as they were made."""
        ...

    def index_problems(self) -> list[str]:
        """Where an index is not what its table says. Reads both to their ends."""
        ...

    def segments(self) -> list[bytes]:
        """The signed statements of all sealed segments, in order."""
        ...

    def tombstones(self) -> frozenset[int] | None:
        """Numbers of the events whose tombstone is kept beside the payloads; None: none is kept (an
        export)."""
        ...

    def rows(self, after: int = 0) -> Iterator[StoredRow]:
        """Every row behind ``after`` in chain order, then payloads without a header."""
        ...

    def rows_by_trail(self, fix_ids: frozenset[str] | None = None) -> Iterator[StoredRow]:
        """Complete rows, gate transition by gate transition; of all fixes, or of these."""
        ...


class VerifiableStore(Protocol):
    """A store that can show its bytes."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Raises AuditIntegrityError where the store itself is damaged, else AuditStoreError."""
        ...
