"""Proofs in their own files: an event is in the log; a new checkpoint extends an old one.

A proof of inclusion is a C2SP tlog-proof: ``extra`` has the event's canonical header, from which the leaf
hash is computed. A proof of consistency has the form of a witness's request (C2SP tlog-witness,
"add-checkpoint")::

    old 20852014
    PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=

    <the new checkpoint>
"""

import base64
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fallback_audit.checkpoints.checkpoint import Checkpoint, SignedCheckpoint, open_checkpoint
from fallback_audit.checkpoints.merkle import (
    Frontier,
    Range,
    consistency_holds,
    consistency_ranges,
    inclusion_holds,
    inclusion_ranges,
    leaf_hash,
    range_roots,
)
from fallback_audit.checkpoints.note import MAX_NOTE_BYTES, Verifier, decode_base64
from fallback_audit.errors import AuditIntegrityError, CheckpointError, RequestError
from fallback_audit.ports import HeaderReader

INCLUSION_HEADER = "c2sp.org/tlog-proof@v1"

#: A tree of 2**53 entries has no longer path; a consistency proof can have one hash more.
MAX_PATH = 64

_NUMBER = r"(0|[1-9][0-9]{0,15})"
_INCLUSION = re.compile(
    rf"{re.escape(INCLUSION_HEADER)}\n(?:extra (\S*)\n)?index {_NUMBER}\n((?:\S+\n)*)\n", re.ASCII
)
_CONSISTENCY = re.compile(rf"old {_NUMBER}\n((?:\S+\n)*)\n", re.ASCII)


@dataclass(frozen=True)
class InclusionProof:
    """A proof that event ``index`` + 1, with this ``header``, is in the log that ``checkpoint`` signs."""

    index: int
    header: bytes
    hashes: tuple[bytes, ...]
    checkpoint: bytes

    def text(self) -> bytes:
        """Return the content of a ``.tlog-proof`` file."""
        lines = [INCLUSION_HEADER, f"extra {_b64(self.header)}", f"index {self.index}"]
        return _text(lines, self.hashes, self.checkpoint)

    @classmethod
    def parse(cls, data: bytes) -> "InclusionProof":
        """Parse a file. Raises AuditIntegrityError. The proof is not checked yet (``checked``)."""
        match = _INCLUSION.match(_decoded(data))
        if match is None or match[1] is None:
            raise _bad_proof(
                "it is no tlog-proof with an event's header in its extra line", kind="not_a_proof"
            )
        return cls(int(match[2]), _unb64(match[1]), _hashes(match[3]), _rest(data, match))

    def checked(self, verifiers: Collection[Verifier]) -> SignedCheckpoint:
        """Return the checkpoint that covers the event. Raises AuditIntegrityError if the proof is wrong."""
        signed = open_checkpoint(self.checkpoint, verifiers)
        size, root = signed.checkpoint.size, signed.checkpoint.root
        leaf = leaf_hash(self.header)
        if not inclusion_holds(leaf, index=self.index, size=size, path=self.hashes, root=root):
            raise _bad_proof(
                f"the header is not entry {self.index} of the tree that was signed",
                kind="not_in_the_tree",
            )
        return signed


@dataclass(frozen=True)
class ConsistencyProof:
    """A proof that the log of ``checkpoint`` begins with the ``old`` events of an earlier checkpoint."""

    old: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes

    def text(self) -> bytes:
        """Return the content of a file."""
        return _text([f"old {self.old}"], self.hashes, self.checkpoint)

    @classmethod
    def parse(cls, data: bytes) -> "ConsistencyProof":
        """Parse a file. Raises AuditIntegrityError. The proof is not checked yet (``checked``)."""
        match = _CONSISTENCY.match(_decoded(data))
        if match is None:
            raise _bad_proof("it is no proof of consistency", kind="not_a_proof")
        return cls(int(match[1]), _hashes(match[2]), _rest(data, match))

    def checked(self, old: Checkpoint, verifiers: Collection[Verifier]) -> SignedCheckpoint:
        """Return the newer checkpoint. Raises AuditIntegrityError if it does not continue ``old``."""
        signed = open_checkpoint(self.checkpoint, verifiers)
        new = signed.checkpoint
        if (old.origin, old.size) != (new.origin, self.old):
            raise _bad_proof(
                "it is about another checkpoint than the old one given", kind="another_checkpoint"
            )
        if not consistency_holds(
            old=old.size, old_root=old.root, size=new.size, root=new.root, path=self.hashes
        ):
            raise _bad_proof(
                f"the first {old.size} events are not those that were signed before",
                kind="beginning_differs",
            )
        return signed


