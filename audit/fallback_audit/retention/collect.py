"""Garbage collection of the evidence store, by retention.

What goes: the evidence of fixes that were over before a date, what no event names (a process died
between storing and recording it), and, over a cap, the evidence of the fixes that ended first. What an
open fix names never goes. The list of what goes is on record before the first file is deleted; a run
that dies in between is finished by the next one.
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

#: What was stored since then may not be on record yet: far longer than any model call or gate takes.
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
    """A file, and until when it is needed; None: named by no event."""

    file: StoredFile
    until: str | None

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.file.digest or "")


class Collector:
    """One collection. ``history`` reads what was sealed, too: sealing an event keeps its evidence."""

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
        """Remove what ``limits`` does not keep.

        Raises AuditStoreError (also for a date within GRACE: a writer may not have recorded it yet),
        EvidenceError.
        """
        _check_grace(limits, self._now)
        seen = self._store.tip()[0]
        victims, kept = self._sorted(limits)
        again = self._named_again(seen)
        spared = [found for found in victims if found.digest in again]
        victims = [found for found in victims if found.digest not in again]
        report = Collection(
            dry_run=dry_run,
            expired=sum(1 for found in victims if found.until is not None),
            orphans=sum(1 for found in victims if found.until is None and found.file.digest),
            parts=sum(1 for found in victims if not found.file.digest),
            removed_bytes=sum(found.file.size for found in victims),
            spared=len(spared),
            kept=len(kept) + len(spared),
            kept_bytes=sum(found.file.size for found in (*kept, *spared)),
        )
        if dry_run:
            return report
        seqs = self._record(victims, limits, by=by, reason=reason)
        left = self._remove(victims, seen)
        return report.model_copy(update={"seqs": seqs, "spared": report.spared + left})

    def _sorted(self, limits: Limits) -> tuple[list[_Found], list[_Found]]:
        """What goes, and what stays, each with until when it is needed."""
        needed = references(self._history, ended_fixes(self._history))
        fresh = (self._now - GRACE).timestamp()
        before = None if limits.older_than is None else timestamp(limits.older_than)
        go: list[_Found] = []
        stay: list[_Found] = []
        for count, file in enumerate(self._evidence.files(), 1):
            self._report(count)
            until = needed.get(bytes.fromhex(file.digest)) if file.digest else None
            over = until is None or (before is not None and until < before)
            (go if over and file.touched <= fresh else stay).append(_Found(file, until))
        if limits.max_bytes is not None:
            over_cap = set(_over(stay, limits.max_bytes, self._now))
            go += over_cap
            stay = [found for found in stay if found not in over_cap]
        return go, stay

    def _named_again(self, seen: int) -> set[bytes]:
        """Digests of every fix that has had an event since ``seen``: it may be a fix resumed."""
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
        """On record before anything goes. What an earlier run had recorded, and not removed, is."""
        before = collected(self._history, self._evidence)
        new = iter([one for one in victims if one.file.digest and one.digest not in before])
        seqs = []
        while chunk := list(islice(new, MAX_DIGESTS_LISTED)):
            event = EvidenceCollected(
                removed=len(chunk),
                removed_bytes=sum(found.file.size for found in chunk),
                list_sha256=put_list(self._evidence, [str(one.file.digest) for one in chunk]),
                older_than=timestamp(limits.older_than or self._now - GRACE),
                by=by,
                reason=reason,
            )
            seqs.append(self._store.append(MAINTENANCE, event).seq)
        return tuple(seqs)

    def _remove(self, victims: Iterable[_Found], seen: int) -> int:
        """How many were left where they are."""
        again = self._named_again(seen)
        fresh = (self._now - GRACE).timestamp()
        left = 0
        for count, found in enumerate(victims, 1):
            self._report(count)
            if found.digest in again or not self._evidence.remove(
                found.file, untouched_since=fresh
            ):
                left += 1
        self._evidence.sync()
        return left


def _check_grace(limits: Limits, now: datetime) -> None:
    if limits.older_than is not None and limits.older_than > now - GRACE:
        raise AuditStoreError(
            f"Evidence can be removed only if its fix ended at least {GRACE.days} day ago.",
            next_step="Name an earlier date, or more days.",
            kind="too_recent",
        )


def _over(stay: Sequence[_Found], max_bytes: int, now: datetime) -> Iterator[_Found]:
    """What goes for the cap: of the fixes that ended first, until the rest fits."""
    excess = sum(found.file.size for found in stay) - max_bytes
    latest = timestamp(now - GRACE)
    fresh = (now - GRACE).timestamp()
    may_go = sorted(
        (
            found
            for found in stay
            if found.until not in {None, FOREVER}
            and str(found.until) < latest
            and found.file.touched <= fresh
        ),
        key=lambda found: (str(found.until), found.file.digest),
    )
    before = accumulate((found.file.size for found in may_go), initial=0)
    return (found for found, gone in zip(may_go, before, strict=False) if gone < excess)
