"""Decision on what is installed: a lock, compiled requirements, or a range that no lock narrows.

A lock that does not answer what its manifest requires shows nothing about what is installed: clients
recreate it before they install from it, or refuse it. Only unconditional requests are compared: a condition
may be why a package isn't locked.

Of compiled requirements, the ``.in`` file has what is required, and the ``.txt`` made from it what is
installed. A project's own metadata can be the source, too: for files compiled from pyproject.toml, or ones
that pin the project itself (ADR-0016).
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.locks.uv_lock import manifest_paths
from fallback_plugins.pypi.manifests.kinds import PYPI, Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.metadata import METADATA_FILES, own_name
from fallback_plugins.pypi.manifests.pyproject import parse_toml, requirement_arrays, table_of
from fallback_plugins.pypi.manifests.requirements import (
    Declaration,
    bare_line,
    declaration_in,
    is_closed,
    logical_lines,
    requirement_in,
    with_included,
)
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM, Place, pinned_versions
from fallback_plugins.shared.ladder import unknown
from fallback_plugins.shared.resolution import unversioned
from fallback_tier.advisory import Advisory, fixed_versions, is_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.repo import RepoContext

#: Packages that install others: pip-compile, pipenv and old Poetry leave these out of their output.
_NEVER_LOCKED = frozenset({"distribute", "pip", "pkg-resources", "setuptools", "wheel"})

#: Arrays of ``[tool.uv]`` that require nothing: they change what others require.
_UV_CHANGES = ("constraint-dependencies", "override-dependencies", "exclude-dependencies")

_MAIN = ("project", "dependencies")

#: Folders of test data, from which no project installs.
_TEST_DATA = frozenset({"test", "tests", "__tests__", "testdata", "fixture", "fixtures"})


class DecidedByLock:
    """What is the same for every project with a lock: no client has to run."""

    def unsettled(
        self,
        advisory: Advisory,
        patched: Mapping[str, str] = MappingProxyType({}),  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Return the advisory's packages that no declaration settles, so that only the resolution shows
        them: all. ``patched``: texts of a fix, by path. Raises RecipeError, RepositoryError."""
        return advisory.packages(ECOSYSTEM)

    @property
    def installs_folders(self) -> bool:
        """Whether it installs folders of the repository, whose own projects are then fixed first. Folders
        of a uv.lock belong to its project."""
        return False

    def awaits_client(self, advisory: Advisory) -> bool:  # noqa: ARG002
        """Return whether a client has to run, and may, to find out whether the project is affected. Raises
        RecipeError, RepositoryError."""
        return False


@dataclass(frozen=True)
class ManifestRequest:
    """One unconditional request; ``path``: the manifest that makes it."""

    path: str
    name: str
    declaration: Declaration

    def answered_by(self, versions: Iterable[str]) -> bool:
        """Return whether one of these versions is what is required. A request that can't be read counts as
        answered."""
        declaration = self.declaration
        if declaration.refusal or not declaration.is_readable:
            return True
        return any(
            not is_orderable(PYPI, version) or declaration.admits(version) for version in versions
        )


@dataclass(frozen=True)
class LockStep:
    """A lock, its packages (canonical name, versions), and what its manifests require.

    ``command`` recreates the lock. ``unversioned``: names that it lists without a version.
    """

    lock: str
    command: str
    held: Mapping[str, Sequence[str]]
    asked: Sequence[ManifestRequest]
    unversioned: frozenset[str] = frozenset()

    def check(self, advisory: Advisory) -> None:
        """Raise RecipeError if the lock doesn't answer a request of the advisory's packages, and a fix of
        the lock would not make it do so; also if it lists one of them without a version."""
        packages = frozenset(advisory.packages(ECOSYSTEM))
        for part in unversioned(self.lock, packages & self.unversioned):
            raise unknown(self.lock, part.reason, next_step=part.next_step)
        for request in self._wanted:
            if request.name not in packages:
                continue
            versions = self.held.get(request.name)
            if versions is None:
                raise self._refusal(request, "does not hold it")
            if not request.answered_by(versions) and not _would_answer(advisory, request, versions):
                raise self._refusal(request, f"holds {', '.join(versions)}")

    def doubt(self) -> RecipeError | None:
        """Return the refusal to call the lock unaffected: it lacks a required package, and that package's
        dependencies. None in test data: there ``check`` refuses only requests of the advisory's
        packages."""
        if not _TEST_DATA.isdisjoint(self.lock.split("/")[:-1]):
            return None
        for request in self._wanted:
            if request.name not in self.held:
                return self._refusal(request, "does not hold it, nor what it depends on")
        return None

    @property
    def _wanted(self) -> Iterator[ManifestRequest]:
        return (request for request in self.asked if request.name not in _NEVER_LOCKED)

    def _refusal(self, request: ManifestRequest, what: str) -> RecipeError:
        return unknown(
            self.lock,
            f"{request.path} requires {request.name}{request.declaration.pep440}, and {self.lock} {what}:"
            " the lock is out of step with what it was made from, so what is installed is unknown.",
            next_step=f"Run `{self.command}`, commit what it writes, and try again.",
        )


