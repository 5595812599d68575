"""The whole audit trail: events of the sealed segments that still exist, then those in the store."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Protocol

from fallback_audit.chain import read_row
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import SegmentRetired
from fallback_audit.exporting.format import rows_of_file
from fallback_audit.ports import AuditReader, StoredEvent
from fallback_audit.statements import SegmentStatement, open_segment
from fallback_audit.stores.appending import moment_of, timestamp


class SegmentedReader(AuditReader, Protocol):
    """A store that has the statements of its sealed segments."""

    def segments(self) -> list[bytes]:
        """Return the statements of all segments, in order."""
        ...


@dataclass(frozen=True)
class History:
    """``AuditReader`` over the sealed files in ``folder``, then the store.

    Retired segments are left out. Another missing one raises AuditIntegrityError: a caller that decides
    what to delete must not take it for empty. With ``only_present`` it is left out too: for people, who may
    have moved it.
    """

    store: SegmentedReader
    folder: Path
    verifiers: Sequence[Verifier]
    _: KW_ONLY
    only_present: bool = False

    def events(
        self,
        fix_id: str | None = None,
        *,
        kinds: frozenset[str] | None = None,
        since: str | None = None,
        after: int = 0,
    ) -> Iterator[StoredEvent]:
        """Yield events as ``AuditReader.events``. Sealed events are compared with ``since`` one by one.

        Raises AuditIntegrityError, AuditStoreError.
        """
        moment = None if since is None else timestamp(moment_of(since))
        begun = moment is None
        for segment in self.sealed():
            if segment.last_seq <= after:
                continue
            path = self.folder / segment.file
            for stored in sealed_events(path, segment.sha256, self.verifiers):
                begun = begun or (moment is not None and stored.recorded_at >= moment)
                if (
                    begun
                    and stored.seq > after
                    and fix_id in (None, stored.scope.fix_id)
                    and (kinds is None or stored.kind in kinds)
                ):
                    yield stored
        yield from self.store.events(
            fix_id, kinds=kinds, since=None if begun else since, after=after
        )

    def sealed(self) -> list[SegmentStatement]:
        """Return the segments whose files exist. Raises AuditIntegrityError; see the class."""
        statements = [open_segment(signed, self.verifiers) for signed in self.store.segments()]
        present = [segment for segment in statements if (self.folder / segment.file).is_file()]
        missing = [segment for segment in statements if segment not in present]
        if missing and not self.only_present:
            retired = retired_in(self.store.events(kinds=frozenset({"SegmentRetired"})))
            for segment in missing:
                if segment.sha256 not in retired:
                    raise AuditIntegrityError(
                        f"Segment {self.folder / segment.file} is missing, and no SegmentRetired says "
                        "why.",
                        next_step="Restore it from a copy.",
                        kind="segment_missing",
                    )
        return present


def sealed_events(path: Path, sha256: str, verifiers: Sequence[Verifier]) -> Iterator[StoredEvent]:
    """Yield the events of a sealed file. Raises AuditIntegrityError, AuditStoreError.

    The last event is yielded only after the digest of the whole file was checked.
    """
    pending: StoredEvent | None = None
    for row in rows_of_file(path, sha256=sha256):
        if pending is not None:
            yield pending
        pending = read_row(row, verifiers)
    if pending is not None:
        yield pending


def retired_in(events: Iterable[StoredEvent]) -> dict[str, int]:
    """Return the digests of the retired files, each with the number of its SegmentRetired."""
    return {
        stored.payload.sha256: stored.seq
        for stored in events
        if isinstance(stored.payload, SegmentRetired)
    }


def file_digest(path: Path) -> str | None:
    """Return a file's SHA-256, or None if it does not exist. Raises AuditStoreError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AuditStoreError(
            f"Segment {path}: {error.strerror or error}.", next_step="Check its owner and mode."
        ) from error
