"""OSV's evaluation algorithm (schema 1.7, "Evaluation") for one package, compiled once.

A lock of thousands of packages is compared with hundreds of records: bounds are parsed and sorted once,
when a package is first checked. Library ranges aren't used: they called a vulnerable ``1.0.0+b`` safe and
raised on overlaps.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from fallback_tier.advisory.versions import SortKey, is_orderable, served, sort_key
from fallback_tier.ecosystem_rules import rules_of

if TYPE_CHECKING:
    from fallback_tier.advisory.osv_affected import Affected, Event, Range

#: OSV: "introduced": "0" is below every version, pre-releases of 0 included.
_BEFORE_ALL: SortKey = (-1, "")


class _Span(NamedTuple):
    """One range: its bounds in order, each with its kind of event; and its limits."""

    bounds: tuple[tuple[SortKey, str], ...]
    #: None: no limit. Otherwise a version has to be below at least one of them.
    limits: tuple[SortKey, ...] | None


class PackageMatcher:
    """Matcher of one package's versions against one record (or bundle)."""

    def __init__(self, ecosystem: str, entries: Sequence["Affected"]) -> None:
        self._ecosystem = ecosystem
        self._entries = entries

    def covers(self, version: str) -> bool:
        """Return whether a version is affected. A text that can't be ordered is, if there is any range."""
        key = sort_key(self._ecosystem, version)
        spans = self._spans
        if not key[0]:
            return bool(spans) or version in self._listed
        return any(_holds(span, key) for span in spans) or self._lists(version, key)

    @property
    def says_nothing(self) -> bool:
        """Whether no version is called affected: the record has commits only (``GIT`` ranges), no range
        that begins, or only bounds in another numbering."""
        begins = any(event.introduced is not None for event in self._events())
        return not self._listed and (not begins or bool(self.foreign))

    @cached_property
    def foreign(self) -> tuple[str, ...]:
        """The bounds of all ranges, if none of them is a version of the ecosystem; ``0``, which any has,
        doesn't count. Empty for an ecosystem that no plugin serves."""
        if rules_of(self._ecosystem) is None:
            return ()
        bounds = [bound for bound in self._bounds() if bound != "0"]
        is_foreign = not any(is_orderable(self._ecosystem, bound) for bound in bounds)
        return tuple(sorted(set(bounds))) if is_foreign else ()

    @cached_property
    def fixed(self) -> tuple[str, ...]:
        """Versions named as fixed, lowest first, each once."""
        versions = (event.fixed for event in self._events())
        return self._sorted(
            {version for version in versions if version and is_orderable(self._ecosystem, version)}
        )

    @cached_property
    def named(self) -> tuple[str, ...]:
        """All versions that the record names as affected, last affected or fixed, lowest first."""
        versions = {*self._listed, *self._bounds()}
        return self._sorted(
            {version for version in versions if is_orderable(self._ecosystem, version)}
        )

    def _sorted(self, versions: set[str]) -> tuple[str, ...]:
        # The text breaks ties ("1.0" and "1.0.0"), so that the result doesn't depend on the set's order.
        return tuple(
            sorted(versions, key=lambda version: (sort_key(self._ecosystem, version), version))
        )

    def _ranges(self) -> Iterator["Range"]:
        for entry in self._entries:
            yield from (a_range for a_range in entry.ranges if a_range.type != "GIT")

    def _events(self) -> Iterator["Event"]:
        for a_range in self._ranges():
            yield from a_range.events

    def _bounds(self) -> Iterator[str]:
        for event in self._events():
            yield from filter(None, (event.introduced, event.fixed, event.last_affected))

    @cached_property
    def _spans(self) -> tuple[_Span, ...]:
        # A range without a start, in a record that also names versions, could be about any version.
        completed = not self.says_nothing
        return tuple(
            _span(self._ecosystem, a_range, completed=completed) for a_range in self._ranges()
        )

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset(version for entry in self._entries for version in entry.versions)

    @cached_property
    def _listed_alike(self) -> dict[str | None, list[str]]:
        """Listed versions, grouped by what equal versions share. Records list hundreds of versions; parsing
        the few that could be equal is enough."""
        groups: dict[str | None, list[str]] = {}
        shared = served(self._ecosystem).shared_by_equals
        for version in self._listed:
            groups.setdefault(shared(version), []).append(version)
        return groups

    def _lists(self, version: str, key: SortKey) -> bool:
        if not any(entry.versions for entry in self._entries):
            return False
        if version in self._listed:
            return True
        shared = served(self._ecosystem).shared_by_equals(version)
        groups = self._listed_alike
        alike = self._listed if shared is None else (*groups.get(shared, ()), *groups.get(None, ()))
        return any(sort_key(self._ecosystem, listed) == key for listed in alike)


def _span(ecosystem: str, a_range: "Range", *, completed: bool) -> _Span:
    """Return a compiled range. A closing bound that can't be ordered is left out: the range stays open. A
    limit that can't be ordered (``*``, a tag) limits nothing. ``completed``: a range without a start (OSV
    requires it) begins with the first version."""
    bounds: list[tuple[SortKey, str]] = []
    limits: list[SortKey] = []
    for event in a_range.events:
        if event.introduced is not None:
            bounds.append((_bound(ecosystem, event.introduced), "introduced"))
        for text, kind in ((event.fixed, "fixed"), (event.last_affected, "last_affected")):
            if text is not None and (key := sort_key(ecosystem, text))[0]:
                bounds.append((key, kind))
        if event.limit is not None:
            limits.append(sort_key(ecosystem, event.limit))
    if completed and not any(kind == "introduced" for _, kind in bounds):
        bounds.append((_BEFORE_ALL, "introduced"))
    if len(bounds) > 1:
        bounds = _ordered(bounds)
        # OSV allows one of the two kinds in a range. If there are both, the latest one ends it: versions in
        # between are not safe.
        if {"fixed", "last_affected"} <= {kind for _, kind in bounds}:
            bounds = [
                bound
                for bound, following in zip_longest(bounds, bounds[1:])
                if bound[1] == "introduced" or not following or following[1] == "introduced"
            ]
    limited = limits and all(key[0] for key in limits)
    return _Span(tuple(bounds), tuple(limits) if limited else None)


def _ordered(bounds: list[tuple[SortKey, str]]) -> list[tuple[SortKey, str]]:
    """Return the bounds, lowest first. OSV doesn't say which of two events at one version counts first: if
    one stretch ends where the next begins, the next one counts; otherwise they stay as listed, the last
    affected one last."""
    ordered: list[tuple[SortKey, str]] = []
    is_open = False
    for _, group in groupby(sorted(bounds, key=itemgetter(0)), key=itemgetter(0)):
        # False sorts first: what begins a stretch comes after what ends the open one.
        rank = "introduced" if is_open else "last_affected"
        tied = sorted(group, key=lambda bound: bound[1] == rank)
        ordered += tied
        is_open = tied[-1][1] == "introduced"
    return ordered


def _holds(span: _Span, key: SortKey) -> bool:
    if span.limits is not None and not any(key < limit for limit in span.limits):
        return False
    affected = False
    for bound, kind in span.bounds:
        if kind == "last_affected":
            affected = affected and key <= bound
        elif key >= bound:
            affected = kind == "introduced"
    return affected


def _bound(ecosystem: str, text: str) -> SortKey:
    return _BEFORE_ALL if text == "0" else sort_key(ecosystem, text)
