"""What comes out of a build is untrusted: one regular file of the right name, or nothing."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_plugins.pypi.installing import building
from fallback_plugins.pypi.installing.building import (
    BuildSystem,
    NotBuiltError,
    SourceArchive,
    build_system,
    check_name,
    only_file,
)

IT = SourceArchive("left-pad", "1.0", "left_pad-1.0.tar.gz", "sha256:0", "https://host.invalid/it")
WHEEL = "left_pad-1.0-py3-none-any.whl"


def as_link(folder: Path) -> None:
    (folder.parent / "secret").write_bytes(b"ours")
    (folder / WHEEL).symlink_to(folder.parent / "secret")


def behind_a_linked_folder(folder: Path) -> None:
    there = folder.parent / "elsewhere"
    there.mkdir()
    (there / WHEEL).write_bytes(b"ours")
    folder.rmdir()
    folder.symlink_to(there)


def as_pipe(folder: Path) -> None:
    os.mkfifo(folder / WHEEL)


def as_folder(folder: Path) -> None:
    (folder / WHEEL).mkdir()


def too_large(folder: Path) -> None:
    (folder / WHEEL).write_bytes(b"123456")


def two(folder: Path) -> None:
    (folder / WHEEL).write_bytes(b"1")
    (folder / "other").write_bytes(b"2")


def none(folder: Path) -> None:
    assert folder.is_dir()


@pytest.mark.parametrize(
    "left",
    [as_link, behind_a_linked_folder, as_pipe, as_folder, too_large, two, none],
    ids=lambda left: left.__name__,
)
def test_nothing_else_than_one_file_is_read(tmp_path: Path, left: Callable[[Path], None]) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    left(folder)
    with pytest.raises(NotBuiltError):
        only_file(folder, 5)


def test_one_file_is(tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"12345")
    assert only_file(tmp_path, 5) == (WHEEL, b"12345")


@pytest.mark.parametrize("name", [WHEEL, "Left.Pad-1.0.0-cp311-cp311-linux_x86_64.whl"])
def test_a_wheel_of_the_release(name: str) -> None:
    check_name(name, IT)


@pytest.mark.parametrize(
    "name",
    [
        "right_pad-1.0-py3-none-any.whl",
        "left_pad-1.1-py3-none-any.whl",
        "left_pad-1.0+own-py3-none-any.whl",
        "left_pad-1.0-py3-none-any\n.whl",
        "left_pad-1.0.tar.gz",
        "left_pad.whl",
        "\udcff-1.0-py3-none-any.whl",
    ],
)
def test_a_file_of_another_name_is_none(name: str) -> None:
    with pytest.raises(NotBuiltError):
        check_name(name, IT)


def archive(pyproject: str, place: str = "it-1.0/pyproject.toml") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        info = tarfile.TarInfo(place)
        info.size = len(pyproject)
        tar.addfile(info, io.BytesIO(pyproject.encode()))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "system"),
    [
        pytest.param(archive("", "it-1.0/setup.py"), BuildSystem(), id="of before PEP 518"),
        pytest.param(archive("[tool.x]\n"), BuildSystem(), id="without a word of it"),
        pytest.param(
            archive("[build-system]\nrequires = []\n", "it-1.0/tests/pyproject.toml"),
            BuildSystem(),
            id="another's",
        ),
        pytest.param(
            archive('[build-system]\nrequires = ["cython"]\n'),
            BuildSystem(("cython",)),
            id="without a backend",
        ),
        pytest.param(
            archive(
                '[build-system]\nrequires = []\nbuild-backend = "a.b:c"\nbackend-path = ["."]\n'
            ),
            BuildSystem((), "a.b:c", (".",)),
            id="with its own",
        ),
    ],
)
def test_how_it_is_built(content: bytes, system: BuildSystem) -> None:
    assert build_system(content) == system


@pytest.mark.parametrize(
    "text",
    [
        "[build-system\n",
        '[build-system]\nrequires = []\nbuild-backend = "os; x"\n',
        "#" * (building.MAX_SAYING_BYTES + 1),
        f'[build-system]\nrequires = []\nbuild-backend = "{"a" * 1_001}"\n',
        f"[build-system]\nrequires = []\nbuild-backend = 'a'\nbackend-path = ['.', '{'a' * 1_000}']\n",
        f"[build-system]\nrequires = []\nbuild-backend = 'a'\nbackend-path = {['b'] * 1_000}\n",
    ],
    ids=["no TOML", "no name", "large", "a long backend", "a long path", "a path of many folders"],
)
def test_how_it_is_built_can_not_be_read(text: str) -> None:
    with pytest.raises(NotBuiltError):
        build_system(archive(text))
