"""Inputs of a verification: a store's bytes, and checkpoints with the trusted keys."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import Protocol, TypeAlias

from fallback_audit.chain import StoredRow
from fallback_audit.checkpoints.checkpoint import Previous, open_checkpoint
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckedCheckpoint, CheckpointLog
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import AuditIntegrityError, TrailFault


class Snapshot(Protocol):
    """The stored bytes at one moment."""

    def schema_problems(self) -> list[str]:
        """Return the tables, indexes and append-only safeguards that are not as the store made them."""
        ...

    def index_problems(self) -> list[str]:
        """Return where an index differs from its table. Reads both completely."""
        ...

    def segments(self) -> list[bytes]:
        """Return the signed statements of all sealed segments, in order."""
        ...

    def tombstones(self) -> frozenset[int] | None:
        """Return the numbers of the events in the table of tombstones; None without one (an export)."""
        ...

    def rows(self, after: int = 0) -> Iterator[StoredRow]:
        """Yield every row after number ``after`` in chain order, then payloads without a header."""
        ...

    def rows_by_trail(self, fix_ids: frozenset[str] | None = None) -> Iterator[StoredRow]:
        """Yield complete rows, grouped by gate transition; of all fixes, or of these."""
        ...


class VerifiableStore(Protocol):
    """A store that can show its bytes."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a snapshot. Raises AuditIntegrityError if the store is damaged, otherwise
        AuditStoreError."""
        ...


@dataclass(frozen=True)
class KeptNote:
    """A checkpoint kept outside the log, e.g. by an auditor. ``place`` is for people."""

    place: Path
    note: bytes


@dataclass(frozen=True)
class LogCheckpoints:
    """The writers' log, and checkpoints of it that an auditor kept: ``extra``.

    The log can be rolled back together with the database; checkpoints kept elsewhere can't.
    ``max_uncovered``: most events that the writers' policy leaves uncovered; None: unknown.
    """

    log: CheckpointLog
    keyring: Keyring
    extra: Sequence[KeptNote] = ()
    max_uncovered: int | None = None

    def verifiers(self) -> Sequence[Verifier]:
        """Return the keyring's keys, also retired ones."""
        return self.keyring.verifiers()

    def latest_size(self) -> int:
        """Return the largest size of a checkpoint now.

        Call this before reading the store: later checkpoints cover events appended later.
        """
        extra = GivenCheckpoints(self.extra, self.keyring)
        return max(self.log.latest_size(), extra.latest_size())

    def end_known(self) -> bool:
        """Return whether something outside the log (a kept checkpoint, the keys' folder) shows its length.

        Otherwise it is not noticed if the log is cut short together with its store.
        """
        return bool(self.extra) or self.log.is_known(self.keyring)

    def ahead(self) -> Previous | None:
        """Return the last checkpoint that the keys' folder knows of this log, if this copy lacks it."""
        return self.log.ahead(self.keyring)

    def checked(self, *, after: int = 0) -> Iterator[CheckedCheckpoint]:
        """Yield the checkpoints larger than ``after``, ascending, each with its own fault."""
        extra = GivenCheckpoints(self.extra, self.keyring)
        return merge(
            self._logged(after),
            extra.checked(after=after),
            key=lambda checkpoint: checkpoint.size,
        )

    def _logged(self, after: int) -> Iterator[CheckedCheckpoint]:
        path = self.log.path(after)
        if not after or path.exists():
            yield from self.log.checked(self.keyring, after=after)
            return
        reason = f"{path}: the checkpoint that was verified earlier is missing (removed)"
        yield CheckedCheckpoint(after, path, None, TrailFault("checkpoint_missing", reason))
        yield from (
            checkpoint for checkpoint in self.log.checked(self.keyring) if checkpoint.size > after
        )


@dataclass(frozen=True)
class GivenCheckpoints:
    """Checkpoints without a log: those in an export, or an auditor's. ``extra``: checkpoints of the log
    kept elsewhere, in addition to an export's."""

    notes: Sequence[KeptNote]
    keyring: Keyring
    max_uncovered: int | None = None
    extra: Sequence[KeptNote] = ()

    def verifiers(self) -> Sequence[Verifier]:
        """Return the keyring's keys, also retired ones."""
        return self.keyring.verifiers()

    def latest_size(self) -> int:
        """Return the largest size; 0 if there is none."""
        return max((checkpoint.size for checkpoint in self.checked()), default=0)

    def end_known(self) -> bool:
        """Return whether a checkpoint kept elsewhere is given."""
        return bool(self.extra)

    def ahead(self) -> Previous | None:
        """Return None: an export may end earlier than its log."""
        return None

    def checked(self, *, after: int = 0) -> Iterator[CheckedCheckpoint]:
        """Yield all checkpoints, by size. One up to ``after`` can't be checked, which is a fault."""
        notes = (*self.notes, *self.extra)
        yield from sorted(
            (self._opened(note, after) for note in notes), key=lambda checkpoint: checkpoint.size
        )

    def _opened(self, note: KeptNote, after: int) -> CheckedCheckpoint:
        try:
            signed = open_checkpoint(note.note, self.keyring.verifiers())
        except AuditIntegrityError as error:
            altered = TrailFault(error.kind, f"{note.place}: {error.problem}")
            return CheckedCheckpoint(0, note.place, None, altered)
        checkpoint, origin = signed.checkpoint, self.keyring.origin
        fault: TrailFault | None = None
        if checkpoint.origin != origin:
            fault = TrailFault(
                "another_log",
                f"{note.place}: it is a checkpoint of the log {checkpoint.origin}, not of {origin}",
            )
        elif checkpoint.size <= after:
            fault = TrailFault(
                "not_newer",
                f"{note.place}: it covers {checkpoint.size} events, but an incremental run begins after "
                f"event {after}: verify everything",
            )
        return CheckedCheckpoint(checkpoint.size, note.place, None if fault else signed, fault)


#: Checkpoints, and the keys that may have signed them.
CheckpointSource: TypeAlias = LogCheckpoints | GivenCheckpoints
