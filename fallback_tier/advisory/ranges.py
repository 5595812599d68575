"""OSV's own range algorithm (schema 1.7, "Evaluation"), over the ecosystem's version order.

Library ranges aren't used: they called a vulnerable ``1.0.0+b`` safe and raised on overlaps.
"""

from collections.abc import Callable, Iterator

from fallback_tier.advisory.osv import Advisory, Affected, Range
from fallback_tier.advisory.versions import SortKey, is_orderable, sort_key

#: OSV: "introduced": "0" is below every version, pre-releases of 0 included.
_BEFORE_ALL: SortKey = (-1, "")

#: Stands for what will be published later; calendar versions stay below it.
_ABOVE_ALL_NAMED = "999999.0.0"


def is_affected(advisory: Advisory, ecosystem: str, package: str, version: str) -> bool:
    """Does the advisory cover this version of the package?

    A text that can't be ordered (a URL, a tag) is never called safe: it is affected as soon as the
    package has a range.
    """
    return any(
        _lists(entry, ecosystem, version)
        or any(_covers(a_range, ecosystem, version) for a_range in _ranges(entry))
        for entry in _entries(advisory, ecosystem, package)
    )


def fixed_versions(advisory: Advisory, ecosystem: str, package: str) -> tuple[str, ...]:
    """Versions that the advisory names as fixed, lowest first, each once."""
    named = {
        event.fixed
        for entry in _entries(advisory, ecosystem, package)
        for a_range in _ranges(entry)
        for event in a_range.events
        if event.fixed is not None and is_orderable(ecosystem, event.fixed)
    }
    return _sorted(ecosystem, named)


def admits_affected(
    advisory: Advisory, ecosystem: str, package: str, admits: Callable[[str], bool]
) -> bool:
    """May a range end in an affected version?

    A client takes the highest version that it may. Which ones are published only a registry knows;
    of those that the record names, and one above them all, the highest that ``admits`` accepts is
    asked about.
    """
    named = (*_named_versions(advisory, ecosystem, package), _ABOVE_ALL_NAMED)
    highest = next((version for version in reversed(named) if admits(version)), None)
    return highest is not None and is_affected(advisory, ecosystem, package, highest)


def _named_versions(advisory: Advisory, ecosystem: str, package: str) -> tuple[str, ...]:
    named: set[str] = set()
    for entry in _entries(advisory, ecosystem, package):
        named.update(entry.versions)
        for event in (event for a_range in _ranges(entry) for event in a_range.events):
            named.update(filter(None, (event.introduced, event.fixed, event.last_affected)))
    return _sorted(ecosystem, named)


def lowest_fixed_version(
    advisory: Advisory, ecosystem: str, package: str, current: str
) -> str | None:
    """The lowest version above ``current`` named as fixed that is not itself affected.

    None where there is none, or where ``current`` can't be ordered: never a downgrade.
    """
    if not is_orderable(ecosystem, current):
        return None
    floor = sort_key(ecosystem, current)
    for version in fixed_versions(advisory, ecosystem, package):
        if sort_key(ecosystem, version) > floor and not is_affected(
            advisory, ecosystem, package, version
        ):
            return version
    return None


def _sorted(ecosystem: str, versions: set[str]) -> tuple[str, ...]:
    # The text breaks ties ("1.0" and "1.0.0"), so that the answer doesn't depend on set order.
    return tuple(sorted(versions, key=lambda version: (sort_key(ecosystem, version), version)))


def _entries(advisory: Advisory, ecosystem: str, package: str) -> Iterator[Affected]:
    return (entry for entry in advisory.affected if entry.names(ecosystem, package))


def _ranges(entry: Affected) -> Iterator[Range]:
    return (a_range for a_range in entry.ranges if a_range.type != "GIT")


def _lists(entry: Affected, ecosystem: str, version: str) -> bool:
    key = sort_key(ecosystem, version)
    return any(sort_key(ecosystem, listed) == key for listed in entry.versions)


def _covers(a_range: Range, ecosystem: str, version: str) -> bool:
    if not is_orderable(ecosystem, version):
        return True
    key = sort_key(ecosystem, version)
    if not _before_limits(a_range, ecosystem, key):
        return False
    affected = False
    for bound, kind in sorted(_events(a_range, ecosystem), key=_event_order):
        if kind == "introduced" and key >= bound:
            affected = True
        elif (kind == "fixed" and key >= bound) or (kind == "last_affected" and key > bound):
            affected = False
    return affected


def _before_limits(a_range: Range, ecosystem: str, key: SortKey) -> bool:
    """OSV's BeforeLimits. A limit that can't be ordered (``*``, a tag) limits nothing."""
    limits = [event.limit for event in a_range.events if event.limit is not None]
    return not limits or any(
        not is_orderable(ecosystem, limit) or key < _bound(ecosystem, limit) for limit in limits
    )


def _events(a_range: Range, ecosystem: str) -> Iterator[tuple[SortKey, str]]:
    """Bounds that can be ordered; a closing bound that can't is left out: the range stays open."""
    for event in a_range.events:
        if event.introduced is not None:
            yield _bound(ecosystem, event.introduced), "introduced"
        if event.fixed is not None and is_orderable(ecosystem, event.fixed):
            yield _bound(ecosystem, event.fixed), "fixed"
        if event.last_affected is not None and is_orderable(ecosystem, event.last_affected):
            yield _bound(ecosystem, event.last_affected), "last_affected"


def _event_order(event: tuple[SortKey, str]) -> tuple[SortKey, bool]:
    """By version. Ties stay as listed, but a version can only be last after it was introduced."""
    bound, kind = event
    return bound, kind == "last_affected"


def _bound(ecosystem: str, text: str) -> SortKey:
    return _BEFORE_ALL if text == "0" else sort_key(ecosystem, text)
