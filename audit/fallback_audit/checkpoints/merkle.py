"""The Merkle tree of RFC 6962 (§2.1; RFC 9162 §2.1 has the same, and the checks).

Entries are the canonical headers of the chain, in its order. The tree is never held: a *frontier* (the
roots of its perfect subtrees, left to right) is enough to extend it, and a proof is a list of ranges
whose roots one pass over the entries gives. So memory is logarithmic, for ten million events too.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise

HASH_BYTES = 32

#: The root of a tree without entries.
EMPTY_ROOT = hashlib.sha256(b"").digest()

_LEAF, _NODE = b"\x00", b"\x01"


def leaf_hash(entry: bytes) -> bytes:
    """The hash of an entry: never that of an inner node."""
    return hashlib.sha256(_LEAF + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash over two subtrees."""
    return hashlib.sha256(_NODE + left + right).digest()


class Frontier:
    """The tree so far: ``size`` entries, and a hash a bit of ``size``, the largest subtree first.

    Raises ValueError where the hashes are not as many as the size has bits.
    """

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        self._hashes = list(hashes)
        self.size = size
        right = size >= 0 and len(self._hashes) == size.bit_count()
        if not right or any(len(digest) != HASH_BYTES for digest in self._hashes):
            raise ValueError(f"a frontier of size {size} has a hash of 32 bytes for each bit of it")

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """The roots of the perfect subtrees, the largest (leftmost) first."""
        return tuple(self._hashes)

    def append(self, entry: bytes) -> None:
        """Add an entry at the end."""
        self.add(1, leaf_hash(entry))

    def add(self, count: int, digest: bytes) -> None:
        """Add a perfect subtree of ``count`` entries (a power of two that divides ``size``)."""
        if count.bit_count() != 1 or self.size % count:
            raise ValueError(f"{count} entries make no subtree behind {self.size}")
        carry = self.size // count
        while carry & 1:
            digest = node_hash(self._hashes.pop(), digest)
            carry >>= 1
        self._hashes.append(digest)
        self.size += count

    def root(self) -> bytes:
        """The Merkle tree hash of what was added."""
        if not self._hashes:
            return EMPTY_ROOT
        digest = self._hashes[-1]
        for left in reversed(self._hashes[:-1]):
            digest = node_hash(left, digest)
        return digest

    def subtrees(self) -> list[tuple[int, int, bytes]]:
        """``(first, behind, hash)`` of each perfect subtree, from the left."""
        found, first = [], 0
        for digest in self._hashes:
            count = 1 << ((self.size - first).bit_length() - 1)
            found.append((first, first + count, digest))
            first += count
        return found

    def copy(self) -> "Frontier":
        """One that can be extended without this one."""
        return Frontier(self.size, self._hashes)


Range = tuple[int, int]
"""Entries ``[first, behind)``, counted from 0."""


def inclusion_ranges(index: int, size: int) -> list[Range]:
    """Whose roots prove that entry ``index`` is in the tree: PATH of RFC 6962 §2.1.1, in its order."""
    if not 0 <= index < size:
        raise ValueError(f"there is no entry {index} in a tree of {size}")
    path: list[Range] = []
    first, behind = 0, size
    while behind - first > 1:
        middle = first + _split(behind - first)
        if index < middle:
            path.append((middle, behind))
            behind = middle
        else:
            path.append((first, middle))
            first = middle
    return path[::-1]


def consistency_ranges(old: int, size: int) -> list[Range]:
    """Whose roots prove that the tree of ``old`` entries is the beginning: PROOF of RFC 6962 §2.1.2."""
    if not 0 < old <= size:
        raise ValueError(f"a tree of {old} entries can't be the beginning of one of {size}")
    path: list[Range] = []
    first, behind, whole = 0, size, True
    while old != behind:
        middle = first + _split(behind - first)
        if old <= middle:
            path.append((middle, behind))
            behind = middle
        else:
            path.append((first, middle))
            first, whole = middle, False
    return ([] if whole else [(first, behind)]) + path[::-1]


def range_roots(
    ranges: Sequence[Range], entries: Iterable[bytes], base: Frontier | None = None
) -> list[bytes]:
    """The root of each range, in one pass. ``entries`` begin behind ``base`` (default: at the first).

    Raises ValueError where the entries do not reach, or a range needs what is inside a subtree of
    ``base``.
    """
    known = base or Frontier()
    wanted = sorted(set(ranges))
    if any(left[1] > right[0] for left, right in pairwise(wanted)):
        raise ValueError("the ranges overlap")
    found: dict[Range, bytes] = {}
    stream, at = iter(entries), known.size
    for first, behind in wanted:
        tree = Frontier()
        for begin, end, digest in known.subtrees():
            if first <= begin and end <= behind:
                tree.add(end - begin, digest)
        while at < behind:
            entry = next(stream, None)
            if entry is None:
                raise ValueError(f"there are {at} entries, {behind} are needed")
            if at >= first:
                tree.append(entry)
            at += 1
        if tree.size != behind - first:
            raise ValueError(f"the entries before {known.size} are sealed")
        found[(first, behind)] = tree.root()
    return [found[asked] for asked in ranges]


def inclusion_holds(
    leaf: bytes, *, index: int, size: int, path: Sequence[bytes], root: bytes
) -> bool:
    """Is the entry with this leaf hash number ``index`` of the tree? (RFC 9162 §2.1.3.2.)"""
    if not 0 <= index < size:
        return False
    node, last, digest = index, size - 1, leaf
    for sibling in path:
        if last == 0 or len(sibling) != HASH_BYTES:
            return False
        if node & 1 or node == last:
            digest = node_hash(sibling, digest)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            digest = node_hash(digest, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and digest == root


def consistency_holds(
    *, old: int, old_root: bytes, size: int, root: bytes, path: Sequence[bytes]
) -> bool:
    """Is the tree of ``old`` entries the beginning of the other one? (RFC 9162 §2.1.4.2.)"""
    if not 0 < old <= size or any(len(digest) != HASH_BYTES for digest in path):
        return False
    if old == size:
        return not path and old_root == root
    hashes = list(path) if old & (old - 1) else [old_root, *path]
    if not hashes:
        return False
    node, last = old - 1, size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    before = after = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            after = node_hash(after, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and before == old_root and after == root


def _split(count: int) -> int:
    """The largest power of two below ``count`` (at least 2)."""
    return 1 << ((count - 1).bit_length() - 1)
