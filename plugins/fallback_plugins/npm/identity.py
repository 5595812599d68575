"""npm packages of which a repository is the source: the names of its own manifests, parsed (ADR-0037)."""

import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.clients.scratch import scratch_project
from fallback_plugins.npm.manifests.manifest import (
    MANIFEST,
    entries,
    is_manifest,
    names_any,
    readable_manifest,
    readable_text,
)
from fallback_plugins.npm.manifests.specs import is_package_name
from fallback_plugins.npm.surveying.projects import manifest_folders, members
from fallback_plugins.shared.identity import (
    ASIDE,
    UNPUBLISHED,
    declared_version,
    has_source,
    is_aside,
    texts,
)
from fallback_tier.affected import OwnPackage
from fallback_tier.errors import RecipeError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext

#: Seconds for one query, without a retry: an answer confirms, and is never required.
LINKS_TIMEOUT_S = 20.0
_ONCE = ("--fetch-retries=0", "--fetch-timeout=10000")

#: Suffixes of what node runs, or is compiled into it.
_CODE = frozenset({".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx"})

#: Sections that npm installs for users of the package.
_AT_RUN_TIME = ("dependencies", "optionalDependencies")

#: Specs that name something of the repository itself, or of another place than the registry.
_FROM_ELSEWHERE = re.compile(r"(?:file|link|portal|workspace|npm|git(?:\+\w+)?|https?):|[./~]")


def own_packages(repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
    """Return the packages of the root and its members; with a doubt, those of other folders with code."""
    # Most repositories name none of the packages.
    of_root = cache(lambda: frozenset(members(repo, ".", manifest_folders(repo))))
    packages = []
    for path in repo.tracked_files:
        if PurePosixPath(path).name != MANIFEST or not is_manifest(path):
            continue
        if not names_any(readable_text(repo, path), names):
            continue  # most manifests, which need not be parsed
        manifest = readable_manifest(repo, path)
        name = manifest.get("name")
        if not isinstance(name, str) or name not in names:
            continue
        folder = str(PurePosixPath(path).parent)
        doubt = "" if folder == "." or folder in of_root() else _doubt(path, manifest)
        if not doubt or has_source(
            repo, path, lambda source: PurePosixPath(source).suffix in _CODE
        ):
            packages.append(_package(name, path, manifest, doubt))
    return tuple(packages)


def _doubt(path: str, manifest: Mapping[str, Any]) -> str:
    if is_aside(path):
        return ASIDE
    published = declared_version(manifest.get("version")) and manifest.get("private") is not True
    return "" if published else UNPUBLISHED


def _package(name: str, path: str, manifest: Mapping[str, Any], doubt: str) -> OwnPackage:
    version = manifest.get("version")
    if manifest.get("private") is True and not isinstance(version, str):
        doubt = doubt or UNPUBLISHED
    return OwnPackage(
        name=name,
        manifest=path,
        version=declared_version(version),
        links=_links(manifest),
        asks_for_itself=any(
            key == name and not _FROM_ELSEWHERE.match(spec)
            for section in _AT_RUN_TIME
            for key, spec in entries(manifest.get(section))
        ),
        doubt=doubt,
    )


def source_links(package: str, clients: ClientRunner) -> tuple[str, ...]:
    """Return the links of the newest version in the registry; empty if it does not answer."""
    if not is_package_name(package):
        return ()
    fields = ("name", "repository", "homepage", "bugs")
    arguments = ["view", package, *fields, "--json", "--loglevel=silent", *_ONCE]
    try:
        with scratch_project({MANIFEST: "{}"}) as folder:
            result = clients.run("npm", arguments, cwd=folder, timeout_s=LINKS_TIMEOUT_S)
        answer = json.loads(result.output) if result.ok else None
    except (ToolError, RecipeError, ValueError, RecursionError):
        return ()
    facts = answer[-1] if isinstance(answer, list) and answer else answer
    return _links(facts) if isinstance(facts, dict) else ()


def _links(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a package's links. Each field has an address, or an object with one."""
    values = (facts.get(key) for key in ("repository", "homepage", "bugs"))
    return texts(*(value.get("url") if isinstance(value, dict) else value for value in values))