def prove_inclusion(
    seq: int,
    reader: HeaderReader,
    signed: SignedCheckpoint,
    verifiers: Collection[Verifier],
    base: Frontier | None = None,
) -> InclusionProof:
    """Prove that ``signed`` covers event ``seq``, in one pass over the headers after the sealed ``base``.

    Raises RequestError if the event is not covered or is sealed, AuditIntegrityError if the store's events
    are not those that were signed.
    """
    size = signed.checkpoint.size
    if not 1 <= seq <= size:
        raise RequestError(
            f"Event {seq} is not among the {size} that the latest checkpoint covers.",
            next_step="`fallback-tier audit checkpoint` covers every event; the first has number 1.",
            kind="not_covered",
        )
    row = next(iter(reader.headers(after=seq - 1, upto=seq)), None)
    if row is None:
        raise RequestError(
            f"Event {seq} is not in the store: it was sealed.",
            next_step="Take it from the sealed segment: `fallback-tier audit import` reads one.",
            kind="event_sealed",
        )
    hashes = _roots(inclusion_ranges(seq - 1, size), reader, size, base)
    proof = InclusionProof(seq - 1, row.header, hashes, signed.note)
    proof.checked(verifiers)
    return proof


def prove_consistency(
    old: Checkpoint,
    reader: HeaderReader,
    signed: SignedCheckpoint,
    verifiers: Collection[Verifier],
    base: Frontier | None = None,
) -> ConsistencyProof:
    """Prove that ``signed`` extends ``old``. Raises CheckpointError, AuditIntegrityError."""
    size = signed.checkpoint.size
    if not 0 < old.size <= size:
        raise CheckpointError(
            f"A checkpoint of {old.size} events can't be the beginning of the latest, of {size}.",
            next_step="Name one that is older; if it is, the store was rolled back: `audit verify`.",
            kind="not_a_beginning",
        )
    hashes = _roots(consistency_ranges(old.size, size), reader, size, base)
    proof = ConsistencyProof(old.size, hashes, signed.note)
    proof.checked(old, verifiers)
    return proof


def _roots(
    ranges: Sequence[Range], reader: HeaderReader, size: int, base: Frontier | None
) -> tuple[bytes, ...]:
    first = base.size if base is not None else 0
    entries = (row.header for row in reader.headers(after=first, upto=size))
    try:
        return tuple(range_roots(ranges, entries, base))
    except ValueError as error:
        raise CheckpointError(
            f"This can't be proved from the store: {error}.",
            next_step="Prove it from an export that has the sealed events, or run `audit verify`.",
            kind="beginning_sealed",
        ) from error


def _text(lines: list[str], hashes: Sequence[bytes], checkpoint: bytes) -> bytes:
    return "\n".join([*lines, *map(_b64, hashes), "", ""]).encode() + checkpoint


def _decoded(data: bytes) -> str:
    """Decode as Latin-1, so that an offset in the text is the same in the bytes."""
    if len(data) > 2 * MAX_NOTE_BYTES:
        raise _bad_proof(f"it has more than {2 * MAX_NOTE_BYTES} bytes", kind="not_a_proof")
    return data.decode("latin-1")


def _rest(data: bytes, match: re.Match[str]) -> bytes:
    return data[match.end() :]


def _hashes(lines: str) -> tuple[bytes, ...]:
    texts = lines.split("\n")[:-1]  # each line ends with a line feed
    if len(texts) > MAX_PATH:
        raise _bad_proof(f"it has more than {MAX_PATH} hashes", kind="not_a_proof")
    return tuple(map(_unb64, texts))


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return decode_base64(text)
    except ValueError as error:
        raise _bad_proof("a line of it is no base64", kind="not_a_proof") from error


def _bad_proof(reason: str, *, kind: str = "") -> AuditIntegrityError:
    return AuditIntegrityError(
        f"This proof does not hold: {reason}.",
        next_step="Ask whoever gave it for a new one; keep this one if it held before.",
        kind=kind,
    )
