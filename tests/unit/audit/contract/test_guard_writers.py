"""One writer a fix: two sessions of it, each with a store of its own, as on two machines (ADR-0086)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.errors import ContractError, OvertakenError
from fallback_audit.events import AttemptStarted, AuditEvent, FixResumed
from fallback_audit.ports import AuditStore, Record
from fallback_audit.stores.postgres import PostgresAuditStore
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import PromptShape
from tests.kinds import OfKind
from tests.unit.audit.human_trails import abandoned, resumed_between_gates, verified_and_delivered
from tests.unit.audit.trails import SCOPE

#: A fix up to the event behind which it was resumed; that; and what followed.
WHOLE = resumed_between_gates()
AT = next(place for place, event in enumerate(WHOLE) if isinstance(event, FixResumed))
BEFORE, RESUMED, THEN = WHOLE[:AT], WHOLE[AT], WHOLE[AT + 1 :]


class Session:
    """One worker: a store of its own, with its guard."""

    def __init__(self, store: AuditStore, guard: ContractGuard) -> None:
        self.store = store
        self.guard = guard

    def begin(self) -> None:
        self.guard.expect(SCOPE.fix_id, 0)
        self.append(*BEFORE)

    def resume(self, seen: int) -> None:
        self.guard.expect(SCOPE.fix_id, seen)
        self.append(RESUMED)

    def append(self, *events: AuditEvent) -> None:
        for event in events:
            self.store.append(SCOPE, event)

    @property
    def kinds(self) -> list[str]:
        return [stored.kind for stored in self.store.events(SCOPE.fix_id)]


Open = Callable[[], Session]


@pytest.fixture(params=["sqlite", "postgres"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens one more session of the same record."""
    url: str | None = None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    with ExitStack() as opened:

        def one_more() -> Session:
            guard = ContractGuard()
            store: AuditStore = (
                SqliteAuditStore(tmp_path / "audit.db", guard=guard)
                if url is None
                else PostgresAuditStore(url, guard=guard)
            )
            opened.callback(store.close)
            return Session(store, guard)

        yield one_more


def test_a_run_whose_fix_was_abandoned_elsewhere_records_nothing_more(session: Open) -> None:
    """The lock is of one machine. A person's process takes no fix in hand, so it expects nothing."""
    runs, person, late = session(), session(), session()
    runs.begin()
    late.guard.expect(SCOPE.fix_id, len(BEFORE))
    person.append(abandoned())
    for overtaken, event in ((runs, THEN[0]), (late, RESUMED)):
        with pytest.raises(OvertakenError, check=OfKind("abandoned")):
            overtaken.append(event)
    assert person.kinds[-1] == "FixAbandoned"


def test_nothing_is_recorded_after_an_abandonment_whoever_does(session: Open) -> None:
    runs, person = session(), session()
    runs.begin()
    person.append(abandoned())
    with pytest.raises(ContractError):
        person.append(RESUMED)
    with pytest.raises(ContractError):
        person.append(abandoned())


def test_who_was_overtaken_records_nothing_more(session: Open) -> None:
    old, new = session(), session()
    old.begin()
    new.resume(seen=len(BEFORE))
    with pytest.raises(OvertakenError) as refused:
        old.append(THEN[0])
    assert f"event {len(BEFORE) + 1}" in refused.value.problem
    assert "audit show fix-1" in refused.value.next_step
    new.append(*THEN)
    with pytest.raises(OvertakenError):  # not once only
        old.append(THEN[0])
    assert new.kinds == [event.kind for event in WHOLE]


def test_who_has_not_read_all_goes_on_with_nothing(session: Open) -> None:
    """Two see the same dead fix; the second is not to go on from where the first has gone on since."""
    dead, first, second = session(), session(), session()
    dead.begin()
    first.resume(seen=len(BEFORE))
    first.append(*THEN[:1])
    with pytest.raises(OvertakenError):
        second.resume(seen=len(BEFORE))
    assert second.kinds.count("FixResumed") == WHOLE.count(RESUMED)


def test_an_event_that_was_not_read_stops_who_would_go_on(session: Open) -> None:
    """Though nobody has taken the fix in hand: the dead one's last words."""
    old, new = session(), session()
    old.guard.expect(SCOPE.fix_id, 0)
    old.append(*BEFORE)
    with pytest.raises(OvertakenError):
        new.resume(seen=len(BEFORE) - 1)


def test_a_fix_is_begun_once(session: Open) -> None:
    one, other = session(), session()
    one.begin()
    with pytest.raises(OvertakenError, match="FixStarted"):
        other.begin()


def test_what_was_rolled_back_counts_for_nobody(session: Open) -> None:
    """A batch that fails leaves the session where it was."""
    old, new = session(), session()
    old.begin()
    wrong = AttemptStarted(
        attempt=9, advisory_id="X", prior_attempt_count=0, prompt_shape=PromptShape.NONE
    )
    with pytest.raises(ContractError):
        old.store.append_all([Record(SCOPE, THEN[0]), Record(SCOPE, wrong)])
    new.resume(seen=len(BEFORE))  # takes the number that the batch had
    with pytest.raises(OvertakenError):
        old.append(THEN[0])


def test_one_sessions_own_batch_is_not_in_its_way(session: Open) -> None:
    old, new = session(), session()
    old.begin()
    new.guard.expect(SCOPE.fix_id, len(BEFORE))
    new.store.append_all([Record(SCOPE, event) for event in (RESUMED, *THEN)])
    assert new.kinds == [event.kind for event in WHOLE]


@pytest.mark.parametrize("first_is_new", [True, False])
def test_a_delivery_is_put_on_record_once(session: Open, *, first_is_new: bool) -> None:
    """The fix had ended when the second opened it, so neither takes it in hand any more."""
    *fix, delivered, _ = verified_and_delivered()
    old, new = session(), session()
    old.guard.expect(SCOPE.fix_id, 0)
    old.append(*fix)
    new.guard.expect(SCOPE.fix_id, len(fix))
    first, second = (new, old) if first_is_new else (old, new)
    first.append(delivered)
    with pytest.raises(OvertakenError, match="PatchDelivered"):
        second.append(delivered)
    assert old.kinds.count("PatchDelivered") == 1


def test_who_takes_nothing_in_hand_is_not_asked(session: Open) -> None:
    """A person's decision comes from a process that never had the fix."""
    worker, person = session(), session()
    worker.begin()
    person.append(RESUMED, *THEN)
    assert person.kinds == [event.kind for event in WHOLE]


def test_a_session_that_was_let_go_is_over(session: Open) -> None:
    one, other = session(), session()
    one.begin()
    other.resume(seen=len(BEFORE))
    one.guard.let_go(SCOPE.fix_id)
    one.append(*THEN)
    assert one.kinds == [event.kind for event in WHOLE]
