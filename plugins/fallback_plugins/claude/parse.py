"""From a model's answer to a plan: found tolerantly, validated strictly, never chosen silently."""

import re
from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fallback_plugins.claude.lenient_json import (
    LenientJsonError,
    Value,
    canonical,
    read_object,
)
from fallback_tier.outcome import Plan, plan_adapter

#: An answer of the default 2,048 output tokens is below 10 kB; more than this is not a plan.
MAX_ANSWER_CHARS: Final = 200_000

#: Places where an object may begin. Bounds the work on an answer that is nothing but braces.
MAX_OBJECTS: Final = 200

#: Problems handed back at once: enough to repair the answer, short enough for the next prompt.
MAX_PROBLEMS: Final = 5

#: One problem: a tag that is no action is quoted by the validator, whatever its length.
MAX_PROBLEM_CHARS: Final = 300

_OBJECT_START: Final = re.compile(r"\{(?=\s*[\"'}])")
_ONE_OBJECT: Final = "Answer with exactly one JSON object and nothing else."


def well_formed(text: str) -> str:
    """The text with ``?`` for what isn't a character: a lone surrogate has no UTF-8, so it can
    neither be hashed, recorded nor written to a file.
    """
    return text.encode("utf-8", "replace").decode()


def parse_plan(text: str) -> tuple[Plan | None, tuple[str, ...]]:
    """The plan in ``text``, or what is wrong with it: exactly one of the two.

    Prose, code fences and a wrapping object around the plan are ignored. Two different plans in one
    answer are a problem, the same one repeated is not. Each problem is one sentence that a model can
    act on; it quotes at most a few words of the answer. Never raises.
    """
    if len(text) > MAX_ANSWER_CHARS:
        return None, (f"The answer is longer than {MAX_ANSWER_CHARS:,} characters. {_ONE_OBJECT}",)
    found: dict[str, dict[str, Value]] = {}
    try:
        for candidate in _candidates(text):
            found[canonical(candidate)] = candidate
    except LenientJsonError as error:
        return None, (f"The plan is not valid JSON: {error}.",)
    if len(found) > 1:
        return None, (f"The answer has {len(found)} different plans. {_ONE_OBJECT}",)
    if not found:
        return None, (f'The answer has no JSON object with the key "action". {_ONE_OBJECT}',)
    return _validated(next(iter(found)))


def _candidates(text: str) -> Iterator[dict[str, Value]]:
    """Every object of the text that has an ``action``. Raises where one of them can't be read."""
    at = attempts = 0
    while start := _OBJECT_START.search(text, at):
        attempts += 1
        if attempts > MAX_OBJECTS:
            raise LenientJsonError("too many braces to tell where it begins", text, start.start())
        try:
            value, at = read_object(text, start.start())
        except LenientJsonError as error:
            if "action" in error.keys:
                raise
            at = start.end()
        else:
            yield from _plans_in(value)


def _plans_in(value: Value) -> Iterator[dict[str, Value]]:
    """The object itself, or those inside it (``{"plan": {...}}``), never inside its strings."""
    if isinstance(value, dict) and "action" in value:
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _plans_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _plans_in(inner)


def _validated(document: str) -> tuple[Plan | None, tuple[str, ...]]:
    try:
        return plan_adapter.validate_json(document, strict=True), ()
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
    places = [detail["loc"] for detail in details]
    # pydantic also calls a list too short whose only item is wrong: the inner problem is the cause.
    causes = [
        detail
        for detail in details
        if not any(
            len(place) > len(detail["loc"]) and place[: len(detail["loc"])] == detail["loc"]
            for place in places
        )
    ]
    sentences = [_sentence(detail) for detail in causes[:MAX_PROBLEMS]]
    if len(causes) > MAX_PROBLEMS:
        sentences.append(f"There are {len(causes) - MAX_PROBLEMS} more problems of this kind.")
    return None, tuple(sentences)


def _sentence(detail: ErrorDetails) -> str:
    """``source_edit.edits[0].old: field required`` as a sentence."""
    place = ""
    for part in detail["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part[:40]}"
    where = f"At {place.lstrip('.')}: " if place else ""
    return f"{where}{detail['msg'][:MAX_PROBLEM_CHARS].rstrip('.')}."
