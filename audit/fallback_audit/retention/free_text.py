"""Which members of an event hold somebody's words, and the event without them."""

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, Any, Final, get_args, get_origin

from fallback_audit.event_types import FREE_TEXT
from fallback_audit.events import AuditEvent, event_adapter

#: What stands where words were.
REDACTED: Final = "[redacted]"


def free_text_fields(event: type[AuditEvent]) -> tuple[str, ...]:
    """The members of this kind of event that can be redacted, in their order."""
    return tuple(
        name
        for name, field in event.model_fields.items()
        if FREE_TEXT in field.metadata or _marked(field.annotation)
    )


def with_words(event: AuditEvent) -> tuple[str, ...]:
    """Those that say something in this event."""
    return tuple(
        name for name in free_text_fields(type(event)) if getattr(event, name) not in (None, "", ())
    )


def residue(event: AuditEvent, fields: Collection[str]) -> dict[str, Any]:
    """The event without the words in ``fields``, as JSON: valid as an event of the same kind.

    A list keeps its length, and what was absent stays so: rules may count. Members of a vocabulary stay.
    """
    content, typed = event.model_dump(mode="json"), event.model_dump()
    for name in fields:
        content[name] = _without_words(typed[name])
    assert event_adapter.validate_python(content).kind == event.kind  # noqa: S101 - by FREE_TEXT
    return content


def _without_words(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_words(member) for member in value]
    if isinstance(value, dict):
        return {name: _without_words(member) for name, member in value.items()}
    return value if value is None or isinstance(value, int | StrEnum) else REDACTED


def _marked(annotation: Any) -> bool:
    """Is a type inside this one marked, in an optional member or a tuple of them?"""
    if get_origin(annotation) is Annotated and FREE_TEXT in annotation.__metadata__:
        return True
    return any(_marked(inner) for inner in get_args(annotation))
