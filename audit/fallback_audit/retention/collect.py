"""Garbage collection of the evidence store, by retention.

A collection removes the evidence of fixes that ended before a date, files that no event names (a process
died between storing and recording one), and, if a size cap is exceeded, the evidence of the fixes that
ended first. Evidence that an open fix names is never removed. The list of the files is recorded before the
first file is deleted; if a run dies in between, the next one finishes it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, islice
from typing import NamedTuple

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import EvidenceCollected
from fallback_audit.evidence.checking import MAX_DIGESTS_LISTED, collected, put_list
from fallback_audit.evidence.store import FileEvidenceStore, StoredFile
from fallback_audit.frozen import Frozen
from fallback_audit.ports import MAINTENANCE, AuditReader, AuditStore
from fallback_audit.retention.ended import FOREVER, ended_fixes, named_digests, references
from fallback_audit.stores.appending import Clock, timestamp

#: Newer files may not be recorded yet. Far longer than any model call or gate takes.
GRACE = timedelta(days=1)

Progress = Callable[[int], None]


class Limits(Frozen):
    """What to keep: evidence of fixes that ended at ``older_than`` or later; ``max_bytes`` in all."""

    older_than: datetime | None = None
    max_bytes: int | None = None


class Collection(Frozen):
    """What was removed, or would be. ``kept_bytes`` may be over the cap: open fixes need it.

    ``expired``: of ended fixes; ``orphans``: named by no event; ``parts``: never whole; ``spared``: put
    or named again meanwhile. ``seqs``: the events that tell of it.
    """

    dry_run: bool
    expired: int = 0
    orphans: int = 0
    parts: int = 0
    removed_bytes: int = 0
    spared: int = 0
    kept: int = 0
    kept_bytes: int = 0
    seqs: tuple[int, ...] = ()


class _Found(NamedTuple):
    """A file, and until when it is needed; None if no event names it."""

    file: StoredFile
    until: str | None

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.file.digest or "")


class Collector:
    """One collection. ``history`` also reads sealed events: sealing an event keeps its evidence."""

    def __init__(
        self,
        store: AuditStore,
        history: AuditReader,
        evidence: FileEvidenceStore,
        *,
        clock: Clock,
        progress: Progress | None = None,
    ) -> None:
        self._store = store
        self._history = history
        self._evidence = evidence
        self._now = clock()
        self._report = progress or (lambda _: None)

    def collect(self, limits: Limits, *, by: str, reason: str, dry_run: bool = False) -> Collection:
        """Remove the evidence that ``limits`` does not keep, and return what was removed.

        Raises AuditStoreError (also for a date within GRACE: a writer may not have recorded its evidence
        yet), EvidenceError.
        """
        _check_grace(limits, self._now)
        seen = self._store.tip()[0]
        victims, kept = self._sorted(limits)
        again = self._named_again(seen)
        spared = [candidate for candidate in victims if candidate.digest in again]
        victims = [candidate for candidate in victims if candidate.digest not in again]
        report = Collection(
            dry_run=dry_run,
            expired=sum(1 for candidate in victims if candidate.until is not None),
            orphans=sum(
                1 for candidate in victims if candidate.until is None and candidate.file.digest
            ),
            parts=sum(1 for candidate in victims if not candidate.file.digest),
            removed_bytes=sum(candidate.file.size for candidate in victims),
            spared=len(spared),
            kept=len(kept) + len(spared),
            kept_bytes=sum(candidate.file.size for candidate in (*kept, *spared)),
        )
        if dry_run:
            return report
        seqs = self._record(victims, limits, by=by, reason=reason)
        not_removed = self._remove(victims, seen)
        return report.model_copy(update={"seqs": seqs, "spared": report.spared + not_removed})

    def _sorted(self, limits: Limits) -> tuple[list[_Found], list[_Found]]:
        """Return the files to remove and the files to keep, each with until when it is needed."""
        needed = references(self._history, ended_fixes(self._history))
        fresh = (self._now - GRACE).timestamp()
        before = None if limits.older_than is None else timestamp(limits.older_than)
        to_remove: list[_Found] = []
        to_keep: list[_Found] = []
        for count, file in enumerate(self._evidence.files(), 1):
            self._report(count)
            until = needed.get(bytes.fromhex(file.digest)) if file.digest else None
            over = until is None or (before is not None and until < before)
            (to_remove if over and file.touched <= fresh else to_keep).append(_Found(file, until))
        if limits.max_bytes is not None:
            over_cap = set(_over(to_keep, limits.max_bytes, self._now))
            to_remove += over_cap
            to_keep = [candidate for candidate in to_keep if candidate not in over_cap]
        return to_remove, to_keep

    def _named_again(self, seen: int) -> set[bytes]:
        """Return the digests named by fixes with an event after ``seen``: such a fix may be resumed."""
        fixes = {stored.scope.fix_id for stored in self._store.events(after=seen)} - {
            MAINTENANCE.fix_id
        }
        return {
            digest
            for fix_id in fixes
            for stored in self._history.events(fix_id)
            for digest in named_digests(stored.payload)
        }

    def _record(
        self, victims: Sequence[_Found], limits: Limits, *, by: str, reason: str
    ) -> tuple[int, ...]:
        """Record the files before any is removed, and return the numbers of the events.

        Files that an earlier run recorded, but did not remove, are not recorded again.
        """
        before = collected(self._history, self._evidence)
        new = iter(
            [victim for victim in victims if victim.file.digest and victim.digest not in before]
        )
        seqs = []
        while chunk := list(islice(new, MAX_DIGESTS_LISTED)):
            event = EvidenceCollected(
                removed=len(chunk),
                removed_bytes=sum(victim.file.size for victim in chunk),
                list_sha256=put_list(self._evidence, [str(victim.file.digest) for victim in chunk]),
                older_than=timestamp(limits.older_than or self._now - GRACE),
                by=by,
                reason=reason,
            )
            seqs.append(self._store.append(MAINTENANCE, event).seq)
        return tuple(seqs)

    def _remove(self, victims: Iterable[_Found], seen: int) -> int:
        """Remove the files, and return how many were not removed."""
        again = self._named_again(seen)
        fresh = (self._now - GRACE).timestamp()
        not_removed = 0
        for count, victim in enumerate(victims, 1):
            self._report(count)
            if victim.digest in again or not self._evidence.remove(
                victim.file, untouched_since=fresh
            ):
                not_removed += 1
        self._evidence.sync()
        return not_removed


def _check_grace(limits: Limits, now: datetime) -> None:
    if limits.older_than is not None and limits.older_than > now - GRACE:
        raise AuditStoreError(
            f"Evidence can be removed only if its fix ended at least {GRACE.days} day ago.",
            next_step="Name an earlier date, or more days.",
            kind="too_recent",
        )


def _over(candidates: Sequence[_Found], max_bytes: int, now: datetime) -> Iterator[_Found]:
    """Yield the files to remove for the cap: those of the fixes that ended first, until the rest fits."""
    excess = sum(candidate.file.size for candidate in candidates) - max_bytes
    latest = timestamp(now - GRACE)
    fresh = (now - GRACE).timestamp()
    removable = sorted(
        (
            candidate
            for candidate in candidates
            if candidate.until not in {None, FOREVER}
            and str(candidate.until) < latest
            and candidate.file.touched <= fresh
        ),
        key=lambda candidate: (str(candidate.until), candidate.file.digest),
    )
    preceding_bytes = accumulate((candidate.file.size for candidate in removable), initial=0)
    return (
        candidate
        for candidate, preceding in zip(removable, preceding_bytes, strict=False)
        if preceding < excess
    )
