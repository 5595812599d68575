"""Release archives, honest and hostile: nothing is written, nothing is larger than its limit."""

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_plugins.solved_examples.sources import release_pair
from fallback_plugins.solved_examples.sources.release_pair import ArchiveError, read_release
from tests.kinds import OfKind

Entries = list[tuple[str, bytes]]
FILES: Entries = [("package/package.json", b"{}"), ("package/lib/a.js", b"1\n")]


def any_file(name: str) -> bool:
    return True


def tgz(
    path: Path, entries: Entries, change: Callable[[tarfile.TarInfo], None] | None = None
) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            if change is not None:
                change(entry)
            tar.addfile(entry, io.BytesIO(content))
    return path


def zipped(path: Path, entries: Entries, *, mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return path


@pytest.mark.parametrize(("make", "name"), [(tgz, "r.tgz"), (tgz, "r.tar.gz"), (zipped, "r.zip")])
def test_the_top_folder_is_taken_off(
    tmp_path: Path, make: Callable[[Path, Entries], Path], name: str
) -> None:
    found = read_release(make(tmp_path / name, FILES), any_file)
    assert found == {"package.json": b"{}", "lib/a.js": b"1\n"}


def test_a_wheel_keeps_its_folders(tmp_path: Path) -> None:
    wheel = zipped(tmp_path / "p-1-py3-none-any.whl", [("p/a.py", b"1"), ("p/b.py", b"2")])
    assert set(read_release(wheel, any_file)) == {"p/a.py", "p/b.py"}


def test_only_what_is_wanted_is_kept(tmp_path: Path) -> None:
    found = read_release(tgz(tmp_path / "r.tgz", FILES), lambda name: name == "lib/a.js")
    assert found == {"lib/a.js": b"1\n"}


def test_a_folder_reads_like_its_archive(tmp_path: Path) -> None:
    (tmp_path / "r" / "lib").mkdir(parents=True)
    (tmp_path / "r" / "lib" / "a.js").write_bytes(b"1\n")
    assert read_release(tmp_path / "r", any_file) == {"lib/a.js": b"1\n"}
    (tmp_path / "r" / "lib" / "b.js").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveError, check=OfKind("link_or_device")):
        read_release(tmp_path / "r", any_file)


@pytest.mark.parametrize("name", ["../a.js", "/a.js", "p/../../a.js", "p\\..\\a.js", "C:/a.js"])
@pytest.mark.parametrize("make", [tgz, zipped])
def test_a_path_that_leads_outside(
    tmp_path: Path, make: Callable[[Path, Entries], Path], name: str
) -> None:
    place = tmp_path / ("r.zip" if make is zipped else "r.tgz")
    with pytest.raises(ArchiveError, check=OfKind("leads_outside")):
        read_release(make(place, [*FILES, (name, b"x")]), any_file)
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices(tmp_path: Path, kind: bytes) -> None:
    def turn(entry: tarfile.TarInfo) -> None:
        entry.type, entry.linkname, entry.size = kind, "/etc/passwd", 0

    with pytest.raises(ArchiveError, check=OfKind("link_or_device")):
        read_release(tgz(tmp_path / "r.tgz", [("package/a.js", b"")], turn), any_file)


def test_a_link_in_a_zip(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, check=OfKind("link_or_device")):
        read_release(zipped(tmp_path / "r.zip", FILES, mode=0o120777), any_file)


@pytest.mark.parametrize("make", [tgz, zipped])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name(tmp_path: Path, make: Callable[[Path, Entries], Path]) -> None:
    place = tmp_path / ("r.zip" if make is zipped else "r.tgz")
    with pytest.raises(ArchiveError, check=OfKind("duplicate_name")):
        read_release(make(place, [*FILES, FILES[1]]), any_file)


