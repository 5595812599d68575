"""Definition of the trace contract's rules, and of what breaks them.

A rule is defined in one place: its sentence, its source, what breaks it and its predicate are one decorated
function, and the rule is named after the function (``attempts_in_order`` is ``attempts-in-order``).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from fallback_audit.contract.trail import Finding, Link, Trail

Kind = type[Any]


class Removed(NamedTuple):
    """A required event: a trail without it breaks the rule."""

    kind: Kind


class Added(NamedTuple):
    """A forbidden event: a trail with one more breaks the rule."""

    kind: Kind


class Altered(NamedTuple):
    """A required value: a trail in which this member has another value breaks the rule."""

    kind: Kind
    member: str


#: A change that breaks a rule. Tests change valid trails so: each rule needs at least one.
Breach = Removed | Added | Altered

TrailCheck = Callable[[Trail], Iterator[Finding]]
FixCheck = Callable[[Sequence[Link]], Iterator[tuple[Link, Finding]]]


class Rule(NamedTuple):
    """A sentence, its source, and the predicate that finds violations of it.

    ``breaches``: changes that break it. ``sees``: kinds of events that can break it when they are appended,
    so that a guard need not check it for others; None: any. ``local``: it looks at each attempt separately,
    and at how the next one begins, so that a new event can break it only in the last two.
    ``of_maintenance``: it also holds for a trail whose beginning was sealed.
    """

    id: str
    sentence: str
    source: str
    check: TrailCheck
    breaches: tuple[Breach, ...]
    sees: frozenset[Kind] | None
    local: bool = False
    of_maintenance: bool = False


class FixRule(NamedTuple):
    """A ``Rule`` over all gate transitions of one fix; a finding names its gate transition."""

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

    The predicate yields (seq, what is wrong there). An event that may still come is never missing.
    """
    kinds = None if sees is None else frozenset(sees)
    return lambda check: Rule(
        _name(check), sentence, source, check, breaches, kinds, local, of_maintenance
    )


def fix_rule(
    sentence: str, source: str, *, breaches: tuple[Breach, ...], sees: Collection[Kind]
) -> Callable[[FixCheck], FixRule]:
    """Make a predicate over the gate transitions of a fix a rule; see ``rule``."""
    return lambda check: FixRule(_name(check), sentence, source, check, breaches, frozenset(sees))


def rules_of(*chapters: ModuleType) -> tuple[Rule, ...]:
    """Return the rules over one trail that these modules define, in the order of their definitions."""
    return tuple(definition for definition in _defined(chapters) if isinstance(definition, Rule))


def fix_rules_of(*chapters: ModuleType) -> tuple[FixRule, ...]:
    """Return the rules over all gate transitions of a fix, as ``rules_of`` does."""
    return tuple(definition for definition in _defined(chapters) if isinstance(definition, FixRule))


def _defined(chapters: Iterable[ModuleType]) -> Iterator[object]:
    for chapter in chapters:
        for member in vars(chapter).values():
            if isinstance(member, Rule | FixRule) and member.check.__module__ == chapter.__name__:
                yield member


def _name(check: TrailCheck | FixCheck) -> str:
    return check.__name__.replace("_", "-")
