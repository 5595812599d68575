"""Each rule has its mutants, made from the table: off line it catches them, on line it refuses them."""

import pytest

from fallback_audit.contract.rule import Breach
from fallback_audit.contract.table import ALL_RULES, SENTENCES
from tests.unit.audit import generated as g
from tests.unit.audit.again_trails import AGAIN_VALID
from tests.unit.audit.guarding import first_refused

BREACHES = [
    pytest.param(rule.id, breach, id=f"{rule.id}-{number}")
    for rule in ALL_RULES
    for number, breach in enumerate(rule.breaches, start=1)
]


def test_each_rule_says_what_breaks_it() -> None:
    assert [rule.id for rule in ALL_RULES if not rule.breaches] == []
    assert len(SENTENCES) == len(ALL_RULES)


def test_the_corpus_is_valid_but_for_what_it_says() -> None:
    bad = {name: broken for name, lines in g.corpus().items() if (broken := g.broken(lines))}
    # Where a trail stands alone, the transition that it is linked to is not here.
    alone = {
        trail.__name__: {"transitions-are-opened", "gates-again-are-of-record"}
        for trail in AGAIN_VALID
    }
    assert bad == {
        "flagged": {"one-terminal-event"},
        "reopened_twice": {"transitions-are-opened"},
        **alone,
    }


@pytest.mark.parametrize(("rule", "breach"), BREACHES)
def test_each_breach_gives_a_mutant_that_its_rule_catches_and_the_guard_refuses(
    rule: str, breach: Breach
) -> None:
    name, mutant = next(g.caught_by(rule, breach), ("", ()))
    assert mutant, f"no mutant of any valid trail by {breach} breaks {rule}"
    refused = first_refused(mutant, tolerated=g.broken(g.corpus()[name]))
    assert refused is not None
    # The guard is the same table: what it refuses first is the first prefix that breaks anything.
    at, rules = refused
    assert not g.broken(mutant[: at - 1]) - g.broken(g.corpus()[name])
    assert rules <= g.broken(mutant[:at])
