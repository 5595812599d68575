"""A file is there whole, or as it was."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fallback_tier.files.whole import keep, kept, write_whole


def test_it_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "kept.json"
    place.write_bytes(b"before")
    write_whole(place, b"after")
    assert place.read_bytes() == b"after"
    assert [*tmp_path.iterdir()] == [place]


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    place = tmp_path / ("n" * 255)
    write_whole(place, b"x")
    assert place.read_bytes() == b"x"


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_does_not_come_to_its_end_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    place = tmp_path / "kept.json"
    place.write_bytes(b"before")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(error):
        write_whole(place, b"after")
    assert place.read_bytes() == b"before"
    assert [*tmp_path.iterdir()] == [place]


def test_a_folder_keeps_its_last_used_files(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    for number in range(3):
        keep(folder / str(number), b"x", most=3)
        os.utime(folder / str(number), ns=(number, number))
    (folder / ".of-a-killed-process.part").write_bytes(b"")
    os.utime(folder / ".of-a-killed-process.part", ns=(0, 0))
    assert kept(folder / "0") == b"x", "a running fix uses it"
    assert (folder / "0").stat().st_mtime_ns == 0, "when it was made"
    keep(folder / "new", b"y", most=3)
    assert {file.name for file in folder.iterdir()} == {"0", "2", "new"}
    assert kept(folder / "1") is None


def test_what_a_folder_keeps_is_bounded_while_several_write(tmp_path: Path) -> None:
    def write(name: str) -> None:
        for number in range(20):
            keep(tmp_path / f"{name}{number}", b"x", most=5)

    with ThreadPoolExecutor(4) as pool:
        assert len([*pool.map(write, "abcd")]) == 4
    keep(tmp_path / "last", b"x", most=5)
    assert len([*tmp_path.iterdir()]) == 5


def test_a_kept_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    keep(tmp_path / "it", b"12345")
    assert kept(tmp_path / "it", 5) == b"12345"
    with pytest.raises(OSError, match=r"4 bytes"):
        kept(tmp_path / "it", 4)
