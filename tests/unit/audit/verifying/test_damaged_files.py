"""What damage and whoever has the file can make of a store: a finding or a refusal, never a traceback."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from fallback_audit.canonical import leaf_digest
from fallback_audit.errors import AuditIntegrityError
from fallback_audit.retention.seal import choose
from fallback_audit.statements import SEGMENT_DOMAIN, open_segment, sign_statement
from fallback_audit.stores.sqlite import open_readonly
from tests.kinds import OfKind
from tests.unit.audit import trails as t
from tests.unit.audit.exporting.test_export import export
from tests.unit.audit.signed import TrailFolder
from tests.unit.audit.tamper import behind_the_triggers, build, fixed_clock, report

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build(tmp_path / "audit.db", t.verified_on_retry(), t.replayed())


def without_types(path: Path, table: str, change: str) -> None:
    """A table that takes any value: only whoever may write the file can make it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        found = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
        safeguards = connection.execute(found, (table,)).fetchall()
        for name, _ in safeguards:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("PRAGMA writable_schema = ON")
        loose = "replace(replace(sql, ' STRICT', ''), 'NOT NULL', '')"
        connection.execute(f"UPDATE sqlite_master SET sql = {loose} WHERE name = ?", (table,))
        connection.execute("PRAGMA writable_schema = RESET")
        connection.execute(change)
        for _, sql in safeguards:
            connection.execute(sql)


@pytest.mark.parametrize("value", ["NULL", "7", "1.5", "'text'", "CAST(x'ff' AS TEXT)"])
@pytest.mark.parametrize(
    ("table", "column"),
    [("audit_header", "header"), ("audit_header", "leaf"), ("audit_payload", "payload")],
)
def test_a_value_of_another_type_is_a_finding(
    path: Path, table: str, column: str, value: str
) -> None:
    without_types(path, table, f"UPDATE {table} SET {column} = {value} WHERE seq = 4")
    found = report(path)
    assert found.integrity_problem_count > 1, "more than the table's own definition"
    with (
        closing(open_readonly(path)) as reader,
        pytest.raises(AuditIntegrityError),
    ):
        list(reader.events())


@pytest.mark.parametrize("value", ["NULL", "7", "1.5", "'text'"])
def test_a_statement_of_another_type_is_a_finding(path: Path, value: str) -> None:
    without_types(path, "audit_segment", f"INSERT INTO audit_segment VALUES (1, 1, 3, {value})")
    assert "sealed segment 1" in " ".join(one.reason for one in report(path).integrity_problems)


