"""Evidence that is no longer there because its retention was over: on record before it was deleted."""

from collections.abc import Iterable, Iterator, Sequence

from fallback_audit.errors import EvidenceError, UnreadEvidenceError
from fallback_audit.events import AuditEvent, Digest, EvidenceCollected
from fallback_audit.ports import AuditReader, EvidenceStore

#: Digests that one list names; a line each, 6.5 MB: well below the cap of one piece of evidence.
MAX_LISTED = 100_000


def put_list(evidence: EvidenceStore, digests: Sequence[Digest]) -> Digest:
    """Keep a list of digests, as evidence itself. Raises EvidenceError."""
    return evidence.put("".join(f"{digest}\n" for digest in digests).encode("ascii"))


def read_list(evidence: EvidenceStore, digest: Digest) -> tuple[Digest, ...]:
    """Read it back. Raises EvidenceError: missing, altered, no such list."""
    lines = evidence.get(digest).decode("ascii", "replace").splitlines()
    if not all(len(line) == len(digest) for line in lines):
        raise EvidenceError(
            f"Evidence {digest} is no list of digests.",
            next_step="Run `fallback-tier audit verify` and find out who wrote it.",
        )
    return tuple(lines)


def collected(reader: AuditReader, evidence: EvidenceStore) -> frozenset[bytes]:
    """Digests (32 bytes each) whose evidence was deleted on record; those listed illegibly are left out.

    Raises UnreadEvidenceError where the system failed to read a list.
    """
    events = reader.events(kinds=frozenset({"EvidenceCollected"}))
    return collected_in((stored.payload for stored in events), evidence)


def collected_in(events: Iterable[AuditEvent], evidence: EvidenceStore) -> frozenset[bytes]:
    """``collected`` of events that the caller has."""
    return frozenset(_listed(events, evidence))


def _listed(events: Iterable[AuditEvent], evidence: EvidenceStore) -> Iterator[bytes]:
    for event in events:
        if isinstance(event, EvidenceCollected):
            try:
                yield from map(bytes.fromhex, read_list(evidence, event.list_sha256))
            except UnreadEvidenceError:
                raise
            except (EvidenceError, ValueError):  # verification says so: the list is evidence, too
                continue
