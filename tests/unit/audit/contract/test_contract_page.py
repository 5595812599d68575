"""``docs/trace-contract.md`` is the table of rules: made from it, and never behind it.

``pytest tests/unit/audit/contract/test_contract_page.py --refresh-contract`` writes it anew.
"""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from fallback_audit import contract
from fallback_audit.contract.rule import (
    Added,
    Altered,
    Breach,
    FixRule,
    Kind,
    Removed,
    Rule,
    fix_rules_of,
    rules_of,
)
from fallback_audit.contract.table import ALL_RULES, CHAPTERS, flags_are_real

DOCS = Path(__file__).parents[4] / "docs"
PAGE = DOCS / "trace-contract.md"

HEAD = f"""# The trace contract

What may stand in an audit trail, as a table of {len(ALL_RULES)} rules: evidence without action is a
violation that a command finds. A store asks them before each append
([ADR-0035](adr/0035-the-contract-is-asked-before-an-append.md)); `fallback-tier audit verify` asks them of
the whole trail, and exits 7 where one is broken. A fix that has not ended is open, never wrong for what may
still come.

*Broken by* is what the tests do to valid trails, rule by rule, to see that the rule catches it: take an
event away, put one in (added), or have one say something else (altered). *Asked at*: the events that can
break it when they are appended.

This page is made from the table in `audit/fallback_audit/contract`
(`pytest tests/unit/audit/contract/test_contract_page.py --refresh-contract`).
"""

#: Kinds of events that a row names; a rule that sees more sees all that say of which attempt they are.
MOST_NAMED = 12

PARTS: dict[str, tuple[Rule | FixRule, ...]] = {
    title: (*rules_of(chapter), *fix_rules_of(chapter)) for title, chapter in CHAPTERS.items()
} | {"Flags": (flags_are_real,)}


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
    """A decision is a page of its own."""
    (page,) = (DOCS / "adr").glob(f"{source.removeprefix('ADR-')}-*.md")
    return f"[{source}](adr/{page.name})"


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


def test_every_rule_is_on_the_page() -> None:
    text = page()
    assert re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE) == [
        rule.id for rules in PARTS.values() for rule in rules
    ]
    assert sorted(rule.id for rule in ALL_RULES) == sorted(
        rule.id for rules in PARTS.values() for rule in rules
    )


def test_every_rule_that_stands_in_a_module_is_asked() -> None:
    modules = [
        import_module(f"{contract.__name__}.{one.name}") for one in iter_modules(contract.__path__)
    ]
    written = {
        found.id
        for module in modules
        for found in vars(module).values()
        if isinstance(found, Rule | FixRule)
    }
    assert written == {rule.id for rule in ALL_RULES}
