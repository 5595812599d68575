"""One pass over the stored bytes: the chain, and the Merkle tree over it, at every checkpoint.

Memory is that of one block and of the tree's frontier. A block is judged as a whole by a few joined
comparisons; only one that is not as it should be is looked at row by row, to say which row and why.
"""

import json
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from itertools import islice

from fallback_audit.canonical import GENESIS, HEADER_DOMAIN, PAYLOAD_DOMAIN
from fallback_audit.chain import TOMBSTONE_START, StoredRow, broken_link
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.verifying.covering import Covering
from fallback_audit.verifying.report import Listed, Problem

#: Rows that are judged at once: enough that the cost of a block does not show, little memory.
BLOCK_ROWS = 256

#: Told how many events have been walked.
Progress = Callable[[int], None]

_LEAF, _NODE = b"\x00", b"\x01"  # RFC 6962 §2.1

# What a header ends with, in canonical order. The time always has the same length
# (``stores.since.timestamp``), and the version behind it one or two digits: so the members before it stand
# at a place counted from the end.
_CLAIM = ('"payload_sha256":"', "", '","previous_leaf":"', "", '","recorded_at":"')
_CLAIM_BYTES = sum(map(len, _CLAIM)) + 2 * 64
_TIME = len('2026-01-01T00:00:00.000000Z","schema_version":')
_VERSION_DIGITS = 2


@dataclass
class Position:
    """Where the chain is: so many events, the last leaf, and the tree over them (None: not kept)."""

    seq: int = 0
    tip: str = GENESIS
    frontier: Frontier | None = field(default_factory=Frontier)


@dataclass(eq=False)
class Walk:
    """Goes on from ``at``, which moves along. ``covering`` None: no checkpoint is compared.

    ``tombstones``: of which events the store keeps one apart; None: it keeps none so.
    """

    at: Position
    problems: Listed[Problem]
    _: KW_ONLY
    covering: Covering | None = None
    verifiers: Sequence[Verifier] = ()
    tombstones: Container[int] | None = None
    progress: Progress | None = None
    complete: int = field(default=0, init=False)

    def rows(self, rows: Iterable[StoredRow]) -> None:
        """Judge them all. After a bad link the next one is judged by what the bad one claims."""
        stream = iter(rows)
        while block := list(islice(stream, self._rows_to_next_checkpoint())):
            if self._is_sound(block):
                self.complete += len(block)
            else:
                for row in block:
                    self._judge(row)
            self._compare()
            if self.progress is not None:
                self.progress(self.at.seq)

    def _rows_to_next_checkpoint(self) -> int:
        """Up to the next checkpoint, so that no root has to be computed in the middle of a block."""
        following = self.covering.next_size if self.covering else None
        return BLOCK_ROWS if following is None else min(BLOCK_ROWS, max(1, following - self.at.seq))

    def _is_sound(self, block: Sequence[StoredRow]) -> bool:
        """Is each row the link that it should be? Then the position is behind the last one."""
        at, count = self.at, len(block)
        seqs, headers, leaves, payloads = zip(*block, strict=True)
        first, last = at.seq + 1, at.seq + count
        if seqs != tuple(range(first, last + 1)) or None in headers or None in payloads:
            return False
        hashed = [sha256(HEADER_DOMAIN + header).hexdigest() for header in headers]
        digests = [sha256(PAYLOAD_DOMAIN + payload).hexdigest() for payload in payloads]
        if tuple(hashed) != leaves or not _claim(headers, first, digests, [at.tip, *hashed[:-1]]):
            return False
        at.seq, at.tip = last, hashed[-1]
        if at.frontier is not None:
            extend(at.frontier, headers)
        return True

    def _judge(self, row: StoredRow) -> None:
        at = self.at
        reason = broken_link(row, seq=at.seq + 1, previous_leaf=at.tip, verifiers=self.verifiers)
        if reason is None and self._is_lost(row):
            reason = "it was redacted, and its row of audit_tombstone is gone (lost, or removed)"
        if reason is not None:
            self.problems.add(Problem(seq=row.seq, fix_id=fix_id_of(row), reason=reason))
        if row.header is not None and row.leaf is not None:
            self.complete += row.payload is not None
            at.seq, at.tip = row.seq, row.leaf
            if at.frontier is not None:
                at.frontier.append(row.header)
            self._compare()

    def _is_lost(self, row: StoredRow) -> bool:
        """Its payload is a tombstone, which is not kept apart as it was when it was put there."""
        redacted = row.payload is not None and row.payload.startswith(TOMBSTONE_START)
        return redacted and self.tombstones is not None and row.seq not in self.tombstones

    def _compare(self) -> None:
        covering, at = self.covering, self.at
        if covering is not None and at.frontier is not None:
            while covering.next_size is not None and covering.next_size <= at.seq:
                covering.reached(at.frontier, at.tip)


def _claim(
    headers: Sequence[bytes], first: int, digests: Sequence[str], previous: Sequence[str]
) -> bool:
    """Does each header name its payload, the leaf before it and its number, at their places?

    One comparison of joined bytes: slices of one length each, so that they are equal only one by one.
    """
    digits = len(str(first))
    if len(str(first + len(headers) - 1)) != digits:  # the places shift within the block
        return all(
            _claim((header,), first + n, (digest,), (leaf,))
            for n, (header, digest, leaf) in enumerate(zip(headers, digests, previous, strict=True))
        )
    tail = len(',"seq":}') + digits
    before = len(headers[0]) - tail
    version = before - 1 - headers[0].rfind(b":", 0, before)
    behind = tail + _TIME + min(version, _VERSION_DIGITS)
    begin = behind + _CLAIM_BYTES
    claimed = [*_CLAIM] * len(headers)
    claimed[1::5], claimed[3::5] = digests, previous
    numbers = [',"seq":', "", "}"] * len(headers)
    numbers[1::3] = map(str, range(first, first + len(headers)))
    return "".join(claimed).encode() == b"".join(
        [header[-begin:-behind] for header in headers]
    ) and "".join(numbers).encode() == b"".join([header[-tail:] for header in headers])


def extend(frontier: Frontier, entries: Sequence[bytes]) -> None:
    """Append entries in the largest subtrees that fit: half the calls of one by one."""
    hashes = [sha256(_LEAF + entry).digest() for entry in entries]
    at = 0
    while at < len(hashes):
        fits = 1 << ((len(hashes) - at).bit_length() - 1)
        aligned = frontier.size & -frontier.size
        count = min(fits, aligned) if aligned else fits
        level = hashes[at : at + count]
        while len(level) > 1:
            pairs = iter(level)
            level = [
                sha256(_NODE + left + right).digest()
                for left, right in zip(pairs, pairs, strict=True)
            ]
        frontier.add(count, level[0])
        at += count


def fix_id_of(row: StoredRow) -> str | None:
    """Whose event it is, as far as an altered header still says."""
    try:
        fix_id = json.loads(row.header or b"")["fix_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return fix_id if isinstance(fix_id, str) else None
