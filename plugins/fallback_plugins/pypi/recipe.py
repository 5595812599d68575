"""The direct bump: raise a declared dependency to the lowest fixed version, its lock too."""

from dataclasses import dataclass

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.bumping import (
    check_target,
    choose_bump,
    own_code,
    raise_first_problem,
    unsupported,
)
from fallback_plugins.pypi.findings import PYPROJECT, Finding, beside, findings
from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.pins import pinned_versions
from fallback_plugins.pypi.pyproject import (
    RequirementString,
    replace_requirement,
    requirement_strings,
)
from fallback_plugins.pypi.requirements import Declaration
from fallback_plugins.pypi.resolver import downgraded, refresh_lock, resolver_failed
from fallback_plugins.pypi.rewrite import Edit, apply_edits, edits_for
from fallback_plugins.pypi.survey import ECOSYSTEM, is_the_package
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
DIRECT_BUMP = "pypi-direct-bump"


def bump(package: str, version: str) -> Selected:
    """The selection that raises ``package`` to ``version``."""
    return Selected(recipe=DIRECT_BUMP, parameters={"package": package, "version": version})


def select_bump(advisory: Advisory, repo: RepoContext) -> Selected:
    """The bump to the lowest fixed version. Raises RecipeError, saying why there is none."""
    package, version, hits = choose_bump(
        ECOSYSTEM,
        advisory,
        find=lambda name: findings(advisory, repo, name),
        highest=_highest,
        nothing=lambda names: _nothing_to_bump(repo, names),
    )
    # Said now, not when it is applied: a declaration that excludes the version can't be raised.
    _Bump(advisory, repo, package, version).texts(hits)
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
    job = _Bump(advisory, repo, package, version)
    texts = job.texts(hits)
    locks = sorted({hit.place.path for hit in hits if hit.place.kind is Kind.UV_LOCK})
    texts |= {lock: job.relocked(lock, texts, clients) for lock in locks}
    changes = (
        FileChange(path=path, before=repo.read_text(path), after=after)
        for path, after in sorted(texts.items())
    )
    resolved = all(hit.place.kind is Kind.UV_LOCK for hit in hits)
    return RecipeResult(
        changes=tuple(change for change in changes if change.before != change.after),
        proof_level=ProofLevel.RESOLVED_TREE if resolved else ProofLevel.PINS,
        package=package,
        before_versions=_held(hits),
        after_version=version,
    )


@dataclass(frozen=True)
class _Bump:
    """One package raised to one version, file by file."""

    advisory: Advisory
    repo: RepoContext
    package: str
    version: str

    def texts(self, hits: tuple[Finding, ...]) -> dict[str, str]:
        """New texts of the manifests to edit, by path (locks not yet)."""
        texts = {_manifest_of(hit): self.repo.read_text(_manifest_of(hit)) for hit in hits}
        edits: dict[str, list[Edit]] = {}
        for place in (hit.place for hit in hits):
            if place.kind is Kind.UV_LOCK:
                manifest = beside(place.path, PYPROJECT)
                texts[manifest] = self._admitting(manifest, texts[manifest])
            elif place.kind is Kind.PYPROJECT and place.declaration:
                strings = requirement_strings(place.path, texts[place.path], self.package)
                string = next(string for string in strings if string.keys == place.keys)
                texts[place.path] = self._raised(place.path, texts[place.path], string)
            elif place.declaration:
                new = self._edits(place.path, place.declaration)
                edits.setdefault(place.path, []).extend(new)
        for path, new_edits in edits.items():
            texts[path] = apply_edits(texts[path], tuple(new_edits))
        return texts

    def relocked(self, lock: str, texts: dict[str, str], clients: ClientRunner) -> str:
        """uv.lock as uv resolves it, shown to hold no affected version and no downgrade."""
        old = self.repo.read_text(lock)
        manifest = texts[beside(lock, PYPROJECT)]
        new = refresh_lock(
            clients, manifest=manifest, lock=old, package=self.package, version=self.version
        )
        held = pinned_versions(lock, new, self.package)
        if not held:
            raise resolver_failed(f"uv dropped {self.package} from {lock}.")
        for version in held:
            if self._is_affected(version):
                raise resolver_failed(f"uv still locks {self.package} {version} in {lock}.")
        lower = downgraded(old, new)
        if lower:
            raise resolver_failed(f"The bump of {self.package} is no pure upgrade: {lower}.")
        return new

    def _admitting(self, path: str, text: str) -> str:
        """pyproject.toml whose declarations admit the version; those that do already, stay.

        Beside a lock that is enough: the lock decides what is installed.
        """
        for string in requirement_strings(path, text, self.package):
            if not string.declaration.admits(self.version):
                text = self._raised(path, text, string)
        return text

    def _raised(self, path: str, text: str, string: RequirementString) -> str:
        new = apply_edits(string.value, self._edits(path, string.declaration))
        return replace_requirement(path, text, string.keys, new)

    def _edits(self, path: str, declaration: Declaration) -> tuple[Edit, ...]:
        edits = edits_for(declaration, self.version)
        if edits is None:
            raise unsupported(
                f"{path} asks for {self.package}{declaration.specifier}, which does not admit"
                f" {self.version} and is not one version or lower bound to raise."
            )
        return edits

    def _is_affected(self, version: str) -> bool:
        return is_affected(self.advisory, ECOSYSTEM, self.package, version)


def _manifest_of(hit: Finding) -> str:
    """The file that a person edits: for a lock, the pyproject.toml it is made from."""
    place = hit.place
    return beside(place.path, PYPROJECT) if place.kind is Kind.UV_LOCK else place.path


def _held(hits: tuple[Finding, ...]) -> tuple[str, ...]:
    """The affected versions that are held, lowest first."""
    versions = {hit.place.current for hit in hits if hit.place.current}
    return tuple(sorted(versions, key=lambda version: sort_key(ECOSYSTEM, version)))


def _highest(hits: tuple[Finding, ...]) -> str:
    return _held(hits)[-1]


def _nothing_to_bump(repo: RepoContext, names: tuple[str, ...]) -> RecipeError:
    what = ", ".join(names)
    if any(is_the_package(repo, name) for name in names):
        return own_code(names)
    read = [path for path in repo.tracked_files if kind_of(path) is not None]
    if not read:
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            "No requirements file, pyproject.toml or Python lock is tracked in this repository.",
            next_step="Name the folder that holds the Python project, and commit its manifest.",
        )
    return RecipeError(
        RefusalReason.NOT_AFFECTED,
        f"No manifest or lock here holds an affected version of {what} ({len(read)} read).",
        next_step="Nothing needs to be done; without a lock, transitive versions are unknown.",
    )
