"""Builds a wheel of an archive of source, as PEP 517 says. Its text is run by a target's Python, in a
sandbox: the archive is unpacked here, and what is in it runs here.

Usage: ``python -c TEXT JSON`` in a folder with the archive and a folder for what is made, ``made``. JSON:
``archive``, ``backend``, ``path`` (the backend's own, below the source), ``ask``: where the backend needs
more than is installed, ``made`` gets that list as ``NEEDS`` instead of a wheel.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

#: A list of requirements in place of a wheel.
NEEDS = "needs.json"

_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")


def _unpacked(archive: Path, folder: Path) -> Path:
    """The one folder that an archive of source holds (PEP 625)."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)  # noqa: S202 (a sandbox holds it)
    else:
        with tarfile.open(archive) as packed:
            if hasattr(tarfile, "data_filter"):
                packed.extractall(folder, filter="data")
            else:
                packed.extractall(folder)  # noqa: S202 (as above)
    (found,) = folder.iterdir()
    return found


def _is_there(requirement: str) -> bool:
    name = _NAME.match(requirement)
    try:
        metadata.version(name[0] if name else requirement)
    except metadata.PackageNotFoundError:
        return False
    return True


def _build(archive: str, backend: str, path: list[str], *, ask: bool) -> None:
    here = Path.cwd()
    root = _unpacked(here / archive, here / "source")
    os.chdir(root)
    sys.path[:0] = [str(root / place) for place in path]
    sys.argv[1:] = []
    module, _, attribute = backend.partition(":")
    hooks: Any = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        hooks = getattr(hooks, name)
    if ask and hasattr(hooks, "get_requires_for_build_wheel"):
        needs = [one for one in hooks.get_requires_for_build_wheel(None) if not _is_there(one)]
        if needs:
            (here / "made" / NEEDS).write_text(json.dumps(needs), encoding="utf-8")
            return
    hooks.build_wheel(str(here / "made"), None, None)


if __name__ == "__main__":
    _build(**json.loads(sys.argv[1]))
