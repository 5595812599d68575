"""What a release asks of a Poetry project: of its requirements, those that can count there."""

import re
from collections.abc import Collection

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.markers import can_hold
from fallback_plugins.pypi.poetry.lock import PoetryLock, dependencies_of
from fallback_plugins.pypi.resolving.wheel_metadata import Metadata

_EXTRA = re.compile(r"""extra == ["'](?P<extra>[^"']+)["']""")


def extras_in(marker: str) -> list[str]:
    """The extras that a marker names."""
    return _EXTRA.findall(marker)


def applying(
    lock: PoetryLock, name: str, metadata: Metadata, extras: Collection[str] = ()
) -> tuple[Requirement, ...]:
    """What a version asks of this project: no Python that it doesn't support, and of its extras those
    that the lock used before, and ``extras``."""
    used: set[tuple[str, str]] = {
        (dependency.name, extra)
        for table in lock.of(name)
        for dependency in dependencies_of(table)
        if dependency.optional
        for extra in _EXTRA.findall(dependency.marker)
    }
    wanted = _with_own_extras(name, metadata, extras)
    return tuple(
        requirement
        for requirement in metadata.requirements
        if canonicalize_name(requirement.name) != name
        and _applies(requirement, used, wanted, lock.python)
    )


def marker_of(requirement: Requirement) -> str:
    """As Poetry writes it: without parentheses that say nothing."""
    marker = "" if requirement.marker is None else str(requirement.marker)
    return marker if " or " in marker else marker.replace("(", "").replace(")", "")


def _with_own_extras(name: str, metadata: Metadata, extras: Collection[str]) -> set[str]:
    """These extras, and those of its own that they name (``lib[all]`` asks for ``lib[fast]``)."""
    found: set[str] = set()
    waiting = [canonicalize_name(extra) for extra in extras]
    while waiting:
        extra = waiting.pop()
        if extra not in found:
            found.add(extra)
            waiting += [
                canonicalize_name(other)
                for requirement in metadata.requirements
                if canonicalize_name(requirement.name) == name
                and extra in map(canonicalize_name, _EXTRA.findall(marker_of(requirement)))
                for other in requirement.extras
            ]
    return found


def _applies(
    requirement: Requirement, used: set[tuple[str, str]], wanted: set[str], python: str
) -> bool:
    marker = marker_of(requirement)
    extras = _EXTRA.findall(marker)
    name = canonicalize_name(requirement.name)
    if extras and not any(
        (name, extra) in used or canonicalize_name(extra) in wanted for extra in extras
    ):
        return False
    return not marker or can_hold(marker, python)
