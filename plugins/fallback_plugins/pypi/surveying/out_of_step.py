"""A lock that does not answer what its manifest asks for says nothing about what is installed.

Clients make such a lock anew before they install from it, or refuse it: what it holds, or does not hold,
shows nobody safe. Only requests that hold in every case are looked at: a condition may be why a package
isn't there.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.groups import table_of
from fallback_plugins.pypi.manifests.kinds import PYPI
from fallback_plugins.pypi.manifests.pyproject import parse_toml, requirement_arrays
from fallback_plugins.pypi.manifests.requirements import Declaration, declaration_in, requirement_in
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.ladder import unknown
from fallback_plugins.shared.resolution import unversioned
from fallback_tier.advisory import Advisory, fixed_versions, is_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError

#: What installs packages itself: pip-compile, pipenv and old Poetry leave these out of what they write.
_NEVER_LOCKED = frozenset({"distribute", "pip", "pkg-resources", "setuptools", "wheel"})

#: Arrays of ``[tool.uv]`` that ask for nothing: they change what others ask for.
_UV_CHANGES = ("constraint-dependencies", "override-dependencies", "exclude-dependencies")

_MAIN = ("project", "dependencies")

#: Folders of test data, which nobody installs.
_TEST_DATA = frozenset({"test", "tests", "__tests__", "testdata", "fixture", "fixtures"})


class DecidedByLock:
    """The part of ``PythonProject`` that is the same for every lock: no client has to run."""

    def unsettled(
        self,
        advisory: Advisory,
        patched: Mapping[str, str] = MappingProxyType({}),  # noqa: ARG002
    ) -> tuple[str, ...]:
        """As ``PythonProject`` says: the lock decides."""
        return advisory.packages(ECOSYSTEM)

    @property
    def installs_folders(self) -> bool:
        """As ``PythonProject`` says: of uv's lock, the folders belong to its own project."""
        return False

    def awaits_client(self, advisory: Advisory) -> bool:  # noqa: ARG002
        """As ``PythonProject`` says."""
        return False


@dataclass(frozen=True)
class ManifestRequest:
    """One request that holds in every case; ``path``: the manifest that makes it."""

    path: str
    name: str
    declaration: Declaration

    def answered_by(self, versions: Iterable[str]) -> bool:
        """Is one of these versions what is asked for? A request that can't be read is."""
        if self.declaration.refusal or not self.declaration.is_readable:
            return True
        return any(
            not is_orderable(PYPI, version) or self.declaration.admits(version)
            for version in versions
        )


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
        """Raises RecipeError where the lock doesn't answer a request of the advisory's packages, and a fix
        of the lock would not come to answer it; and if it lists one of them without a version."""
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
        """The refusal to call the lock clean: it lacks what is asked for, with all that this brings in.
        None among test data: ``check`` refuses what is asked for itself there."""
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
    """Does a fixed version, which an affected one has to go to anyway, answer the request?"""
    affected = any(is_affected(advisory, ECOSYSTEM, one.name, version) for version in versions)
    fixed = fixed_versions(advisory, ECOSYSTEM, one.name)
    return affected and any(map(one.declaration.admits, fixed))


def asked_in_arrays(
    texts: Mapping[str, str],
    whole: Collection[str],
    recorded: Collection[tuple[str, SpecifierSet]] = (),
) -> tuple[ManifestRequest, ...]:
    """What pyproject.toml files ask for in their arrays. Only of those that are ``whole`` extras and groups
    are locked too. ``recorded``: the requests that the lock says that it was made for; of those with a
    condition only others are returned. Raises RecipeError for text that is no TOML.
    """
    documents = {path: parse_toml(path, text) for path, text in texts.items()}
    own = {
        canonicalize_name(str(table_of(document, "project").get("name", "")))
        for document in documents.values()
    }
    changed = {
        name for document in documents.values() for name in _names(table_of(document, "tool", "uv"))
    }
    return tuple(
        asked
        for path, document in documents.items()
        for keys, line in requirement_arrays(document)
        if keys[-2] not in _UV_CHANGES and (path in whole or keys[:2] == _MAIN)
        for asked in asked_by(path, line, recorded)
        if asked.name not in own | changed
    )


def asked_by(
    path: str, line: str, recorded: Collection[tuple[str, SpecifierSet]] = ()
) -> Iterator[ManifestRequest]:
    """The request that a line makes, if it names no address, and holds in every case or is another than
    those that were ``recorded`` (none: nothing is known of those)."""
    requirement = requirement_in(line)
    if requirement is None:
        return
    declaration = declaration_in(line, requirement.name)
    name = canonicalize_name(requirement.name)
    is_new = bool(recorded) and (name, requirement.specifier) not in recorded
    holds = requirement.marker is None or is_new
    if holds and requirement.url is None and declaration is not None:
        yield ManifestRequest(path, name, declaration)


def _names(uv: Mapping[str, Any]) -> Iterator[str]:
    for key in _UV_CHANGES:
        found = uv.get(key)
        for line in found if isinstance(found, list) else ():
            if (asked := requirement_in(str(line))) is not None:
                yield canonicalize_name(asked.name)
