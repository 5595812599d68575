"""The direct bump: raise a declared dependency to the lowest fixed version, its lock too."""

from collections.abc import Iterator
from dataclasses import dataclass

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.bumping import (
    check_target,
    choose_bump,
    own_code,
    raise_first_problem,
    unsupported,
)
from fallback_plugins.npm.findings import Finding, findings
from fallback_plugins.npm.lockfile import installed_versions, lockfile_version
from fallback_plugins.npm.manifest import PEER_SECTION, replace_spec
from fallback_plugins.npm.resolver import Npm, downgraded, resolver_failed
from fallback_plugins.npm.specs import admits, raised
from fallback_plugins.npm.survey import (
    ECOSYSTEM,
    Project,
    in_folder,
    is_manifest,
    is_the_package,
)
from fallback_tier.advisory import (
    Advisory,
    is_affected,
    sort_key,
)
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import FileChange, RecipeResult, Selected
from fallback_tier.ports import ClientRunner
from fallback_tier.repo import RepoContext

#: The recipe's name in selections and events.
DIRECT_BUMP = "npm-direct-bump"


def bump(package: str, version: str) -> Selected:
    """The selection that raises ``package`` to ``version``."""
    return Selected(recipe=DIRECT_BUMP, parameters={"package": package, "version": version})


def select_bump(advisory: Advisory, repo: RepoContext) -> Selected:
    """The bump to the lowest fixed version. Raises RecipeError, saying why there is none."""
    package, version, _ = choose_bump(
        ECOSYSTEM,
        advisory,
        find=lambda name: findings(advisory, repo, name),
        highest=_highest,
        nothing=lambda names: _nothing_to_bump(repo, names),
    )
    return bump(package, version)


def apply_bump(
    selection: Selected, advisory: Advisory, repo: RepoContext, clients: ClientRunner
) -> RecipeResult:
    """Make the bump in memory. Everything is checked again: a model may have chosen the version.

    Raises RecipeError; the repository is not written.
    """
    package, version = selection.parameters["package"], selection.parameters["version"]
    hits = findings(advisory, repo, package)
    if not hits:
        raise _nothing_to_bump(repo, (package,))
    raise_first_problem(hits)
    check_target(ECOSYSTEM, advisory, package, version, _highest(hits))
    job = _Bump(advisory, repo, clients, package, version)
    changes = tuple(change for hit in hits for change in job.changes(hit.project))
    locked = all(hit.project.lock for hit in hits)
    return RecipeResult(
        changes=changes,
        proof_level=ProofLevel.RESOLVED_TREE if locked else ProofLevel.PINS,
        package=package,
        before_versions=_all_affected(hits),
        after_version=version,
    )


@dataclass(frozen=True)
class _Bump:
    """One package raised to one version, project by project."""

    advisory: Advisory
    repo: RepoContext
    clients: ClientRunner
    package: str
    version: str

    def changes(self, project: Project) -> Iterator[FileChange]:
        """package.json where its spec doesn't admit the version; the lock where there is one."""
        before = self.repo.read_text(project.manifest)
        after = self._declare(project, before, exact=False)
        if after != before:
            yield FileChange(path=project.manifest, before=before, after=after)
        if project.lock:
            old = self.repo.read_text(project.lock)
            new = self._resolve(project, project.lock, old, after)
            yield FileChange(path=project.lock, before=old, after=new)

    def _declare(self, project: Project, text: str, *, exact: bool) -> str:
        """package.json asking for the version; ``exact``: for no other, whatever it asked for."""
        for place in project.declared:
            if place.section == PEER_SECTION:
                if not admits(place.spec, self.version):
                    raise unsupported(
                        f"{PEER_SECTION} of {project.manifest} asks for {self.package}"
                        f" {place.spec!r}, which does not admit {self.version}."
                    )
                continue
            fits = project.lock is not None and admits(place.spec, self.version)
            new = (
                self.version if exact else place.spec if fits else raised(place.spec, self.version)
            )
            if new is None:
                raise unsupported(
                    f"{project.manifest} asks for {self.package} {place.spec!r}, a range that"
                    f" does not admit {self.version} and is not one version to raise."
                )
            if new != place.spec:
                text = replace_spec(project.manifest, text, place, new)
        return text

    def _resolve(self, project: Project, lock: str, old: str, manifest: str) -> str:
        """The lock, resolved by npm: first asked for exactly this version, then as declared.

        Asked for a range, npm takes the highest version in it; one that is locked already it keeps.
        A version 1 lock doesn't say what was asked for, so the second run would change nothing (and
        ask the registry about every package once more).
        """
        npm = Npm(self.clients, lock.rpartition("/")[2], _peer_options(self.repo, project))
        exact = self._declare(project, self.repo.read_text(project.manifest), exact=True)
        new = npm.install(exact, old)
        if manifest != exact and lockfile_version(new) > 1:
            new = npm.install(manifest, new)
        if self._remaining(new):
            new = npm.update(self.package, manifest, new)
        self._check_lock(lock, old, new)
        return new

    def _check_lock(self, lock: str, old: str, new: str) -> None:
        left = self._remaining(new)
        if left:
            where, version = next(iter(left.items()))
            raise unsupported(
                f"With {self.package} raised to {self.version}, {lock} would still install"
                f" {version} at {where}; its parent asks for it, which a direct bump can't change."
            )
        if not installed_versions(new, self.package):
            raise resolver_failed(f"npm dropped {self.package} from {lock}.")
        lower = downgraded(old, new)
        if lower:
            raise resolver_failed(f"The bump of {self.package} is no pure upgrade: {lower}.")
        if new == old:
            raise RecipeError(
                RefusalReason.NOTHING_CHANGED,
                f"npm left {lock} as it was.",
                next_step="Look at what pins the package there.",
            )

    def _remaining(self, lock_text: str) -> dict[str, str]:
        return {
            path: version
            for path, version in installed_versions(lock_text, self.package).items()
            if is_affected(self.advisory, ECOSYSTEM, self.package, version)
        }


def _all_affected(hits: tuple[Finding, ...]) -> tuple[str, ...]:
    versions = {version for hit in hits for version in hit.affected}
    return tuple(sorted(versions, key=lambda version: sort_key(ECOSYSTEM, version)))


def _highest(hits: tuple[Finding, ...]) -> str:
    """The highest version that projects ask for themselves: a bump must not go below it."""
    own = [hit.project.root_version or hit.affected[-1] for hit in hits]
    return max(own, key=lambda version: sort_key(ECOSYSTEM, version))


def _peer_options(repo: RepoContext, project: Project) -> tuple[str, ...]:
    """The one setting of the repository's .npmrc that changes what fits together."""
    npmrc = in_folder(project.folder, ".npmrc")
    lines = repo.read_text(npmrc).splitlines() if repo.has(npmrc) else []
    settings = {line.replace(" ", "") for line in lines}
    return ("--legacy-peer-deps",) if "legacy-peer-deps=true" in settings else ()


def _nothing_to_bump(repo: RepoContext, names: tuple[str, ...]) -> RecipeError:
    what = ", ".join(names)
    if any(is_the_package(repo, name) for name in names):
        return own_code(names)
    if not any(is_manifest(path) for path in repo.tracked_files):
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            "No package.json is tracked in this repository.",
            next_step="Name the folder that holds the npm project, and commit its manifest.",
        )
    return RecipeError(
        RefusalReason.NOT_AFFECTED,
        f"No package.json or npm lock here asks for an affected version of {what}.",
        next_step="Nothing needs to be done; without a lock, transitive versions are unknown.",
    )
