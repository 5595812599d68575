"""Evidence that events name: what must be kept, what was deleted on record, what is missing or altered."""

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

from pydantic import computed_field

from fallback_audit.errors import EncryptedEvidenceError, EvidenceError, UnreadEvidenceError
from fallback_audit.event_types import StartedOn
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AuditEvent,
    Digest,
    EvidenceCollected,
    FixEscalated,
    FixStarted,
    GateJudged,
    GroundingJudged,
    ModelAnswered,
    ModelCalled,
    PatchProposed,
    RetrievalQueried,
)
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditReader, EvidenceStore, Scope

#: Most digests in one list, one per line: 6.5 MB, well below the cap of a piece of evidence.
MAX_DIGESTS_LISTED = 100_000

#: Findings of each kind that a report lists; all are counted.
MAX_LISTED = 100

#: The reason given for evidence that was deleted on record.
REMOVED = "removed: its retention was over"


def kept_digests(event: AuditEvent) -> tuple[Digest, ...]:
    """Return the digests of evidence that must be kept.

    That is what a gate judged or reported, the account of a retrieval, a retry's failure summary, a judge's
    findings, and what a resumed fix or attempt needs. Prompts are stored only if that is switched on: then
    the event names them.
    """
    match event:
        case PatchProposed():
            digests = (event.patch_sha256, event.remediation_sha256, event.application_sha256)
            return tuple(filter(None, digests))
        case FixStarted():
            return tuple(filter(None, (event.inputs_sha256, event.batch_sha256)))
        case GateJudged():
            return tuple(filter(None, (event.evidence_sha256, *event.resolutions)))
        case RetrievalQueried(account_sha256=str(digest)):
            return (digest,)
        case ModelAnswered(answer_evidence=str(digest)) | AnswerReused(answer_evidence=digest):
            return (digest,)
        case ModelCalled(prompt_evidence=str(digest)) | EvidenceCollected(list_sha256=digest):
            return (digest,)
        case GroundingJudged():
            return (event.judgement_sha256,)
        case AttemptFailed():
            return (event.summary_sha256,)
        case FixEscalated():
            return event.evidence_sha256
        case _:
            return ()


def private_digests(event: AuditEvent) -> tuple[Digest, ...]:
    """Return those of ``kept_digests`` that are a model's verbatim prompts and answers.

    They are never exported, and over HTTP only admins can read them.
    """
    private = ModelCalled | ModelAnswered | AnswerReused | GroundingJudged
    return kept_digests(event) if isinstance(event, private) else ()


def put_list(evidence: EvidenceStore, digests: Sequence[Digest]) -> Digest:
    """Store a list of digests as evidence. Raises EvidenceError."""
    return evidence.put("".join(f"{digest}\n" for digest in digests).encode("ascii"))


def read_list(evidence: EvidenceStore, digest: Digest) -> tuple[Digest, ...]:
    """Read a list of digests. Raises EvidenceError: missing, altered, not such a list."""
    lines = evidence.get(digest).decode("ascii", "replace").splitlines()
    if not all(len(line) == len(digest) for line in lines):
        raise EvidenceError(
            f"Evidence {digest} is no list of digests.",
            next_step="Run `fallback-tier audit verify` and find out who wrote it.",
        )
    return tuple(lines)


def collected(reader: AuditReader, evidence: EvidenceStore) -> frozenset[bytes]:
    """Return the digests (32 bytes each) of evidence whose deletion is recorded; skip unreadable lists.

    Raises UnreadEvidenceError if the system failed to read a list.
    """
    events = reader.events(kinds=frozenset({"EvidenceCollected"}))
    return collected_in((stored.payload for stored in events), evidence)


def collected_in(events: Iterable[AuditEvent], evidence: EvidenceStore) -> frozenset[bytes]:
    """Return ``collected`` for the given events."""
    return frozenset(_listed(events, evidence))


def _listed(events: Iterable[AuditEvent], evidence: EvidenceStore) -> Iterator[bytes]:
    for event in events:
        if isinstance(event, EvidenceCollected):
            try:
                yield from map(bytes.fromhex, read_list(evidence, event.list_sha256))
            except UnreadEvidenceError:
                raise
            except (EvidenceError, ValueError):  # verification reports it: lists are evidence
                continue


class Finding(StrEnum):
    """Why evidence that an event names isn't available."""

    BAD = "bad"
    #: Encrypted by an earlier release: its content was not checked.
    LOCKED = "locked"
    #: Its retention is over; its removal is recorded.
    REMOVED = "removed"
    #: A process on another machine stored it on that machine.
    ELSEWHERE = "elsewhere"


