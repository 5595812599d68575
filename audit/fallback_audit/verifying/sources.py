"""Where a verification gets checkpoints from, and which keys it trusts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import Protocol

from fallback_audit.checkpoints.checkpoint import Previous, open_checkpoint
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckedCheckpoint, CheckpointLog
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import AuditIntegrityError


class CheckpointSource(Protocol):
    """Checkpoints, and the keys that may have signed them."""

    @property
    def max_uncovered(self) -> int | None:
        """How many events the writers' policy leaves without a checkpoint at most; None: not known."""
        ...

    def verifiers(self) -> Sequence[Verifier]:
        """The trusted keys."""
        ...

    def latest_size(self) -> int:
        """The largest there is now. Asked before the store is read: what is signed later covers events
        that were appended later."""
        ...

    def end_known(self) -> bool:
        """Is there a word from outside the log of how far it went at least? Else nobody notices where it
        was cut short together with the store."""
        ...

    def ahead(self) -> Previous | None:
        """Return a later checkpoint of the same log that the keys signed for another folder, if any."""
        ...

    def checked(self, *, after: int = 0) -> Iterator[CheckedCheckpoint]:
        """Those larger than ``after``, ascending, each with what is wrong with it taken alone."""
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
    """

    log: CheckpointLog
    keyring: Keyring
    extra: Sequence[KeptNote] = ()
    max_uncovered: int | None = None

    def verifiers(self) -> Sequence[Verifier]:
        """The keyring's, retired ones too."""
        return self.keyring.verifiers()

    def latest_size(self) -> int:
        """Of both."""
        given = GivenCheckpoints(self.extra, self.keyring)
        return max(self.log.latest_size(), given.latest_size())

    def end_known(self) -> bool:
        """By one that somebody kept, or by what the keys' folder knows of the log."""
        return bool(self.extra) or self.log.is_known(self.keyring)

    def ahead(self) -> Previous | None:
        """Return what the keys' folder remembers of this log, if it is not in this copy."""
        return self.log.ahead(self.keyring)

    def checked(self, *, after: int = 0) -> Iterator[CheckedCheckpoint]:
        """Every file of the log, and the others, by size."""
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
        yield CheckedCheckpoint(after, path, None, gone)
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
        yield from sorted((self._opened(kept, after) for kept in notes), key=_size)

    def _opened(self, kept: KeptNote, after: int) -> CheckedCheckpoint:
        try:
            signed = open_checkpoint(kept.note, self.keyring.verifiers())
        except AuditIntegrityError as error:
            return CheckedCheckpoint(0, kept.place, None, f"{kept.place}: {error.problem}")
        found, origin = signed.checkpoint, self.keyring.origin
        problem = None
        if found.origin != origin:
            problem = f"{kept.place}: it is a checkpoint of the log {found.origin}, not of {origin}"
        elif found.size <= after:
            problem = (
                f"{kept.place}: it covers {found.size} events, but an incremental run begins after "
                f"event {after}: verify everything"
            )
        return CheckedCheckpoint(found.size, kept.place, None if problem else signed, problem)


def _size(checked: CheckedCheckpoint) -> int:
    return checked.size
