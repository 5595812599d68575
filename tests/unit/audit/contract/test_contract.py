"""The trace contract: valid trails pass at every crash point; each rule catches its mutants."""

from collections.abc import Callable

import pytest

from fallback_audit.contract import attempt, fix, model, parts
from fallback_audit.contract.table import RULES, violations
from fallback_audit.contract.trail import TERMINALS
from fallback_audit.events import (
    TERMINAL_KINDS,
    ModelCalled,
    RagSkippedOnRetry,
    RetrievalQueried,
)
from fallback_tier import limits
from fallback_tier.fix import decision
from fallback_tier.llm import selfrag
from tests.unit.audit import trails as t
from tests.unit.audit.again_trails import AGAIN_ALSO, AGAIN_MUTANTS
from tests.unit.audit.batch_trails import BATCH_MUTANTS
from tests.unit.audit.candidate_trails import CANDIDATE_MUTANTS
from tests.unit.audit.human_trails import HUMAN_ALSO, HUMAN_MUTANTS, VALID
from tests.unit.audit.model_trails import ALSO, MODEL_MUTANTS
from tests.unit.audit.proof_trails import PROOF_ALSO, PROOF_MUTANTS
from tests.unit.audit.trails import MUTANTS, Events, without

PARTS = (
    MUTANTS,
    MODEL_MUTANTS,
    HUMAN_MUTANTS,
    PROOF_MUTANTS,
    AGAIN_MUTANTS,
    CANDIDATE_MUTANTS,
    BATCH_MUTANTS,
)
MORE = (ALSO, HUMAN_ALSO, PROOF_ALSO, AGAIN_ALSO)

ALL_MUTANTS = {rule: mutants for part in PARTS for rule, mutants in part.items()}

EVERY = {
    rule: [*mutants, *(mutant for more in MORE for mutant in more.get(rule, ()))]
    for rule, mutants in ALL_MUTANTS.items()
}

CASES = [
    pytest.param(rule, mutant, id=f"{rule}-{number}")
    for rule, mutants in EVERY.items()
    for number, mutant in enumerate(mutants, start=1)
]


def broken_rules(events: Events) -> set[str]:
    return {violation.rule for violation in violations(t.trail_of(events))}


@pytest.mark.parametrize("valid", VALID, ids=lambda valid: valid.__name__)
def test_valid_trails_break_no_rule_wherever_the_process_died(valid: Callable[[], Events]) -> None:
    events = valid()
    for length in range(len(events) + 1):
        found = list(violations(t.trail_of(events[:length])))
        assert not found, f"after {length} events"


@pytest.mark.parametrize(("rule", "mutant"), CASES)
def test_each_mutant_is_caught_by_its_rule(rule: str, mutant: Callable[[], Events]) -> None:
    assert rule in broken_rules(mutant())


def test_each_rule_has_a_mutant_and_each_mutant_a_rule() -> None:
    identifiers = [
        rule.id for rule in RULES if not rule.of_maintenance
    ]  # see test_generated_mutants
    assert len(set(identifiers)) == len(identifiers)
    assert len(ALL_MUTANTS) == sum(map(len, PARTS))
    assert set(ALL_MUTANTS) == set(identifiers)
    assert all(ALL_MUTANTS.values())
    assert set().union(*MORE) <= set(identifiers)


@pytest.mark.parametrize("rule", EVERY)
def test_without_this_rule_a_mutant_would_pass(rule: str) -> None:
    """Each rule is needed: it alone catches one of its mutants."""
    assert any(broken_rules(mutant()) == {rule} for mutant in EVERY[rule])


def test_each_rule_is_one_sentence_with_a_source() -> None:
    for rule in RULES:
        assert rule.sentence.endswith(".")
        assert rule.source.startswith("ADR-")


def test_violations_name_the_event() -> None:
    events = without(t.verified_on_retry(), RagSkippedOnRetry)
    found = [v for v in violations(t.trail_of(events)) if v.rule == "rag-skip-recorded"]
    first_call = next(i for i, e in enumerate(events, start=1) if isinstance(e, ModelCalled))
    assert [violation.seq for violation in found] == [first_call]
    assert found[0].fix_id == t.SCOPE.fix_id


def test_retrieval_on_a_first_attempt_is_no_violation() -> None:
    events = t.model_with_examples()
    assert any(isinstance(event, RetrievalQueried) for event in events)
    assert not broken_rules(events)


def test_limits_are_those_of_the_tier() -> None:
    assert attempt.MAX_RETRIES == limits.MAX_RETRIES
    assert parts.MAX_RECIPE_CANDIDATES == limits.MAX_RECIPE_CANDIDATES
    assert model.MAX_AUTHOR_CALLS == limits.MAX_AUTHOR_CALLS
    assert attempt.MAX_EXAMPLES == limits.MAX_EXAMPLES
    assert model.MAX_CANDIDATE_CALLS == selfrag.MAX_CANDIDATE_CALLS


def test_same_failure_limit_is_that_of_the_gate_runner() -> None:
    assert fix.SAME_FAILURE_LIMIT == decision.SAME_FAILURE_LIMIT


def test_terminal_types_are_those_of_the_vocabulary() -> None:
    assert {kind.__name__ for kind in TERMINALS} == TERMINAL_KINDS
