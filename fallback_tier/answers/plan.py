"""A plan in a model's words."""

from functools import lru_cache
from typing import Any

from fallback_tier.answers.reading import parse_one, read_one
from fallback_tier.outcome import Plan, plan_adapter
from fallback_tier.ports import ModelAnswer

#: What every plan has, and little else in an answer.
_KEY = "action"


def read_plan(answer: ModelAnswer) -> tuple[Plan | None, tuple[str, ...]]:
    """The plan in an answer, or what is wrong with it: exactly one of the two. Never raises."""
    return read_one(answer, _KEY, plan_adapter)


def parse_plan(text: str) -> tuple[Plan | None, tuple[str, ...]]:
    """As ``read_plan``, of the text alone."""
    return parse_one(text, _KEY, plan_adapter)


@lru_cache(maxsize=1)
def plan_schema() -> dict[str, Any]:
    """The JSON schema of a plan, for servers that enforce one. Not to be changed: it is shared."""
    return plan_adapter.json_schema()
