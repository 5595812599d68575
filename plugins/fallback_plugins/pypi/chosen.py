"""A version that somebody else chose (a model), as the advisory that has no other fix."""

from collections.abc import Iterator

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.survey import ECOSYSTEM
from fallback_tier.advisory import Advisory, Affected
from fallback_tier.advisory.osv import Event, Range
from fallback_tier.advisory.versions import base_ecosystem


def only_version(advisory: Advisory, package: str, version: str) -> Advisory:
    """The same advisory about one package, with ``version`` as the only one that it names as fixed.

    What is affected stays the same: each ``fixed`` becomes a ``limit``, which ends a range as well but
    is no version to go to.
    """
    entries = [entry for entry in advisory.affected if _names(entry, package)]
    narrowed = [entry.model_copy(update={"ranges": tuple(_ranges(entry))}) for entry in entries]
    # Introduced and fixed at once: it covers nothing, and names the version.
    chosen = Range(type="ECOSYSTEM", events=(Event(introduced=version), Event(fixed=version)))
    named = entries[0].model_copy(update={"ranges": (chosen,), "versions": ()})
    return type(advisory).model_validate(dict(advisory) | {"affected": (*narrowed, named)})


def _names(entry: Affected, package: str) -> bool:
    of = entry.package
    if of is None or base_ecosystem(of.ecosystem) != ECOSYSTEM:
        return False
    return canonicalize_name(of.name) == canonicalize_name(package)


def _ranges(entry: Affected) -> Iterator[Range]:
    """Each interval as a range of its own, since a limit ends the whole range."""
    for a_range in entry.ranges:
        if any(event.limit is not None for event in a_range.events):
            yield a_range
            continue
        opened: Event | None = None
        for event in a_range.events:
            if event.introduced is not None:
                opened = event
            elif opened is not None:
                end = Event(limit=event.fixed) if event.fixed is not None else event
                yield a_range.model_copy(update={"events": (opened, end)})
                opened = None
        if opened is not None:
            yield a_range.model_copy(update={"events": (opened,)})
