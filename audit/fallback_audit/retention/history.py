"""The whole record: what is in sealed segments that are still there, then what is in the store."""

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
    """A store that says what was sealed away from it."""

    def segments(self) -> list[bytes]:
        """The statements of all segments, in order."""
        ...


@dataclass(frozen=True)
class History:
    """``AuditReader`` over the sealed files in ``folder`` and the store behind them.

    A retired segment is left out. One that is missing otherwise raises AuditIntegrityError: a caller
    that decides what may be deleted must not take it for empty. ``only_present`` leaves it out, too: for
    people, who may have moved it.
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
        """As ``AuditReader.events``; ``since`` compares sealed events one by one.

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
        """The segments whose files are there. Raises AuditIntegrityError; see the class."""
        statements = [open_segment(one, self.verifiers) for one in self.store.segments()]
        there = [one for one in statements if (self.folder / one.file).is_file()]
        missing = [one for one in statements if one not in there]
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
        return there


def sealed_events(path: Path, sha256: str, verifiers: Sequence[Verifier]) -> Iterator[StoredEvent]:
    """The events of a sealed file. Raises AuditIntegrityError, AuditStoreError.

    The last comes only after the whole file was found to have this digest.
    """
    held: StoredEvent | None = None
    for row in rows_of_file(path, sha256=sha256):
        if held is not None:
            yield held
        held = read_row(row, verifiers)
    if held is not None:
        yield held


def retired_in(events: Iterable[StoredEvent]) -> dict[str, int]:
    """Digests of the retired files, each with the number of the event that says so."""
    return {
        stored.payload.sha256: stored.seq
        for stored in events
        if isinstance(stored.payload, SegmentRetired)
    }


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file; None if it does not exist. Raises AuditStoreError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AuditStoreError(
            f"Segment {path}: {error.strerror or error}.", next_step="Check its owner and mode."
        ) from error
