"""Which Pythons are found on a machine, and which of them a project gets."""

import sys
from pathlib import Path

import pytest

from fallback_plugins.pypi import pythons

MINE = sys.version_info.minor


def program(path: Path, content: bytes = b"\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, with nothing on the path."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def test_ours_is_first_and_the_nearest_others_follow(home: Path) -> None:
    kept = home / ".pyenv" / "versions"
    near = program(kept / "a" / "bin" / f"python3.{MINE - 1}")
    far = program(home / ".local/share/uv/python/b/bin" / f"python3.{MINE - 2}")
    later = program(home / "bin" / f"python3.{MINE + 1}")
    program(kept / "a" / "bin" / f"python3.{MINE - 1}-config")
    program(kept / "c" / "bin" / f"python3.{MINE}")
    program(kept / "d" / "bin" / f"python3.{pythons.OLDEST_MINOR - 1}")
    assert pythons.installed(home) == (pythons.ours(), near, later, far)


def test_a_script_on_the_path_may_lead_to_no_python(home: Path) -> None:
    program(home / "bin" / f"python3.{MINE - 1}", b"#!/bin/sh\n")
    assert pythons.installed(home) == (pythons.ours(),)


def paths(*minors: int) -> tuple[Path, ...]:
    return tuple(Path(f"/bin/python3.{minor}") for minor in minors)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("", (11, 10, 12, 9)),
        (">=3.8", (11, 10, 12, 9)),
        ("<3.11", (10, 9, 8)),
        (">=3.12", (12,)),
        ("^3.8,<3.10", (9, 8)),
        (">=3.10.2,<3.11", (10,)),
        ("~3.9 || ^3.12", (12, 9)),
        ("<3", (11, 10, 12, 9)),
        ("what?", (11, 10, 12, 9)),
    ],
)
def test_a_project_gets_one_that_it_asks_for(asked: str, expected: tuple[int, ...]) -> None:
    every = paths(11, 10, 12, 9, 8)
    assert pythons.suited(asked, lambda: every) == paths(*expected)


def test_only_another_pythons_own_folders_are_shown_to_a_sandbox(tmp_path: Path) -> None:
    python = program(tmp_path / "there" / "bin" / "python3.9")
    (tmp_path / "there" / "lib").mkdir()
    (tmp_path / "there" / "secrets").mkdir()
    made = tmp_path / "made" / "bin"
    made.mkdir(parents=True)
    (made / "python").symlink_to(python)
    assert pythons.readable(made.parent) == [python.parent, tmp_path / "there" / "lib"]
    (made / "python").unlink()
    (made / "python").symlink_to(pythons.ours())
    assert pythons.readable(made.parent) == []
