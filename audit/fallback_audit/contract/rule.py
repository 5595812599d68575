"""What a rule of the trace contract is, and what breaks it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fallback_audit.contract.links import Link
from fallback_audit.contract.trail import Finding, Trail

Kind = type[Any]


class Removed(NamedTuple):
    """The action itself: a trail without such an event breaks the rule."""

    kind: Kind


class Added(NamedTuple):
    """What is forbidden: a trail with one more such event breaks the rule."""

    kind: Kind


class Altered(NamedTuple):
    """What is to be said: a trail where this member has another value breaks the rule."""

    kind: Kind
    member: str


#: A change that breaks a rule. Tests make mutants of valid trails by it: a rule without one is none.
Breach = Removed | Added | Altered


class Rule(NamedTuple):
    """One sentence, where it comes from, and the predicate that finds violations of it.

    ``breaches``: what breaks it. ``sees``: kinds of events that can break it when they are appended, so
    that a guard need not ask for others; None: any. ``local``: it looks at each attempt by itself, and at
    how the next one begins, so that a new event breaks it in the last two at most. ``of_upkeep``: it holds
    for a trail whose beginning was sealed as well.
    """

    id: str
    sentence: str
    source: str
    check: Callable[[Trail], Iterator[Finding]]
    breaches: tuple[Breach, ...]
    sees: frozenset[Kind] | None
    local: bool = False
    of_upkeep: bool = False


class FixRule(NamedTuple):
    """As ``Rule``, over all gate transitions of one fix; a finding names the one that it is in."""

    id: str
    sentence: str
    source: str
    check: Callable[[Sequence[Link]], Iterator[tuple[Link, Finding]]]
    breaches: tuple[Breach, ...]
    sees: frozenset[Kind]
