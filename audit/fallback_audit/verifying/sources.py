"""What a verification reads: a store's bytes, and checkpoints with the keys that it trusts."""

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


@dataclass(frozen=True)
class KeptNote:
    """A checkpoint somebody keeps, e.g. an auditor, outside the log. ``place`` is for people."""

    place: Path
    note: bytes


@dataclass(frozen=True)
class LogCheckpoints:
    """The log that the writers keep, and what an auditor kept of it: ``extra``.

    The log alone can be rolled back together with the database; what was kept elsewhere can't.
    ``max_uncovered``: how many events the writers' policy leaves uncovered at most; None: unknown.
    """

    log: CheckpointLog
    keyring: Keyring
    extra: Sequence[KeptNote] = ()
    max_uncovered: int | None = None

    def verifiers(self) -> Sequence[Verifier]:
        """The keyring's, retired ones too."""
        return self.keyring.verifiers()

    def latest_size(self) -> int:
        """Return the largest size there is now.

        A caller asks before it reads the store: what is signed later covers events appended later.
        """
        given = GivenCheckpoints(self.extra, self.keyring)
        return max(self.log.latest_size(), given.latest_size())

    def end_known(self) -> bool:
        """Return whether something outside the log, a kept checkpoint or the keys' folder, says how far it
        went at least. Otherwise a log that is cut short together with its store is not noticed."""
        return bool(self.extra) or self.log.is_known(self.keyring)

    def ahead(self) -> Previous | None:
        """Return what the keys' folder remembers of this log, if it is not in this copy."""
        return self.log.ahead(self.keyring)

    def checked(self, *, after: int = 0) -> Iterator[CheckedCheckpoint]:
        """Yield the checkpoints larger than ``after``, ascending, each with what is wrong with it alone."""
        given = GivenCheckpoints(self.extra, self.keyring)
        return merge(
            self._logged(after),
            given.checked(after=after),
            key=lambda one: one.size,
        )

    def _logged(self, after: int) -> Iterator[CheckedCheckpoint]:
        path = self.log.path(after)
        if not after or path.exists():
            yield from self.log.checked(self.keyring, after=after)
            return
        gone = f"{path}: the checkpoint that was verified earlier is missing (removed)"
        yield CheckedCheckpoint(after, path, None, TrailFault("checkpoint_missing", gone))
        yield from (one for one in self.log.checked(self.keyring) if one.size > after)


@dataclass(frozen=True)
class GivenCheckpoints:
    """These checkpoints, and no log: an export's own, or an auditor's. ``extra``: what somebody kept of the
    log elsewhere, beside an export's own."""

    notes: Sequence[KeptNote]
    keyring: Keyring
    max_uncovered: int | None = None
    extra: Sequence[KeptNote] = ()

    def verifiers(self) -> Sequence[Verifier]:
        """The keyring's, retired ones too."""
        return self.keyring.verifiers()

    def latest_size(self) -> int:
        """The largest of them."""
        return max((one.size for one in self.checked()), default=0)

    def end_known(self) -> bool:
        """By one that somebody kept."""
        return bool(self.extra)

    def ahead(self) -> Previous | None:
        """Return None: an export may end earlier than its log."""
        return None

    def checked(self, *, after: int = 0) -> Iterator[CheckedCheckpoint]:
        """Each of them; what is not larger than ``after`` can't be checked, which is said."""
        notes = (*self.notes, *self.extra)
        yield from sorted((self._opened(kept, after) for kept in notes), key=lambda one: one.size)

    def _opened(self, kept: KeptNote, after: int) -> CheckedCheckpoint:
        try:
            signed = open_checkpoint(kept.note, self.keyring.verifiers())
        except AuditIntegrityError as error:
            altered = TrailFault(error.kind, f"{kept.place}: {error.problem}")
            return CheckedCheckpoint(0, kept.place, None, altered)
        found, origin = signed.checkpoint, self.keyring.origin
        fault: TrailFault | None = None
        if found.origin != origin:
            fault = TrailFault(
                "another_log",
                f"{kept.place}: it is a checkpoint of the log {found.origin}, not of {origin}",
            )
        elif found.size <= after:
            fault = TrailFault(
                "not_newer",
                f"{kept.place}: it covers {found.size} events, but an incremental run begins after "
                f"event {after}: verify everything",
            )
        return CheckedCheckpoint(found.size, kept.place, None if fault else signed, fault)


#: Checkpoints, and the keys that may have signed them.
CheckpointSource: TypeAlias = LogCheckpoints | GivenCheckpoints
