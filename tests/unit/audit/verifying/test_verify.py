"""Verification: every single change to a real store is caught, the rest is said plainly."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_audit.canonical import leaf_digest
from fallback_audit.chain import StoredRow
from fallback_audit.event_types import StartedOn
from fallback_audit.events import SCHEMA_VERSION
from fallback_audit.evidence.checking import check_evidence, kept_digests, this_machine
from fallback_audit.evidence.store import ENCRYPTED, FileEvidenceStore
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.verifying.report import MAX_LISTED
from fallback_audit.verifying.verify import verify
from fallback_audit.verifying.walk import Walk
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.tamper import behind_the_triggers, build, report, tampered

Change = Callable[[sqlite3.Connection], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build(tmp_path / "audit.db", t.verified_on_retry(), t.replayed(), t.cap_reached())


EVENTS = sum(map(len, (t.verified_on_retry(), t.replayed(), t.cap_reached())))


def test_an_intact_store(path: Path) -> None:
    found = report(path)
    assert found.ok
    assert (found.events, found.gate_transitions, found.uncovered_events) == (EVENTS, 3, EVENTS)
    assert found.first_bad is None
    assert "Checkpoints were not looked at" in found.notes[0]
    with closing(open_readonly(path)) as reader:
        assert list(reader.events())[-1].leaf == found.tip


def test_every_valid_trail_side_by_side(tmp_path: Path) -> None:
    path = build(tmp_path / "audit.db", *(valid() for valid in t.VALID))
    found = report(path)
    assert found.ok, found
    assert [fix.fix_id for fix in found.open_fixes] == [f"fix-{len(t.VALID)}"]


def test_an_intact_store_is_judged_by_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row by row would find the same, some three times slower: the versions' digits count."""

    def judge(self: Walk, row: StoredRow) -> None:
        raise AssertionError(f"row {row.seq} by itself")

    monkeypatch.setattr(Walk, "_judge", judge)
    assert report(build(tmp_path / "audit.db", *([t.recipe_verified()] * 3))).ok


def test_an_empty_store(tmp_path: Path) -> None:
    found = report(build(tmp_path / "audit.db"))
    assert (found.ok, found.events) == (True, 0)


def test_an_open_fix_is_reported_and_not_bad(tmp_path: Path) -> None:
    found = report(build(tmp_path / "audit.db", t.recipe_verified()[:-1]))
    assert found.ok
    assert found.open_fix_count == 1
    assert found.open_fixes[0].last_kind == "GateJudged"


def test_verification_while_appending(tmp_path: Path) -> None:
    with closing(SqliteAuditStore(tmp_path / "audit.db")) as store:
        for event in t.recipe_verified():
            store.append(t.SCOPE, event)
            assert verify(store, checkpoints=None).ok


def execute(sql: str, *parameters: object) -> Change:
    return lambda connection: connection.execute(sql, parameters)


def flip(table: str, column: str, seq: int, position: int) -> Change:
    def change(connection: sqlite3.Connection) -> None:
        (cell,) = connection.execute(
            f"SELECT CAST({column} AS BLOB) FROM {table} WHERE seq = ?", (seq,)
        ).fetchone()
        altered = bytearray(cell)
        altered[position % len(altered)] ^= 1
        value = bytes(altered).decode("latin-1") if column == "leaf" else bytes(altered)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE seq = ?", (value, seq))

    return change


def swap(table: str, first: int, second: int) -> Change:
    def change(connection: sqlite3.Connection) -> None:
        for old, new in ((first, -1), (second, first), (-1, second)):
            connection.execute(f"UPDATE {table} SET seq = ? WHERE seq = ?", (new, old))

    return change


def both(change: Callable[..., Change], *arguments: object) -> Change:
    def changes(connection: sqlite3.Connection) -> None:
        for table in ("audit_header", "audit_payload"):
            change(table, *arguments)(connection)

    return changes


def copy(table: str, seq: int, to: int) -> Change:
    columns = "header, leaf" if table == "audit_header" else "payload"
    return execute(
        f"INSERT INTO {table} (seq, {columns}) SELECT ?, {columns} FROM {table} WHERE seq = ?",
        to,
        seq,
    )


def delete(table: str, seq: int) -> Change:
    return execute(f"DELETE FROM {table} WHERE seq = ?", seq)