@pytest.mark.parametrize("make", [tgz, zipped])
def test_too_many_members(
    tmp_path: Path, make: Callable[[Path, Entries], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_pair, "MAX_MEMBERS", 1)
    place = tmp_path / ("r.zip" if make is zipped else "r.tgz")
    with pytest.raises(ArchiveError, check=OfKind("too_many_members")):
        read_release(make(place, FILES), any_file)


@pytest.mark.parametrize("make", [tgz, zipped])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_bomb_costs_no_more_than_the_limit(
    tmp_path: Path,
    make: Callable[[Path, Entries], Path],
    monkeypatch: pytest.MonkeyPatch,
    wanted: bool,
) -> None:
    """Also where none of it is wanted: unpacking is what costs."""
    monkeypatch.setattr(release_pair, "MAX_UNPACKED_BYTES", 1 << 20)
    place = tmp_path / ("r.zip" if make is zipped else "r.tgz")
    make(place, [*FILES, ("package/bomb.js", bytes(4 << 20))])
    assert place.stat().st_size < 1 << 16
    with pytest.raises(ArchiveError, check=OfKind("unpacked_too_large")):
        read_release(place, lambda name: wanted)


def test_a_zip_that_lies_about_a_size(tmp_path: Path) -> None:
    place = zipped(tmp_path / "r.zip", [("package/a.js", bytes(100_000))])
    data = place.read_bytes().replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    place.write_bytes(data)
    with pytest.raises(ArchiveError, check=OfKind("damaged")):
        read_release(place, any_file)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_SPARSE])
def test_a_member_that_claims_to_end_beyond_any_archive(tmp_path: Path, kind: bytes) -> None:
    """tarfile would count up to there, block by block, after the file's end."""
    entry = tarfile.TarInfo("package/a.js")
    entry.size, entry.type = 1 << 70, kind
    place = tmp_path / "r.tar"
    place.write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + b"x" * 1024)
    with pytest.raises(ArchiveError, check=OfKind("unpacked_too_large")):
        read_release(place, lambda name: False)


def test_headers_too_large_for_memory(tmp_path: Path) -> None:
    """tarfile reads a member's pax records whole, before anyone sees the member."""
    entry = tarfile.TarInfo("package/a.js")
    entry.size, entry.type = 8 << 20, tarfile.XHDTYPE
    place = tmp_path / "r.tgz"
    place.write_bytes(gzip.compress(entry.tobuf(tarfile.GNU_FORMAT) + bytes(entry.size)))
    with pytest.raises(ArchiveError, check=OfKind("headers_too_large")):
        read_release(place, any_file)


def test_headers_and_members_within_the_limits(tmp_path: Path) -> None:
    place, name = tmp_path / "r.tar.gz", f"package/{'long/' * 100}a.js"
    with tarfile.open(place, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for n in range(3):
            entry = tarfile.TarInfo(f"{name}{n}")
            entry.size = release_pair.MAX_HEADER_BYTES
            entry.pax_headers = {"comment": "x" * (release_pair.MAX_HEADER_BYTES // 2)}
            tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    assert [len(content) for content in read_release(place, any_file).values()] == [1 << 20] * 3


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_that_is_damaged_in_another_method(tmp_path: Path, method: int) -> None:
    place = tmp_path / "r.zip"
    with zipfile.ZipFile(place, "w", method) as archive:
        archive.writestr("p/a.js", bytes(9_000))
    packed = bytearray(place.read_bytes())
    packed[45:60] = b"\xff" * 15
    place.write_bytes(packed)
    with pytest.raises(ArchiveError, check=OfKind("damaged", "unreadable")):
        read_release(place, any_file)


def test_a_file_too_large_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_pair, "MAX_FILE_BYTES", 1)
    with pytest.raises(ArchiveError, check=OfKind("files_too_large")):
        read_release(tgz(tmp_path / "r.tgz", FILES), any_file)


def test_an_archive_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_pair, "MAX_ARCHIVE_BYTES", 10)
    with pytest.raises(ArchiveError, check=OfKind("archive_too_large")):
        read_release(tgz(tmp_path / "r.tgz", FILES), any_file)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("r.tgz", b"not gzip", "unreadable"),
        ("r.tgz", gzip.compress(b"not tar" * 200, mtime=0), "damaged"),
        ("r.zip", b"not a zip", "damaged"),
        ("r.rar", b"x", "not_an_archive"),
    ],
)
def test_no_archive(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArchiveError, check=OfKind(kind)):
        read_release(tmp_path / name, any_file)


def test_a_cut_download(tmp_path: Path) -> None:
    place = tgz(tmp_path / "r.tgz", [("package/a.js", os.urandom(50_000))])
    place.write_bytes(place.read_bytes()[:30_000])
    with pytest.raises(ArchiveError, check=OfKind("damaged", "unreadable")):
        read_release(place, any_file)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, check=OfKind("unreadable"), match="No such file"):
        read_release(tmp_path / "r.tgz", any_file)
