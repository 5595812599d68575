"""The Merkle tree of RFC 6962 (§2.1; RFC 9162 §2.1 has the same, and the checks).

Entries are the canonical headers of the chain, in its order. The tree is never in memory as a whole: a
*frontier* (the roots of its perfect subtrees, left to right) is enough to extend it, and a proof is a list
of ranges whose roots are computed in one pass over the entries. So memory grows logarithmically.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise

HASH_BYTES = 32

#: The root of a tree without entries.
EMPTY_ROOT = hashlib.sha256(b"").digest()

_LEAF, _NODE = b"\x00", b"\x01"


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry, which never equals that of an inner node."""
    return hashlib.sha256(_LEAF + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash over two subtrees."""
    return hashlib.sha256(_NODE + left + right).digest()


class Frontier:
    """A tree that can be extended: its ``size``, and one hash per set bit of it, the largest subtree first.

    Raises ValueError if the number or length of the hashes does not fit the size.
    """

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        self._hashes = list(hashes)
        self.size = size
        fits = size >= 0 and len(self._hashes) == size.bit_count()
        if not fits or any(len(digest) != HASH_BYTES for digest in self._hashes):
            raise ValueError(f"a frontier of size {size} has a hash of 32 bytes for each bit of it")

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """Return the roots of the perfect subtrees, the largest (leftmost) first."""
        return tuple(self._hashes)

    def append(self, entry: bytes) -> None:
        """Append an entry."""
        self.add(1, leaf_hash(entry))

    def add(self, count: int, digest: bytes) -> None:
        """Append a perfect subtree of ``count`` entries (a power of two that divides ``size``)."""
        if count.bit_count() != 1 or self.size % count:
            raise ValueError(f"{count} entries make no subtree behind {self.size}")
        carry = self.size // count
        while carry & 1:
            digest = node_hash(self._hashes.pop(), digest)
            carry >>= 1
        self._hashes.append(digest)
        self.size += count

    def root(self) -> bytes:
        """Return the Merkle tree hash of all entries."""
        if not self._hashes:
            return EMPTY_ROOT
        digest = self._hashes[-1]
        for left in reversed(self._hashes[:-1]):
            digest = node_hash(left, digest)
        return digest

    def subtrees(self) -> list[tuple[int, int, bytes]]:
        """Return ``(first, end, hash)`` of each perfect subtree, from the left; ``end`` is excluded."""
        subtrees, first = [], 0
        for digest in self._hashes:
            count = 1 << ((self.size - first).bit_length() - 1)
            subtrees.append((first, first + count, digest))
            first += count
        return subtrees

    def copy(self) -> "Frontier":
        """Return a copy that can be extended separately."""
        return Frontier(self.size, self._hashes)


Range = tuple[int, int]
"""Entries ``[first, behind)``, counted from 0."""


def inclusion_ranges(index: int, size: int) -> list[Range]:
    """Return the ranges whose roots prove that entry ``index`` is in the tree (PATH, RFC 6962 §2.1.1)."""
    if not 0 <= index < size:
        raise ValueError(f"there is no entry {index} in a tree of {size}")
    path: list[Range] = []
    first, end = 0, size
    while end - first > 1:
        middle = first + _split(end - first)
        if index < middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((first, middle))
            first = middle
    return path[::-1]


def consistency_ranges(old: int, size: int) -> list[Range]:
    """Return the ranges to prove that the tree extends one of ``old`` (PROOF, RFC 6962 §2.1.2)."""
    if not 0 < old <= size:
        raise ValueError(f"a tree of {old} entries can't be the beginning of one of {size}")
    path: list[Range] = []
    first, end, whole = 0, size, True
    while old != end:
        middle = first + _split(end - first)
        if old <= middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((first, middle))
            first, whole = middle, False
    return ([] if whole else [(first, end)]) + path[::-1]


def range_roots(
    ranges: Sequence[Range], entries: Iterable[bytes], base: Frontier | None = None
) -> list[bytes]:
    """Return the root of each range, in one pass. ``entries`` begin after ``base`` (default: at the first).

    Raises ValueError if ranges overlap, a range cuts through a subtree of ``base``, or entries are missing.
    """
    base_tree = base or Frontier()
    wanted = sorted(set(ranges))
    if any(left[1] > right[0] for left, right in pairwise(wanted)):
        raise ValueError("the ranges overlap")
    roots: dict[Range, bytes] = {}
    stream, position = iter(entries), base_tree.size
    for first, end in wanted:
        tree = Frontier()
        for subtree_first, subtree_end, digest in base_tree.subtrees():
            if first <= subtree_first and subtree_end <= end:
                tree.add(subtree_end - subtree_first, digest)
        while position < end:
            entry = next(stream, None)
            if entry is None:
                raise ValueError(f"there are {position} entries, {end} are needed")
            if position >= first:
                tree.append(entry)
            position += 1
        if tree.size != end - first:
            raise ValueError(f"the entries before {base_tree.size} are sealed")
        roots[(first, end)] = tree.root()
    return [roots[needed] for needed in ranges]


def inclusion_holds(
    leaf: bytes, *, index: int, size: int, path: Sequence[bytes], root: bytes
) -> bool:
    """Return whether the tree's entry ``index`` has this leaf hash (RFC 9162 §2.1.3.2)."""
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
    """Return whether the tree begins with the tree of ``old`` entries (RFC 9162 §2.1.4.2)."""
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
    """Return the largest power of two below ``count`` (at least 2)."""
    return 1 << ((count - 1).bit_length() - 1)
