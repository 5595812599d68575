"""What decides an installed version: a lock, compiled requirements, or a range that no lock narrows.

A lock that does not answer what its manifest requires shows nothing about what is installed: clients make
it again before they install from it, or refuse it. Only requests that hold in every case are compared: a
condition may be why a package isn't locked.

Of compiled requirements, an ``.in`` says what is required, the ``.txt`` made from it what is installed. A
project's own metadata can be the source, too: of a set compiled from pyproject.toml, or one that pins the
project itself (ADR-0016).
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

#: What installs packages itself: pip-compile, pipenv and old Poetry leave these out of what they write.
_NEVER_LOCKED = frozenset({"distribute", "pip", "pkg-resources", "setuptools", "wheel"})

#: Arrays of ``[tool.uv]`` that ask for nothing: they change what others ask for.
_UV_CHANGES = ("constraint-dependencies", "override-dependencies", "exclude-dependencies")

_MAIN = ("project", "dependencies")

#: Folders of test data, which nobody installs.
_TEST_DATA = frozenset({"test", "tests", "__tests__", "testdata", "fixture", "fixtures"})


class DecidedByLock:
    """The part of a project that is the same for every lock: no client has to run."""

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
        """Whether it installs folders of the repository, whose own projects are then fixed first. Those of
        a uv.lock belong to its own project."""
        return False

    def awaits_client(self, advisory: Advisory) -> bool:  # noqa: ARG002
        """Return whether a client has to run, and may, to tell whether it is affected. Raises RecipeError,
        RepositoryError."""
        return False


@dataclass(frozen=True)
class ManifestRequest:
    """One request that holds in every case; ``path``: the manifest that makes it."""

    path: str
    name: str
    declaration: Declaration

    def answered_by(self, versions: Iterable[str]) -> bool:
        """Return whether one of these versions is what is required. A request that can't be read is
        answered."""
        asked = self.declaration
        if asked.refusal or not asked.is_readable:
            return True
        return any(not is_orderable(PYPI, one) or asked.admits(one) for one in versions)


@dataclass(frozen=True)
class LockStep:
    """A lock, what it holds (canonical name, versions), and what its manifests ask for.

    ``command`` makes the lock anew. ``unversioned``: names that it lists without a version.
    """

    lock: str
    command: str
    held: Mapping[str, Sequence[str]]
    asked: Sequence[ManifestRequest]
    unversioned: frozenset[str] = frozenset()

    def check(self, advisory: Advisory) -> None:
        """Raise RecipeError if the lock doesn't answer a request of the advisory's packages, and a fix of
        the lock would not come to answer it; and if it lists one of them without a version."""
        packages = frozenset(advisory.packages(ECOSYSTEM))
        for part in unversioned(self.lock, packages & self.unversioned):
            raise unknown(self.lock, part.reason, next_step=part.next_step)
        for one in self._wanted:
            if one.name not in packages:
                continue
            versions = self.held.get(one.name)
            if versions is None:
                raise self._refusal(one, "does not hold it")
            if not one.answered_by(versions) and not _would_answer(advisory, one, versions):
                raise self._refusal(one, f"holds {', '.join(versions)}")

    def doubt(self) -> RecipeError | None:
        """Return the refusal to call the lock clean: it lacks what is required, with all that this brings
        in. None among test data: ``check`` refuses what is required itself there."""
        if not _TEST_DATA.isdisjoint(self.lock.split("/")[:-1]):
            return None
        for one in self._wanted:
            if one.name not in self.held:
                return self._refusal(one, "does not hold it, nor what it depends on")
        return None

    @property
    def _wanted(self) -> Iterator[ManifestRequest]:
        return (one for one in self.asked if one.name not in _NEVER_LOCKED)

    def _refusal(self, one: ManifestRequest, what: str) -> RecipeError:
        return unknown(
            self.lock,
            f"{one.path} requires {one.name}{one.declaration.pep440}, and {self.lock} {what}: the "
            "lock is out of step with what it was made from, so what is installed is unknown.",
            next_step=f"Run `{self.command}`, commit what it writes, and try again.",
        )


def _would_answer(advisory: Advisory, one: ManifestRequest, versions: Iterable[str]) -> bool:
    """Return whether a fixed version, which an affected one has to go to anyway, answers the request."""
    affected = any(is_affected(advisory, ECOSYSTEM, one.name, version) for version in versions)
    fixed = fixed_versions(advisory, ECOSYSTEM, one.name)
    return affected and any(map(one.declaration.admits, fixed))


def asked_in_arrays(
    texts: Mapping[str, str],
    whole: Collection[str],
    recorded: Collection[tuple[str, SpecifierSet]] = (),
) -> tuple[ManifestRequest, ...]:
    """Return the requests in the arrays of pyproject.toml files. Only of those that are ``whole`` extras
    and groups are locked too. ``recorded``: the requests that the lock records as its own; of those with a
    condition only others are returned. Raises RecipeError for text that is not TOML."""
    documents = {path: parse_toml(path, text) for path, text in texts.items()}
    own = {
        canonicalize_name(str(table_of(document, "project").get("name", "")))
        for document in documents.values()
    }
    lines = (
        str(line)
        for document in documents.values()
        for key in _UV_CHANGES
        if isinstance(found := table_of(document, "tool", "uv").get(key), list)
        for line in found
    )
    changed = {canonicalize_name(it.name) for it in map(requirement_in, lines) if it is not None}
    return tuple(
        asked
        for path, document in documents.items()
        for keys, line in requirement_arrays(document)
        if keys[-2] not in _UV_CHANGES and (path in whole or keys[:2] == _MAIN)
        for asked in _asked_by(path, line, recorded)
        if asked.name not in own | changed
    )


def _asked_by(
    path: str, line: str, recorded: Collection[tuple[str, SpecifierSet]] = ()
) -> Iterator[ManifestRequest]:
    """Yield the request of a line, if it names no address, and holds in every case or differs from those
    that were ``recorded`` (none: nothing is known of those)."""
    requirement = requirement_in(line)
    if requirement is None:
        return
    declaration = declaration_in(line, requirement.name)
    name = canonicalize_name(requirement.name)
    is_new = bool(recorded) and (name, requirement.specifier) not in recorded
    holds = requirement.marker is None or is_new
    if holds and requirement.url is None and declaration is not None:
        yield ManifestRequest(path, name, declaration)


#: How compilers name a project's metadata where it asks for a package: ``via NAME (pyproject.toml)``.
_VIA = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z0-9][\w.-]*) "
    r"\((?:[^()\n]*/)?(?:pyproject\.toml|setup\.cfg|setup\.py)\)"
)


def decided_by(texts: Mapping[str, str]) -> dict[str, str]:
    """Return each ``.in`` of a set that was compiled, with the ``.txt`` that was made from it."""
    pairs = ((path, str(PurePosixPath(path).with_suffix(".txt"))) for path in texts)
    return {
        path: target
        for path, target in pairs
        if path.endswith(".in") and is_closed(texts.get(target, ""))
    }


def compiled_for(repo: RepoContext, manifest: str) -> dict[str, str]:
    """Closed requirements files that say what is installed for the project of this metadata, wherever they
    lie: compiled from it, or with the project itself pinned. Empty where it has no name.

    Raises RepositoryError (the metadata can't be read).
    """
    folder = posixpath.dirname(manifest)
    beside = {name: posixpath.join(folder, name) for name in METADATA_FILES}
    name = own_name({one: repo.read_text(path) for one, path in beside.items() if repo.has(path)})
    if not name:
        return {}
    own, found = canonicalize_name(name), {}
    for path in repo.tracked_files:
        if path.endswith(".txt") and kind_of(path) is Kind.REQUIREMENTS:
            with suppress(RepositoryError):  # its own project says why it can't be read
                found[path] = repo.read_text(path)
    return {
        path: text
        for path, text in found.items()
        if is_closed(text)
        and (
            any(canonicalize_name(match["name"]) == own for match in _VIA.finditer(text))
            or pinned_versions(path, text, own)
        )
    }


def steps(texts: Mapping[str, str]) -> Iterator[LockStep]:
    """Yield each compiled file of a set, with what the ``.in`` next to it requires."""
    for source, target in decided_by(texts).items():
        compiler = "uv pip compile" if "uv pip compile" in texts[target] else "pip-compile"
        asked = tuple(_requests(source, texts[source]))
        yield LockStep(target, f"{compiler} {source}", _held(target, texts), asked)


def _requests(path: str, text: str) -> Iterator[ManifestRequest]:
    if kind_in_set(path) is Kind.REQUIREMENTS:
        for line in logical_lines(text):
            yield from _asked_by(path, bare_line(line))


def _held(path: str, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what a compiled file holds, and those that it includes."""
    held: dict[str, list[str]] = {}
    for here, text in with_included([path], texts.get, constrain=False).items():
        for one in _requests(here, text or ""):
            pin = one.declaration.pin
            held.setdefault(one.name, []).extend([pin.version] if pin else [])
    return held


METADATA = frozenset({Kind.PYPROJECT, Kind.SETUP_CFG, Kind.SETUP_PY})

#: Whose ranges each lock chooses for: its own manifest's, and those of the project's metadata beside it,
#: which is the same project's, whatever its build reads. A pylock.toml is an export, of anything.
_CHOOSES_FOR = {
    Kind.UV_LOCK: METADATA,
    Kind.PDM_LOCK: METADATA,
    Kind.POETRY_LOCK: METADATA,
    Kind.PIPFILE_LOCK: METADATA | {Kind.PIPFILE},
}

DECIDING_LOCKS = frozenset(_CHOOSES_FOR)

#: Folders of requirements files, which belong to the project in the folder above.
_REQUIREMENTS = frozenset({"requirements", "reqs", "constraints"})

#: What an environment holds of the package, by the folder that it is of.
_Installed = Mapping[str, Sequence[str]]


def places_in_use(
    repo: RepoContext, places: Sequence[Place], installed: _Installed | None = None
) -> tuple[Place, ...]:
    """Those of one package's places whose version counts, in their order.

    A choice counts for a range that admits it; any other was made for other Pythons, or before the manifest
    was changed. Raises RepositoryError (a lock can't be read).
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
        return any(place.admits(it) for it in chosen if it)

    return tuple(place for place in places if not place.is_range or not is_chosen(place))


def _compiled(repo: RepoContext, place: Place, places: Sequence[Place]) -> list[str | None]:
    """What has been compiled from an ``.in`` file, or from a project's own metadata."""
    if place.kind in METADATA:
        pinned = [one for one in places if one.kind is Kind.REQUIREMENTS and not one.is_range]
        files = compiled_for(repo, place.path) if pinned else {}
        return [one.current for one in pinned if one.path in files]
    target = str(PurePosixPath(place.path).with_suffix(".txt"))
    if not place.path.endswith(".in") or not repo.has(target):
        return []
    texts = {place.path: "", target: repo.read_text(target)}
    pins = [one.current for one in places if one.path == target and not one.is_range]
    return pins if decided_by(texts) else []


def _folders(repo: RepoContext, lock: Place) -> set[str]:
    """Folders of the manifests that a lock is made from: its own, and a workspace's members'."""
    found = {posixpath.dirname(lock.path)}
    if lock.kind is Kind.UV_LOCK:
        with suppress(RecipeError):
            members = manifest_paths(lock.path, repo.read_text(lock.path))
            found |= {posixpath.dirname(path) for path in members}
    return found


def project_of(place: Place) -> str:
    """Return the folder whose environment is made from a manifest."""
    folder = PurePosixPath(place.path).parent
    inside = place.kind is Kind.REQUIREMENTS and folder.name in _REQUIREMENTS
    return str(folder.parent if inside else folder)
