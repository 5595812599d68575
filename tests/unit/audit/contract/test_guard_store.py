"""A guard in a real store: refused or flagged inside the transaction, across writers, after a rollback."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.errors import AuditStoreError, ContractError
from fallback_audit.events import AppendFlagged, AuditEvent
from fallback_audit.ports import Record
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import Tier
from tests.kinds import OfKind
from tests.unit.audit import human_trails as h
from tests.unit.audit import trails as t
from tests.unit.audit.tamper import behind_the_triggers
from tests.unit.audit.trails import SCOPE

AGAIN = t.verified(1, Tier.RECIPE)


@contextmanager
def guarded(path: Path, guard: ContractGuard | None = None) -> Iterator[SqliteAuditStore]:
    with closing(SqliteAuditStore(path, guard=guard or ContractGuard())) as store:
        yield store


def records(*events: AuditEvent) -> list[Record]:
    return [Record(SCOPE, event) for event in events]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.db"


def kinds(store: SqliteAuditStore) -> list[str]:
    return [stored.kind for stored in store.events()]


def test_what_is_refused_is_not_recorded_and_the_chain_goes_on(path: Path) -> None:
    with guarded(path) as store:
        store.append_all(records(*t.recipe_verified()))
        tip = store.tip()
        with pytest.raises(ContractError, match="one-terminal-event"):
            store.append(SCOPE, AGAIN)
        with pytest.raises(ContractError, match="one-terminal-event"):
            store.append_all(records(h.delivered(1), AGAIN))
        assert store.tip() == tip
        assert store.append(SCOPE, h.delivered(1)).previous_leaf == tip[1]


def test_a_flag_is_recorded_with_its_event_or_not_at_all(path: Path) -> None:
    with guarded(path, ContractGuard("flag")) as store:
        store.append_all(records(*t.recipe_verified()))
        flagged = store.append(SCOPE, AGAIN)
        last = list(store.events())[-1]
        assert isinstance(last.payload, AppendFlagged)
        assert (last.payload.at, last.payload.rule) == (flagged.seq, "one-terminal-event")
        assert (last.seq, last.scope) == (flagged.seq + 1, SCOPE)
        assert store.append(SCOPE, h.delivered(1)).seq == last.seq + 1


def test_two_processes_see_what_the_other_appended(path: Path) -> None:
    with guarded(path) as one, guarded(path) as other:
        for number, event in enumerate(t.verified_on_retry()):
            (one, other)[number % 2].append(SCOPE, event)
        for store in (one, other):
            with pytest.raises(ContractError):
                store.append(SCOPE, t.verified(2))


def test_a_batch_that_could_not_be_written_leaves_the_guard_as_it_was(path: Path) -> None:
    """The guard admitted all of it; then its last event had no canonical form."""
    events = t.recipe_verified()
    bad = h.delivered(1).model_copy(update={"reference": "\ud800"})
    with guarded(path) as store:
        store.append_all(records(*events[:4]))
        with pytest.raises(AuditStoreError):
            store.append_all(records(*events[4:], bad))
        assert kinds(store) == [event.kind for event in events[:4]]
        store.append_all(records(*events[4:]))
        assert kinds(store) == [event.kind for event in events]


def test_an_altered_trail_takes_no_event(path: Path) -> None:
    with guarded(path) as store:
        store.append_all(records(*t.recipe_verified()))
    with behind_the_triggers(path) as connection:
        connection.execute(
            "UPDATE audit_payload SET payload = CAST(payload || ' ' AS BLOB) WHERE seq = 3"
        )
    with (
        guarded(path) as store,
        pytest.raises(ContractError, check=OfKind("trail_not_judged"), match="Event 3 "),
    ):
        store.append(SCOPE, h.delivered(1))
