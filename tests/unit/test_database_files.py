"""The audit hook catches each way in which Python code opens a database file, and nothing of SQLite's."""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.workers.sqlite_file import SqliteFile
from tests.database_files import DatabaseOpenedError, deleted_files, watched
from tests.e2e.command import run, run_with_workers


def hashed(path: Path) -> None:
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")


OPENING: tuple[Callable[[Path], object], ...] = (
    lambda path: path.open("r+b"),
    lambda path: path.read_bytes(),
    lambda path: os.open(path, os.O_RDONLY),
    lambda path: os.open(os.fsencode(path), os.O_PATH),
    lambda path: shutil.copy(path, path.with_name("copy")),
    lambda path: shutil.copytree(path.parent, path.parent.parent / "copied"),
    hashed,
)


@pytest.mark.parametrize("opening", OPENING)
@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_the_hook_catches_it(tmp_path: Path, opening: Callable[[Path], object], end: str) -> None:
    path = tmp_path / "state" / f"audit.db{end}"
    path.parent.mkdir()
    path.write_bytes(b"")
    with watched(), pytest.raises(DatabaseOpenedError):
        opening(path)
    assert path.read_bytes() == b""  # not watched any more


def test_stores_open_nothing_but_by_sqlite(tmp_path: Path) -> None:
    with watched():
        SqliteAuditStore(tmp_path / "audit.db").close()
        with SqliteFile(tmp_path / "service.db", ("CREATE TABLE a (b TEXT) STRICT",), "a test"):
            pass
        with closing(sqlite3.connect(tmp_path / "audit.db")) as db:
            assert db.execute("SELECT count(*) FROM audit_header").fetchone() == (0,)


@pytest.mark.parametrize("command", [run, run_with_workers])
def test_commands_and_services_run_under_it(tmp_path: Path, command: Callable[..., object]) -> None:
    """A file that a person names by mistake is opened, of course: that shows that the hook is there."""
    (tmp_path / "named.db").write_text("")
    ended = command("audit", "verify", "--checkpoint", tmp_path / "named.db", cwd=tmp_path)
    assert "Python code opened a database file" in str(ended)


def test_one_copy_of_sqlite_is_installed() -> None:
    """Two in a process don't know of each other's locks: what one closes takes the other's away."""
    lock = (Path(__file__).parents[2] / "requirements.lock").read_text()
    installed = {line.partition("==")[0].lower() for line in lock.splitlines() if "==" in line}
    copies = {"apsw", "libsql", "pysqlite3", "pysqlite3-binary", "sqlcipher3", "sqlean-py"}
    assert "sqlite-utils" in installed
    assert not installed & copies


def test_deleted_files_are_found(tmp_path: Path) -> None:
    path = tmp_path / "audit.db-wal"
    with path.open("wb"):
        path.unlink()
        assert deleted_files(os.getpid(), tmp_path) == [f"{path} (deleted)"]
    assert deleted_files(os.getpid(), tmp_path) == []
