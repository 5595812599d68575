"""Archives that somebody made to be odd are not read, and cost little."""

import gzip
import io
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from fallback_plugins.pypi import archives
from fallback_plugins.pypi.archives import MemberTooLargeError, fetched, member_text

NAME = "it-1.0/pyproject.toml"


def tarred(members: dict[str, str], pax: dict[str, str] | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(text), pax or {}
            archive.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def zipped(method: int = zipfile.ZIP_DEFLATED, members: tuple[str, ...] = (NAME,)) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name in members:
            archive.writestr(name, "found")
    return packed.getvalue()


def text_in(content: bytes, most: int = 100) -> str | None:
    return member_text(content, lambda name: name == NAME, most)


def encrypted() -> bytes:
    content = bytearray(zipped())
    for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(sign) + place] |= 1
    return bytes(content)


def of_method(number: int) -> bytes:
    content = bytearray(zipped())
    for sign, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        struct.pack_into("<H", content, content.index(sign) + place, number)
    return bytes(content)


def with_size(size: bytes) -> bytes:
    """A tar header that says another size, with the checksum that it needs."""
    content = bytearray(tarred({NAME: "found"}))
    content[124:136] = size
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    return bytes(content)


@pytest.mark.parametrize(
    "content", [tarred({NAME: "found"}), gzip.compress(tarred({NAME: "found"})), zipped()]
)
def test_its_text(content: bytes) -> None:
    assert text_in(content) == "found"
    assert text_in(content, 5) == "found"
    with pytest.raises(MemberTooLargeError, match="has 5 bytes, more than 4"):
        text_in(content, 4)


@pytest.mark.parametrize(
    "made",
    [
        encrypted,
        lambda: of_method(99),
        lambda: zipped(zipfile.ZIP_LZMA),
        lambda: zipped(zipfile.ZIP_BZIP2),
        lambda: of_method(zipfile.ZIP_LZMA),
        lambda: tarred({NAME: "found"}, {"GNU.sparse.map": "x", "GNU.sparse.size": "9"}),
        lambda: tarred({NAME: "found"}, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
        lambda: with_size(b"\xff" * 12),
        lambda: with_size(b"\xff" * 10 + b"\xfe\0"),
    ],
    ids=[
        "encrypted",
        "of no method",
        "lzma",
        "bzip2",
        "no lzma",
        "no number",
        "no map",
        "below nothing",
        "backwards",
    ],
)
def test_what_can_not_be_read(made: Callable[[], bytes]) -> None:
    assert text_in(made()) is None


def test_a_size_that_no_file_has() -> None:
    with pytest.raises(MemberTooLargeError):
        text_in(with_size(b"\x80" + b"\x7f" * 11))


def test_what_is_too_large_is_not_read() -> None:
    """A small archive may unpack to what fills the memory."""
    content = gzip.compress(tarred({NAME: "#" * 30_000_000}), compresslevel=1)
    tracemalloc.start()
    try:
        with pytest.raises(MemberTooLargeError):
            text_in(content)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5_000_000


@pytest.mark.parametrize(
    "make",
    [lambda: tarred({"a": "", "b": "", NAME: "found"}), lambda: zipped(members=("a", "b", NAME))],
)
def test_no_more_than_so_many_members_are_looked_at(
    make: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = make()
    assert text_in(content) == "found"
    monkeypatch.setattr(archives, "MAX_MEMBERS", 2)
    assert text_in(content) is None


def test_a_header_is_no_text_of_any_length() -> None:
    assert text_in(tarred({NAME: "found"}, {"comment": "x" * 900_000})) == "found"
    assert text_in(tarred({NAME: "found"}, {"comment": "x" * 1_100_000})) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1.evil.invalid/it.tar.gz",
        "http://127.0.0.1@evil.invalid/it.tar.gz",
        "http://corp.invalid/it.tar.gz",
        "file:///etc/passwd",
        "https://[",
    ],
)
def test_nothing_is_fetched_in_the_clear(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(url: str, **_: object) -> bytes:
        asked.append(url)
        return b""

    monkeypatch.setattr("fallback_tier.network.fetch", fetch)
    assert fetched(url, "sha256:0") is None
    assert asked == []
