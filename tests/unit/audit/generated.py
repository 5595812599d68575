"""Mutants made from the table itself: valid trails, each changed as a rule's ``breaches`` say.

A rule is breached by taking an event away, by putting one in where it is forbidden, or by having one say
something else. Where exactly, and what else, is found by trying: everywhere, with every event of that
kind and every value of that member that the valid trails have.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from itertools import chain, islice
from typing import Any, NamedTuple

from pydantic import ValidationError

from fallback_audit.contract.maintenance import MAINTAINING
from fallback_audit.contract.rule import Added, Altered, Breach, Kind, Removed, Rule
from fallback_audit.contract.table import RULES, link_violations, violations
from fallback_audit.contract.trail import Entry, Trail, link_of
from fallback_audit.events import AttemptStarted, AuditEvent
from fallback_audit.ports import MAINTENANCE, Scope
from tests.unit.audit import human_trails as h
from tests.unit.audit import maintenance_trails as u
from tests.unit.audit.contract import test_links as links
from tests.unit.audit.trails import SCOPE, digest

#: Mutants that one breach gives of one trail at most: enough to find one that the rule catches.
MOST = 120


class Line(NamedTuple):
    """An event where it stands."""

    seq: int
    scope: Scope
    event: AuditEvent


#: The events of one fix, in chain order.
Lines = tuple[Line, ...]


def numbered(events: Iterable[AuditEvent], scope: Scope = SCOPE) -> Lines:
    return tuple(Line(seq, scope, event) for seq, event in enumerate(events, start=1))


def _between(fix: links.Fix) -> Lines:
    everything = [(name, event) for name, events in fix.items() for event in events]
    return tuple(
        Line(seq, Scope(fix_id="fix-1", gate_transition_id=name), event)
        for seq, (name, event) in enumerate(everything, start=1)
    )


@cache
def corpus() -> dict[str, Lines]:
    """Every valid trail by its name, and the one in which a breach was let through and flagged."""
    trails = {trail.__name__: numbered(trail()) for trail in (*h.VALID, *u.NOTED, u.flagged)}
    trails |= {fix.__name__: _between(fix()) for fix in links.VALID}
    kept = zip(u.PLACES, u.kept(), strict=True)
    return trails | {"kept": tuple(Line(seq, MAINTENANCE, event) for seq, event in kept)}


def broken(lines: Sequence[Line], rules: Sequence[Rule] = RULES) -> set[str]:
    """The rules that these events of one fix break, as ``verify`` judges them."""
    trails: dict[Scope, list[Entry[AuditEvent]]] = {}
    for seq, scope, event in lines:
        trails.setdefault(scope, []).append(Entry(seq, event))
    judged = [Trail(scope, entries) for scope, entries in trails.items()]
    found = [violations(trail, rules) for trail in judged]
    if all(trail.of_a_fix for trail in judged):
        found.append(link_violations("fix-1", [link_of(trail) for trail in judged]))
    return {violation.rule for violation in chain.from_iterable(found)}


def mutants(lines: Lines, breach: Breach) -> Iterator[Lines]:
    """These events with one breach of that sort, in every way."""
    match breach:
        case Removed():
            return islice(_removed(lines, breach), MOST)
        case Added():
            return islice(_added(lines, breach), MOST)
        case Altered():
            return islice(_altered(lines, breach), MOST)


def caught_by(rule: str, breach: Breach) -> Iterator[tuple[str, Lines]]:
    """Mutants of trails that keep the rule, by that breach, which break it; with the trails' names."""
    only = [one for one in RULES if one.id == rule]
    for name, lines in corpus().items():
        if rule not in broken(lines, only):
            for mutant in mutants(lines, breach):
                if rule in broken(mutant, only):
                    yield name, mutant
                    break


def _removed(lines: Lines, breach: Removed) -> Iterator[Lines]:
    """Without one of them; without those of an attempt; without any."""
    of_kind = [line for line in lines if type(line.event) is breach.kind]
    by_attempt: dict[object, list[Line]] = {}
    for line in of_kind:
        by_attempt.setdefault(getattr(line.event, "attempt", None), []).append(line)
    for lost in [*([line] for line in of_kind), *by_attempt.values(), of_kind]:
        if lost:
            yield tuple(line for line in lines if line not in lost)


def _added(lines: Lines, breach: Added) -> Iterator[Lines]:
    own = [line.event for line in lines if type(line.event) is breach.kind][:4]
    for place in range(len(lines), 0, -1):
        before = lines[:place]
        starts = [line.event for line in before if isinstance(line.event, AttemptStarted)]
        for event in own or _samples(breach.kind.__name__):
            if starts and breach.kind is not AttemptStarted and hasattr(event, "attempt"):
                event = event.model_copy(update={"attempt": starts[-1].attempt})
            put = Line(before[-1].seq + 1, before[-1].scope, event)
            yield (*before, put, *(line._replace(seq=line.seq + 1) for line in lines[place:]))


def _altered(lines: Lines, breach: Altered) -> Iterator[Lines]:
    for place, line in enumerate(lines):
        if type(line.event) is breach.kind:
            for value in _others(breach.kind, breach.member, getattr(line.event, breach.member)):
                with suppress(ValidationError):  # no event could say that
                    event = breach.kind.model_validate(dict(line.event) | {breach.member: value})
                    yield (*lines[:place], line._replace(event=event), *lines[place + 1 :])


@cache
def _samples(kind: str) -> list[AuditEvent]:
    """Different events of this kind: no more of them than show what they may say."""
    found: dict[str, AuditEvent] = {}
    for lines in corpus().values():
        for line in lines:
            if line.event.kind == kind:
                found.setdefault(line.event.model_dump_json(), line.event)
    return list(islice(found.values(), 4))


def _others(kind: Kind, member: str, value: Any) -> list[Any]:
    """What else this member may say: what it says elsewhere, and what it never says."""
    seen = [
        getattr(line.event, member)
        for lines in corpus().values()
        for line in lines
        if type(line.event) is kind
    ]
    match value:
        case bool():
            made: list[Any] = [not value]
        case Enum():
            made = list(type(value))
        case int():
            made = [value + 1, value + 100]
        case str():
            made = [" ", digest("nothing else")]
        case tuple():
            made = [(), (*value, "e9"), value[::-1]]
        case _:
            made = []
    return [other for other in dict.fromkeys([*made, *seen]) if other != value]


def is_of_maintenance(lines: Lines) -> bool:
    return any(isinstance(line.event, MAINTAINING) for line in lines)
