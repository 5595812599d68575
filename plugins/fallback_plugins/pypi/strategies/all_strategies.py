"""The Python ladder: its steps, cheapest first (ADR-0016), for all kinds of projects.

A new step also needs a ``LadderStep``; their order is the ladder's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.shared.ladder import Position, Reached, Strategy
from fallback_tier.errors import RecipeError

#: The project's texts by path, and the tree that they resolve to.
State = Position[Mapping[str, str]]


@dataclass(frozen=True)
class Step:
    """A project's implementation of a step of the ladder: the fields of its ``Strategy``."""

    attempt: Callable[[State, tuple[str, ...]], Reached[Mapping[str, str]]]
    refusal: Callable[[State, str], RecipeError | None] = lambda _at, _package: None
    together: bool = True


def cheapest_first(
    *,
    edit: Step | None = None,
    refresh: Step | None = None,
    direct: Step | None = None,
    parent: Step | None = None,
    override: Step | None = None,
) -> list[Strategy[Mapping[str, str]]]:
    """Return the ladder of a project. A step that is None is left out. ``edit`` changes a lock without its
    manifest; ``refresh`` changes a lock that has it."""
    ladder = {
        LadderStep.LOCK_EDIT: edit,
        LadderStep.LOCK_REFRESH: refresh,
        LadderStep.DIRECT_BUMP: direct,
        LadderStep.PARENT_BUMP: parent,
        LadderStep.OVERRIDE: override,
    }
    return [
        Strategy(step, how.attempt, how.refusal, how.together)
        for step, how in ladder.items()
        if how is not None
    ]
