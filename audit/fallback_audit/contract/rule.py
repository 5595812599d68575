"""What a rule of the trace contract is, and what breaks it.

A rule stands in one place: its sentence, its source, what breaks it and its predicate are one decorated
function, and the function's name is the rule's (``attempts_in_order`` is ``attempts-in-order``).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from fallback_audit.contract.trail import Finding, Link, Trail

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

TrailCheck = Callable[[Trail], Iterator[Finding]]
FixCheck = Callable[[Sequence[Link]], Iterator[tuple[Link, Finding]]]


class Rule(NamedTuple):
    """One sentence, where it comes from, and the predicate that finds violations of it.

    ``breaches``: what breaks it. ``sees``: kinds of events that can break it when they are appended, so
    that a guard need not ask for others; None: any. ``local``: it looks at each attempt by itself, and at
    how the next one begins, so that a new event breaks it in the last two at most. ``of_maintenance``: it
    holds for a trail whose beginning was sealed as well."""

    id: str
    sentence: str
    source: str
    check: TrailCheck
    breaches: tuple[Breach, ...]
    sees: frozenset[Kind] | None
    local: bool = False
    of_maintenance: bool = False


class FixRule(NamedTuple):
    """As ``Rule``, over all gate transitions of one fix; a finding names the one that it is in."""

    id: str
    sentence: str
    source: str
    check: FixCheck
    breaches: tuple[Breach, ...]
    sees: frozenset[Kind]


def rule(
    sentence: str,
    source: str,
    *,
    breaches: tuple[Breach, ...],
    sees: Collection[Kind] | None,
    local: bool = False,
    of_maintenance: bool = False,
) -> Callable[[TrailCheck], Rule]:
    """Make a predicate over one trail a rule; the arguments are those of ``Rule``.

    The predicate yields (seq, what is wrong there). An unfinished tail is never wrong for what may still
    come.
    """
    kinds = None if sees is None else frozenset(sees)
    return lambda check: Rule(
        _name(check), sentence, source, check, breaches, kinds, local, of_maintenance
    )


def fix_rule(
    sentence: str, source: str, *, breaches: tuple[Breach, ...], sees: Collection[Kind]
) -> Callable[[FixCheck], FixRule]:
    """Make a predicate over the gate transitions of a fix a rule, as ``rule`` does."""
    return lambda check: FixRule(_name(check), sentence, source, check, breaches, frozenset(sees))


def rules_of(*chapters: ModuleType) -> tuple[Rule, ...]:
    """The rules over one trail that these modules define, in the order in which they stand there."""
    return tuple(found for found in _defined(chapters) if isinstance(found, Rule))


def fix_rules_of(*chapters: ModuleType) -> tuple[FixRule, ...]:
    """As ``rules_of``, the rules over all gate transitions of a fix."""
    return tuple(found for found in _defined(chapters) if isinstance(found, FixRule))


def _defined(chapters: Iterable[ModuleType]) -> Iterator[object]:
    for chapter in chapters:
        for found in vars(chapter).values():
            if isinstance(found, Rule | FixRule) and found.check.__module__ == chapter.__name__:
                yield found


def _name(check: TrailCheck | FixCheck) -> str:
    return check.__name__.replace("_", "-")
