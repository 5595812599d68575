"""A folder is removed whatever a command left in it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_tier.files import folders
from fallback_tier.files.folders import make_removable, remove_tree


def nested(place: Path, name: str, depth: int) -> Path:
    """Folders in each other, made from within."""
    place.mkdir()
    at = os.open(place, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.symlink("..", "link", dir_fd=at)
    os.close(at)
    return place


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path: Path) -> Iterator[None]:
    """pytest itself can't remove what is so deep, and ends with it."""
    yield
    subprocess.run(["rm", "-rf", tmp_path], check=True)


@pytest.mark.parametrize(
    ("name", "depth"),
    [("folder", 10), ("n" * 200, 30), ("d", sys.getrecursionlimit() + 100)],
    ids=["usual", "longer than a path", "deeper than a stack"],
)
def test_however_deep_it_is(tmp_path: Path, name: str, depth: int) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    place = nested(tmp_path / "place", name, depth)
    (place / "out").symlink_to(kept)
    remove_tree(place)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    remove_tree(place)


@pytest.mark.parametrize("flat", [False, True])
def test_whatever_its_modes_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flat: bool
) -> None:
    """Both ways, also where root may write everywhere all the same."""
    place = tmp_path / "place"
    (place / "shut" / "below").mkdir(parents=True)
    (place / "shut" / "below" / "file").touch()
    modes: list[int] = []
    rename = os.rename

    def seen(name: str, to: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        modes.append(os.stat(name, dir_fd=src_dir_fd).st_mode & 0o777)
        rename(name, to, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", seen)
    if flat:
        monkeypatch.setattr(folders, "make_removable", _unable)
    (place / "shut" / "below").chmod(0)
    (place / "shut").chmod(0)
    remove_tree(place)
    assert not place.exists()
    assert modes == ([0o700, 0o700] if flat else [])


def _unable(place: Path) -> None:
    raise PermissionError(place)


def test_folders_are_ours_again(tmp_path: Path) -> None:
    (tmp_path / "shut" / "below").mkdir(parents=True)
    (tmp_path / "shut" / "below").chmod(0)
    (tmp_path / "shut").chmod(0)
    make_removable(tmp_path)
    assert (tmp_path / "shut").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "shut" / "below").stat().st_mode & 0o777 == 0o700
