"""Checkpoints: what a chain alone can't show is caught, wherever a checkpoint covers it."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_audit.canonical import GENESIS, leaf_digest, payload_digest
from fallback_audit.checkpoints.keyring import generate, known_files
from fallback_audit.verifying.sources import KeptNote, LogCheckpoints
from tests.unit.audit import trails as t
from tests.unit.audit.signed import TrailFolder
from tests.unit.audit.tamper import behind_the_triggers
from tests.unit.audit.verifying.test_verify import Change, both, copy, delete, flip, swap

FIXES = (t.verified_on_retry(), t.replayed(), t.cap_reached())
ENDS = tuple(sum(map(len, FIXES[:n])) for n in range(1, 4))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trail = TrailFolder(tmp_path_factory.mktemp("made"))
    for number, events in enumerate(FIXES):
        trail.append(f"fix-{number}", events)
    return trail.place


@pytest.fixture
def trail(made: Path, tmp_path: Path) -> TrailFolder:
    return TrailFolder(Path(shutil.copytree(made, tmp_path / "trail")))


def delete_after(seq: int) -> Change:
    def change(connection: sqlite3.Connection) -> None:
        for table in ("audit_header", "audit_payload"):
            connection.execute(f"DELETE FROM {table} WHERE seq > ?", (seq,))

    return change


def rechain(connection: sqlite3.Connection, seq: int = 5) -> None:
    """An attacker who knows everything but the key: from ``seq`` on the chain is made anew, and whole."""
    rows = connection.execute(
        "SELECT seq, header, payload FROM audit_header JOIN audit_payload USING (seq) ORDER BY seq"
    ).fetchall()
    leaf = GENESIS
    for number, header, payload in rows:
        if number == seq:
            header = header.replace(b'"recorded_at":"2026', b'"recorded_at":"2025')
        before, _, rest = header.partition(b'"payload_sha256":"')
        header = b"".join(
            [
                before,
                b'"payload_sha256":"%b","previous_leaf":"%b"'
                % (payload_digest(payload).encode(), leaf.encode()),
                rest[rest.index(b',"recorded_at"') :],
            ]
        )
        leaf = leaf_digest(header)
        connection.execute(
            "UPDATE audit_header SET header = ?, leaf = ? WHERE seq = ?", (header, leaf, number)
        )
        connection.execute("UPDATE audit_payload SET payload = ? WHERE seq = ?", (payload, number))


def test_covered_and_intact(trail: TrailFolder) -> None:
    found = trail.verify()
    assert found.ok, found
    assert (found.events, found.covered_to, found.uncovered_events) == (ENDS[2], ENDS[2], 0)
    assert (found.checkpoints_checked, found.root is not None, found.notes) == (3, True, ())


def test_uncovered_events_are_counted_and_their_fixes_named(trail: TrailFolder) -> None:
    trail.append("fix-3", t.recipe_verified(), cover=False)
    trail.append("fix-4", t.recipe_verified()[:2], cover=False)
    found = trail.verify()
    assert found.ok
    assert (found.covered_to, found.uncovered_events) == (ENDS[2], len(t.recipe_verified()) + 2)
    assert [(fix.fix_id, fix.events, fix.ended) for fix in found.uncovered_fixes] == [
        ("fix-3", len(t.recipe_verified()), True),
        ("fix-4", 2, False),
    ]


def test_a_tail_longer_than_the_policy_is_bad(trail: TrailFolder) -> None:
    trail.append("fix-3", t.recipe_verified(), cover=False)
    count = len(t.recipe_verified())
    assert trail.verify(trail.source(max_uncovered=count)).ok
    found = trail.verify(trail.source(max_uncovered=count - 1))
    assert not found.ok
    assert found.first_bad is not None
    assert found.first_bad.seq == ENDS[2] + 1
    assert found.first_bad.kind == "uncovered"


def test_no_checkpoint_at_all_is_bad(trail: TrailFolder) -> None:
    shutil.rmtree(trail.log.folder)
    found = trail.verify()
    assert not found.ok
    assert [problem.reason for problem in found.checkpoint_problems] == [
        "there are events, and no valid checkpoint"
    ]
    assert found.uncovered_events == ENDS[2]


def test_a_store_without_events_needs_none(tmp_path: Path) -> None:
    trail = TrailFolder(tmp_path)
    trail.store().close()
    assert trail.verify().ok


@pytest.mark.parametrize("kept", [1, 2, ENDS[0] - 1, ENDS[0], ENDS[0] + 1, ENDS[1], ENDS[2] - 1])
def test_truncation_anywhere_is_caught(trail: TrailFolder, kept: int) -> None:
    found = trail.tampered(delete_after(kept))
    assert not found.ok
    assert found.first_bad is not None
    assert found.first_bad.seq == kept + 1
    assert found.first_bad.kind == "cut_short"


@pytest.mark.parametrize("seq", [1, ENDS[0], ENDS[0] + 1, ENDS[2]])
def test_a_full_rechain_is_caught_behind_the_last_good_checkpoint(
    trail: TrailFolder, seq: int
) -> None:
    with behind_the_triggers(trail.path) as connection:
        rechain(connection, seq)
    found = trail.verify()
    assert found.integrity_problem_count == 0  # the chain itself is whole again
    assert found.checkpoint_problem_count == 1
    assert found.first_bad is not None
    good = max((end for end in (0, *ENDS) if end < seq), default=0)
    assert (found.covered_to, found.first_bad.seq) == (good, good + 1)
    assert found.first_bad.kind == "another_root"


def test_rollback_to_an_old_copy_is_caught(tmp_path: Path) -> None:
    trail = TrailFolder(tmp_path)
    trail.append("fix-0", FIXES[0])
    old = trail.path.read_bytes()
    trail.append("fix-1", FIXES[1])
    trail.path.write_bytes(old)
    found = trail.verify()
    assert not found.ok
    assert found.checkpoint_problems[0].kind == "cut_short"


def test_a_rollback_of_both_is_caught_by_a_checkpoint_that_was_kept(tmp_path: Path) -> None:
    trail = TrailFolder(tmp_path)
    trail.append("fix-0", FIXES[0])
    shutil.copytree(trail.log.folder, tmp_path / "old log")
    old = trail.path.read_bytes()
    trail.append("fix-1", FIXES[1])
    kept = Path(shutil.copy(trail.log.path(trail.log.latest_size()), tmp_path / "kept"))
    trail.path.write_bytes(old)
    shutil.rmtree(trail.log.folder)
    shutil.copytree(tmp_path / "old log", trail.log.folder)
    # The keys' folder knows it.
    assert trail.verify().checkpoint_problems[0].kind == "known_checkpoint_missing"
    (known,) = known_files(trail.place / "keys", trail.log.folder)
    known.unlink()
    assert trail.verify().ok  # without it, nobody can see it from inside
    found = trail.verify(trail.source(kept))
    assert not found.ok
    assert found.checkpoint_problems[0].kind == "cut_short"


def test_a_kept_checkpoint_of_another_log_is_refused(trail: TrailFolder, tmp_path: Path) -> None:
    other = TrailFolder(tmp_path / "other")
    (tmp_path / "other").mkdir()
    other.append("fix-0", FIXES[0])
    kept = other.log.path(other.log.latest_size())
    found = trail.verify(trail.source(kept))
    assert not found.ok
    assert found.checkpoint_problems[0].kind == "no_trusted_key"


def test_an_auditors_keys_are_the_ones_that_count(trail: TrailFolder, tmp_path: Path) -> None:
    stranger = generate(tmp_path / "stranger", "example.org/stranger")
    found = trail.verify(LogCheckpoints(trail.log, stranger))
    assert not found.ok
    assert found.covered_to == 0


@pytest.mark.parametrize("number", [0, 1])
def test_a_hole_in_the_log_is_bad(trail: TrailFolder, number: int) -> None:
    trail.log.path(ENDS[number]).unlink()
    found = trail.verify()
    assert not found.ok
    assert found.checkpoint_problems[0].kind == "checkpoint_missing"


@pytest.mark.parametrize("number", range(3))
def test_a_forged_checkpoint_is_bad(trail: TrailFolder, number: int) -> None:
    path = trail.log.path(ENDS[number])
    path.write_bytes(
        path.read_bytes().replace(b"\n%d\n" % ENDS[number], b"\n%d\n" % (ENDS[number] + 1))
    )
    found = trail.verify()
    assert not found.ok
    assert found.checkpoint_problems[0].kind == "signature_altered"


def test_a_checkpoint_written_meanwhile_is_not_held_against_the_store(trail: TrailFolder) -> None:
    """The log is read first: what it names later is about events that were appended later."""

    class Late(LogCheckpoints):
        def latest_size(self) -> int:
            size = super().latest_size()
            late.append("fix-3", t.recipe_verified())
            return size

    late = trail
    found = trail.verify(Late(trail.log, trail.keyring))
    assert found.ok, found.checkpoint_problems


def test_the_first_bad_event_is_the_altered_one_not_the_checkpoint(trail: TrailFolder) -> None:
    with behind_the_triggers(trail.path) as connection:
        connection.execute(
            "UPDATE audit_payload SET payload = CAST(payload || ' ' AS BLOB) WHERE seq = 7"
        )
    found = trail.verify()
    assert found.first_bad is not None
    assert (found.first_bad.seq, found.first_bad.fix_id) == (7, "fix-0")
    assert found.first_bad.next_step
    assert found.checkpoint_problem_count == 0  # headers are what a checkpoint signs


sequences = st.integers(1, ENDS[2])
mutations = st.one_of(
    st.builds(
        lambda cell, seq, at: flip(cell[0], cell[1], seq, at),
        st.sampled_from(
            [("audit_header", "header"), ("audit_header", "leaf"), ("audit_payload", "payload")]
        ),
        sequences,
        st.integers(0, 5_000),
    ),
    st.builds(lambda seq: both(delete, seq), sequences),
    st.builds(lambda seq: delete_after(seq - 1), sequences),
    st.builds(lambda seq: lambda connection: rechain(connection, seq), sequences),
    st.builds(lambda seq: both(copy, seq, ENDS[2] + 1), sequences),
    st.tuples(sequences, sequences)
    .filter(lambda pair: pair[0] != pair[1])
    .map(lambda pair: both(swap, *pair)),
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(change=mutations)
def test_any_mutation_of_what_is_covered_is_caught(trail: TrailFolder, change: Change) -> None:
    pristine = trail.path.read_bytes()
    try:
        found = trail.tampered(change)
        assert not found.ok
        assert found.first_bad is not None
        assert found.first_bad.seq is not None
        assert found.state is None
    finally:
        trail.path.write_bytes(pristine)
    assert trail.verify().ok


def test_an_extra_checkpoint_is_compared_at_its_own_size(trail: TrailFolder) -> None:
    with closing(trail.store()):
        kept = [KeptNote(trail.log.path(end), trail.log.path(end).read_bytes()) for end in ENDS]
    source = LogCheckpoints(trail.log, trail.keyring, extra=tuple(kept))
    found = trail.verify(source)
    assert (found.ok, found.checkpoints_checked) == (True, 6)