def rechain_one(connection: sqlite3.Connection) -> None:
    """An attacker who knows the format: header and leaf agree, the next link does not."""
    (header,) = connection.execute("SELECT header FROM audit_header WHERE seq = 5").fetchone()
    forged = header.replace(b'"fix-1"', b'"fix-9"')
    connection.execute(
        "UPDATE audit_header SET header = ?, leaf = ? WHERE seq = 5", (forged, leaf_digest(forged))
    )


@pytest.mark.parametrize(
    ("change", "seq", "kind"),
    [
        (flip("audit_payload", "payload", 7, 20), 7, "payload_altered"),
        (flip("audit_header", "header", 7, 20), 7, "header_altered"),
        (flip("audit_header", "leaf", EVENTS, 3), EVENTS, "header_altered"),
        (both(delete, 7), 8, "events_missing"),
        (delete("audit_payload", 7), 7, "no_payload"),
        (delete("audit_header", 7), 7, "no_header"),
        (both(swap, 7, 8), 7, "misnumbered"),
        (swap("audit_payload", 7, 8), 7, "payload_altered"),
        (both(copy, 7, EVENTS + 1), EVENTS + 1, "misnumbered"),
        (copy("audit_payload", 7, EVENTS + 1), EVENTS + 1, "no_header"),
        (rechain_one, 6, "rechained"),
    ],
)
def test_a_change_is_located(path: Path, change: Change, seq: int, kind: str) -> None:
    found = tampered(path, change)
    assert not found.ok
    assert found.first_bad is not None
    assert found.first_bad.seq == seq
    assert kind in {problem.kind for problem in found.integrity_problems}


tables = st.sampled_from(["audit_header", "audit_payload"])
sequences = st.integers(1, EVENTS)
flips = st.sampled_from(
    [("audit_header", "header"), ("audit_header", "leaf"), ("audit_payload", "payload")]
)
# A deletion of the last event from both tables is the one change a chain can't show (no checkpoints).
inner = st.integers(1, EVENTS - 1)
mutations = st.one_of(
    st.builds(
        lambda cell, seq, at: flip(cell[0], cell[1], seq, at),
        flips,
        sequences,
        st.integers(0, 5_000),
    ),
    st.builds(delete, tables, sequences),
    st.builds(lambda seq: both(delete, seq), inner),
    st.builds(lambda table, seq: copy(table, seq, EVENTS + 1), tables, sequences),
    st.builds(lambda seq: both(copy, seq, EVENTS + 1), sequences),
    st.tuples(sequences, sequences)
    .filter(lambda pair: pair[0] != pair[1])
    .flatmap(lambda pair: st.sampled_from([both(swap, *pair), swap("audit_header", *pair)])),
)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(change=mutations)
def test_any_single_mutation_is_caught(path: Path, change: Change) -> None:
    pristine = path.read_bytes()
    try:
        found = tampered(path, change)
        assert found.integrity_problem_count
        assert found.first_bad is not None
    finally:
        path.write_bytes(pristine)
    assert report(path).ok


def test_truncation_is_not_detectable_and_the_report_says_so(path: Path) -> None:
    def truncate(connection: sqlite3.Connection) -> None:
        for table in ("audit_header", "audit_payload"):
            connection.execute(f"DELETE FROM {table} WHERE seq > ?", (EVENTS - 1,))

    tip = report(path).tip
    found = tampered(path, truncate)
    assert found.integrity_problem_count == 0
    assert found.uncovered_events == EVENTS - 1
    assert "removed from the end" in found.notes[0]
    assert found.tip != tip


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DROP TRIGGER audit_header_no_update", "audit_header_no_update is missing"),
        ("DROP INDEX audit_trail", "audit_trail is missing"),
        (
            "CREATE TRIGGER sly AFTER INSERT ON audit_header BEGIN SELECT 1; END",
            "sly is a trigger that the store did not make",
        ),
        ("DROP TABLE audit_payload", "audit_payload is missing"),
    ],
)
def test_missing_safeguards_are_reported(path: Path, sql: str, words: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql)
    found = report(path)
    assert not found.ok
    assert words in {problem.reason for problem in found.integrity_problems}