class BadEvidence(Frozen):
    """Missing or altered evidence, and the first event that names it."""

    seq: int
    fix_id: str
    digest: Digest
    problem: str


class EvidenceReport(Frozen):
    """``named``: pieces that events oblige us to keep; ``private``: a model's prompts
    and answers among them; ``locked``: those that an earlier release encrypted.

    ``files``, ``bytes``, ``parts``: what lies there, needed or not; a part is of a process that died.
    ``elsewhere``: pieces that are on another machine, by its name.
    """

    files: int
    bytes: int
    parts: int
    named: int
    private: int
    locked: int
    removed: int
    elsewhere: dict[str, int]
    bad_count: int
    bad: tuple[BadEvidence, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        """Nothing is missing without a record of it, nothing is altered."""
        return self.bad_count == 0


def _other_machine(started_on: StartedOn | None, evidence: FileEvidenceStore) -> str | None:
    """Return the machine with the evidence of ``started_on``'s process, or None if it is this machine.

    Always None for an audit trail in SQLite. If the store's id is new, but the machine's name is the same,
    the store was replaced: then missing evidence counts as removed from this machine.
    """
    if started_on is None or started_on.evidence_store is None:
        return None
    if started_on.evidence_store == evidence.identity() or started_on.machine == this_machine():
        return None
    return started_on.machine


def this_machine() -> str:
    """Return this machine's host name."""
    return socket.gethostname() or "unnamed"


def examine(
    evidence: FileEvidenceStore,
    digest: Digest,
    removed: frozenset[bytes],
    started_on: StartedOn | None = None,
    *,
    is_private: bool,
) -> tuple[Finding, str] | None:
    """Return why a piece of evidence isn't available, as a finding and a text, or None if it is intact.

    ``started_on``: the event with which the process began that stored it. ``is_private``: an earlier
    release may have encrypted it (``private_digests``); other evidence that looks encrypted is altered. For
    ELSEWHERE the text is the machine's name. Raises UnreadEvidenceError if the system failed to read it.
    """
    try:
        evidence.get(digest)
    except EncryptedEvidenceError as error:
        return Finding.LOCKED if is_private else Finding.BAD, error.problem
    except UnreadEvidenceError:
        raise
    except EvidenceError as error:
        if evidence.path(digest).exists():
            return Finding.BAD, error.problem
        if bytes.fromhex(digest) in removed:
            return Finding.REMOVED, REMOVED
        machine = _other_machine(started_on, evidence)
        return (Finding.BAD, error.problem) if machine is None else (Finding.ELSEWHERE, machine)
    return None


def check_evidence(
    reader: AuditReader,
    evidence: FileEvidenceStore,
    *,
    progress: Callable[[int], None] | None = None,
) -> EvidenceReport:
    """Read every piece of evidence that must be kept because an event names it.

    Raises AuditStoreError, UnreadEvidenceError.
    """
    removed = collected(reader, evidence)
    counts = dict.fromkeys(Finding, 0)
    bad: list[BadEvidence] = []
    seen: set[bytes] = set()
    private: set[Digest] = set()
    started_on: dict[Scope, StartedOn] = {}
    elsewhere = Counter[str]()
    for stored in reader.events():
        private.update(private_digests(stored.payload))
        if isinstance(stored.payload, StartedOn):
            started_on[stored.scope] = stored.payload
        for digest in kept_digests(stored.payload):
            if bytes.fromhex(digest) in seen:
                continue
            seen.add(bytes.fromhex(digest))
            if progress is not None:
                progress(len(seen))
            its_start = started_on.get(stored.scope)
            finding = examine(evidence, digest, removed, its_start, is_private=digest in private)
            if finding is None:
                continue
            counts[finding[0]] += 1
            if finding[0] is Finding.ELSEWHERE:
                elsewhere[finding[1]] += 1
            if finding[0] is Finding.BAD and len(bad) < MAX_LISTED:
                bad.append(
                    BadEvidence(
                        seq=stored.seq,
                        fix_id=stored.scope.fix_id,
                        digest=digest,
                        problem=finding[1],
                    )
                )
    files = list(evidence.files())
    return EvidenceReport(
        files=sum(1 for file in files if file.digest is not None),
        bytes=sum(file.size for file in files),
        parts=sum(1 for file in files if file.digest is None),
        named=len(seen),
        private=len(private),
        locked=counts[Finding.LOCKED],
        removed=counts[Finding.REMOVED],
        elsewhere=dict(sorted(elsewhere.items())),
        bad_count=counts[Finding.BAD],
        bad=tuple(bad),
    )
