"""A package's own code, in the order in which it fills a prompt: the flaw is in here.

A model that sees the place of a flaw is mostly right about it, so what there is room for is shown:

1. the units that tell most;
2. what they call, where the package defines it: guards, checks, escapes;
3. the rest of their files: a fix seldom keeps to one function, and what it needs is imported above;
4. all other units, until their rank falls off: code that has little of what is looked for costs as much
   as the place of the flaw, and hides it (ADR-0120).
"""

import re
from collections.abc import Iterator, Sequence

from fallback_tier.prompt.context.packing import Wanted
from fallback_tier.prompt.context.ranking import Interest, Ranked, is_behind
from fallback_tier.prompt.context.sources import Sources
from fallback_tier.prompt.context.units import Unit

#: Units that tell most.
_MOST_SIGNIFICANT = 12

#: Files whose rest is shown, of those that the most telling units are in.
_WHOLE_FILES = 5

#: A larger file's units stand for themselves: it would fill the room alone (characters).
_WHOLE_FILE_CHARS = 30_000

#: What the most telling units call, at most; a name that more units define tells nothing.
_MAX_CALLED = 8
_MAX_DEFINERS = 2

#: … looked for in so many characters of a unit.
_CALLED_CHARS = 20_000

#: The rank has fallen off if a unit has less than this of the best one's score, in percent …
_FALL_OFF = 25

#: … but a package of so many characters is shown whole: a prompt of it is small.
_SMALL_PACKAGE_CHARS = 48_000

_CALLED = re.compile(r"([A-Za-z_$][\w$]{3,100})\s*\(")


def own_places(ranked: Sequence[Ranked], sources: Sources, interest: Interest) -> Iterator[Wanted]:
    """The places of ranked units, best first; what is shown already is wanted again, for its rest.

    What lies beside the product is left out where there is anything else, unless the advisory names it.
    """
    product = [found for found in ranked if not is_behind(found.unit.path, interest)] or list(
        ranked
    )
    top = product[:_MOST_SIGNIFICANT]
    for unit, _, focus in top:
        yield Wanted(*unit[:3], focus)
    for unit in _called(top, product, sources):
        yield Wanted(*unit[:3], unit.start)
    paths = dict.fromkeys(found.unit.path for found in top)
    small = [path for path in paths if len(sources.text(path) or "") <= _WHOLE_FILE_CHARS]
    for path in small[:_WHOLE_FILES]:
        for unit in sources.units(path):
            yield Wanted(*unit[:3], unit.start, rest=True)
    least, shown = _FALL_OFF / 100 * max((found.score for found in product), default=0.0), 0
    for unit, score, focus in product:
        shown += len(sources.body(unit))
        if score < least and shown > _SMALL_PACKAGE_CHARS:
            return
        yield Wanted(*unit[:3], focus, rest=True)


def _called(top: Sequence[Ranked], every: Sequence[Ranked], sources: Sources) -> Iterator[Unit]:
    """Definitions in other units of what the best units call, in the order of the calls."""
    definers: dict[str, list[Unit]] = {}
    for found in every:
        for name in found.unit.names:
            definers.setdefault(name, []).append(found.unit)
    known = {found.unit for found in top}
    names = dict.fromkeys(
        name for found in top for name in _CALLED.findall(sources.body(found.unit)[:_CALLED_CHARS])
    )
    called = dict.fromkeys(
        unit
        for name in names
        if len(definers.get(name, ())) <= _MAX_DEFINERS
        for unit in definers.get(name, ())
        if unit not in known
    )
    yield from list(called)[:_MAX_CALLED]
