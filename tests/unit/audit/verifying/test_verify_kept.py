"""What keepers do to a record: redaction and sealing verify; each half of them alone does not."""

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.chain import read_row
from fallback_audit.checkpoints.keyring import Keyring, generate
from fallback_audit.errors import AuditIntegrityError
from fallback_audit.events import AppendFlagged, SegmentRetired
from fallback_audit.ports import MAINTENANCE, Scope
from fallback_audit.statements import TOMBSTONE_DOMAIN, sign_statement
from fallback_audit.stores.sqlite import open_readonly
from tests.kinds import OfKind
from tests.unit.audit import trails as t
from tests.unit.audit.signed import TrailFolder
from tests.unit.audit.tamper import behind_the_triggers


@pytest.fixture
def trail(tmp_path: Path) -> TrailFolder:
    trail = TrailFolder(tmp_path)
    for number in range(2):
        trail.append(f"fix-{number}", t.verified_on_retry())
    return trail


def seq_of(trail: TrailFolder, kind: str) -> int:
    return next(event.seq for event in trail.events() if event.kind == kind)


# --- Redaction ------------------------------------------------------------------------------------


def test_a_redacted_event_verifies_and_still_keeps_its_contract(trail: TrailFolder) -> None:
    seq = seq_of(trail, "AttemptFailed")
    trail.redact(seq, "summary_excerpt")
    found = trail.verify()
    assert found.ok, found
    assert found.redacted_events == 1
    event = next(event for event in trail.events() if event.seq == seq)
    assert event.redacted
    assert event.payload.summary_excerpt == "[redacted]"  # type: ignore[union-attr]
    assert b"tests failed" not in trail.path.read_bytes()


def test_a_reader_without_keys_does_not_believe_a_tombstone(trail: TrailFolder) -> None:
    seq = seq_of(trail, "AttemptFailed")
    trail.redact(seq, "summary_excerpt")
    with closing(open_readonly(trail.path)) as reader, reader.snapshot() as snapshot:
        row = next(snapshot.rows(after=seq - 1))
    with pytest.raises(AuditIntegrityError, check=OfKind("event_altered")):
        read_row(row)
    assert read_row(row, trail.keyring.verifiers()).redacted


def put(trail: TrailFolder, seq: int, payload: bytes) -> None:
    with behind_the_triggers(trail.path) as connection:
        connection.execute("UPDATE audit_payload SET payload = ? WHERE seq = ?", (payload, seq))


def test_a_tombstone_that_no_event_names_is_bad(trail: TrailFolder) -> None:
    seq = seq_of(trail, "AttemptFailed")
    put(trail, seq, trail.redact(seq, "summary_excerpt", reported=False))
    found = trail.verify()
    assert {problem.seq for problem in found.integrity_problems} == {seq}
    assert found.integrity_problems[-1].kind == "tombstone_not_named"


@pytest.mark.parametrize("contract", [True, False])
def test_a_lost_row_of_a_tombstone_is_noticed(trail: TrailFolder, *, contract: bool) -> None:
    """The payload still is the tombstone, and an event names it: the table alone forgot it."""
    seq = seq_of(trail, "AttemptFailed")
    trail.redact(seq, "summary_excerpt")
    with behind_the_triggers(trail.path) as connection:
        connection.execute("DELETE FROM audit_tombstone")
    found = trail.verify(contract=contract)
    lost = [(problem.seq, problem.kind) for problem in found.integrity_problems]
    assert lost == [(seq, "tombstone_lost")]


def test_a_second_tombstone_is_not_the_one_that_was_named(trail: TrailFolder) -> None:
    seq = seq_of(trail, "AttemptFailed")
    trail.redact(seq, "summary_excerpt")
    put(trail, seq, trail.redact(seq, "summary_excerpt", reported=False, by="Eve"))
    assert not trail.verify().ok


def test_words_that_still_stand_after_their_redaction_are_bad(trail: TrailFolder) -> None:
    seq = seq_of(trail, "AttemptFailed")
    with closing(sqlite3.connect(trail.path)) as connection:
        (before,) = connection.execute(
            "SELECT payload FROM audit_payload WHERE seq = ?", (seq,)
        ).fetchone()
    trail.redact(seq, "summary_excerpt")
    put(trail, seq, before)
    found = trail.verify()
    reasons = {problem.seq: problem.reason for problem in found.integrity_problems}
    assert "its words still stand there" in reasons[seq]


def test_a_tombstone_of_another_event_or_by_a_stranger_is_an_alteration(
    trail: TrailFolder, tmp_path: Path
) -> None:
    first, second = [e.seq for e in trail.events() if e.kind == "AttemptFailed"]
    trail.redact(first, "summary_excerpt")
    stone = trail.redact(first, "summary_excerpt", reported=False)
    put(trail, second, stone)
    found = trail.verify()
    assert {problem.seq for problem in found.integrity_problems} == {second}
    assert found.integrity_problems[0].kind == "another_event"
    stranger = generate(tmp_path / "stranger", "example.org/audit")
    put(trail, second, sign_statement(TOMBSTONE_DOMAIN, {"seq": second}, stranger.signers()))
    assert trail.verify().integrity_problems[0].kind == "no_trusted_key"


def test_a_residue_of_another_kind_is_bad(trail: TrailFolder) -> None:
    seq = seq_of(trail, "AttemptFailed")
    trail.redact(seq, "kind")
    found = trail.verify()
    assert not found.ok
    assert found.first_bad is not None
    assert found.first_bad.seq == seq


