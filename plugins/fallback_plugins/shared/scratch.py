"""Scratch folders for package clients.

A client looks for configuration and workspaces in every folder above its own, and all users can write to a
system's temporary folder: so these are in the user's cache.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_tier.errors import StateFolderError
from fallback_tier.files.folders import users_folder


@contextmanager
def scratch_folder(client: str) -> Iterator[Path]:
    """Yield an empty folder (mode 0700), removed at the end. Without a cache: in the system's temporary
    folder."""
    with tempfile.TemporaryDirectory(prefix=f"fallback-tier-{client}-", dir=_place()) as folder:
        yield Path(folder)


def _place() -> Path | None:
    try:
        path = users_folder("cache") / "scratch"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, StateFolderError):
        return None
    return path if os.access(path, os.W_OK | os.X_OK) else None
