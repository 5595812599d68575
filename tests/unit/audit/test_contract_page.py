"""``docs/trace-contract.md`` is the table of rules: made from it, and never behind it.

``pytest tests/unit/audit/test_contract_page.py --refresh-contract`` writes it anew.
"""

import re
from pathlib import Path

import pytest

from fallback_audit.contract.rule import Added, Altered, Breach, FixRule, Kind, Removed, Rule
from fallback_audit.contract.table import ALL_RULES, FIX_RULES, RULES
from fallback_audit.contract.table_attempt import ATTEMPT_RULES
from fallback_audit.contract.table_batch import BATCH_RULES
from fallback_audit.contract.table_candidates import CANDIDATE_RULES
from fallback_audit.contract.table_fix import FIX_AND_HUMAN_RULES
from fallback_audit.contract.table_model import MODEL_RULES
from fallback_audit.contract.table_selfrag import SELFRAG_RULES

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "trace-contract.md"

HEAD = f"""# The trace contract

What may stand in an audit trail, as a table of {len(ALL_RULES)} rules: evidence without action is a
violation that a command finds. A store asks them before each append
([ADR-0035](adr/0035-the-contract-is-asked-before-an-append.md)); `fallback-tier audit verify` asks them of
the whole trail, and exits 7 where one is broken. A fix that has not ended is open, never wrong for what may
still come.

*Broken by* is what the tests do to valid trails, rule by rule, to see that the rule catches it: take an
event away, put one in (added), or have one say something else (altered). *Asked at*: the events that can
break it when they are appended. A § is a chapter of the design.

This page is made from the table in `audit/fallback_audit/contract`
(`pytest tests/unit/audit/test_contract_page.py --refresh-contract`).
"""

#: Kinds of events that a row names; a rule that sees more sees all that say of which attempt they are.
MOST_NAMED = 12

PARTS: dict[str, tuple[Rule | FixRule, ...]] = {
    "An attempt": ATTEMPT_RULES,
    "Gates, ends, people": FIX_AND_HUMAN_RULES,
    "A recipe's candidates": CANDIDATE_RULES,
    "Several advisories": BATCH_RULES,
    "Model traffic": MODEL_RULES,
    "Self-RAG": SELFRAG_RULES,
    "The record itself": tuple(rule for rule in RULES if rule.of_upkeep),
    "Between gate transitions": FIX_RULES,
}


def page() -> str:
    parts = [HEAD]
    for title, rules in PARTS.items():
        parts.append(
            f"\n## {title}\n\n| rule | says | from | broken by | asked at |\n|---|---|---|---|---|\n"
        )
        parts += map(_row, rules)
    return "".join(parts)


def _row(rule: Rule | FixRule) -> str:
    broken_by = ", ".join(map(_breach, rule.breaches))
    cells = (f"`{rule.id}`", rule.sentence, _source(rule.source), broken_by, _asked(rule))
    return f"| {' | '.join(cells)} |\n"


def _source(source: str) -> str:
    """A decision is a page of its own; the design is not here."""
    if not source.startswith("ADR-"):
        return source.removeprefix("DESIGN ")
    found = [path.name for path in (DOCS / "adr").glob(f"{source.removeprefix('ADR-')}-*.md")]
    return f"[{source}](adr/{found[0]})" if found else source


def _breach(breach: Breach) -> str:
    match breach:
        case Removed(kind):
            return f"`{kind.__name__}` removed"
        case Added(kind):
            return f"`{kind.__name__}` added"
        case Altered(kind, member):
            return f"`{kind.__name__}.{member}` altered"


def _asked(rule: Rule | FixRule) -> str:
    if rule.sees is None:
        return "any"
    if len(rule.sees) > MOST_NAMED:
        return "any of an attempt"
    return " ".join(f"`{kind.__name__}`" for kind in sorted(rule.sees, key=_name))


def _name(kind: Kind) -> str:
    return str(kind.__name__)


def test_the_page_is_the_table(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("refresh_contract"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "run this test with --refresh-contract"


def test_every_rule_is_on_the_page_and_every_decision_there_is_one() -> None:
    text = page()
    assert re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE) == [
        rule.id for rules in PARTS.values() for rule in rules
    ]
    assert sorted(rule.id for rule in ALL_RULES) == sorted(
        rule.id for rules in PARTS.values() for rule in rules
    )
    for rule in ALL_RULES:
        if rule.source.startswith("ADR-"):
            assert list((DOCS / "adr").glob(f"{rule.source[4:]}-*.md")), rule.source
