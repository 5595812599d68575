"""A person abandons a fix: recorded once, signed, and only while the fix is unfinished."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_audit.contract.table import violations
from fallback_audit.contract.trail import Entry, Trail
from fallback_audit.events import BudgetRaised, FixAbandoned
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.questions import questions, review
from fallback_tier.fix.journal.recorded_fix import RecordedFix
from fallback_tier.fix.journal.review import Signature, abandon, raise_budget, reject, reopen
from tests.kinds import OfKind
from tests.unit.audit import human_trails as h
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.trails import SCOPE, Events
from tests.unit.fix.journal.review_record import FIX, Record

ADA = Signature("Ada", "the project is archived")

OPEN: dict[str, Callable[[], Events]] = {
    "begun": lambda: [h.planned()],
    "in an attempt": lambda: [h.planned(), *t.first_by_model()[:3]],
    "behind a failed gate": lambda: [
        h.planned(),
        *t.first_by_recipe(),
        *t.failing_gates(1, tier=t.Tier.RECIPE)[:2],
    ],
    "before its end": lambda: h.with_gates(t.recipe_verified())[:-1],
    "its budget raised": lambda: [*h.with_gates(m.stopped_at_budget()), m.raised()],
    "reopened": h.cap_then_reopened,
    "reopened for its gates": h.cap_then_gates_again,
}

NOT_OPEN: dict[str, tuple[Callable[[], Events], str]] = {
    "verified": (t.recipe_verified, "ended"),
    "delivered": (h.verified_and_delivered, "ended"),
    "refused": (t.not_affected, "ended"),
    "rejected": (h.cap_then_rejected, "ended"),
    "approved": (h.unproved_then_approved, "ended"),
    "escalated": (t.cap_reached, "escalated"),
    "at its budget": (m.stopped_at_budget, "escalated"),
    "of another orchestrator": (lambda: t.foreign_orchestrator()[:-1], "another_orchestrator"),
    "abandoned": (h.abandoned_at_once, "abandoned"),
}


def record(events: Events) -> Record:
    kept = Record()
    kept.write(events)
    return kept


def events_of(kept: Record) -> list[object]:
    return [stored.payload for stored in kept.audit.events()]


@pytest.mark.parametrize("name", OPEN)
def test_an_unfinished_fix_is_abandoned(name: str, tmp_path: Path) -> None:
    kept = record(OPEN[name]())
    event = abandon(kept.audit, tmp_path, FIX, ADA)
    assert events_of(kept)[-1] == event == FixAbandoned(by="Ada", reason=ADA.because)
    entries = [Entry(stored.seq, stored.payload) for stored in kept.audit.events()]
    assert not list(violations(Trail(SCOPE, entries)))


@pytest.mark.parametrize("name", NOT_OPEN)
def test_another_is_not_and_nothing_is_recorded(name: str, tmp_path: Path) -> None:
    events, kind = NOT_OPEN[name]
    kept = record(events())
    before = events_of(kept)
    with pytest.raises(InputError, check=OfKind(kind)):
        abandon(kept.audit, tmp_path, FIX, ADA)
    assert events_of(kept) == before


def test_an_unknown_fix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, check=OfKind("no_such_fix")):
        abandon(Record().audit, tmp_path, FIX, ADA)


@pytest.mark.parametrize(
    ("signature", "kind"),
    [
        (Signature(" ", "x"), "signature_empty"),
        (Signature("Ada", "\n"), "signature_empty"),
        (Signature("Ada", "x" * 3_000), "signature_too_long"),
    ],
)
def test_it_has_a_name_and_a_reason(signature: Signature, kind: str, tmp_path: Path) -> None:
    kept = record([h.planned()])
    with pytest.raises(InputError, check=OfKind(kind)):
        abandon(kept.audit, tmp_path, FIX, signature)
    assert len(events_of(kept)) == 1


ABANDONED = (
    h.abandoned_at_once,
    h.abandoned_between_gates,
    h.abandoned_after_raise,
    h.abandoned_when_reopened,
)


@pytest.mark.parametrize("trail", ABANDONED, ids=lambda trail: trail.__name__)
def test_nothing_of_it_is_continued_or_answered(trail: Callable[[], Events]) -> None:
    kept = record(trail())
    before = events_of(kept)
    raised = BudgetRaised(by="Ada", reason="x", usd_per_fix="9", tokens_per_fix=None)
    for act in (
        lambda: RecordedFix(kept.audit, kept.evidence, FIX).state,
        lambda: RecordedFix(kept.audit, kept.evidence, FIX).result,
        lambda: reject(kept.audit, FIX, ADA),
        lambda: reopen(kept.audit, FIX, ADA, opens="gate-9"),
        lambda: raise_budget(kept.audit, FIX, raised),
    ):
        with pytest.raises(InputError, check=OfKind("abandoned")):
            act()
    assert events_of(kept) == before
    assert questions(kept.audit) == []


def test_a_question_that_was_reopened_says_who_abandoned_the_fix() -> None:
    kept = record(h.abandoned_when_reopened())
    (question,) = questions(kept.audit, answered=True)
    assert question.answer == "abandoned by A. Person"
    assert review(kept.audit, kept.evidence, FIX).next_steps == ()
