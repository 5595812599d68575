"""Copies that stay affected, as a run over several advisories planned it (ADR-0051)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.resolution import STILL_INSTALLED
from fallback_tier.advisory import Advisory, canonical_name, lets_stay
from fallback_tier.outcome import Applied


def may_stay(
    advisory: Advisory,
    made: Applied,
    ecosystem: str,
    package: str,
    now: Sequence[str],
    before: Sequence[str],
) -> bool:
    """May these affected versions of a package stay, one entry a copy?

    ``before``: those of the base commit, found in the same way. Only where every advisory that covers one
    lets it stay, where there is no more of any version than before, and less of each that the recipe says
    it raised.
    """
    remediation = made.remediation
    if remediation is None or not is_planned(advisory, made, ecosystem, package, now):
        return False
    raised = {
        version
        for move in remediation.moves
        if canonical_name(ecosystem, move.package) == package
        for version in move.before
    }
    copies, earlier = Counter(now), Counter(before)
    return all(copies[version] < earlier[version] + (version not in raised) for version in copies)


def is_planned(
    advisory: Advisory, made: Applied, ecosystem: str, package: str, now: Iterable[str]
) -> bool:
    """Return whether every advisory that covers one of these versions lets it stay."""
    covering = [advisory.ids_affecting(ecosystem, package, version) for version in now]
    return made.remediation is not None and all(
        lets_stay(advisory, ecosystem, package, ids) for ids in covering
    )


def still_installed(made: Applied, package: str) -> Iterator[str]:
    """Yield what the recipe found of commands that install an affected version and that no fix changes."""
    for item in made.remediation.unread if made.remediation else ():
        if STILL_INSTALLED in item.reason and f" {package} " in item.reason:
            yield item.reason.rstrip(".")


def left_aside(made: Applied, bad: Mapping[str, str]) -> dict[str, str]:
    """Those of the affected places (with their versions) that are of projects among tests and examples
    which the recipe could not fix, and which the patch does not touch."""
    items = made.remediation.unread if made.remediation else ()
    folders = {str(PurePosixPath(item.path).parent) for item in items if is_aside(item.path)}
    touched = {str(PurePosixPath(path).parent) for path in made.files}
    left = tuple(f"{folder}/" for folder in folders - touched)
    return {place: version for place, version in bad.items() if place.startswith(left)}
