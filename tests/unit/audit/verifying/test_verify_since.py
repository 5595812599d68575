"""Incremental verification: only what is new is hashed, and a state is believed only if it was signed."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.stores.sqlite import open_readonly
from fallback_audit.verifying.report import VerifiedState, read_state, write_state
from fallback_audit.verifying.verify import verify
from tests.kinds import OfKind
from tests.unit.audit import trails as t
from tests.unit.audit.signed import TrailFolder
from tests.unit.audit.tamper import behind_the_triggers


@pytest.fixture
def trail(tmp_path: Path) -> TrailFolder:
    trail = TrailFolder(tmp_path)
    trail.append("fix-0", t.verified_on_retry())
    trail.append("fix-1", t.recipe_verified()[:-1])
    return trail


def state_of(trail: TrailFolder) -> VerifiedState:
    state = trail.verify().state
    assert state is not None
    return state


def test_a_run_goes_on_where_the_last_one_ended(trail: TrailFolder) -> None:
    first = trail.verify()
    state = first.state
    assert state is not None
    assert (state.size, state.tip) == (first.events, first.tip)
    trail.append("fix-2", t.replayed())
    found = trail.verify(since=state)
    assert found.ok, found
    assert (found.since, found.events) == (state.size, state.size + len(t.replayed()))
    assert found.gate_transitions == 1  # of the fix that is new
    assert [fix.fix_id for fix in found.open_fixes] == ["fix-1"]  # still open, from before
    assert found.root == trail.verify().root
    assert found.state == trail.verify().state


def test_only_what_is_new_is_read(trail: TrailFolder) -> None:
    state = state_of(trail)
    trail.append("fix-2", t.replayed())
    read: list[int] = []
    with closing(open_readonly(trail.path)) as reader, reader.snapshot() as snapshot:
        rows = snapshot.rows
        snapshot.rows = lambda after=0: (read.append(after), rows(after))[1]  # type: ignore[method-assign,func-returns-value]
        snapshot.snapshot = lambda: closing_of(snapshot)  # type: ignore[attr-defined]
        report = verify(snapshot, checkpoints=trail.source(), since=state)  # type: ignore[arg-type]
    assert report.ok
    assert set(read) == {state.size - 1, state.size}


class closing_of:  # noqa: N801 - stands for a snapshot's context manager
    def __init__(self, snapshot: object) -> None:
        self._snapshot = snapshot

    def __enter__(self) -> object:
        return self._snapshot

    def __exit__(self, *_: object) -> None:
        return None


def test_a_fix_with_new_events_is_judged_whole(trail: TrailFolder) -> None:
    state = state_of(trail)
    assert [fix.fix_id for fix in state.open_fixes] == ["fix-1"]
    trail.append("fix-1", t.recipe_verified()[-1:])
    found = trail.verify(since=state)
    assert (found.ok, found.open_fix_count) == (True, 0)
    trail.append("fix-0", t.recipe_verified()[-1:])  # a second end
    found = trail.verify(since=state)
    assert {violation.fix_id for violation in found.contract_violations} == {"fix-0"}
    assert found.state is None


def alter(seq: int) -> Callable[[sqlite3.Connection], object]:
    sql = "UPDATE audit_payload SET payload = CAST(payload || ' ' AS BLOB) WHERE seq = ?"
    return lambda connection: connection.execute(sql, (seq,))


def test_what_it_notices_and_what_it_does_not(trail: TrailFolder) -> None:
    state = state_of(trail)
    trail.append("fix-2", t.replayed())
    with behind_the_triggers(trail.path) as connection:
        alter(3)(connection)
    assert trail.verify(since=state).ok  # as its documentation says
    assert not trail.verify().ok
    with behind_the_triggers(trail.path) as connection:
        alter(state.size + 2)(connection)
    found = trail.verify(since=state)
    assert found.first_bad is not None
    assert found.first_bad.seq == state.size + 2


def test_a_store_that_was_rolled_back_or_rewritten_is_noticed(trail: TrailFolder) -> None:
    state = state_of(trail)

    def truncate(connection: sqlite3.Connection) -> None:
        for table in ("audit_header", "audit_payload"):
            connection.execute(f"DELETE FROM {table} WHERE seq >= ?", (state.size,))

    with behind_the_triggers(trail.path) as connection:
        truncate(connection)
    found = trail.verify(since=state)
    assert not found.ok
    assert found.integrity_problems[0].kind == "not_as_verified"


@pytest.mark.parametrize(
    "forge",
    [
        lambda s: s.model_copy(update={"size": s.size - 1}),
        lambda s: s.model_copy(update={"frontier": tuple(reversed(s.frontier))}),
        lambda s: s.model_copy(update={"frontier": s.frontier[:-1]}),
        lambda s: s.model_copy(update={"tip": "0" * 64}),
        lambda s: s.model_copy(update={"checkpoint": s.checkpoint.replace("\ntip ", "\ntop ")}),
        lambda s: s.model_copy(update={"checkpoint": "nothing"}),
    ],
)
def test_a_forged_state_is_not_believed(
    trail: TrailFolder, forge: Callable[[VerifiedState], VerifiedState]
) -> None:
    state = state_of(trail)
    assert len(state.frontier) > 1
    found = trail.verify(since=forge(state))
    assert not found.ok
    assert found.state is None


def test_a_checkpoint_that_was_removed_from_behind_the_state_is_noticed(trail: TrailFolder) -> None:
    state = state_of(trail)
    trail.append("fix-2", t.replayed())
    middle = trail.log.latest_size()
    trail.append("fix-3", t.replayed())
    kept = trail.log.path(middle).read_bytes()
    trail.log.path(middle).unlink()
    assert trail.verify(since=state).checkpoint_problems[0].kind == "checkpoint_missing"
    trail.log.path(middle).write_bytes(kept)
    assert trail.verify(since=state).ok
    trail.log.path(state.size).unlink()
    found = trail.verify(since=state)
    assert found.checkpoint_problems[0].kind == "checkpoint_missing"
    assert str(trail.log.path(state.size)) in found.checkpoint_problems[0].reason


def test_no_state_where_something_is_bad_or_nothing_is_covered(trail: TrailFolder) -> None:
    with behind_the_triggers(trail.path) as connection:
        alter(3)(connection)
    assert trail.verify().state is None
    with closing(open_readonly(trail.path)) as reader:
        assert verify(reader, checkpoints=None).state is None


def test_the_state_is_kept_in_a_file(trail: TrailFolder, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert read_state(path) is None
    write_state(path, state_of(trail))
    assert read_state(path) == state_of(trail)
    assert [file.name for file in tmp_path.glob(".state-*")] == []
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 9}))
    with pytest.raises(AuditIntegrityError, check=OfKind("another_version"), match=" 9,"):
        read_state(path)
    path.write_text("{}")
    with pytest.raises(AuditIntegrityError, check=OfKind("not_a_state")):
        read_state(path)
    with pytest.raises(AuditStoreError, match="No such file"):
        write_state(tmp_path / "none" / "state.json", state_of(trail))
