"""Which Pythons are found on a machine, and which of them a project gets."""

import sys
from pathlib import Path

import pytest

from fallback_plugins.pypi.manifests import pythons
from fallback_tier.sandbox.clients import SubprocessClients

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


def test_only_another_pythons_own_parts_are_shown_to_a_sandbox(tmp_path: Path) -> None:
    """Its prefix may be somebody's home folder."""
    python = program(tmp_path / "there" / "bin" / "python3.9")
    library = tmp_path / "there" / "lib"
    (library / "python3.9").mkdir(parents=True)
    shared = program(library / "libpython3.9.so.1.0")
    program(library / "secrets.txt")
    program(tmp_path / "there" / "bin" / "own-tool")
    made = tmp_path / "made" / "bin"
    made.mkdir(parents=True)
    (made / "python").symlink_to(python)
    assert pythons.readable(made.parent) == [python, library / "python3.9", shared]
    (made / "python").unlink()
    (made / "python").symlink_to(pythons.ours())
    assert pythons.readable(made.parent) == []


def test_what_is_kept_behind_a_link_is_found_where_it_is(home: Path) -> None:
    """A sandbox is shown real paths: a link of uv's beside them leads nowhere there."""
    kept = home / ".local/share/uv/python"
    real = program(kept / "z-3.10.13" / "bin" / f"python3.{MINE - 1}")
    (kept / "a-3.10").symlink_to(kept / "z-3.10.13")
    other = kept / "pypy" / "bin"
    program(other / "pypy3.9")
    (other / "python3.9").symlink_to(other / "pypy3.9")
    assert pythons.installed(home) == (pythons.ours(), real)


def test_one_that_can_not_be_read_or_run_is_none(home: Path) -> None:
    program(home / "bin" / f"python3.{MINE - 1}").chmod(0o644)
    (home / "bin" / f"python3.{MINE - 2}").symlink_to(home / "gone")
    assert pythons.installed(home) == (pythons.ours(),)


def test_an_upgrade_in_its_place_is_another_python(tmp_path: Path) -> None:
    python = program(tmp_path / "python3.9")
    before = pythons.identity(python)
    program(python, b"\x7fELF of another release")
    assert pythons.identity(python) != before


def test_they_are_looked_for_once_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    here = paths(MINE, MINE - 1)
    monkeypatch.setattr(pythons, "suited", lambda asked: here if asked else here[:1])
    run = SubprocessClients()
    assert [pythons.suited_once(run, asked) for asked in ("", ">=3")] == [here[:1], here]
    monkeypatch.setattr(pythons, "suited", lambda _: ())
    assert pythons.suited_once(run, ">=3") == here
    assert pythons.suited_once(SubprocessClients(), ">=3") == ()
