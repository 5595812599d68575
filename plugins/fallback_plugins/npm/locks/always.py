"""What a client writes in every lock, also of a project without dependencies.

A lock that lacks it, and holds nothing, was cut off or written by hand: it does not say that nothing is
installed.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.locks.lockfile import parse_lock
from fallback_plugins.npm.locks.pnpm_lock import parse_yaml
from fallback_plugins.npm.locks.yarn_berry import is_berry
from fallback_plugins.npm.manifests.manifest import LOCKS, PNPM_LOCK, YARN_LOCK

_VERSION = "lockfileVersion"

_OF_BUN = (_VERSION, "workspaces", "packages")

#: The first lines of each lock of yarn classic.
_HEADER = re.compile(r"^# yarn lockfile v1\s*$", re.MULTILINE)


def nothing_in(path: str, text: str) -> str:
    """Return why nothing is in a lock; empty: something is. Raises RecipeError if it can't be read."""
    if not text.strip():
        return "is empty"
    key = _lacking(path, text)
    return f"lacks {key!r}, which its client always writes" if key else ""


def _lacking(path: str, text: str) -> str:
    name = PurePosixPath(path).name
    if name in LOCKS:
        lock = parse_lock(text, path)
        if lock.get("packages") or lock.get("dependencies"):
            return ""
        # npm 6 writes its version alone if nothing is installed, npm 4 no version: unknown.
        holds = lock.keys() & {"packages", "dependencies"} or lock.get(_VERSION) == 1
        return _VERSION if _VERSION not in lock else "" if holds else "packages"
    if name == PNPM_LOCK:
        return _lacking_of_pnpm(parse_yaml(text))
    if name == YARN_LOCK:
        return _lacking_of_yarn(text)
    if name == "bun.lock":
        return next((key for key in _OF_BUN if f'"{key}"' not in text), "")
    return ""


def _lacking_of_pnpm(lock: Mapping[str, Any]) -> str:
    """Before version 9, a lock of one project has no importers, and packages have their dependencies."""
    if _VERSION not in lock:
        return _VERSION
    if str(lock[_VERSION]).startswith(("5.", "6.")):
        return ""
    if not isinstance(lock.get("importers"), dict) or not lock["importers"]:
        return "importers"
    return "snapshots" if lock.get("packages") and not lock.get("snapshots") else ""


def _lacking_of_yarn(text: str) -> str:
    if is_berry(text):
        # The project itself is an entry.
        return "" if "@workspace:" in text or len(parse_yaml(text)) > 1 else "@workspace:"
    blocks = any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
    return "" if blocks or _HEADER.search(text) else "# yarn lockfile v1"
