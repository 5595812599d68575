"""Temporary folders of a run are in memory where that can hold them, and elsewhere nothing changes."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.memory import temporary_in_memory


@pytest.fixture(autouse=True)
def _unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a terminal without TMPDIR; what a test changes is undone."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    monkeypatch.setenv("TMPDIR", "set, so that it is restored")
    monkeypatch.delenv("TMPDIR")


def test_programs_and_this_process_make_their_temporary_files_there(tmp_path: Path) -> None:
    folder = temporary_in_memory(tmp_path, room_bytes=1)
    assert folder is not None
    assert folder.parent == tmp_path
    assert os.environ["TMPDIR"] == str(folder)
    assert folder.stat().st_mode & 0o7777 == 0o1777
    with tempfile.NamedTemporaryFile() as file:
        assert Path(file.name).parent == folder


def test_a_chosen_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/chosen")
    before = tempfile.gettempdir()
    assert temporary_in_memory(tmp_path, room_bytes=1) is None
    assert (os.environ["TMPDIR"], tempfile.gettempdir()) == ("/chosen", before)


def test_without_programs_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = os.statvfs(tmp_path)
    changed = os.statvfs_result((*facts[:8], os.ST_NOEXEC, facts[9]))
    monkeypatch.setattr(os, "statvfs", lambda _: changed)
    assert temporary_in_memory(tmp_path, room_bytes=1) is None
    assert "TMPDIR" not in os.environ


@pytest.mark.parametrize("folder", ["", "absent"])
def test_without_room_or_without_memory_nothing_changes(tmp_path: Path, folder: str) -> None:
    assert temporary_in_memory(tmp_path / folder, room_bytes=1 << 62) is None
    assert list(tmp_path.iterdir()) == []
    assert "TMPDIR" not in os.environ


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    (left := tmp_path / "ft-999999999-abc").mkdir()
    (used := tmp_path / f"ft-{os.getppid()}-abc").mkdir()
    assert temporary_in_memory(tmp_path, room_bytes=1) is not None
    assert not left.exists()
    assert used.exists()
