"""What the registry has of a package, as ``npm view`` tells it, each asked once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.archives import Bundled, bundled_in, unreadable
from fallback_plugins.npm.clients.npm_run import NpmRunner
from fallback_plugins.npm.clients.scratch import scratch_project
from fallback_plugins.npm.clients.words import own_words
from fallback_plugins.npm.manifests.layout import MANIFEST
from fallback_plugins.npm.manifests.specs import is_package_name
from fallback_plugins.shared.ages import moment_in
from fallback_plugins.shared.ladder import refused_for
from fallback_tier.advisory import sort_key
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Blocker

#: Seconds for one question. The largest packages' documents have tens of megabytes.
VIEW_TIMEOUT_S = 60.0

#: Two that every version has come first: where the first version has one field only, npm prints nothing
#: but that field, of every version.
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
    """One published version. ``asks``: what it installs; ``peers``: what it demands of who installs it.
    ``bundles``: has it other packages in its archive?"""

    version: str
    asks: Mapping[str, str]
    deprecated: bool = False
    peers: Mapping[str, str] = field(default_factory=dict)
    bundles: bool = False


@runtime_checkable
class KnowsDeprecated(Protocol):
    """A client whose lock marks deprecated versions: the registry need not be asked again."""

    def deprecated(self, files: Files) -> frozenset[tuple[str, str]] | None:
        """(package, version) of what the lock marks; None: this lock's format does not say it."""
        ...


@dataclass
class NpmRegistry:
    """Asks the registry through npm, whichever client the project uses."""

    clients: ClientRunner
    _releases: dict[str, tuple[Release, ...]] = field(default_factory=dict, init=False)
    _failed: dict[str, RecipeError] = field(default_factory=dict, init=False)
    _published: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _bundled: dict[tuple[str, str], tuple[Bundled, ...]] = field(default_factory=dict, init=False)
    _tags: dict[str, Mapping[str, str]] = field(default_factory=dict, init=False)

    def releases(self, package: str) -> tuple[Release, ...]:
        """Every published version but pre-releases, lowest first. Raises RecipeError, ToolError."""
        if package in self._failed:
            raise self._failed[package]
        if package not in self._releases:
            try:
                self._releases[package] = self._ask(package)
            except RecipeError as error:
                self._failed[package] = error
                raise
        return self._releases[package]

    def tags(self, package: str) -> Mapping[str, str]:
        """The version that each dist-tag names now. Raises RecipeError, ToolError."""
        if package not in self._tags:
            self._tags[package] = {
                tag: str(version)
                for tag, version in self._view(package, package, "dist-tags").items()
            }
        return self._tags[package]

    def published_at(self, package: str, version: str) -> datetime | None:
        """As ``ages.PublishedAt``."""
        if package not in self._published:
            answer = self._view(package, package, "time")
            self._published[package] = answer if isinstance(answer, dict) else {}
        return moment_in(str(self._published[package].get(version, "")))

    def bundled(self, package: str, version: str) -> tuple[Bundled, ...]:
        """What a published version has in its archive. Raises RecipeError, ToolError."""
        if (package, version) not in self._bundled:
            release = next((it for it in self.releases(package) if it.version == version), None)
            bundles = release is None or release.bundles
            found = bundled_in(package, version, self.clients) if bundles else ()
            self._bundled[package, version] = found
        return self._bundled[package, version]

    def prepare(self, package: str, version: str) -> None:
        """Have npm look up what a release asks for and does not bundle: a run that may ask nobody finds it
        in npm's cache. Raises RecipeError, ToolError."""
        inside = {one.name for one in self.bundled(package, version)}
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

    def _ask(self, package: str) -> tuple[Release, ...]:
        # The range makes npm answer with every version's own fields, not with those of the latest.
        answer = self._view(package, f"{package}@>=0.0.0", *_FIELDS)
        found = [_release(item) for item in (answer if isinstance(answer, list) else [answer])]
        real = (release for release in found if is_orderable("npm", release.version))
        return tuple(sorted(real, key=lambda release: sort_key("npm", release.version)))

    def _view(self, package: str, *words: str) -> Any:
        """What ``npm view`` answers. Raises RecipeError, ToolError."""
        if not is_package_name(package):
            what = f"{package!r} is not the name of a package"
            raise refused_for(Blocker(kind=BlockerKind.RESULT, constraint=what))
        command = ["view", *words, "--json", "--loglevel=silent"]
        # A manifest, so that npm looks for no other in the folders above.
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


def _release(item: Any) -> Release:
    if not isinstance(item, dict):
        return Release(
            str(item), {}
        )  # npm leaves the braces out where there is nothing but a version
    asks = {**_specs(item, "optionalDependencies"), **_specs(item, "dependencies")}
    peers = _specs(item, "peerDependencies")
    bundles = any(item.get(key) for key in ("bundleDependencies", "bundledDependencies"))
    return Release(str(item.get("version")), asks, bool(item.get("deprecated")), peers, bundles)


def _specs(item: Mapping[str, Any], section: str) -> dict[str, str]:
    reported = item.get(section)
    return (
        {name: str(spec) for name, spec in reported.items()} if isinstance(reported, dict) else {}
    )


def _summary(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    reported = error.get("summary") if isinstance(error, dict) else None
    return f"code {error.get('code')} {str(reported).rstrip('.')}" if error and reported else ""
