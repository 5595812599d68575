"""Which npm packages a repository is the source of: the names of its own manifests, parsed (ADR-0037)."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.identity import is_aside, texts, told_version
from fallback_plugins.npm.layout import MANIFEST, is_manifest
from fallback_plugins.npm.manifest import parse_manifest
from fallback_plugins.npm.projects import discover
from fallback_plugins.npm.registry import is_package_name
from fallback_plugins.npm.scratch import scratch_project
from fallback_tier.affected import OwnPackage
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext

#: Seconds for one question, and no second try: an answer is a second witness, never a condition.
LINKS_TIMEOUT_S = 20.0
_ONCE = ("--fetch-retries=0", "--fetch-timeout=10000")

#: What npm installs for whoever runs the package.
_AT_RUN_TIME = ("dependencies", "optionalDependencies")

#: Specs that name something of the repository itself, or of another place than the registry.
_FROM_ELSEWHERE = re.compile(r"(?:file|link|portal|workspace|npm|git(?:\+\w+)?|https?):|[./~]")


def own_packages(repo: RepoContext) -> tuple[OwnPackage, ...]:
    """The root's package, its workspaces' members, and others with a version that may be published.

    A manifest that can't be read names nothing.
    """
    return tuple(package for path in _manifests(repo) if (package := _package(repo, path)))


def source_links(package: str, clients: ClientRunner) -> tuple[str, ...]:
    """What the registry says of its newest version; empty where it does not answer."""
    if not is_package_name(package):
        return ()
    fields = ("name", "repository", "homepage", "bugs")
    words = ["view", package, *fields, "--json", "--loglevel=silent", *_ONCE]
    try:
        with scratch_project({MANIFEST: "{}"}) as folder:
            result = clients.run("npm", words, cwd=folder, timeout_s=LINKS_TIMEOUT_S)
        answer = json.loads(result.output) if result.ok else None
    except (ToolError, RecipeError, ValueError):
        return ()
    found = answer[-1] if isinstance(answer, list) and answer else answer
    return _links(found) if isinstance(found, dict) else ()


def _manifests(repo: RepoContext) -> Iterator[str]:
    members = {path for site in discover(repo) if site.folder == "." for path in site.manifests}
    for path in repo.tracked_files:
        if PurePosixPath(path).name != MANIFEST or not is_manifest(path) or is_aside(path):
            continue
        if path in members or _may_be_published(repo, path):
            yield path


def _may_be_published(repo: RepoContext, path: str) -> bool:
    """A folder that no workspace names, as in repositories that publish by a tool of their own."""
    manifest = _read(repo, path)
    return told_version(manifest.get("version")) is not None and manifest.get("private") is not True


def _package(repo: RepoContext, path: str) -> OwnPackage | None:
    manifest = _read(repo, path)
    name, version = manifest.get("name"), manifest.get("version")
    # Private, and no version that could ever be published: an application of that name.
    is_application = manifest.get("private") is True and not isinstance(version, str)
    if not isinstance(name, str) or not name or is_application:
        return None
    return OwnPackage(
        name=name,
        manifest=path,
        version=told_version(version),
        links=_links(manifest),
        asks_for_itself=_asks_for_itself(manifest, name),
    )


def _asks_for_itself(manifest: Mapping[str, Any], name: str) -> bool:
    for section in _AT_RUN_TIME:
        asked = manifest.get(section)
        spec = asked.get(name) if isinstance(asked, dict) else None
        if isinstance(spec, str) and not _FROM_ELSEWHERE.match(spec):
            return True
    return False


def _links(facts: Mapping[str, Any]) -> tuple[str, ...]:
    return texts(*(_url(facts.get(key)) for key in ("repository", "homepage", "bugs")))


def _url(value: object) -> object:
    """Each of them is an address, or an object with one."""
    return value.get("url") if isinstance(value, dict) else value


def _read(repo: RepoContext, path: str) -> Mapping[str, Any]:
    try:
        return parse_manifest(path, repo.read_text(path))
    except (RecipeError, RepositoryError):
        return {}
