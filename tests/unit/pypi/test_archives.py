"""Archives that somebody made to be odd are not read, and cost little."""

import gzip
import hashlib
import io
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fallback_plugins.pypi import archives
from fallback_plugins.pypi.archives import MemberTooLargeError, fetched, member_text
from fallback_tier.errors import ToolFailedError
from tests.fakes.endless import serving
from tests.kinds import OfKind

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
    with pytest.raises(MemberTooLargeError, match=r" 5 bytes, .* 4 "):
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


@contextmanager
def in_little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5_000_000


def test_what_is_too_large_is_not_read() -> None:
    """A small archive may unpack to what fills the memory."""
    content = gzip.compress(tarred({NAME: "#" * 30_000_000}), compresslevel=1)
    with in_little_memory(), pytest.raises(MemberTooLargeError):
        text_in(content)


def test_nor_is_what_says_that_it_is_small() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(NAME, "#" * 30_000_000)
    content = bytearray(packed.getvalue())
    for sign, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", content, content.index(sign) + place, 100)
    with in_little_memory():
        assert text_in(bytes(content)) is None


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


def records(kind: bytes, data: bytes) -> bytes:
    """An extended header of a tar archive: for the next file (``x``), or for all that follow (``g``)."""
    header = tarfile.TarInfo("it")
    header.type, header.size = kind, len(data)
    return header.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def many_records(size: int) -> bytes:
    return b"".join(b"%d %05x=\n" % (10, number) for number in range(size // 10))


def blocks_of_gaps(count: int) -> bytes:
    """A sparse file of GNU tar's first kind, with so many blocks that say where it has nothing."""
    header = bytearray(tarfile.TarInfo("it").tobuf(tarfile.GNU_FORMAT))
    header[156:157], header[482] = b"S", 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + (b"%011o\0" % 1 * 42 + b"\1" + bytes(7)) * count


GAPS = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"


@pytest.mark.parametrize(
    "before",
    [
        lambda: records(b"g", many_records(700_000)) + tarred({"a": ""})[:512] * 100,
        lambda: records(b"g", b"1" * 900_000) * 20,
        lambda: records(b"x", b"1" * 900_000) * 20,
        lambda: blocks_of_gaps(10_000),
        lambda: records(b"x", GAPS) + tarred({"a": ""})[:512] + b"9\n" + b"1" * 6_000_000,
        lambda: records(b"x", GAPS) + tarred({"a": ""})[:512] + b"9" * 9 + b"\n" + b"1\n" * 10**6,
    ],
    ids=["for all", "digits for all", "digits", "gaps", "a gap without end", "many gaps"],
)
def test_what_headers_say_is_not_kept(before: Callable[[], bytes]) -> None:
    """Nor taken for what it costs hours to read; the largest is 20 KB when it is packed."""
    content = before() + tarred({NAME: "found"})
    with in_little_memory():
        text_in(content)


def test_long_headers_are_read_up_to_so_much_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    one = records(b"g", b"1" * 100_000)
    assert text_in(one * 90 + tarred({NAME: "found"})) == "found"
    assert text_in(one * 110 + tarred({NAME: "found"})) is None


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_every_form_of_tar_is_read(form: int) -> None:
    name = f"it-1.0/{'d' * 60}/\u00e9/{'n' * 60}"
    name += "" if form == tarfile.USTAR_FORMAT else "n" * 200
    packed = io.BytesIO()
    comment = {"comment": "0" * 40, "path": "of another"}
    with tarfile.open(fileobj=packed, mode="w", format=form, pax_headers=comment) as archive:
        folder, link, file = map(tarfile.TarInfo, ("it-1.0", f"{name}-link", name))
        folder.type, link.type, link.linkname = tarfile.DIRTYPE, tarfile.SYMTYPE, "other"
        other = tarfile.TarInfo("other")
        other.size, file.size = 1_000, 5
        archive.addfile(folder)
        archive.addfile(link)
        archive.addfile(other, io.BytesIO(b"#" * 1_000))
        archive.addfile(file, io.BytesIO(b"found"))
    for content in (packed.getvalue(), gzip.compress(packed.getvalue())):
        assert member_text(content, lambda found: found == name, 5) == "found"
        assert member_text(content, lambda found: found.endswith("-link"), 5) is None


def test_a_size_that_an_extended_header_says_counts() -> None:
    larger = records(b"x", b"12 size=600\n") + tarred({"a": ""})[:512] + bytes(1024)
    assert text_in(larger + tarred({NAME: "found"})) == "found"
    with pytest.raises(MemberTooLargeError, match="600 bytes"):
        text_in(records(b"x", b"12 size=600\n") + tarred({NAME: "found"}))


@pytest.mark.parametrize(
    "data", [b"0 path=a\n", b"7 size=\n", b"9 size=-1\n", b"x", b"99 path=a\n"]
)
def test_a_record_that_is_none(data: bytes) -> None:
    found = "found" if data == b"x" else None
    assert text_in(records(b"x", data) + tarred({NAME: "found"})) == found


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
        "https://corp.invalid:nothing/it.tar.gz",
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


def answered(status: str) -> bytes:
    return f"HTTP/1.1 {status} It\r\ncontent-length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("status", ["401", "403", "404", "410"])
def test_an_archive_that_the_registry_does_not_give(status: str) -> None:
    with serving(answered(status)) as server:
        assert fetched(f"{server.url}/it.tar.gz", "sha256:0") is None


@pytest.mark.parametrize(
    "head",
    [
        *map(answered, ("407", "408", "429", "500", "502", "503")),
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi",
    ],
    ids=["407", "408", "429", "500", "502", "503", "hangs up", "breaks off"],
)
def test_a_registry_that_does_not_answer_now_says_nothing_of_an_archive(head: bytes) -> None:
    with (
        serving(head) as server,
        pytest.raises(ToolFailedError, check=OfKind("no_answer"), match=r"127\.0\.0\.1") as caught,
    ):
        fetched(f"{server.url}/it.tar.gz", "sha256:0")
    assert type(caught.value) is ToolFailedError


def test_so_does_one_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FETCH_TIMEOUT_S", 0.3)
    with (
        serving(b"HTTP/1.1 200 OK\r\n\r\n", b"x", drip=True) as server,
        pytest.raises(ToolFailedError, check=OfKind("no_answer")),
    ):
        fetched(f"{server.url}/it.tar.gz", "sha256:0")


def test_nor_one_that_is_not_there() -> None:
    with pytest.raises(ToolFailedError, check=OfKind("no_answer"), match="Connection refused"):
        fetched("http://127.0.0.1:1/it.tar.gz", "sha256:0")


def test_an_archive_of_more_bytes_than_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_ARCHIVE_BYTES", 4)
    with serving(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12345") as server:
        assert fetched(f"{server.url}/it.tar.gz", "sha256:0") is None


def leading_to(url: str) -> bytes:
    return f"HTTP/1.1 302 It\r\nlocation: {url}/it.tar.gz\r\ncontent-length: 0\r\n\r\n".encode()


HERE = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfound"
FOUND = f"sha256:{hashlib.sha256(b'found').hexdigest()}"


def test_no_address_on_the_way_is_asked_in_the_clear() -> None:
    with (
        serving(HERE) as there,
        serving(leading_to(there.url.replace("127.0.0.1", "localhost"))) as elsewhere,
        serving(leading_to(there.url)) as here,
    ):
        assert fetched(f"{elsewhere.url}/it.tar.gz", FOUND) is None
        assert there.connections == 0
        assert fetched(f"{here.url}/it.tar.gz", FOUND) == b"found"


def test_a_registry_elsewhere_does_not_lead_to_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over TLS it stays: what listens here is nobody's archive."""
    asked: list[bool] = []

    def fetch(url: str, *, allowed: Callable[[str], bool], **_: object) -> bytes:
        hops = (url, "https://b.invalid/", "http://127.0.0.1/", "http://b.invalid/", "file:///a")
        asked.extend(map(allowed, hops))
        return b"found"

    monkeypatch.setattr("fallback_tier.network.fetch", fetch)
    assert fetched("https://corp.invalid/it.tar.gz", FOUND) == b"found"
    assert asked == [True, True, False, False, False]
