"""The service's own file: whole after a failure, and never a newer version's."""

import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from fallback_tier.errors import StateFolderError
from fallback_tier.service.database import VERSION, Database


def test_what_an_exception_leaves_is_undone(tmp_path: Path) -> None:
    with Database(tmp_path / "service.db") as database:
        with suppress(ZeroDivisionError), database.writing() as db:
            db.execute("INSERT INTO people VALUES ('ada', x'00', x'00', 'read')")
            _ = 1 // 0
        with database.reading() as db:
            assert db.execute("SELECT count(*) FROM people").fetchone()[0] == 0


def test_it_is_durable_and_for_its_owner_alone(tmp_path: Path) -> None:
    with Database(tmp_path / "own" / "service.db") as database, database.reading() as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert database.path.stat().st_mode & 0o777 == 0o600
    assert database.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_newer_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    Database(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    with pytest.raises(StateFolderError, match="newer version of the service"):
        Database(path)


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "service.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StateFolderError, match="can't be used: file is not a database"):
        Database(tmp_path / "service.db")