def test_damaged_pages_are_a_finding(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT rootpage FROM sqlite_master WHERE name = 'audit_payload'"
        start = 4096 * (connection.execute(sql).fetchone()[0] - 1)
    content = bytearray(path.read_bytes())
    content[start : start + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    found = report(path)
    assert not found.ok
    assert found.integrity_problems[-1].kind == "damaged"


def test_findings_are_counted_and_listed_up_to_a_bound(tmp_path: Path) -> None:
    path = build(tmp_path / "audit.db", *(t.cap_reached() for _ in range(4)))
    found = tampered(path, execute("UPDATE audit_payload SET payload = x'7b7d'"))
    assert found.integrity_problem_count == 4 * len(t.cap_reached()) > MAX_LISTED
    assert len(found.integrity_problems) == MAX_LISTED


def test_contract_violations_are_found_in_an_intact_chain(tmp_path: Path) -> None:
    events = [e for e in t.verified_on_retry() if e.kind != "RagSkippedOnRetry"]
    found = report(build(tmp_path / "audit.db", t.recipe_verified(), events))
    assert found.integrity_problem_count == 0
    assert {violation.rule for violation in found.contract_violations} == {"rag-skip-recorded"}
    assert found.first_bad is not None
    assert found.first_bad.fix_id == "fix-2"
    assert not found.ok


#: Of a program newer than ours.
LATER = SCHEMA_VERSION + 1


def test_an_event_of_the_future_is_named(path: Path) -> None:
    """Written and chained by a newer version: intact, but not readable by this one."""

    def future(connection: sqlite3.Connection) -> None:
        (header,) = connection.execute(
            "SELECT header FROM audit_header WHERE seq = ?", (EVENTS,)
        ).fetchone()
        from fallback_audit.canonical import payload_digest

        payload = b'{"kind":"Prophecy"}'
        head, _, tail = header.partition(b'"payload_sha256":"')
        header = head + b'"payload_sha256":"' + payload_digest(payload).encode() + tail[64:]
        header = header.replace(
            b'"schema_version":%d' % SCHEMA_VERSION, b'"schema_version":%d' % LATER
        )
        connection.execute(
            "UPDATE audit_header SET header = ?, leaf = ? WHERE seq = ?",
            (header, leaf_digest(header), EVENTS),
        )
        connection.execute("UPDATE audit_payload SET payload = ? WHERE seq = ?", (payload, EVENTS))

    found = tampered(path, future)
    (problem,) = found.integrity_problems
    assert (problem.seq, problem.kind) == (EVENTS, "newer_schema")
    assert str(LATER) in problem.reason


# --- Evidence -------------------------------------------------------------------------------------


@pytest.fixture
def evidence(tmp_path: Path) -> FileEvidenceStore:
    store = FileEvidenceStore(tmp_path / "evidence")
    for content in ("patch 1", "patch 2", "summary 1", "log"):
        store.put(content.encode())
    return store


@pytest.fixture
def with_evidence(tmp_path: Path) -> Path:
    events = t.verified_on_retry()
    place = next(i for i, event in enumerate(events) if event.kind == "GateJudged")
    events[place] = t.judged(1, "applies", log="log")
    return build(tmp_path / "audit.db", events)


def test_evidence_is_checked(with_evidence: Path, evidence: FileEvidenceStore) -> None:
    with closing(open_readonly(with_evidence)) as reader:
        found = verify(reader, checkpoints=None, evidence=evidence)
        assert (found.ok, found.evidence_checked) == (True, 4)
        assert verify(reader, checkpoints=None).evidence_checked is None


@pytest.mark.parametrize("content", ["patch 1", "patch 2", "summary 1", "log"])
@pytest.mark.parametrize("altered", [True, False])
def test_missing_and_altered_evidence_is_found(
    with_evidence: Path, evidence: FileEvidenceStore, tmp_path: Path, content: str, altered: bool
) -> None:
    digest = t.digest(content)
    file = tmp_path / "evidence" / digest[:2] / digest[2:]
    if altered:
        file.write_bytes(b"something else")
    else:
        file.unlink()
    with closing(open_readonly(with_evidence)) as reader:
        found = verify(reader, checkpoints=None, evidence=evidence)
    assert not found.ok
    assert [
        digest in problem.reason or digest[2:] in problem.reason
        for problem in found.evidence_problems
    ] == [True]
    assert found.evidence_problems[0].kind == ("altered" if altered else "missing")


@pytest.mark.parametrize(
    ("machine", "store", "is_elsewhere"),
    [
        ("another", "another", True),
        ("another", "this", False),  # the same folder, by another name of the machine
        (None, "another", False),  # a store of this machine that was replaced
        ("another", None, False),  # of before schema version 13
    ],
)
def test_evidence_of_another_machine_is_not_called_removed(
    evidence: FileEvidenceStore,
    tmp_path: Path,
    machine: str | None,
    store: str | None,
    is_elsewhere: bool,
) -> None:
    stores = {"this": evidence.identify(), "another": "0" * 16, None: None}
    fields = {"machine": machine or this_machine(), "evidence_store": stores[store]}
    events = [
        event.model_copy(update=fields) if isinstance(event, StartedOn) else event
        for event in t.verified_on_retry()
    ]
    evidence.path(t.digest("patch 1")).unlink()
    with closing(open_readonly(build(tmp_path / "audit.db", events))) as reader:
        report = verify(reader, checkpoints=None, evidence=evidence)
        checked = check_evidence(reader, evidence)
    assert (report.ok, checked.ok) == (is_elsewhere, is_elsewhere)
    assert checked.elsewhere == ({"another": 1} if is_elsewhere else {})
    assert any("another machine, another: 1" in note for note in report.notes) is is_elsewhere


def test_altered_evidence_is_not_excused_by_another_machine(
    evidence: FileEvidenceStore, tmp_path: Path
) -> None:
    fields = {"machine": "another", "evidence_store": "0" * 16}
    events = [
        event.model_copy(update=fields) if isinstance(event, StartedOn) else event
        for event in t.verified_on_retry()
    ]
    evidence.path(t.digest("patch 1")).write_bytes(b"something else")
    with closing(open_readonly(build(tmp_path / "audit.db", events))) as reader:
        assert not verify(reader, checkpoints=None, evidence=evidence).ok


PAID = ("whole answer author 1", "whole answer author 2", "whole answer judge 1", "judgement of 2")


@pytest.mark.parametrize("lost", [None, *PAID])
def test_what_a_resume_needs_and_what_a_judge_found_must_be_there(
    tmp_path: Path, lost: str | None
) -> None:
    store = FileEvidenceStore(tmp_path / "kept")
    for content in {"patch 1", *PAID} - {lost}:
        store.put(content.encode())
    with closing(open_readonly(build(tmp_path / "b.db", m.raised_and_verified()))) as reader:
        found = verify(reader, checkpoints=None, evidence=store)
    assert (found.ok, found.evidence_checked) == (lost is None, 5)
    reasons = [problem.reason for problem in found.evidence_problems]
    assert [t.digest(lost or "") in reason for reason in reasons] == ([True] if lost else [])


def test_what_an_earlier_release_encrypted_is_counted_and_damages_nothing(tmp_path: Path) -> None:
    store = FileEvidenceStore(tmp_path / "kept")
    for content in ("patch 1", *PAID):
        store.put(content.encode())
    answers = [t.digest(content) for content in PAID[:2]]
    for answer in answers:
        store.path(answer).write_bytes(ENCRYPTED + b"of another release")
    with closing(open_readonly(build(tmp_path / "b.db", m.raised_and_verified()))) as reader:
        found = verify(reader, checkpoints=None, evidence=store)
        report = check_evidence(reader, store)
    assert (found.ok, found.evidence_checked) == (True, 5)
    assert len([note for note in found.notes if "encrypted" in note and ": 2" in note]) == 1
    assert (report.ok, report.named, report.private, report.locked) == (True, 5, 4, 2)


def test_an_answer_that_only_a_reuse_names_must_be_there_too() -> None:
    (digest,) = kept_digests(m.reused(1))
    assert digest == t.digest("whole answer author 1")


def test_a_raised_budget_opens_the_fix_again(tmp_path: Path) -> None:
    stopped = build(tmp_path / "stopped.db", m.stopped_at_budget())
    assert (report(stopped).ok, report(stopped).open_fix_count) == (True, 0)
    raised = report(build(tmp_path / "raised.db", [*m.stopped_at_budget(), m.raised()]))
    assert (raised.ok, [fix.last_kind for fix in raised.open_fixes]) == (True, ["BudgetRaised"])
    done = report(build(tmp_path / "done.db", m.raised_twice()))
    assert (done.ok, done.open_fix_count) == (True, 0)


def test_the_helper_puts_the_triggers_back(path: Path) -> None:
    """Else every mutation test above would pass by noticing the missing triggers."""
    with behind_the_triggers(path):
        pass
    assert report(path).ok
