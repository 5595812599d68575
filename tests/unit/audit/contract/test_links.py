"""Between the gate transitions of a fix: each further one is opened by a person, once, and goes on."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.contract import people
from fallback_audit.contract.table import FIX_RULES, RULES, link_violations, violations
from fallback_audit.contract.trail import Entry, Trail, link_of
from fallback_audit.events import (
    AttemptStarted,
    AuditEvent,
    FixStarted,
    PatchProposed,
    RagSkippedOnRetry,
    TransitionReopened,
)
from fallback_audit.ports import Scope
from fallback_audit.retention.redact import free_text_fields
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.verify import verify
from fallback_audit.vocabulary import AffectedCode, EscalationReason, Tier
from tests.unit.audit import again_trails as again
from tests.unit.audit import human_trails as h
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.tamper import fixed_clock
from tests.unit.audit.trails import Events, changed, without

#: The transitions of one fix, in the order in which they were written.
Fix = dict[str, Events]

FIRST, SECOND, THIRD = "gate-b", "gate-a", "gate-c"


def reopened_and_verified() -> Fix:
    second = [h.planned(FIRST), *t.retry(5, 1), *t.passing_gates(5), t.verified(5)]
    return {FIRST: [*h.with_gates(t.cap_reached()), h.reopened(SECOND)], SECOND: second}


def reopened_and_not_yet_begun() -> Fix:
    return {FIRST: reopened_and_verified()[FIRST]}


def reopened_again() -> Fix:
    """The second one ended without a failed attempt of its own: the third has what it had."""
    second = [*h.reopened_twice()[:-1], h.reopened(THIRD)]
    second = changed(second, FixStarted, linked_transition=FIRST)
    third = [h.planned(SECOND), *t.retry(5, 1), *t.passing_gates(5), t.verified(5)]
    return {FIRST: reopened_and_verified()[FIRST], SECOND: second, THIRD: third}


def before_links_were_recorded() -> Fix:
    return {FIRST: t.linked_transition()}


def another_orchestrator() -> Fix:
    """It names its own transitions, and no gate runner of ours starts them."""
    return {FIRST: t.first_by_recipe(), SECOND: t.retry(2)}


def gates_run_again() -> Fix:
    first = [*h.with_gates(t.cap_reached()), h.reopened(SECOND, again=4)]
    second = [*again.up_to_its_patch(4, FIRST), *t.passing_gates(4), t.verified(4)]
    return {FIRST: first, SECOND: second}


def gates_failed_again_then_reopened() -> Fix:
    """The failure of the gates that were run again is the last: the third starts with it."""
    end = t.escalated(4, EscalationReason.GATES_FAILED_AGAIN)
    second = [*again.up_to_its_patch(4, FIRST), *t.failing_gates(4), end, h.reopened(THIRD)]
    third = [h.planned(SECOND), *t.retry(5, 1), *t.passing_gates(5), t.verified(5)]
    return {FIRST: gates_run_again()[FIRST], SECOND: second, THIRD: third}


def gates_not_run_again_then_reopened() -> Fix:
    """They said nothing of an earlier patch: the third starts with what the first ended with."""
    asked = [*h.with_gates(t.cap_reached()), h.reopened(SECOND, again=2)]
    end = t.escalated(2, EscalationReason.GATE_INFRASTRUCTURE)
    second = [*again.up_to_its_patch(2, FIRST), end, h.reopened(THIRD)]
    third = [h.planned(SECOND), *t.retry(5, 1), *t.passing_gates(5), t.verified(5)]
    return {FIRST: asked, SECOND: second, THIRD: third}


def doubted_and_judged_again_twice() -> Fix:
    """No attempt had failed. The doubt about the patch goes with it, from where it was made."""
    unproved = t.escalated(1, EscalationReason.NOTHING_PROVED)
    first = [*h.with_gates(m.doubted_twice()[:-4]), unproved, h.reopened(SECOND, again=1)]
    (patch,) = (e for e in first if isinstance(e, PatchProposed))
    taken = patch.model_copy(update={"taken_from": FIRST})
    second = [again.begun(1, FIRST), again.started(1), taken, unproved, h.reopened(THIRD, again=1)]
    third = [again.begun(1, SECOND), again.started(1), taken, *t.passing_gates(1), t.verified(1)]
    return {FIRST: first, SECOND: second, THIRD: third}


def not_made_then_begun_again() -> Fix:
    """The model was unavailable, twice: the third transition starts with a first attempt, too."""
    first = [*h.with_gates(t.model_unavailable()), h.reopened(SECOND)]
    second = [h.planned(FIRST), *t.model_unavailable()[1:], h.reopened(THIRD)]
    third = [h.planned(SECOND), *t.first_by_recipe(), *t.passing_gates(1), recipe_end()]
    return {FIRST: first, SECOND: second, THIRD: third}


def recipe_end() -> AuditEvent:
    return t.verified(1, Tier.RECIPE)


def begun_again_and_unproved() -> Fix:
    """The second transition proposed a patch that no gate failed and none proved."""
    unproved = [*h.unproved_then_approved()[1:-1], h.reopened(THIRD)]
    return {
        FIRST: not_made_then_begun_again()[FIRST],
        SECOND: [h.planned(FIRST), *unproved],
    }


def reopened_and_abandoned() -> Fix:
    return {FIRST: [*reopened_and_verified()[FIRST], h.abandoned()]}


def second_abandoned() -> Fix:
    return {**reopened_and_verified(), SECOND: [*second_of()[:3], h.abandoned()]}


VALID = (
    reopened_and_abandoned,
    second_abandoned,
    not_made_then_begun_again,
    gates_run_again,
    gates_failed_again_then_reopened,
    gates_not_run_again_then_reopened,
    doubted_and_judged_again_twice,
    reopened_and_verified,
    reopened_and_not_yet_begun,
    reopened_again,
    before_links_were_recorded,
    another_orchestrator,
)


def with_second(second: Events) -> Fix:
    return {**reopened_and_verified(), SECOND: second}


def second_of() -> Events:
    return reopened_and_verified()[SECOND]


MUTANTS: dict[str, Callable[[], Fix]] = {
    "retrieval again behind a failure": lambda: with_second(
        [h.planned(FIRST), *t.first_by_recipe(), *t.passing_gates(1), recipe_end()]
    ),
    "another first attempt behind a patch": begun_again_and_unproved,
    "a failure that there was not": lambda: {
        FIRST: not_made_then_begun_again()[FIRST],
        SECOND: second_of(),
    },
    "nobody opened it": lambda: {
        FIRST: without(reopened_and_verified()[FIRST], TransitionReopened),
        SECOND: second_of(),
    },
    "the first one is missing": lambda: {SECOND: second_of()},
    "a second start without a link": lambda: {
        FIRST: h.with_gates(t.cap_reached()),
        SECOND: h.with_gates(t.recipe_verified()),
    },
    "not linked to its opener": lambda: with_second(
        changed(second_of(), FixStarted, linked_transition=THIRD)
    ),
    "no link at all": lambda: with_second(changed(second_of(), FixStarted, linked_transition=None)),
    "begun before it was opened": lambda: dict(reversed(reopened_and_verified().items())),
    "more priors than one": lambda: with_second(
        changed(second_of(), AttemptStarted, prior_attempt_count=2)
    ),
    "another summary": lambda: with_second(
        changed(second_of(), RagSkippedOnRetry, summary_sha256=t.digest("summary 1"))
    ),
    "opens itself": lambda: {
        FIRST: changed(reopened_and_verified()[FIRST], TransitionReopened, opens=FIRST)
    },
    "opens one that two opened": lambda: {
        **reopened_again(),
        SECOND: changed(reopened_again()[SECOND], TransitionReopened, opens=SECOND),
    },
    "opens one that was there": lambda: {
        THIRD: h.with_gates(t.recipe_verified()),
        FIRST: changed(reopened_and_verified()[FIRST], TransitionReopened, opens=THIRD),
    },
}


def again_with(kind: type, **update: object) -> Fix:
    """The second transition, with one of its events altered."""
    fix = gates_run_again()
    return {**fix, SECOND: changed(fix[SECOND], kind, **update)}


def _own_code_again() -> Fix:
    """Up to the patch: whose code it is, decides nothing yet."""
    fix = {FIRST: gates_run_again()[FIRST], SECOND: gates_run_again()[SECOND][:3]}
    own = {"affected_code": AffectedCode.OWN}
    return {name: changed(events, FixStarted, **own) for name, events in fix.items()}


#: Each transition by itself keeps the contract; what they say of each other doesn't.
AGAIN: dict[str, Callable[[], Fix]] = {
    "a patch that nobody proposed": lambda: {
        FIRST: changed(
            gates_run_again()[FIRST], TransitionReopened, judges_again=t.digest("patch 9")
        )
    },
    "a patch that is proposed later": lambda: {
        FIRST: changed(
            gates_failed_again_then_reopened()[FIRST],
            TransitionReopened,
            judges_again=t.digest("patch 5"),
        ),
        SECOND: [again.begun(5, FIRST)],
    },
    "another patch than was named": lambda: {
        FIRST: gates_run_again()[FIRST],
        SECOND: [*again.up_to_its_patch(3, FIRST), *t.passing_gates(3), t.verified(3)],
    },
    "gates alone, and a person asked for an attempt": lambda: {
        FIRST: changed(gates_run_again()[FIRST], TransitionReopened, judges_again=None),
        SECOND: gates_run_again()[SECOND],
    },
    "an attempt, and a person asked for gates alone": lambda: {
        FIRST: gates_run_again()[FIRST],
        SECOND: reopened_and_verified()[SECOND],
    },
    "it was made elsewhere": lambda: again_with(PatchProposed, taken_from=THIRD),
    "a doubt that got lost": lambda: {
        **doubted_and_judged_again_twice(),
        THIRD: changed(
            doubted_and_judged_again_twice()[THIRD],
            PatchProposed,
            low_confidence=False,
            grounded=None,
        ),
    },
    "another base commit": lambda: again_with(FixStarted, base_commit="0" * 40),
    "somebody else's code": lambda: {
        **_own_code_again(),
        SECOND: changed(
            _own_code_again()[SECOND], FixStarted, affected_code=AffectedCode.DEPENDENCY
        ),
    },
}

#: What the rule on opened transitions says of gates that are run again.
NOTHING_TO_START_WITH: dict[str, Callable[[], Fix]] = {
    "a prior attempt": lambda: again_with(AttemptStarted, prior_attempt_count=1),
    "an attempt, and none had failed": lambda: {
        **doubted_and_judged_again_twice(),
        SECOND: changed(
            doubted_and_judged_again_twice()[SECOND], TransitionReopened, judges_again=None
        ),
        THIRD: [],
    },
    "the failure of another": lambda: {
        **gates_not_run_again_then_reopened(),
        THIRD: changed(
            gates_not_run_again_then_reopened()[THIRD],
            RagSkippedOnRetry,
            summary_sha256=t.digest("summary 2"),
        ),
    },
}


#: Each by itself keeps the contract: a fix is over when it was abandoned, whichever transition that was in.
ABANDONED: dict[str, Callable[[], Fix]] = {
    "one begins afterwards": lambda: {**reopened_and_abandoned(), SECOND: second_of()},
    "abandoned twice": lambda: {**reopened_and_abandoned(), SECOND: second_abandoned()[SECOND]},
}


def broken(fix: Fix) -> set[str]:
    seq, links = 1, []
    for name, events in fix.items():
        if not events:
            continue
        scope = Scope(fix_id="fix-1", gate_transition_id=name)
        links.append(link_of(Trail(scope, [Entry(seq + n, e) for n, e in enumerate(events)])))
        seq += len(events)
    found = list(link_violations("fix-1", links))
    assert {violation.fix_id for violation in found} <= {"fix-1"}
    assert {violation.gate_transition_id for violation in found} <= set(fix)
    return {violation.rule for violation in found}


def verified(path: Path, *fixes: Fix) -> VerificationReport:
    with closing(SqliteAuditStore(path, clock=fixed_clock)) as store:
        for number, fix in enumerate(fixes, start=1):
            for name, events in fix.items():
                for event in events:
                    store.append(Scope(fix_id=f"fix-{number}", gate_transition_id=name), event)
    with closing(open_readonly(path)) as reader:
        return verify(reader, checkpoints=None)


def cut(fix: Fix, length: int) -> Fix:
    """The fix as it was after ``length`` events."""
    left: Fix = {}
    for name, events in fix.items():
        taken: list[AuditEvent] = events[:length]
        length -= len(taken)
        if taken:
            left[name] = taken
    return left


@pytest.mark.parametrize("valid", VALID, ids=lambda valid: valid.__name__)
def test_valid_fixes_break_no_rule_wherever_the_process_died(valid: Callable[[], Fix]) -> None:
    fix = valid()
    for length in range(1, sum(map(len, fix.values())) + 1):
        assert not broken(cut(fix, length)), f"after {length} events"


def test_a_patch_whose_files_were_redacted_where_it_was_made_is_the_same() -> None:
    """And everything else that is said of a patch is compared."""
    fix = gates_run_again()
    fix[FIRST] = changed(fix[FIRST], PatchProposed, files=("[redacted]",))
    assert not broken(fix)
    free = free_text_fields(PatchProposed)
    assert {*people._RECORDED, *free, "kind", "taken_from"} == set(PatchProposed.model_fields)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_caught(mutant: str) -> None:
    assert broken(MUTANTS[mutant]()) == {"transitions-are-opened"}


@pytest.mark.parametrize("mutant", NOTHING_TO_START_WITH)
def test_each_mutant_of_what_gates_alone_start_with_is_caught(mutant: str) -> None:
    assert broken(NOTHING_TO_START_WITH[mutant]()) == {"transitions-are-opened"}


@pytest.mark.parametrize("mutant", ABANDONED)
def test_each_mutant_of_an_abandoned_fix_is_caught(mutant: str) -> None:
    fix = ABANDONED[mutant]()
    assert broken(fix) == {"abandonments-are-final"}
    for events in fix.values():
        assert not list(violations(t.trail_of(events)))


def test_a_fix_is_abandoned_in_its_last_gate_transition() -> None:
    """The first one was reopened, and the second runs when the first is abandoned."""
    first, second = reopened_and_verified()[FIRST], second_of()
    one, other = (Scope(fix_id="fix-1", gate_transition_id=name) for name in (FIRST, SECOND))
    opener = [*first, *second, h.abandoned()]
    entries = [Entry(n, event) for n, event in enumerate(opener, start=1)]
    links = [
        link_of(Trail(one, [*entries[: len(first)], entries[-1]])),
        link_of(Trail(other, entries[len(first) : -1])),
    ]
    found = [(v.rule, v.seq) for v in link_violations("fix-1", links)]
    assert found == [("abandonments-are-final", len(opener))]


@pytest.mark.parametrize("mutant", AGAIN)
def test_each_mutant_of_gates_run_again_is_caught(mutant: str) -> None:
    fix = AGAIN[mutant]()
    assert broken(fix) == {"gates-again-are-of-record"}
    for events in fix.values():
        assert not list(violations(t.trail_of(events)))


def test_each_rule_between_transitions_has_its_mutants_here() -> None:
    assert [rule.id for rule in FIX_RULES] == [
        "transitions-are-opened",
        "abandonments-are-final",
        "gates-again-are-of-record",
    ]
    assert not {rule.id for rule in FIX_RULES} & {rule.id for rule in RULES}
    for rule in FIX_RULES:
        assert rule.sentence.endswith(".")
        assert rule.source.startswith("ADR-")


def test_verify_compares_the_transitions_of_each_fix(tmp_path: Path) -> None:
    good = verified(tmp_path / "good.db", reopened_and_verified(), reopened_again())
    assert good.ok, good.first_bad
    bad = verified(
        tmp_path / "bad.db",
        reopened_and_verified(),
        MUTANTS["another summary"](),
        reopened_again(),
    )
    assert [(v.rule, v.fix_id) for v in bad.contract_violations] == [
        ("transitions-are-opened", "fix-2")
    ]
    assert bad.contract_violations[0].gate_transition_id == SECOND
