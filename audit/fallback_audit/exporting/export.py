"""Export the audit trail, or one fix of it, to a file that proves itself."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import BinaryIO

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import StoredRow
from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.log import CheckedCheckpoint
from fallback_audit.checkpoints.merkle import Frontier, leaf_hash, node_hash
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import (
    AuditIntegrityError,
    EvidenceError,
    RequestError,
    UnreadEvidenceError,
)
from fallback_audit.evidence.checking import kept_digests, private_digests
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting.format import Base, ExportWriter, Head, InclusionProof, Written
from fallback_audit.showing.describe import WORDS
from fallback_audit.statements import open_segment
from fallback_audit.verifying.sources import CheckpointSource, Snapshot
from fallback_audit.verifying.walk import Progress

_VERIFY = "Run `fallback-tier audit verify`."


def inclusion_paths(
    seqs: Sequence[int], size: int, headers: Iterable[bytes], base: Frontier
) -> tuple[dict[int, tuple[bytes, ...]], bytes]:
    """Return the path (RFC 6962 §2.1.1) of each event to the root over the first ``size``, and that root.

    ``headers`` begin after ``base``, and so must ``seqs`` (event numbers, ascending). Memory is that of the
    paths. Raises AuditIntegrityError if there are fewer than ``size`` events.
    """
    paths: dict[int, list[bytes]] = {seq: [] for seq in seqs}
    stream = iter(headers)

    def root(first: int, end: int, wanted: Sequence[int]) -> bytes:
        if not wanted:
            return _bulk(first, end, stream, base)
        if end - first == 1:
            return leaf_hash(_next(stream))
        middle = first + (1 << ((end - first - 1).bit_length() - 1))
        lower = [seq for seq in wanted if seq <= middle]
        upper = wanted[len(lower) :]
        left, right = root(first, middle, lower), root(middle, end, upper)
        for seq in wanted:
            paths[seq].append(right if seq <= middle else left)
        return node_hash(left, right)

    top = root(0, size, seqs)
    return {seq: tuple(path) for seq, path in paths.items()}, top


def _bulk(first: int, end: int, stream: Iterator[bytes], base: Frontier) -> bytes:
    """Return the root over a range without wanted events, from ``base`` as far as that reaches."""
    tree = Frontier()
    for subtree_first, subtree_end, digest in base.subtrees():
        if first <= subtree_first and subtree_end <= end:
            tree.add(subtree_end - subtree_first, digest)
    for _ in range(max(first, base.size), end):
        tree.append(_next(stream))
    return tree.root()


def _next(stream: Iterator[bytes]) -> bytes:
    header = next(stream, None)
    if header is None:
        raise AuditIntegrityError(
            "The store has fewer events than its checkpoint covers (truncated or rolled back).",
            next_step="Run `fallback-tier audit verify`.",
        )
    return header


@dataclass(eq=False)
class Exporter:
    """Writer of a snapshot's events. Raises AuditIntegrityError for bytes that can't be trusted.

    If ``evidence`` is given, the evidence that must be kept is exported too, except private evidence (raw
    prompts, raw answers), which never leaves its store.
    """

    snapshot: Snapshot
    checkpoints: CheckpointSource
    _: KW_ONLY
    origin: str | None
    evidence: FileEvidenceStore | None = None
    progress: Progress | None = None
    _named: set[str] = field(default_factory=set, init=False)
    _private: set[str] = field(default_factory=set, init=False)

    @cached_property
    def _verifiers(self) -> Sequence[Verifier]:
        return tuple(self.checkpoints.verifiers())

    def trail(self, file: BinaryIO) -> Written:
        """Write every event that is not sealed, with all checkpoints over them."""
        statements = self.snapshot.segments()
        base = self._base(statements)
        last = max((row.seq for row in self.snapshot.rows(after=base.seq)), default=base.seq)
        head = self._head(base, base.seq + 1 if last > base.seq else base.seq, last, None)
        writer = ExportWriter(file, head, verifiers=self._verifiers)
        writer.segments(statements)
        for row in self.snapshot.rows(after=base.seq):
            self._event(writer, row)
        self._put_evidence(writer)
        for signed in self._signed(last):
            if signed.checkpoint.size >= base.seq:
                writer.checkpoint(signed.note)
        return writer.close()

    def fix(self, file: BinaryIO, fix_id: str) -> Written:
        """Write the events of one fix, with proofs and checkpoints.

        An event that the last checkpoint covers has its proof to that. The checkpoints that first covered
        the events say whether their signer had written them. Raises RequestError if there is no such fix.
        """
        rows = sorted(self.snapshot.rows_by_trail(frozenset({fix_id})), key=lambda row: row.seq)
        if not rows:
            raise RequestError(
                f"There is no fix {fix_id!r} in the audit trail.",
                next_step="`fallback-tier audit log` lists those on record; a sealed one stands "
                "in its segment's file.",
                kind="no_such_fix",
            )
        seqs = [row.seq for row in rows]
        signed, proofs = self._proofs(seqs)
        statements = self.snapshot.segments()
        head = self._head(self._base(statements), rows[0].seq, rows[-1].seq, fix_id)
        writer = ExportWriter(file, head, verifiers=self._verifiers)
        writer.segments(statements)
        for row in rows:
            self._event(writer, row, proofs.get(row.seq))
        self._put_evidence(writer)
        if signed is not None:
            for checkpoint in self._signed(signed.checkpoint.size):
                new = {seq for seq in seqs if checkpoint.checkpoint.is_new_in(seq)}
                if new or checkpoint.note == signed.note:
                    writer.checkpoint(checkpoint.note)
                seqs = [seq for seq in seqs if seq not in new]
        return writer.close()

    def _head(self, base: Base, first: int, last: int, fix_id: str | None) -> Head:
        return Head(
            words=WORDS,
            origin=self.origin,
            fix_id=fix_id,
            first_seq=first,
            last_seq=last,
            base=base,
        )

    def _base(self, statements: Sequence[bytes]) -> Base:
        if not statements:
            return Base(seq=0, leaf=GENESIS)
        last = [open_segment(statement, self._verifiers) for statement in statements][-1]
        return Base(seq=last.last_seq, leaf=last.tip, frontier=last.frontier)

    def _event(
        self, writer: ExportWriter, row: StoredRow, proof: InclusionProof | None = None
    ) -> None:
        event = writer.event(row, proof)
        if self.evidence is not None:
            self._named.update(kept_digests(event))
            self._private.update(private_digests(event))
        if self.progress is not None:
            self.progress(row.seq)

    def _put_evidence(self, writer: ExportWriter) -> None:
        if self.evidence is None:
            return
        for digest in sorted(self._named - self._private):
            if self.evidence.find(digest) is None:
                continue
            try:
                writer.evidence(digest, self.evidence.get(digest))
            except UnreadEvidenceError:
                raise
            except EvidenceError as error:
                raise AuditIntegrityError(error.problem, next_step=error.next_step) from error

    def _proofs(
        self, seqs: Sequence[int]
    ) -> tuple[SignedCheckpoint | None, dict[int, InclusionProof]]:
        tip = max((row.seq for row in self.snapshot.rows(after=seqs[-1] - 1)), default=0)
        signed = None
        for signed in self._signed(tip):  # noqa: B007 - the last one is used
            pass
        if signed is None:
            return None, {}
        size, root = signed.checkpoint.size, signed.checkpoint.root
        base = self._base(self.snapshot.segments())
        frontier = Frontier(base.seq, map(bytes.fromhex, base.frontier))
        if size <= base.seq:
            return None, {}
        headers = (row.header or b"" for row in self.snapshot.rows(after=base.seq))
        covered = [seq for seq in seqs if seq <= size]
        paths, computed_root = inclusion_paths(covered, size, headers, frontier)
        if computed_root != root:
            raise AuditIntegrityError(
                f"Events 1 to {size} are not those that checkpoint {size} signed.",
                next_step=_VERIFY,
            )
        return signed, {
            seq: InclusionProof(tree_size=size, path=tuple(digest.hex() for digest in path))
            for seq, path in paths.items()
        }

    def _signed(self, last: int) -> Iterator[SignedCheckpoint]:
        """Yield the checkpoints over these events. Raises AuditIntegrityError if one can't be trusted."""
        for checkpoint in self.checkpoints.checked():
            if checkpoint.size > last:
                return
            yield _trusted(checkpoint)


def _trusted(checkpoint: CheckedCheckpoint) -> SignedCheckpoint:
    if checkpoint.signed is None or checkpoint.fault is not None:
        reason = checkpoint.fault.reason if checkpoint.fault is not None else None
        raise AuditIntegrityError(
            f"Nothing is exported from a record that does not verify: {reason}.",
            next_step=_VERIFY,
        )
    return checkpoint.signed