def _would_answer(advisory: Advisory, request: ManifestRequest, versions: Iterable[str]) -> bool:
    """Return whether a fixed version, to which an affected one has to move anyway, answers the request."""
    affected = any(is_affected(advisory, ECOSYSTEM, request.name, version) for version in versions)
    fixed = fixed_versions(advisory, ECOSYSTEM, request.name)
    return affected and any(map(request.declaration.admits, fixed))


def asked_in_arrays(
    texts: Mapping[str, str],
    whole: Collection[str],
    recorded: Collection[tuple[str, SpecifierSet]] = (),
) -> tuple[ManifestRequest, ...]:
    """Return the requests in the arrays of pyproject.toml files. Extras and groups are locked, and so
    returned, only for files that are ``whole``. ``recorded``: the requests that the lock records as its
    own; a conditional request is returned only if it is not among them. Raises RecipeError for text that is
    not TOML."""
    documents = {path: parse_toml(path, text) for path, text in texts.items()}
    own_names = {
        canonicalize_name(str(table_of(document, "project").get("name", "")))
        for document in documents.values()
    }
    lines = (
        str(line)
        for document in documents.values()
        for key in _UV_CHANGES
        if isinstance(array := table_of(document, "tool", "uv").get(key), list)
        for line in array
    )
    changed = {
        canonicalize_name(requirement.name)
        for requirement in map(requirement_in, lines)
        if requirement is not None
    }
    return tuple(
        request
        for path, document in documents.items()
        for keys, line in requirement_arrays(document)
        if keys[-2] not in _UV_CHANGES and (path in whole or keys[:2] == _MAIN)
        for request in _asked_by(path, line, recorded)
        if request.name not in own_names | changed
    )


def _asked_by(
    path: str, line: str, recorded: Collection[tuple[str, SpecifierSet]] = ()
) -> Iterator[ManifestRequest]:
    """Yield the request of a line, if it names no address, and is unconditional or not among those that
    were ``recorded`` (empty: those are unknown)."""
    requirement = requirement_in(line)
    if requirement is None:
        return
    declaration = declaration_in(line, requirement.name)
    name = canonicalize_name(requirement.name)
    is_new = bool(recorded) and (name, requirement.specifier) not in recorded
    holds = requirement.marker is None or is_new
    if holds and requirement.url is None and declaration is not None:
        yield ManifestRequest(path, name, declaration)


#: How compilers name a project's metadata as what requires a package: ``via NAME (pyproject.toml)``.
_VIA = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z0-9][\w.-]*) "
    r"\((?:[^()\n]*/)?(?:pyproject\.toml|setup\.cfg|setup\.py)\)"
)


def decided_by(texts: Mapping[str, str]) -> dict[str, str]:
    """Return each ``.in`` file that was compiled, with the ``.txt`` that was made from it."""
    pairs = ((path, str(PurePosixPath(path).with_suffix(".txt"))) for path in texts)
    return {
        path: target
        for path, target in pairs
        if path.endswith(".in") and is_closed(texts.get(target, ""))
    }


def compiled_for(repo: RepoContext, manifest: str) -> dict[str, str]:
    """Return the closed requirements files that determine what is installed for the project of this
    metadata, in any folder: compiled from it, or with the project itself pinned. Empty if it has no name.

    Raises RepositoryError (the metadata can't be read).
    """
    folder = posixpath.dirname(manifest)
    metadata_paths = {name: posixpath.join(folder, name) for name in METADATA_FILES}
    name = own_name(
        {
            metadata_file: repo.read_text(path)
            for metadata_file, path in metadata_paths.items()
            if repo.has(path)
        }
    )
    if not name:
        return {}
    canonical, texts = canonicalize_name(name), {}
    for path in repo.tracked_files:
        if path.endswith(".txt") and kind_of(path) is Kind.REQUIREMENTS:
            with suppress(RepositoryError):  # its own project reports why it can't be read
                texts[path] = repo.read_text(path)
    return {
        path: text
        for path, text in texts.items()
        if is_closed(text)
        and (
            any(canonicalize_name(match["name"]) == canonical for match in _VIA.finditer(text))
            or pinned_versions(path, text, canonical)
        )
    }


