"""Which projects hold an affected version of a package, and why a direct bump can't mend one."""

from dataclasses import dataclass
from functools import partial

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.bumping import unsupported
from fallback_plugins.npm.lockfile import dependents
from fallback_plugins.npm.manifest import PEER_SECTION, Declared
from fallback_plugins.npm.specs import admits, floor, foreign
from fallback_plugins.npm.survey import ECOSYSTEM, MANIFEST, Project, survey
from fallback_tier.advisory import Advisory, is_affected, sort_key
from fallback_tier.advisory.ranges import admits_affected
from fallback_tier.errors import RecipeError
from fallback_tier.repo import RepoContext

#: How many parents of a transitive dependency a refusal names.
_SHOWN_PARENTS = 3


@dataclass(frozen=True)
class Finding:
    """A project that holds the package in ``affected`` versions, lowest first.

    ``problem``: the refusal, where the direct bump can't mend it (or can't tell: then ``affected``
    may be empty).
    """

    project: Project
    affected: tuple[str, ...]
    problem: RecipeError | None = None


def findings(advisory: Advisory, repo: RepoContext, package: str) -> tuple[Finding, ...]:
    """One finding for each project that is, or can't be shown not to be, affected."""
    found = []
    for project in survey(repo, package):
        versions = _affected_versions(project, advisory, package)
        problem = _problem(project, advisory, repo, package, versions)
        if versions or problem:
            found.append(Finding(project, versions, problem))
    return tuple(found)


def editable(project: Project) -> tuple[Declared, ...]:
    """The declarations that a direct bump may raise."""
    return tuple(place for place in project.declared if place.section != PEER_SECTION)


def _affected_versions(project: Project, advisory: Advisory, package: str) -> tuple[str, ...]:
    """What the lock installs; without a lock, what the specs start from."""
    held = set(project.installed.values())
    if not held:
        held = {start for place in project.declared if (start := floor(place.spec))}
    bad = {version for version in held if is_affected(advisory, ECOSYSTEM, package, version)}
    return tuple(sorted(bad, key=lambda version: sort_key(ECOSYSTEM, version)))


def _problem(
    project: Project,
    advisory: Advisory,
    repo: RepoContext,
    package: str,
    versions: tuple[str, ...],
) -> RecipeError | None:
    """Why the direct bump can't mend the project, in the order a person would look."""
    if project.unread:
        return unsupported(f"{package} is a dependency of {project.manifest}; {project.unread}.")
    if versions and not repo.has(project.manifest):
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            f"{project.lock} locks {package} {versions[0]}, but no {MANIFEST} is beside it.",
            next_step="Add the manifest that the lock was made from.",
        )
    said = None
    if versions:
        said = _not_its_own(project, repo, package, versions)
        if said is None and project.blocker:
            said = f"{project.manifest} asks for {package}; {project.blocker}"
    if said is None and (versions or not project.installed):
        said = _unbumpable_spec(project, advisory, package)
    return unsupported(f"{said}.") if said else None


def _not_its_own(
    project: Project, repo: RepoContext, package: str, versions: tuple[str, ...]
) -> str | None:
    """The affected version is one that the project doesn't ask for itself."""
    own = editable(project)
    if project.declared and not own:
        return (
            f"{project.manifest} declares {package} in {PEER_SECTION} only; what its users install"
            " is not raised by the direct-bump recipe"
        )
    if own and (not project.installed or project.root_version in versions):
        return None
    parents = dependents(repo.read_text(project.lock), package) if project.lock else ()
    shown = ", ".join(parents[:_SHOWN_PARENTS]) + (" …" if len(parents) > _SHOWN_PARENTS else "")
    return (
        f"{package} {versions[0]} in {project.lock} is a transitive dependency of"
        f" {shown or 'another package'}; raising it is not supported by the direct-bump recipe"
    )


def _unbumpable_spec(project: Project, advisory: Advisory, package: str) -> str | None:
    """A spec that names no version, or a range at whose upper end an affected one is."""
    for place in editable(project):
        what = "an alias" if place.key != package else foreign(place.spec)
        if what:
            return f"{project.manifest} takes {package} from {what} ({place.spec!r})"
        if project.installed or floor(place.spec) is not None:
            continue
        if admits_affected(advisory, ECOSYSTEM, package, partial(admits, place.spec)):
            return (
                f"{project.manifest} asks for {package} {place.spec!r}, a range whose upper end"
                " is affected"
            )
    return None
