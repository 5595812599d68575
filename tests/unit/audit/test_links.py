"""Between the gate transitions of a fix: each further one is opened by a person, once, and goes on."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.contract.links import link_of
from fallback_audit.contract.table import FIX_RULES, RULES, link_violations
from fallback_audit.contract.trail import Entry, Trail
from fallback_audit.events import (
    AttemptStarted,
    AuditEvent,
    FixStarted,
    RagSkippedOnRetry,
    TransitionReopened,
)
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.verifying.verify import VerificationReport, verify
from tests.unit.audit import human_trails as h
from tests.unit.audit import trails as t
from tests.unit.audit.altered import changed, without
from tests.unit.audit.tamper import fixed_clock
from tests.unit.audit.trails import Events

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


VALID = (
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


def broken(fix: Fix) -> set[str]:
    seq, links = 1, []
    for name, events in fix.items():
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


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_caught(mutant: str) -> None:
    assert broken(MUTANTS[mutant]()) == {"transitions-are-opened"}


def test_each_rule_between_transitions_has_its_mutants_here() -> None:
    assert [rule.id for rule in FIX_RULES] == ["transitions-are-opened"]
    assert not {rule.id for rule in FIX_RULES} & {rule.id for rule in RULES}
    for rule in FIX_RULES:
        assert rule.sentence.endswith(".")
        assert rule.source.startswith(("ADR-", "DESIGN §"))


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
