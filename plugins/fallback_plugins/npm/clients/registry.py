"""A registry's answers about packages, by ``npm view``; each query is sent once."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.archives import Bundled, bundled_in, unreadable
from fallback_plugins.npm.clients.npm_run import NpmRunner
from fallback_plugins.npm.clients.scratch import scratch_project
from fallback_plugins.npm.clients.words import own_words
from fallback_plugins.npm.manifests.manifest import MANIFEST
from fallback_plugins.npm.manifests.specs import is_package_name
from fallback_plugins.shared.ages import moment_in
from fallback_plugins.shared.ladder import refused_for
from fallback_tier.advisory import sort_key
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Blocker

_T = TypeVar("_T")

#: Seconds for one query. The largest packages' documents have tens of megabytes.
VIEW_TIMEOUT_S = 60.0

#: Most packages of one query, which asks about one after another: as many as answer within the time of one.
MAX_PACKAGES_OF_A_VIEW = 25

#: Every version: with it, npm answers with each version's own fields, not with those of the latest.
_EVERY = ">=0.0.0"

#: Folder of a query's workspaces.
_WORKSPACES = "p"

#: Two fields that every version has come first: if the first version had only one field of these, npm would
#: print only that field of every version.
_FIELDS = (
    "name",
    "version",
    "dependencies",
    "optionalDependencies",
    "peerDependencies",
    "deprecated",
    "bundleDependencies",
    "bundledDependencies",
)


@dataclass(frozen=True)
class Release:
    """One published version. ``asks``: the ranges that it requires; ``peers``: those of its peers.
    ``bundles``: whether it has other packages in its archive."""

    version: str
    asks: Mapping[str, str]
    deprecated: bool = False
    peers: Mapping[str, str] = field(default_factory=dict)
    bundles: bool = False


@runtime_checkable
class KnowsDeprecated(Protocol):
    """A client whose lock marks deprecated versions, so that the registry need not be queried."""

    def deprecated(self, files: Files) -> frozenset[tuple[str, str]] | None:
        """Return (package, version) of what the lock marks; None if its format does not record that."""
        ...


@dataclass
class NpmRegistry:
    """Queries the registry through npm, whichever client the project uses."""

    clients: ClientRunner
    _answers: dict[tuple[str, ...], Any] = field(default_factory=dict, init=False)
    _failed: dict[tuple[str, ...], RecipeError] = field(default_factory=dict, init=False)
    _bundled: dict[tuple[str, str], tuple[Bundled, ...]] = field(default_factory=dict, init=False)
    #: Whether npm answers about several packages at once.
    _together: bool = field(default=True, init=False)

    def releases(self, package: str) -> tuple[Release, ...]:
        """Return each published version but pre-releases, lowest first. Raises RecipeError, ToolError."""
        return self._kept(_releases, package, *_question(package))

    def look_up(self, packages: Iterable[str]) -> None:
        """Query the releases of several packages with few runs of npm, for ``releases`` to return. What is
        not answered is left to a query of its own. Raises ToolError."""
        unknown = [
            package
            for package in dict.fromkeys(packages)
            if is_package_name(package)
            and package != "error"  # npm's key of what failed
            and _question(package) not in self._answers
            and _question(package) not in self._failed
        ]
        for start in range(0, len(unknown), MAX_PACKAGES_OF_A_VIEW):
            some = unknown[start : start + MAX_PACKAGES_OF_A_VIEW]
            answers = self._view_several(some) if self._together and len(some) > 1 else {}
            for package, answer in answers.items():
                self._answers[_question(package)] = _releases(answer)

    def tags(self, package: str) -> Mapping[str, str]:
        """Return the version that each dist-tag names now. Raises RecipeError, ToolError."""
        return self._about(package, "dist-tags")

    def published_at(self, package: str, version: str) -> datetime | None:
        """Return when a version was published (``ages.PublishedAt``)."""
        return moment_in(self._about(package, "time").get(version, ""))

    def bundled(self, package: str, version: str) -> tuple[Bundled, ...]:
        """Return the packages in a published version's archive. Raises RecipeError, ToolError."""
        if (package, version) not in self._bundled:
            release = next(
                (candidate for candidate in self.releases(package) if candidate.version == version),
                None,
            )
            bundles = release is None or release.bundles
            packages = bundled_in(package, version, self.clients) if bundles else ()
            self._bundled[package, version] = packages
        return self._bundled[package, version]

    def prepare(self, package: str, version: str) -> None:
        """Let npm look up what a release requires and does not bundle: an offline run then finds it in
        npm's cache. Raises RecipeError, ToolError."""
        inside = {inner.name for inner in self.bundled(package, version)}
        asks = {
            name: spec
            for release in self.releases(package)
            if release.version == version
            for name, spec in {**release.peers, **release.asks}.items()
            if name not in inside
        }
        if asks:
            manifest = {MANIFEST: json.dumps({"dependencies": asks})}
            NpmRunner(self.clients).lock_after(["install"], Files(".", manifest))

    def _about(self, package: str, key: str) -> Mapping[str, str]:
        """Return one map of the package's document. Raises RecipeError, ToolError."""
        # With the name, npm prints the keys even if the registry has only one of them.
        answer = self._kept(_document, package, package, "name", "time", "dist-tags")
        return _texts(answer, key)

    def _kept(self, read: Callable[[Any], _T], package: str, *words: str) -> _T:
        """Return the answer of ``npm view`` as ``read`` converts it. Raises RecipeError, ToolError."""
        if words in self._failed:
            raise self._failed[words]
        if words not in self._answers:
            try:
                self._answers[words] = read(self._view(package, *words))
            except RecipeError as error:
                self._failed[words] = error
                raise
        return cast(_T, self._answers[words])

    def _view_several(self, packages: Sequence[str]) -> dict[str, Any]:
        """Return npm's answers by package: each is the name of a workspace. Raises ToolError."""
        manifests = {
            f"{_WORKSPACES}/{number}/{MANIFEST}": json.dumps({"name": package})
            for number, package in enumerate(packages)
        }
        root = json.dumps({"private": True, "workspaces": [f"{_WORKSPACES}/*"]})
        command = ["view", f".@{_EVERY}", *_FIELDS, "--workspaces", "--json", "--loglevel=silent"]
        with scratch_project({MANIFEST: root, **manifests}) as folder:
            result = self.clients.run("npm", command, cwd=folder, timeout_s=VIEW_TIMEOUT_S)
        try:
            document = json.loads(result.output)
        except ValueError:
            document = {}
        # npm from version 10 on has the range in its keys.
        keys = {package: (f"{package}@{_EVERY}", package) for package in packages}
        answers = {
            package: document[key]
            for package, either in keys.items()
            for key in either
            if isinstance(document, dict) and key in document
        }
        self._together = bool(answers)  # an old npm answers nothing if one package is missing
        return answers

    def _view(self, package: str, *words: str) -> Any:
        """Return the answer of ``npm view``. Raises RecipeError, ToolError."""
        if not is_package_name(package):
            what = f"{package!r} is not the name of a package"
            raise refused_for(Blocker(kind=BlockerKind.RESULT, constraint=what), kind="not_a_name")
        command = ["view", *words, "--json", "--loglevel=silent"]
        # With a manifest, npm looks for no other in the folders above.
        with scratch_project({MANIFEST: "{}"}) as folder:
            result = self.clients.run("npm", command, cwd=folder, timeout_s=VIEW_TIMEOUT_S)
        try:
            answer = json.loads(result.output) if result.output.strip() else []
        except ValueError:
            answer = {"error": {}}
        if not result.ok or (isinstance(answer, dict) and "error" in answer):
            summary = _summary(answer) or own_words(result.output)
            raise unreadable(f"npm could not list the versions of {package}", summary, package)
        return answer


