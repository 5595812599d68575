"""Decisions that nobody has acted on, from a record that goes on."""

from pathlib import Path

import pytest

from fallback_audit.events import AuditEvent, BudgetRaised, FixResumed
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.engines.temporal.messages import DecisionResult
from fallback_tier.engines.temporal.reconciling import Decisions, answer_on_record
from fallback_tier.errors import InputError
from tests.unit.audit import human_trails as h
from tests.unit.audit.trails import SCOPE


def _store(place: Path, *events: AuditEvent) -> SqliteAuditStore:
    store = SqliteAuditStore(place / "audit.db")
    for event in events:
        store.append(SCOPE, event)
    return store


def test_an_open_question_has_no_answer_and_an_answered_one_is_over(tmp_path: Path) -> None:
    whole = h.unproved_then_approved()
    store = _store(tmp_path, *whole[:-1])
    assert answer_on_record(store, SCOPE.fix_id) == DecisionResult(False, False)
    decisions = Decisions()
    decisions.read(store)
    assert decisions.open() == {}
    store.append(SCOPE, whole[-1])
    assert answer_on_record(store, SCOPE.fix_id) == DecisionResult(False, True)
    decisions.read(store)
    assert decisions.open() == {SCOPE.fix_id: len(whole)}
    decisions.heard(SCOPE.fix_id, len(whole) - 1)  # an earlier one
    assert decisions.open()
    decisions.heard(SCOPE.fix_id, len(whole))
    decisions.read(store)
    assert decisions.open() == {}
    store.close()


def test_a_raised_budget_is_open_until_somebody_goes_on(tmp_path: Path) -> None:
    whole = h.resumed_after_raise()
    at = next(n for n, event in enumerate(whole) if isinstance(event, BudgetRaised))
    store = _store(tmp_path, *whole[: at + 1])
    assert answer_on_record(store, SCOPE.fix_id) == DecisionResult(True, False)
    decisions = Decisions()
    decisions.read(store)
    assert decisions.open() == {SCOPE.fix_id: at + 1}
    assert isinstance(whole[at + 1], FixResumed)
    store.append(SCOPE, whole[at + 1])
    decisions.read(store)
    assert decisions.open() == {}
    anew = Decisions()
    anew.read(store)
    assert anew.open() == {}
    store.close()


def test_an_abandoned_fix_is_over_also_after_it_was_reopened(tmp_path: Path) -> None:
    for whole in (h.abandoned_between_gates(), h.abandoned_when_reopened()):
        (place := tmp_path / str(len(whole))).mkdir()
        store = _store(place, *whole[:-1])
        assert answer_on_record(store, SCOPE.fix_id) == DecisionResult(True, False)
        decisions = Decisions()
        decisions.read(store)
        store.append(SCOPE, whole[-1])
        assert answer_on_record(store, SCOPE.fix_id) == DecisionResult(False, True)
        decisions.read(store)
        assert decisions.open() == {SCOPE.fix_id: len(whole)}
        store.close()


def test_an_unknown_fix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        answer_on_record(_store(tmp_path), "nobody")
