"""Which places hold an affected version of a package, and why a direct bump can't mend one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.bumping import unsupported
from fallback_plugins.pypi.manifests import Kind
from fallback_plugins.pypi.pyproject import parse_toml
from fallback_plugins.pypi.survey import ECOSYSTEM, Place, survey
from fallback_tier.advisory import Advisory, is_affected
from fallback_tier.advisory.ranges import admits_affected
from fallback_tier.errors import RecipeError
from fallback_tier.repo import RepoContext

PYPROJECT = "pyproject.toml"

#: Locks made from the pyproject.toml beside them: what they hold counts, not the range it asks for.
_LOCKS_OF_PYPROJECT = frozenset({Kind.UV_LOCK, Kind.POETRY_LOCK, Kind.PDM_LOCK})

#: How many parents of a transitive dependency a refusal names.
_SHOWN_PARENTS = 3


@dataclass(frozen=True)
class Finding:
    """A place that holds, or can't be shown not to hold, an affected version.

    ``problem``: the refusal, where the direct bump can't mend it.
    """

    place: Place
    problem: RecipeError | None = None


def findings(advisory: Advisory, repo: RepoContext, package: str) -> tuple[Finding, ...]:
    """One finding for each such place, by path."""
    places = survey(repo, package)
    locked = {folder_of(place.path) for place in places if place.kind in _LOCKS_OF_PYPROJECT}
    found = (
        _judge(place, places, advisory, repo, package)
        for place in places
        if not (place.kind is Kind.PYPROJECT and folder_of(place.path) in locked)
    )
    return tuple(finding for finding in found if finding is not None)


def folder_of(path: str) -> str:
    """The folder of a path; "." is the root."""
    return str(PurePosixPath(path).parent)


def beside(path: str, name: str) -> str:
    """The path of another file in the same folder."""
    return str(PurePosixPath(path).with_name(name))


def _judge(
    place: Place, places: tuple[Place, ...], advisory: Advisory, repo: RepoContext, package: str
) -> Finding | None:
    if place.current is None:
        said = _unknown(place, advisory, package)
        return Finding(place, unsupported(said)) if said else None
    if not is_affected(advisory, ECOSYSTEM, package, place.current):
        return None
    if place.blocker:
        said = f"{place.path} holds {package} {place.current}, but {place.blocker}."
        return Finding(place, unsupported(said))
    if place.kind is Kind.UV_LOCK:
        return Finding(place, _lock_problem(place, places, repo, package))
    return Finding(place)


def _unknown(place: Place, advisory: Advisory, package: str) -> str | None:
    """No version can be read; a range is harmless unless an affected one is at its upper end."""
    if place.blocker:
        return f"{place.path} asks for {package}, but {place.blocker}."
    declaration = place.declaration
    if declaration is None:
        return None
    if not admits_affected(advisory, ECOSYSTEM, package, declaration.admits):
        return None
    return (
        f"{place.path} asks for {package}{declaration.specifier}, a range whose upper end is"
        " affected."
    )


def _lock_problem(
    place: Place, places: tuple[Place, ...], repo: RepoContext, package: str
) -> RecipeError | None:
    manifest = beside(place.path, PYPROJECT)
    if not repo.has(manifest):
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            f"{place.path} locks {package} {place.current}, but no {PYPROJECT} is beside it.",
            next_step="Add the manifest that the lock was made from.",
        )
    asking = [other for other in places if other.path == manifest]
    for other in asking:
        if other.blocker:
            return unsupported(f"{manifest} asks for {package}, but {other.blocker}.")
    document = parse_toml(manifest, repo.read_text(manifest))
    if "workspace" in document.get("tool", {}).get("uv", {}):
        return unsupported(f"{manifest} is a uv workspace, which this recipe doesn't bump.")
    if asking:
        return None
    parents = sorted(_dependents(parse_toml(place.path, repo.read_text(place.path)), package))
    shown = ", ".join(parents[:_SHOWN_PARENTS]) + (" …" if len(parents) > _SHOWN_PARENTS else "")
    return unsupported(
        f"{package} {place.current} in {place.path} is a transitive dependency of"
        f" {shown or 'another package'}; raising it is not supported by the direct-bump recipe."
    )


def _dependents(lock: Mapping[str, Any], package: str) -> Iterator[str]:
    wanted = canonicalize_name(package)
    for table in lock.get("package", ()):
        asked = {canonicalize_name(entry["name"]) for entry in table.get("dependencies", ())}
        if wanted in asked:
            yield table["name"]
