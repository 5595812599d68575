"""The minimal-fix ladder (ADR-0016, ADR-0047): one engine, and each ecosystem's strategies.

A *project* is what one client resolves together: a manifest with its lock, a workspace, a requirements
file with what it includes. Each is resolved by itself, on texts in memory, by strategies in the order that
its ecosystem lists them; ``combined`` puts the projects of a repository together.
"""

from fallback_plugins.shared.ladder.candidates import next_candidate
from fallback_plugins.shared.ladder.declines import (
    Tried,
    blocked,
    does_not_serve,
    left_behind,
    refuse,
    whole_project_left,
)
from fallback_plugins.shared.ladder.engine import Resolution
from fallback_plugins.shared.ladder.result import Project, ProjectFix, combined, resolve_all
from fallback_plugins.shared.ladder.strategy import (
    Position,
    Reached,
    ResultRules,
    Strategy,
    never_worse,
    ordered,
)

__all__ = [
    "Position",
    "Project",
    "ProjectFix",
    "Reached",
    "Resolution",
    "ResultRules",
    "Strategy",
    "Tried",
    "blocked",
    "combined",
    "does_not_serve",
    "left_behind",
    "never_worse",
    "next_candidate",
    "ordered",
    "refuse",
    "resolve_all",
    "whole_project_left",
]
