"""What appending promises: order, all or nothing, links over stored bytes, the guard's say."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone

import pytest

from fallback_audit.canonical import GENESIS, leaf_digest, payload_digest
from fallback_audit.errors import AuditStoreError, ContractError
from fallback_audit.events import AppendFlagged, AuditEvent, SandboxDisabled
from fallback_audit.ports import Record, Scope, StoredEvent, TrailReader
from tests.kinds import OfKind
from tests.unit.audit.stores.conformance.backends import Backend, Store, report, report_of
from tests.unit.audit.trails import SCOPE, recipe_verified, verified_on_retry
from tests.waiting import at_once

EVENT = SandboxDisabled(reason="a person said so")
OTHER = Scope(fix_id="another", gate_transition_id="t")
BAD = SandboxDisabled.model_construct(reason="\ud800")  # no canonical form


def test_events_come_back_in_order_and_by_fix(store: Store) -> None:
    appended = [
        store.append(OTHER if number % 3 else SCOPE, event)
        for number, event in enumerate(verified_on_retry())
    ]
    assert list(store.events()) == appended
    assert list(store.events("another")) == [e for e in appended if e.scope == OTHER]
    assert list(store.events("nobody")) == []


def test_links_are_hashes_of_the_stored_bytes(backend: Backend, store: Store) -> None:
    leaves = [store.append(SCOPE, event).leaf for event in recipe_verified()]
    with backend.connect() as connection:
        rows = connection.execute(
            "SELECT seq, header, leaf, payload FROM audit_header JOIN audit_payload USING (seq)"
            " ORDER BY seq"
        ).fetchall()
    previous = GENESIS
    for seq, header, leaf, payload in rows:
        members = json.loads(header)
        assert list(members) == sorted(members)
        assert members["seq"] == seq
        assert members["previous_leaf"] == previous
        assert members["payload_sha256"] == payload_digest(payload)
        assert members["recorded_at"] == "2026-01-02T03:04:05.000006Z"
        assert leaf == leaf_digest(header)
        previous = leaf
    assert [row[2] for row in rows] == leaves


def test_what_is_filtered_by_is_computed_from_the_header(backend: Backend, store: Store) -> None:
    scope = Scope(fix_id='fïx "1" \\ 漢\n', gate_transition_id="t\t2")
    stored = store.append(scope, EVENT)
    with backend.connect() as connection:
        row = connection.execute(
            "SELECT fix_id, gate_transition_id, kind, recorded_at FROM audit_header"
        ).fetchone()
    assert row == (scope.fix_id, scope.gate_transition_id, EVENT.kind, stored.recorded_at)
    assert list(store.events(scope.fix_id)) == [stored]


def test_times_are_recorded_in_utc(backend: Backend) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    clock = lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=zone)  # noqa: E731
    with closing(backend.store(clock=clock)) as store:
        assert store.append(SCOPE, EVENT).recorded_at == "2026-01-01T21:34:05.000000Z"


def test_it_is_found_again(backend: Backend) -> None:
    for scope in (SCOPE, OTHER):
        with closing(backend.store()) as store:
            store.append(scope, EVENT)
    assert (report_of(backend).events, report_of(backend).integrity_problem_count) == (2, 0)


def test_several_at_once_in_their_order(store: Store) -> None:
    first = store.append(SCOPE, EVENT)
    records = [
        Record(OTHER if n % 2 else SCOPE, event) for n, event in enumerate(recipe_verified())
    ]
    appended = store.append_all(records)
    assert [Record(e.scope, e.payload) for e in appended] == records
    assert list(store.events()) == [first, *appended]
    assert store.append_all(()) == ()
    assert report(store).integrity_problem_count == 0


def test_several_at_once_or_none(store: Store) -> None:
    with pytest.raises(AuditStoreError, check=OfKind("not_encodable"), match="SandboxDisabled"):
        store.append_all([Record(SCOPE, EVENT), Record(SCOPE, BAD), Record(SCOPE, EVENT)])
    assert list(store.events()) == []
    assert store.append(SCOPE, EVENT).seq == 1


def test_a_large_payload(store: Store) -> None:
    event = SandboxDisabled(reason="é\n" * 1_000_000)
    assert [e.payload for e in (store.append(SCOPE, event), *store.events())] == [event] * 2


def test_threads_may_share_a_store(store: Store) -> None:
    def append() -> None:
        for _ in range(10):
            store.append(SCOPE, EVENT)

    at_once([append] * 4)
    found = report(store)
    assert (found.events, found.integrity_problem_count) == (40, 0)


def test_close_twice_and_use_after(store: Store) -> None:
    store.append(SCOPE, EVENT)
    store.close()
    store.close()
    for use in (lambda: store.append(SCOPE, EVENT), lambda: next(store.events()), store.tip):
        with pytest.raises(AuditStoreError, check=OfKind("closed")) as caught:
            use()
        assert caught.value.next_step


def test_a_writer_does_not_wait_for_ever(backend: Backend, store: Store) -> None:
    """The other writer is in the middle of an append: its guard is asked inside the transaction."""
    refused: list[str] = []

    class Slow:
        def admit(self, *_: object) -> tuple[AuditEvent, ...]:
            with closing(backend.store(patience_s=0.05)) as impatient:
                try:
                    impatient.append(SCOPE, EVENT)
                except AuditStoreError as error:
                    refused.append(error.problem)
            return ()

        def appended(self, event: StoredEvent) -> None: ...

    store.append(SCOPE, EVENT)
    with closing(backend.store(guard=Slow())) as slow:
        slow.append(SCOPE, EVENT)
    assert len(refused) == 1
    assert "locked by another" in refused[0]
    assert store.append(SCOPE, EVENT).seq == 3


# --- The guard ------------------------------------------------------------------------------------


class Guard:
    """Refuses what says so, flags what says so, and notes what it was told and shown."""

    def __init__(self) -> None:
        self.durable: list[int] = []
        self.asked: list[tuple[int, list[int]]] = []

    def admit(self, record: Record, seq: int, recorded: TrailReader) -> tuple[AuditEvent, ...]:
        assert isinstance(record.event, SandboxDisabled)
        self.asked.append((seq, [event.seq for event in recorded.trail(record.scope.fix_id)]))
        if record.event.reason == "refuse":
            raise ContractError("It breaks a rule.", next_step="Don't.")
        if record.event.reason == "flag":
            return (AppendFlagged(at=seq, rule="a-rule", detail="It breaks a rule."),)
        return ()

    def appended(self, event: StoredEvent) -> None:
        self.durable.append(event.seq)


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.fixture
def guarded(backend: Backend, guard: Guard) -> Iterator[Store]:
    with closing(backend.store(guard=guard)) as opened:
        yield opened


def said(reason: str, scope: Scope = SCOPE) -> Record:
    return Record(scope, SandboxDisabled(reason=reason))


def test_a_guard_refuses_the_whole_append(guarded: Store, guard: Guard) -> None:
    guarded.append_all([said("ok")])
    with pytest.raises(ContractError):
        guarded.append_all([said("ok"), said("refuse"), said("ok")])
    assert guarded.tip()[0] == 1
    assert guard.durable == [1]
    assert guarded.append(*said("ok")).seq == 2


def test_a_guard_sees_the_fix_with_what_this_append_adds(guarded: Store, guard: Guard) -> None:
    guarded.append_all([said("ok"), said("ok", OTHER), said("ok")])
    guarded.append(*said("ok"))
    assert guard.asked == [(1, []), (2, []), (3, [1]), (4, [1, 3])]
    assert guard.durable == [1, 2, 3, 4]


def test_a_flag_stands_right_behind(guarded: Store, guard: Guard) -> None:
    appended = guarded.append_all([said("flag"), said("ok")])
    assert [event.seq for event in appended] == [1, 3]
    assert [event.kind for event in guarded.events()] == [EVENT.kind, "AppendFlagged", EVENT.kind]
    assert guard.durable == [1, 2, 3]
    assert [event.scope for event in guarded.events()] == [SCOPE] * 3


def test_a_guard_that_breaks_leaves_nothing(backend: Backend) -> None:
    class Broken(Guard):
        def admit(self, *_: object) -> tuple[AuditEvent, ...]:
            raise ZeroDivisionError

    with closing(backend.store(guard=Broken())) as store:
        with pytest.raises(ZeroDivisionError):
            store.append(SCOPE, EVENT)
        assert list(store.events()) == []
    with closing(backend.store()) as store:  # and no lock
        assert store.append(SCOPE, EVENT).seq == 1