def steps(texts: Mapping[str, str]) -> Iterator[LockStep]:
    """Yield each compiled file among the texts, with what the ``.in`` next to it requires."""
    for source, target in decided_by(texts).items():
        compiler = "uv pip compile" if "uv pip compile" in texts[target] else "pip-compile"
        requests = tuple(_requests(source, texts[source]))
        yield LockStep(target, f"{compiler} {source}", _held(target, texts), requests)


def _requests(path: str, text: str) -> Iterator[ManifestRequest]:
    if kind_in_set(path) is Kind.REQUIREMENTS:
        for line in logical_lines(text):
            yield from _asked_by(path, bare_line(line))


def _held(path: str, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the versions in a compiled file and in those that it includes, by package."""
    versions: dict[str, list[str]] = {}
    for included_path, text in with_included([path], texts.get, constrain=False).items():
        for request in _requests(included_path, text or ""):
            pin = request.declaration.pin
            versions.setdefault(request.name, []).extend([pin.version] if pin else [])
    return versions


METADATA = frozenset({Kind.PYPROJECT, Kind.SETUP_CFG, Kind.SETUP_PY})

#: Kinds of files for whose ranges each lock chooses: its own manifest, and metadata in the same folder,
#: which belongs to the same project, whatever its build reads. A pylock.toml is an export, of anything.
_CHOOSES_FOR = {
    Kind.UV_LOCK: METADATA,
    Kind.PDM_LOCK: METADATA,
    Kind.POETRY_LOCK: METADATA,
    Kind.PIPFILE_LOCK: METADATA | {Kind.PIPFILE},
}

DECIDING_LOCKS = frozenset(_CHOOSES_FOR)

#: Folders of requirements files, which belong to the project in the folder above.
_REQUIREMENTS = frozenset({"requirements", "reqs", "constraints"})

#: The package's versions in an environment, by the folder of its project.
_Installed = Mapping[str, Sequence[str]]


def places_in_use(
    repo: RepoContext, places: Sequence[Place], installed: _Installed | None = None
) -> tuple[Place, ...]:
    """Return those of one package's places whose version counts, in their order.

    A chosen version counts for a range that admits it; another was chosen for other Pythons, or before the
    manifest was changed. Raises RepositoryError (a lock can't be read).
    """
    locks = [place for place in places if kind_of(place.path) in _CHOOSES_FOR]
    folders = {lock.path: _folders(repo, lock) for lock in locks}

    def is_chosen(place: Place) -> bool:
        chosen = [
            lock.current
            for lock in locks
            if place.kind in _CHOOSES_FOR[lock.kind]
            and posixpath.dirname(place.path) in folders[lock.path]
        ]
        chosen += (installed or {}).get(project_of(place), ())
        chosen += _compiled(repo, place, places)
        return any(place.admits(version) for version in chosen if version)

    return tuple(place for place in places if not place.is_range or not is_chosen(place))


def _compiled(repo: RepoContext, place: Place, places: Sequence[Place]) -> list[str | None]:
    """Return the versions compiled from an ``.in`` file, or from a project's own metadata."""
    if place.kind in METADATA:
        pinned = [
            other_place
            for other_place in places
            if other_place.kind is Kind.REQUIREMENTS and not other_place.is_range
        ]
        files = compiled_for(repo, place.path) if pinned else {}
        return [other_place.current for other_place in pinned if other_place.path in files]
    target = str(PurePosixPath(place.path).with_suffix(".txt"))
    if not place.path.endswith(".in") or not repo.has(target):
        return []
    texts = {place.path: "", target: repo.read_text(target)}
    pins = [
        other_place.current
        for other_place in places
        if other_place.path == target and not other_place.is_range
    ]
    return pins if decided_by(texts) else []


def _folders(repo: RepoContext, lock: Place) -> set[str]:
    """Return the folders of the manifests that a lock is made from: its own, and a workspace's members'."""
    folders = {posixpath.dirname(lock.path)}
    if lock.kind is Kind.UV_LOCK:
        with suppress(RecipeError):
            members = manifest_paths(lock.path, repo.read_text(lock.path))
            folders |= {posixpath.dirname(path) for path in members}
    return folders


def project_of(place: Place) -> str:
    """Return the folder whose environment is made from a manifest."""
    folder = PurePosixPath(place.path).parent
    inside = place.kind is Kind.REQUIREMENTS and folder.name in _REQUIREMENTS
    return str(folder.parent if inside else folder)
