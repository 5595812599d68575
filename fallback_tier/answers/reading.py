"""Reading of a model's answer as a value: found tolerantly, validated strictly, never chosen silently."""

import re
from collections.abc import Iterator
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from fallback_tier.answers.lenient_json import LenientJsonError, Value, canonical, read_object
from fallback_tier.errors import ModelError
from fallback_tier.ports import ModelAnswer

ValueT = TypeVar("ValueT")

#: An answer of the default 2,048 output tokens is below 10 kB; more than this is not a plan.
MAX_ANSWER_CHARS: Final = 200_000

#: How many positions at which an object may begin are tried. This bounds the work on an answer of only
#: braces.
MAX_OBJECTS: Final = 200

#: How many problems are returned at once: enough to repair the answer, short enough for the next prompt.
MAX_PROBLEMS: Final = 5

#: The limit of one problem: the validator quotes an unknown action tag, whatever its length.
MAX_PROBLEM_CHARS: Final = 300

_OBJECT_START: Final = re.compile(r"\{(?=\s*[\"'}])")
ONE_OBJECT: Final = "Answer with exactly one JSON object and nothing else."

#: Markers of a model's thinking that local servers pass on: before the answer, in the same text; the
#: opening one is missing if the template of the prompt contains it.
THINKING: Final = ("<think>", "</think>")

#: Longest key that a problem quotes.
_SHOWN_CHARS: Final = 40

#: The validator's error types whose own message does not say what to do.
_TEXT_BY_ERROR_TYPE: Final = {"extra_forbidden": "there is no such field; leave it out"}

#: Stop reasons of an answer whose end is missing.
_CUT_SHORT: Final = frozenset({"max_tokens", "model_context_window_exceeded"})


def beginning(outcome: ModelAnswer | ModelError) -> ModelAnswer | ModelError:
    """Return as much of an answer as can be a plan.

    A longer answer is not a plan, whatever its rest says, and would not fit into the evidence. One more
    character is kept, so that readers report it as too long. An error is passed through.
    """
    if isinstance(outcome, ModelError):
        return outcome
    return outcome.model_copy(update={"text": outcome.text[: MAX_ANSWER_CHARS + 1]})


def read_one(
    answer: ModelAnswer, key: str, adapter: TypeAdapter[ValueT]
) -> tuple[ValueT | None, tuple[str, ...]]:
    """Return the one object with ``key`` in an answer, or its problems, each a sentence that a model can
    act on. A cut answer is never used. Never raises."""
    if problem := no_text(answer, ONE_OBJECT):
        return None, (problem,)
    return parse_one(answer.text, key, adapter)


def no_text(answer: ModelAnswer, wanted: str) -> str:
    """Return why an answer has no readable text, or "" if it has one. ``wanted``: the expected answer, as a
    sentence."""
    tokens = f"{answer.usage.output_tokens:,} tokens"
    if answer.stop_reason in _CUT_SHORT:
        return f"The answer was cut after {tokens} ({answer.stop_reason}): give a shorter one."
    if answer.stop_reason == "refusal":
        return "The model's safety system ended the answer (refusal): answer as asked."
    if not answer.text.strip():
        explanation = f"{tokens} went into something else, such as thinking"
        return f"The answer has no text ({explanation}). {wanted}"
    return ""


def text_after_thinking(text: str, wanted: str) -> tuple[str, str]:
    """Return a text without the thinking that it begins with, or a problem, which may also be that the text
    is too long; the other of the two is empty."""
    if len(text) > MAX_ANSWER_CHARS:
        return "", f"The answer is longer than {MAX_ANSWER_CHARS:,} characters. {wanted}"
    opening, closing = THINKING
    if not text.lstrip().startswith(opening):
        return text, ""
    _, closed, answer = text.partition(closing)
    return (
        (answer, "")
        if closed
        else ("", f"The answer ends inside its thinking ({opening}). {wanted}")
    )


