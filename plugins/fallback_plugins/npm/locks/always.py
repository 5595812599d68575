"""What a client writes in every lock, also of a project without dependencies.

A lock that lacks it, and holds nothing, was cut off or written by hand: it does not say that nothing is
installed.
"""

from pathlib import PurePosixPath

from fallback_plugins.npm.locks.lockfile import parse_lock
from fallback_plugins.npm.locks.pnpm_lock import parse_yaml
from fallback_plugins.npm.manifests.layout import LOCKS, PNPM_LOCK

_VERSION = "lockfileVersion"


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
        # npm 6 writes its version alone if nothing is installed, npm 4 no version.
        holds = lock.keys() & {"packages", "dependencies"} or lock.get(_VERSION) == 1
        return "" if holds else "packages"
    if name == PNPM_LOCK:
        return "" if _VERSION in parse_yaml(text) else _VERSION
    if name == "bun.lock":
        return "" if f'"{_VERSION}"' in text else _VERSION
    return ""