# --- Sealing --------------------------------------------------------------------------------------


def test_sealed_events_and_the_rest_verify_as_one(trail: TrailFolder) -> None:
    last = len(t.verified_on_retry())
    trail.seal(last)
    found = trail.verify()
    assert found.ok, found
    assert (found.sealed_events, found.events) == (last, 2 * last + 1)
    assert (found.covered_to, found.checkpoints_checked, found.notes) == (found.events, 3, ())


def test_a_sealed_file_that_is_gone_was_retired_or_is_missing(trail: TrailFolder) -> None:
    last = len(t.verified_on_retry())
    sealed = trail.seal(last)
    (trail.segments / sealed.file).unlink()
    found = trail.verify()
    assert found.integrity_problems[0].kind == "segment_missing"
    assert sealed.file in found.integrity_problems[0].reason
    assert trail.verify(sealed=False).ok  # nobody asked for the files
    with closing(trail.store()) as store:
        event = SegmentRetired(
            first_seq=1, last_seq=last, sha256=sealed.sha256, by="Ann", reason="over"
        )
        store.append(MAINTENANCE, event)
    found = trail.verify()
    assert found.ok, found
    (note,) = found.notes
    assert note.startswith(
        f"1 sealed segments (events 1 to {last}) were retired: deleted on record"
    )
    assert trail.verify(sealed=False).notes == found.notes  # it is on record, whoever asks


def test_a_sealed_file_that_nobody_looks_for_is_not_here(trail: TrailFolder) -> None:
    trail.seal(len(t.verified_on_retry()))
    found = trail.verify(sealed=False)
    assert found.notes == ("1 sealed segments are not here: nothing in them was read.",)


def test_an_altered_sealed_file_is_bad(trail: TrailFolder) -> None:
    sealed = trail.seal(len(t.verified_on_retry()))
    path = trail.segments / sealed.file
    content = path.read_bytes()
    path.write_bytes(content.replace(b"tests failed", b"tests passed"))
    assert not trail.verify().ok
    path.write_bytes(content[: len(content) // 2])
    assert not trail.verify().ok
    *lines, end = content.replace(b'"shown":"', b'"shown":"x', 1).splitlines(keepends=True)
    message = hashlib.sha256(b"".join(lines)).hexdigest()
    path.write_bytes(
        b"".join(lines) + json.dumps({**json.loads(end), "sha256": message}).encode() + b"\n"
    )
    assert "another_digest" in {one.kind for one in trail.verify().integrity_problems}
    path.write_bytes(content)
    assert trail.verify().ok


def test_a_statement_is_needed_and_must_be_signed(trail: TrailFolder) -> None:
    trail.seal(len(t.verified_on_retry()))
    with behind_the_triggers(trail.path) as connection:
        (statement,) = connection.execute("SELECT statement FROM audit_segment").fetchone()
        connection.execute(
            "UPDATE audit_segment SET statement = ?",
            (statement.replace(b'"by":"Ann"', b'"by":"Eve"'),),
        )
    assert not trail.verify().ok
    with behind_the_triggers(trail.path) as connection:
        connection.execute("DELETE FROM audit_segment")
    found = trail.verify()
    assert found.first_bad is not None
    assert found.first_bad.kind == "events_missing"
    assert f"1 to {len(t.verified_on_retry())}" in found.first_bad.reason


def test_what_was_sealed_must_not_stand_in_the_store(trail: TrailFolder) -> None:
    with closing(sqlite3.connect(trail.path)) as connection:
        row = connection.execute(
            "SELECT seq, header, leaf FROM audit_header WHERE seq = 1"
        ).fetchone()
    trail.seal(len(t.verified_on_retry()))
    with behind_the_triggers(trail.path) as connection:
        connection.execute("INSERT INTO audit_header VALUES (?, ?, ?)", row)
    found = trail.verify()
    assert "sealed_and_stored" in {problem.kind for problem in found.integrity_problems}


def test_an_incremental_run_goes_on_behind_what_was_sealed(trail: TrailFolder) -> None:
    state = trail.verify().state
    assert state is not None
    trail.seal(len(t.verified_on_retry()))
    found = trail.verify(since=state)
    assert found.ok, found
    assert found.events == state.size + 1


# --- Flags ----------------------------------------------------------------------------------------


def test_a_flag_is_shown_and_the_broken_rule_is_bad(tmp_path: Path) -> None:
    trail = TrailFolder(tmp_path)
    trail.append("fix-0", t.recipe_verified())
    last = len(t.recipe_verified())
    scope = Scope(fix_id="fix-0", gate_transition_id="t")
    with closing(trail.store()) as store:
        store.append(scope, t.recipe_verified()[-1])
        store.append(scope, AppendFlagged(at=last + 1, rule="one-terminal-event", detail="twice"))
    found = trail.verify()
    assert [(flag.seq, flag.rule) for flag in found.flags] == [(last + 1, "one-terminal-event")]
    assert "one-terminal-event" in {violation.rule for violation in found.contract_violations}


def test_keys_are_needed_to_trust_anything(trail: TrailFolder) -> None:
    trail.seal(len(t.verified_on_retry()))
    nobody = Keyring(trail.place, None, None, (), ())
    assert not trail.verify(trail.source(keyring=nobody)).ok
