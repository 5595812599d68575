"""The grammar of a schema admits the schema's values, in a prompt's own order of keys, and nothing else."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fallback_plugins.messages_api.local import KEY_ORDER, grammar_of
from fallback_tier.answers.blocks import parse_plan, plan_schema
from fallback_tier.grounding.support import verdicts_adapter
from fallback_tier.outcome import Plan
from tests.kinds import RaisedIn
from tests.unit.answers.test_plan import plans

SKILLS = Path(__file__).parents[3] / "plugins" / "fallback_plugins"

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|[a-z][a-z0-9-]*|\{[\d,]+\}|[()|*+?]|\s+'
)


def regex_of(grammar: str) -> str:
    """A grammar without recursion as a regular expression."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())

    def expanded(name: str) -> str:
        at, parts = 0, []
        while at < len(rules[name]):
            token = _TOKEN.match(rules[name], at)
            assert token, rules[name][at:]
            at, text = token.end(), token.group()
            if text[0] == '"':
                parts.append(f"(?:{re.escape(json.loads(text))})")
            elif text[0].isalpha():
                parts.append(f"(?:{expanded(text)})")
            elif not text.isspace():
                parts.append("(?:" if text == "(" else text)
        return "".join(parts)

    return expanded("root")


ADMITTED = {
    declaring: re.compile(regex_of(grammar_of(plan_schema(declaring=declaring))))
    for declaring in (False, True)
}


def written(plan: Plan, **layout: Any) -> str:
    """A plan with its keys as a prompt's examples have them."""
    value = plan.model_dump(mode="json")
    ordered = [key for key in KEY_ORDER if key in value]
    return json.dumps({key: value[key] for key in [*ordered, *value]}, **layout)


@given(plans, st.sampled_from([{}, {"indent": 2}, {"ensure_ascii": False}]))
def test_every_plan_is_admitted(plan: Plan, layout: dict[str, Any]) -> None:
    assume("\x7f" not in plan.model_dump_json())  # escaped by nobody, and in no file of code
    for pattern in ADMITTED.values():
        assert pattern.fullmatch(written(plan, **layout))


@given(
    st.sampled_from([*ADMITTED.values()]).flatmap(lambda one: st.from_regex(one, fullmatch=True))
)
@settings(max_examples=50)
def test_all_that_is_admitted_is_a_plan(text: str) -> None:
    assume(not re.search(r"\\u[dD][89a-fA-F]", text))  # half a character
    plan, problems = parse_plan(text)
    assert plan is not None, problems


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Here is the plan: {}",
        '```json\n{"action": "refuse", "reason": "r"}\n```',
        '{"action": "refuse", "reason": "r"} ',
        '{"action": "refuse", "reason": "\\d"}',
        '{"action": "refuse", "reason": "a\nb"}',
        '{"action": "refuse", "reason": "r", "confidence": 1}',
        '{"action": "refuse"}',
        '{"action": "source_edit", "edits": []}',
        '{"action": "source_edit", "edits": [{"path": "", "old": "x", "new": "y"}]}',
        '{"action": "source_edit", "edits": [{"path": "a", "old": "x", "new": "y", "why": ""}]}',
        '{"action": "patch", "reason": "r"}',
        '<think>{}</think>{"action": "refuse", "reason": "r"}',
    ],
)
def test_what_is_no_plan_is_not_admitted(text: str) -> None:
    assert not ADMITTED[True].fullmatch(text)


def test_a_new_file_is_admitted() -> None:
    text = '{"action": "source_edit", "edits": [{"path": "a.py", "old": "", "new": "y"}]}'
    assert all(pattern.fullmatch(text) for pattern in ADMITTED.values())


def test_only_where_the_schema_has_it_may_a_capability_be_declared() -> None:
    text = '{"action": "refuse", "reason": "r", "capabilities": ["network"]}'
    assert ADMITTED[True].fullmatch(text)
    assert not ADMITTED[False].fullmatch(text)


@pytest.mark.parametrize("ecosystem", ["npm", "pypi"])
def test_a_prompts_own_examples_are_admitted(ecosystem: str) -> None:
    template = (SKILLS / ecosystem / "skills" / "leaf-llm-instruction.md").read_text()
    examples = re.findall(r'^\{"action.*$', template, re.MULTILINE)
    assert len(examples) == 5
    for text in examples:
        assert ADMITTED[False].fullmatch(text), text


def test_other_closed_schemas_have_a_grammar_too() -> None:
    pattern = re.compile(regex_of(grammar_of(verdicts_adapter.json_schema())))
    assert pattern.fullmatch('{"claims": [{"id": "C1", "supported": true, "reason": "S1"}]}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        {"type": "number"},
        {},
    ],
)
def test_what_a_grammar_can_not_say_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, check=RaisedIn(grammar_of)):
        grammar_of(schema)
