"""Inclusion proofs for the events of one fix, in one pass over the chain."""

from collections.abc import Iterable, Iterator, Sequence

from fallback_audit.checkpoints.merkle import Frontier, leaf_hash, node_hash
from fallback_audit.errors import AuditIntegrityError


def inclusion_paths(
    seqs: Sequence[int], size: int, headers: Iterable[bytes], base: Frontier
) -> tuple[dict[int, tuple[bytes, ...]], bytes]:
    """The path (RFC 6962 §2.1.1) of each event to the root over the first ``size``, and that root.

    ``headers`` begin behind ``base``, and so must ``seqs`` (event numbers, ascending). Memory is that of
    the paths. Raises AuditIntegrityError where there are not ``size`` events.
    """
    paths: dict[int, list[bytes]] = {seq: [] for seq in seqs}
    stream = iter(headers)

    def root(first: int, behind: int, inside: Sequence[int]) -> bytes:
        if not inside:
            return _bulk(first, behind, stream, base)
        if behind - first == 1:
            return leaf_hash(_next(stream))
        middle = first + (1 << ((behind - first - 1).bit_length() - 1))
        lower = [seq for seq in inside if seq <= middle]
        upper = inside[len(lower) :]
        left, right = root(first, middle, lower), root(middle, behind, upper)
        for seq in inside:
            paths[seq].append(right if seq <= middle else left)
        return node_hash(left, right)

    top = root(0, size, seqs)
    return {seq: tuple(path) for seq, path in paths.items()}, top


def _bulk(first: int, behind: int, stream: Iterator[bytes], base: Frontier) -> bytes:
    """The root over a range that holds no wanted event: known from ``base`` as far as that goes."""
    tree = Frontier()
    for begin, end, digest in base.subtrees():
        if first <= begin and end <= behind:
            tree.add(end - begin, digest)
    for _ in range(max(first, base.size), behind):
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