def parse_one(
    text: str, key: str, adapter: TypeAdapter[ValueT]
) -> tuple[ValueT | None, tuple[str, ...]]:
    """Do the same as ``read_one``, for the text alone.

    Prose, code fences, a wrapping object and thinking before the answer are ignored. Two different objects
    are a problem; an object that can't be parsed is not ignored. A problem quotes a few words.
    """
    text, problem = text_after_thinking(text, ONE_OBJECT)
    if problem:
        return None, (problem,)
    try:
        candidates_by_document = {
            canonical(candidate): candidate for candidate in _candidates(text, key)
        }
    except LenientJsonError as error:
        return None, (f"The answer is not valid JSON: {shown(str(error))}.",)
    if len(candidates_by_document) > 1:
        return None, (
            f"The answer has {len(candidates_by_document)} different objects. {ONE_OBJECT}",
        )
    if not candidates_by_document:
        return None, (f'The answer has no JSON object with the key "{key}". {ONE_OBJECT}',)
    return validated(next(iter(candidates_by_document)), adapter)


def _candidates(text: str, key: str) -> list[dict[str, Value]]:
    """Return every object of the text that has the key. Raises LenientJsonError if one of them, or all,
    can't be parsed.

    Text before an end of thinking is not an answer: some templates open the thinking in the prompt.
    """
    key_pattern = re.compile(rf"[\"']{re.escape(key)}[\"']\s*:")
    holders: list[dict[str, Value]] = []
    at = attempts = 0
    broken: LenientJsonError | None = None
    while True:
        start = _OBJECT_START.search(text, at)
        between = text[at : start.start() if start else len(text)]
        if broken is None and THINKING[1] in between:
            holders.clear()
        if start is None:
            break
        # The broken object named the key, so it may be the one that was meant.
        _refuse(broken, key_pattern.search(between))
        attempts += 1
        if attempts > MAX_OBJECTS:
            raise LenientJsonError(
                "too many braces to tell where it begins",
                text,
                start.start(),
                kind="too_many_braces",
            )
        try:
            value, at = read_object(text, start.start())
        except LenientJsonError as error:
            _refuse(error, key in error.keys)
            broken, at = broken or error, start.end()
        else:
            holders.extend(_holders(value, key))
    _refuse(broken, not holders or key_pattern.search(text, at))
    return holders


def _refuse(broken: LenientJsonError | None, is_meant: object) -> None:
    if broken is not None and is_meant:
        raise broken


def _holders(value: Value, key: str) -> Iterator[dict[str, Value]]:
    """Yield the object itself, or those inside it (``{"plan": {...}}``), never inside its strings."""
    if isinstance(value, dict) and key in value:
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _holders(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _holders(inner, key)


def validated(document: str, adapter: TypeAdapter[ValueT]) -> tuple[ValueT | None, tuple[str, ...]]:
    """Return the value of a JSON document, or a sentence for each of its errors (at most MAX_PROBLEMS)."""
    try:
        return adapter.validate_json(document, strict=True), ()
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
    locations = [detail["loc"] for detail in details]
    # pydantic also calls a list too short if its only item is wrong: the inner problem is the cause.
    causes = [
        detail
        for detail in details
        if not any(
            len(location) > len(detail["loc"]) and location[: len(detail["loc"])] == detail["loc"]
            for location in locations
        )
    ]
    sentences = [_sentence(detail) for detail in causes[:MAX_PROBLEMS]]
    if len(causes) > MAX_PROBLEMS:
        sentences.append(f"There are {len(causes) - MAX_PROBLEMS} more problems of this kind.")
    return None, tuple(sentences)


def _sentence(detail: ErrorDetails) -> str:
    """Return an error such as ``source_edit.edits[0].old: field required`` as a sentence."""
    location = ""
    for part in detail["loc"]:
        location += f"[{part}]" if isinstance(part, int) else f".{_name(part)}"
    prefix = f"At {location.lstrip('.')}: " if location else ""
    message = _TEXT_BY_ERROR_TYPE.get(detail["type"], detail["msg"])
    return f"{prefix}{shown(message)[:MAX_PROBLEM_CHARS].rstrip('.')}."


def shown(text: str) -> str:
    """Return a sentence that may quote the answer as one line without invisible characters."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def _name(key: str) -> str:
    """Return a key as the model typed it, quoted if it is not an identifier."""
    start = key[:_SHOWN_CHARS]
    return start if start.isidentifier() else repr(start)
