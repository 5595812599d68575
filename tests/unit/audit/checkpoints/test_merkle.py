"""The Merkle tree against the definition of RFC 6962, known vectors, and another implementation."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.checkpoints.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_holds,
    consistency_ranges,
    inclusion_holds,
    inclusion_ranges,
    leaf_hash,
    range_roots,
)

# The entries, roots and paths of Certificate Transparency's own tests (merkletree, C++ and Go).
CT_ENTRIES = [
    bytes.fromhex(entry)
    for entry in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
CT_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
_A = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
_B = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
_C = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
_D = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
_E = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
_F = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
CT_INCLUSION = [  # index, size, path
    (0, 1, []),
    (0, 8, [_A, _B, _C]),
    (5, 8, [_D, _E, CT_ROOTS[3]]),
    (2, 3, [CT_ROOTS[1]]),
    (1, 5, [CT_ROOTS[0], _B, _D]),
]
CT_CONSISTENCY = [  # old, size, path
    (1, 1, []),
    (1, 8, [_A, _B, _C]),
    (6, 8, [_F, _E, CT_ROOTS[3]]),
    (2, 5, [_B, _D]),
]

#: What another implementation says; the file names it. It is not installed here.
OTHERS = json.loads((Path(__file__).parent / "other_implementation.json").read_text())


def tree(entries: Sequence[bytes]) -> Frontier:
    grown = Frontier()
    for entry in entries:
        grown.append(entry)
    return grown


def naive_root(entries: Sequence[bytes]) -> bytes:
    """MTH, word for word as RFC 6962 §2.1 defines it."""
    if not entries:
        return hashlib.sha256().digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    split = 1
    while split * 2 < len(entries):
        split *= 2
    left, right = naive_root(entries[:split]), naive_root(entries[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


def inclusion(entries: Sequence[bytes], index: int) -> list[bytes]:
    return range_roots(inclusion_ranges(index, len(entries)), entries)


def consistency(entries: Sequence[bytes], old: int) -> list[bytes]:
    return range_roots(consistency_ranges(old, len(entries)), entries)


def test_certificate_transparency_roots() -> None:
    assert Frontier().root() == EMPTY_ROOT == hashlib.sha256().digest()
    for size, root in enumerate(CT_ROOTS, start=1):
        assert tree(CT_ENTRIES[:size]).root().hex() == root


@pytest.mark.parametrize(("index", "size", "path"), CT_INCLUSION)
def test_certificate_transparency_inclusion(index: int, size: int, path: list[str]) -> None:
    assert [digest.hex() for digest in inclusion(CT_ENTRIES[:size], index)] == path
    hashes = [bytes.fromhex(digest) for digest in path]
    root, leaf = bytes.fromhex(CT_ROOTS[size - 1]), leaf_hash(CT_ENTRIES[index])
    assert inclusion_holds(leaf, index=index, size=size, path=hashes, root=root)


@pytest.mark.parametrize(("old", "size", "path"), CT_CONSISTENCY)
def test_certificate_transparency_consistency(old: int, size: int, path: list[str]) -> None:
    assert [digest.hex() for digest in consistency(CT_ENTRIES[:size], old)] == path
    roots = [bytes.fromhex(CT_ROOTS[count - 1]) for count in (old, size)]
    hashes = [bytes.fromhex(digest) for digest in path]
    assert consistency_holds(old=old, old_root=roots[0], size=size, root=roots[1], path=hashes)


def test_another_implementation_says_the_same() -> None:
    entries = [f"entry {number}".encode() for number in range(OTHERS["entries"])]
    for size, root in enumerate(OTHERS["roots"], start=1):
        assert tree(entries[:size]).root().hex() == root
    for size, index, path in OTHERS["inclusion"]:
        assert [digest.hex() for digest in inclusion(entries[:size], index)] == path
    for size, old, path in OTHERS["consistency"]:
        assert [digest.hex() for digest in consistency(entries[:size], old)] == path


entries_of = st.lists(st.binary(max_size=4), min_size=1, max_size=70)


@given(entries_of)
def test_the_root_is_that_of_the_definition(entries: list[bytes]) -> None:
    assert tree(entries).root() == naive_root(entries)


@given(entries_of, st.data())
def test_inclusion_holds_for_this_entry_only(entries: list[bytes], data: st.DataObject) -> None:
    size = len(entries)
    index = data.draw(st.integers(0, size - 1))
    path, root, leaf = inclusion(entries, index), tree(entries).root(), leaf_hash(entries[index])

    def holds(
        leaf: bytes = leaf, index: int = index, size: int = size, path: list[bytes] = path
    ) -> bool:
        return inclusion_holds(leaf, index=index, size=size, path=path, root=root)

    assert holds()
    for other in range(-1, size + 2):
        if other != index and (not 0 <= other < size or entries[other] != entries[index]):
            assert not holds(index=other)
    assert not holds(leaf=leaf_hash(b"another"))
    assert not holds(path=[*path, root])
    assert not holds(path=[*path, b""])
    if path:
        place = data.draw(st.integers(0, len(path) * 256 - 1))
        assert not holds(path=flipped(path, place))
        assert not holds(path=path[:-1])
        assert not holds(path=path[1:])
    assert not inclusion_holds(leaf, index=index, size=size, path=path, root=flipped([root], 7)[0])


@given(entries_of, st.data())
def test_consistency_holds_for_this_beginning_only(
    entries: list[bytes], data: st.DataObject
) -> None:
    size = len(entries)
    old = data.draw(st.integers(1, size))
    path, root, old_root = consistency(entries, old), naive_root(entries), naive_root(entries[:old])

    def holds(
        old: int = old, old_root: bytes = old_root, root: bytes = root, path: list[bytes] = path
    ) -> bool:
        return consistency_holds(old=old, old_root=old_root, size=size, root=root, path=path)

    assert holds()
    assert not holds(old_root=flipped([old_root], 0)[0])
    assert not holds(root=flipped([root], 0)[0])
    assert not holds(old=0)
    assert not holds(old=size + 1)
    assert not holds(path=[*path, root])
    if path:
        place = data.draw(st.integers(0, len(path) * 256 - 1))
        assert not holds(path=flipped(path, place))
        assert not holds(path=path[:-1])
    forged = list(entries)
    forged[data.draw(st.integers(0, old - 1))] += b"!"
    assert not holds(root=naive_root(forged), path=consistency(forged, old))


@given(entries_of, st.data())
def test_a_frontier_goes_on_where_another_stopped(
    entries: list[bytes], data: st.DataObject
) -> None:
    """As behind a sealed segment: the same root, and the same proofs for what comes after it."""
    sealed = data.draw(st.integers(0, len(entries)))
    base = tree(entries[:sealed])
    again = Frontier(base.size, base.hashes)
    for entry in entries[sealed:]:
        again.append(entry)
    assert again.root() == naive_root(entries)
    assert again.hashes == tree(entries).hashes
    for index in range(sealed, len(entries)):
        asked = inclusion_ranges(index, len(entries))
        assert range_roots(asked, entries[sealed:], base) == inclusion(entries, index)
    for old in range(max(sealed, 1), len(entries) + 1):
        asked = consistency_ranges(old, len(entries))
        assert range_roots(asked, entries[sealed:], base) == consistency(entries, old)


def test_what_is_inside_a_sealed_subtree_can_not_be_proved() -> None:
    with pytest.raises(ValueError, match="4"):
        range_roots(inclusion_ranges(1, 8), CT_ENTRIES[4:], tree(CT_ENTRIES[:4]))


def test_entries_that_are_missing() -> None:
    with pytest.raises(ValueError, match=r"\b3 .*\b4 "):
        range_roots(inclusion_ranges(1, 8), CT_ENTRIES[:3])


@pytest.mark.parametrize(("index", "size"), [(0, 0), (-1, 3), (3, 3)])
def test_no_such_entry(index: int, size: int) -> None:
    with pytest.raises(ValueError, match=rf"{index} .*{size}$"):
        inclusion_ranges(index, size)


@pytest.mark.parametrize(("old", "size"), [(0, 3), (4, 3), (-1, 3)])
def test_no_such_beginning(old: int, size: int) -> None:
    with pytest.raises(ValueError, match=rf"{old} .*{size}$"):
        consistency_ranges(old, size)


@pytest.mark.parametrize(
    ("size", "hashes"), [(1, []), (2, [bytes(32)] * 2), (1, [b"x"]), (-1, [bytes(32)])]
)
def test_a_frontier_has_a_hash_a_bit(size: int, hashes: list[bytes]) -> None:
    with pytest.raises(ValueError, match=rf"{size} "):
        Frontier(size, hashes)


def test_a_subtree_stands_at_its_place_only() -> None:
    for count in (0, 2, 3):
        with pytest.raises(ValueError, match=rf"^{count} .* 1$"):
            tree(CT_ENTRIES[:1]).add(count, bytes(32))


def flipped(hashes: list[bytes], place: int) -> list[bytes]:
    which, bit = divmod(place, 256)
    altered = bytearray(hashes[which])
    altered[bit // 8] ^= 1 << bit % 8
    return [*hashes[:which], bytes(altered), *hashes[which + 1 :]]
