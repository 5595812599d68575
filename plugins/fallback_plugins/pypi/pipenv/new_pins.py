"""What a new release needs that a Pipfile.lock does not hold: the pins that it gains.

pipenv locks for one Python on one platform, which the lock does not name. So a package comes in only where
every platform needs it; what some need is refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.locks.pipfile_lock import PipfileLock
from fallback_plugins.pypi.manifests.markers import ALWAYS, NEVER, either, without_extras
from fallback_plugins.pypi.poetry.asked import extras_in
from fallback_plugins.pypi.resolving.scratch_lock import PackageIndex, Release
from fallback_plugins.pypi.resolving.wheel_metadata import Metadata
from fallback_plugins.shared.bumping import unsupported
from fallback_tier.errors import RecipeError

#: Packages that one fix may bring in, as for Poetry.
MAX_NEW = 20


@dataclass(frozen=True)
class NewPin:
    """One pin that a lock gains, in the sections of those that ask for it."""

    release: Release
    metadata: Metadata
    sections: frozenset[str]


def new_pins(
    lock: PipfileLock,
    index: PackageIndex,
    moved: Mapping[str, str],
    chosen: Mapping[str, str],
    python: str,
) -> dict[str, NewPin]:
    """What the moved releases need and the lock lacks, and what that needs; ``chosen``: its versions.

    Raises RecipeError.
    """
    found: dict[str, NewPin] = {}
    held = {pin.name for pin in lock.pins}
    waiting = [
        (name, NewPin(*index.release(name, version, python), lock.sections_of(name)))
        for name, version in moved.items()
    ]
    while waiting:
        parent, pin = waiting.pop(0)
        for requirement in _needed(pin.metadata, lock.extras_of(parent), python):
            child = canonicalize_name(requirement.name)
            known = found.get(child)
            if child in held or (known and known.sections >= pin.sections):
                continue
            if child not in chosen or len(found) >= MAX_NEW:
                raise _lacking(lock, parent, child)
            sections = pin.sections | (known.sections if known else frozenset())
            new = index.release(child, chosen[child], python)
            found[child] = NewPin(*new, sections)
            waiting.append((child, found[child]))
    return found


def _needed(metadata: Metadata, extras: Iterable[str], python: str) -> Iterator[Requirement]:
    """Raises RecipeError for what is needed on some platforms only."""
    wanted = set(map(canonicalize_name, extras))
    for requirement in metadata.requirements:
        marker = str(requirement.marker) if requirement.marker else ""
        asked = set(map(canonicalize_name, extras_in(marker)))
        when = either([without_extras(marker)], f"~{python}")
        if when == NEVER or (asked and not asked & wanted):
            continue
        if when != ALWAYS:
            raise unsupported(
                f"{requirement.name} is needed where {marker}, and a Pipfile.lock does not say which"
                " platform it is for."
            )
        yield requirement


def _lacking(lock: PipfileLock, parent: str, child: str) -> RecipeError:
    return RecipeError(
        RefusalReason.MANIFEST_MISSING,
        f"{parent} would bring in {child}, which {lock.path} does not hold.",
        next_step="Resolve it with `pipenv lock`.",
    )
