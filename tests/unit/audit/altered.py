"""Trails with one thing wrong: an action removed, changed, added or moved."""

from fallback_audit.events import AuditEvent
from tests.unit.audit.trails import Events


def without(events: Events, *kinds: type, attempt: int | None = None) -> Events:
    """The action removed."""
    return [
        event
        for event in events
        if not (isinstance(event, kinds) and attempt in {None, getattr(event, "attempt", None)})
    ]


def changed(events: Events, kind: type, which: int = -1, **update: object) -> Events:
    """One event of a kind altered: the last."""
    place = [i for i, event in enumerate(events) if isinstance(event, kind)][which]
    return [*events[:place], events[place].model_copy(update=update), *events[place + 1 :]]


def before(events: Events, kind: type, *added: AuditEvent, which: int = -1) -> Events:
    """Events inserted before one of a kind."""
    place = [i for i, event in enumerate(events) if isinstance(event, kind)][which]
    return [*events[:place], *added, *events[place:]]


def swapped(events: Events, first: type, second: type) -> Events:
    """The first of one kind after the first of another one."""
    moved = next(event for event in events if isinstance(event, first))
    rest = [event for event in events if event is not moved]
    place = next(i for i, event in enumerate(rest) if isinstance(event, second))
    return [*rest[: place + 1], moved, *rest[place + 1 :]]
