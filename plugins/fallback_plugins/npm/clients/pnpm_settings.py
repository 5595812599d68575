"""Which of a pnpm workspace's settings a scratch project has: those that decide versions, as data only.

pnpm 10 reads all settings from its workspace file; the pnpm that resolves may be older, and reads them from
the root's package.json and from options. A setting that can name a program is left out.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from fallback_plugins.npm.clients.scratch import check_named, is_outside
from fallback_plugins.npm.manifests.layout import MANIFEST
from fallback_plugins.npm.manifests.manifest import parse_manifest
from fallback_plugins.npm.manifests.pnpm_workspace import FILE, not_supported

#: Where members are, and ranges that they share.
_CARRIED = ("packages", "catalog", "catalogs")

#: Settings that every pnpm reads from the root's manifest.
_MOVED = (
    "overrides",
    "packageExtensions",
    "patchedDependencies",
    "ignoredOptionalDependencies",
    "allowedDeprecatedVersions",
    "peerDependencyRules",
)

#: Settings of one word that decide what a lock holds, and are options of every pnpm.
_OPTIONS = (
    "autoInstallPeers",
    "dedupeInjectedDeps",
    "dedupePeerDependents",
    "excludeLinksFromLockfile",
    "injectWorkspacePackages",
    "linkWorkspacePackages",
    "preferWorkspacePackages",
    "resolutionMode",
    "resolvePeersFromWorkspaceRoot",
)
_WORD = re.compile(r"[a-z0-9-]+")

#: Settings without which other packages, or other files of theirs, would be locked.
_NOT_CARRIED = re.compile(r"(?:named)?registr(?:y|ies)", re.IGNORECASE)


def check_carried(content: Mapping[str, Any]) -> None:
    """Raise RecipeError if a setting decides what is locked and can't be carried over."""
    for key in filter(_NOT_CARRIED.fullmatch, content):
        step = f"Update what is affected with the project's own pnpm, which reads {key}."
        raise not_supported(f"sets {key}, which is not carried over", step)


def carried_options(content: Mapping[str, Any]) -> list[str]:
    """Return the options by which any pnpm has these settings."""
    words = {key: content[key] for key in _OPTIONS if isinstance(content.get(key), str)}
    return [
        f"--config.{re.sub('[A-Z]', lambda found: f'-{found[0].lower()}', key)}={word}"
        for key, word in words.items()
        if _WORD.fullmatch(word)
    ]


def carried_manifest(content: Mapping[str, Any], manifest: str) -> str:
    """Return the root's package.json with the settings that every pnpm reads there; its own overrides come
    first. Raises RecipeError."""
    moved = {key: content[key] for key in _MOVED if key in content}
    if not moved:
        return manifest
    check_named(FILE, moved)
    facts = parse_manifest(MANIFEST, manifest)
    own = facts.get("pnpm")
    held = own if isinstance(own, dict) else {}
    for key, value in moved.items():
        if isinstance(value, dict) and isinstance(held.get(key), dict):
            moved[key] = {**value, **held[key]}
    return json.dumps({**facts, "pnpm": {**held, **moved}})


def carried_text(content: Mapping[str, Any]) -> dict[str, str]:
    """A settings file of what names members and ranges, and of nothing else."""
    import yaml

    globs = content.get("packages")
    for glob in globs if isinstance(globs, list) else ():
        if is_outside(str(glob)):
            problem = f"names {glob!r}, which is outside of the repository"
            raise not_supported(problem, f"Remove {glob!r} from {FILE}.", kind="outside")
    carried = {key: content[key] for key in _CARRIED if key in content}
    if carried:
        carried.setdefault("packages", ["."])  # an older pnpm takes no such file without it
    return {FILE: yaml.safe_dump(carried, default_flow_style=False)} if carried else {}