def _question(package: str) -> tuple[str, ...]:
    """Return the words of the query of a package's releases."""
    return (f"{package}@{_EVERY}", *_FIELDS)


def _document(answer: Any) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {}


def _releases(answer: Any) -> tuple[Release, ...]:
    releases = [_release(item) for item in (answer if isinstance(answer, list) else [answer])]
    real = (release for release in releases if is_orderable("npm", release.version))
    return tuple(sorted(real, key=lambda release: sort_key("npm", release.version)))


def _release(item: Any) -> Release:
    if not isinstance(item, dict):
        return Release(str(item), {})  # npm prints a plain text if there is nothing but a version
    asks = {**_texts(item, "optionalDependencies"), **_texts(item, "dependencies")}
    peers = _texts(item, "peerDependencies")
    bundles = any(item.get(key) for key in ("bundleDependencies", "bundledDependencies"))
    return Release(str(item.get("version")), asks, bool(item.get("deprecated")), peers, bundles)


def _texts(item: Mapping[str, Any], section: str) -> dict[str, str]:
    texts = item.get(section)
    return {name: str(text) for name, text in texts.items()} if isinstance(texts, dict) else {}


def _summary(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    summary = error.get("summary") if isinstance(error, dict) else None
    return f"code {error.get('code')} {str(summary).rstrip('.')}" if error and summary else ""
