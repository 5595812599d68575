"""A plan in a model's words."""

from functools import lru_cache
from typing import Any

from fallback_tier.answers.blocks import read_blocks
from fallback_tier.answers.reading import parse_one, read_one
from fallback_tier.outcome import Plan, plan_adapter
from fallback_tier.ports import ModelAnswer
from fallback_tier.repo import AnswerForm

#: What every plan has, and little else in an answer.
_KEY = "action"


def read_plan(
    answer: ModelAnswer, form: AnswerForm = AnswerForm.JSON
) -> tuple[Plan | None, tuple[str, ...]]:
    """The plan in an answer, or what is wrong with it: exactly one of the two. Never raises."""
    if form is AnswerForm.BLOCKS:
        return read_blocks(answer)
    return read_one(answer, _KEY, plan_adapter)


def parse_plan(text: str) -> tuple[Plan | None, tuple[str, ...]]:
    """As ``read_plan`` of JSON, of the text alone."""
    return parse_one(text, _KEY, plan_adapter)


@lru_cache(maxsize=2)
def plan_schema(*, declaring: bool = False) -> dict[str, Any]:
    """The JSON schema of a plan, for servers that enforce one. Not to be changed: it is shared.

    ``declaring``: with the field for capabilities. A model that sees it at once declares what it may
    never need; so only a retry that was told of it does.
    """
    schema = plan_adapter.json_schema()
    if not declaring:
        for definition in schema["$defs"].values():
            definition.get("properties", {}).pop("capabilities", None)
        del schema["$defs"]["Capability"]
    return schema
