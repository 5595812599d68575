"""A trail is judged by the rules that its kinds of events can break: the others find nothing in it."""

from collections.abc import Callable, Sequence

import pytest

from fallback_audit.contract.table import RULES, violations
from fallback_audit.contract.trail import Entry, Trail
from fallback_audit.events import AuditEvent
from fallback_audit.verifying.trails import rules_for
from tests.unit.audit import trails as t
from tests.unit.audit.contract.test_contract import ALL_MUTANTS
from tests.unit.audit.human_trails import VALID

Made = Callable[[], Sequence[AuditEvent]]


def trail(events: Sequence[AuditEvent]) -> Trail:
    return Trail(t.SCOPE, [Entry(seq, event) for seq, event in enumerate(events, start=1)])


@pytest.mark.parametrize(
    "make", [*VALID, *(mutant for mutants in ALL_MUTANTS.values() for mutant in mutants)]
)
def test_the_rules_that_are_left_out_find_nothing(make: Made) -> None:
    judged = trail(make())
    assert list(violations(judged, rules_for(judged))) == list(violations(judged))


def test_some_are_left_out() -> None:
    assert len(rules_for(trail(t.recipe_verified()))) < len(RULES)
