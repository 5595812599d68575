"""The event vocabulary: evidence of what happened, one frozen model per kind.

Each chapter declares its events once: ``Event`` says what belongs to a declaration. Everything here is
derived from the chapters, so that a new event is named nowhere else. Import a chapter's names from here.
"""

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import ConfigDict, Field, TypeAdapter

from fallback_audit.event_types import MAX_EXCERPT_CHARS as MAX_EXCERPT_CHARS
from fallback_audit.event_types import Attempt as Attempt
from fallback_audit.event_types import Digest as Digest
from fallback_audit.event_types import Event as Event
from fallback_audit.event_types import Excerpt as Excerpt
from fallback_audit.event_types import Role
from fallback_audit.events import attempt, fix, maintenance, model, people
from fallback_audit.events.attempt import *  # noqa: F403
from fallback_audit.events.fix import *  # noqa: F403
from fallback_audit.events.maintenance import *  # noqa: F403
from fallback_audit.events.model import *  # noqa: F403
from fallback_audit.events.people import *  # noqa: F403
from fallback_audit.metrics import Metric

_CHAPTERS = (fix, attempt, model, people, maintenance)

#: All kinds of events, chapter by chapter.
KINDS: tuple[type[Event], ...] = tuple(
    member
    for chapter in _CHAPTERS
    for member in vars(chapter).values()
    if isinstance(member, type)
    and member.__module__ == chapter.__name__
    and issubclass(member, Event)
    and "kind" in member.model_fields
)

#: All metrics that events change.
METRICS: tuple[Metric, ...] = tuple(
    dict.fromkeys(
        member
        for chapter in _CHAPTERS
        for member in vars(chapter).values()
        if isinstance(member, Metric)
    )
)

#: Readers accept all versions up to this one. If an event's fields change, raise the number here; a new
#: event has its own (``Event.since``).
SCHEMA_VERSION = max(20, *(kind.since for kind in KINDS))

if TYPE_CHECKING:
    AuditEvent = Event
else:
    AuditEvent = Annotated[Union[KINDS], Field(discriminator="kind")]  # noqa: UP007

#: Terminal events: each fix ends in exactly one. FixEscalated for a budget ends it until BudgetRaised.
TERMINAL_KINDS = frozenset(kind.__name__ for kind in KINDS if kind.role is Role.END)

#: Kinds that end a fix: terminal events, and its abandonment by a person.
CLOSING_KINDS = TERMINAL_KINDS | {kind.__name__ for kind in KINDS if kind.role is Role.ABANDONING}

event_adapter: TypeAdapter[AuditEvent] = TypeAdapter(
    AuditEvent, config=ConfigDict(defer_build=True)
)