def root_page(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        return int(connection.execute(sql, (name,)).fetchone()[0])


def test_a_message_of_sqlite_that_is_no_text_is_no_crash(path: Path) -> None:
    """SQLite quotes a damaged schema in its message, whatever its bytes are."""

    content = path.read_bytes()
    assert content.count(b"indexaudit_trail") == 1
    path.write_bytes(content.replace(b"indexaudit_trail", b"index\xffudit_trail"))
    with pytest.raises(AuditIntegrityError, check=OfKind("damaged")):
        report(path)


def test_a_bit_of_the_index_of_fixes_is_found_by_a_full_run_only(tmp_path: Path) -> None:
    """Whoever asks for one fix through it gets a part; an incremental run does not read it to its end."""
    trail = TrailFolder(tmp_path)
    trail.append("fix-0", t.verified_on_retry())
    trail.append("fix-1", t.recipe_verified())
    state = trail.verify().state
    assert state is not None

    content = bytearray(trail.path.read_bytes())
    page = PAGE * (root_page(trail.path, "audit_trail") - 1)
    pointer = page + 8 + 2 * 5  # https://sqlite.org/fileformat.html#b_tree_pages: of the sixth cell
    cell = page + int.from_bytes(content[pointer : pointer + 2], "big")
    content[content.index(b"fix-0", cell) + 4] ^= 4  # fix-4
    trail.path.write_bytes(content)
    with closing(open_readonly(trail.path)) as reader:
        assert len(list(reader.events("fix-0"))) < len(t.verified_on_retry())
    assert "audit_trail" in " ".join(one.reason for one in trail.verify().integrity_problems)
    assert trail.verify(since=state).ok


#: Deeper than Python's own reader of JSON goes.
DEEP = b'{"a":' * 100_000


def test_a_header_nested_without_end_is_a_finding(path: Path) -> None:
    leaf, payload = leaf_digest(DEEP), "SELECT payload FROM audit_payload WHERE seq = 1"
    with behind_the_triggers(path) as connection:
        (last,) = connection.execute("SELECT max(seq) FROM audit_header").fetchone()
        connection.execute("UPDATE audit_header SET header = ? WHERE seq = 3", (DEEP,))
        connection.execute(f"INSERT INTO audit_payload SELECT ?, ({payload})", (last + 1,))
        connection.execute(
            "INSERT INTO audit_header (seq, header, leaf) VALUES (?, ?, ?)", (last + 1, DEEP, leaf)
        )
    assert {problem.seq for problem in report(path).integrity_problems} >= {3, last + 1}


@pytest.mark.parametrize("seq", [-1, 0, 1_000])
def test_a_payload_without_a_header_is_a_finding_whatever_its_number(path: Path, seq: int) -> None:
    with behind_the_triggers(path) as connection:
        connection.execute("INSERT INTO audit_payload VALUES (?, x'00')", (seq,))
    (problem,) = report(path).integrity_problems
    assert (problem.seq, problem.kind) == (seq, "no_header")


def test_a_trigger_can_not_hide_behind_the_name_of_an_index(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (index,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'audit_trail'"
        ).fetchone()
        connection.execute("DROP INDEX audit_trail")
        connection.execute(
            "CREATE TRIGGER audit_trail AFTER INSERT ON audit_header BEGIN SELECT 1; END"
        )
        connection.execute(index)
    (problem,) = report(path).integrity_problems
    assert problem.reason == "audit_trail is a trigger that the store did not make"


@pytest.mark.parametrize("header", [b"{}", b"[", b"7", DEEP])
def test_a_header_that_is_none_of_ours_is_not_sealed(path: Path, header: bytes) -> None:
    with behind_the_triggers(path) as connection:
        connection.execute("UPDATE audit_header SET header = ? WHERE seq = 3", (header,))
    with (
        closing(open_readonly(path)) as reader,
        pytest.raises(AuditIntegrityError, check=OfKind("bad_header"), match=r"event 3\b"),
    ):
        choose(reader, {}, base=0, before=fixed_clock() + timedelta(days=1))


def test_a_statement_that_is_no_text_is_not_exported(tmp_path: Path) -> None:
    trail = TrailFolder(tmp_path)
    trail.append("fix-0", t.verified_on_retry())
    statement = trail.seal(3)
    with behind_the_triggers(trail.path) as connection:
        connection.execute("INSERT INTO audit_segment SELECT 2, 1, 3, statement FROM audit_segment")
        connection.execute("UPDATE audit_segment SET statement = x'ff' WHERE number = 1")
    with pytest.raises(AuditIntegrityError, check=OfKind("not_utf8")):
        export(trail)
    assert not trail.verify().ok
    assert statement.last_seq == 3


@pytest.mark.parametrize("file", ["../1.jsonl", "/etc/passwd", "a/b", ".hidden", ""])
def test_a_sealed_file_is_in_its_folder(tmp_path: Path, file: str) -> None:
    trail = TrailFolder(tmp_path)
    trail.append("fix-0", t.verified_on_retry())
    reported = {**trail.seal(3).model_dump(mode="json"), "file": file}
    signed = sign_statement(SEGMENT_DOMAIN, reported, trail.keyring.signers())
    with pytest.raises(AuditIntegrityError, check=OfKind("malformed")):
        open_segment(signed, trail.keyring.verifiers())
