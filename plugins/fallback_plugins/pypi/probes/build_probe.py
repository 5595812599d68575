"""Builds a wheel from a source archive, as PEP 517 says. A target's Python runs this text in a sandbox,
where the archive is unpacked and its code runs.

Usage: ``python -c TEXT JSON`` in a folder with the archive and a folder for the result, ``made``. JSON:
``archive``, ``backend``, ``path`` (the backend's folders, below the source), ``ask``: if the backend
requires more than is installed, write that list to ``made`` as ``NEEDS`` instead of a wheel.
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

#: Name of the file with a list of requirements, in place of a wheel.
NEEDS = "needs.json"

_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")


def _unpacked(archive: Path, folder: Path) -> Path:
    """Return the one folder in a source archive (PEP 625)."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)  # noqa: S202 (the sandbox limits it)
    else:
        with tarfile.open(archive) as packed:
            if hasattr(tarfile, "data_filter"):
                packed.extractall(folder, filter="data")
            else:
                packed.extractall(folder)  # noqa: S202 (as above)
    (source,) = folder.iterdir()
    return source


def _is_there(requirement: str) -> bool:
    name = _NAME.match(requirement)
    try:
        metadata.version(name[0] if name else requirement)
    except metadata.PackageNotFoundError:
        return False
    return True


def _build(archive: str, backend: str, path: list[str], *, ask: bool) -> None:
    work_dir = Path.cwd()
    root = _unpacked(work_dir / archive, work_dir / "source")
    os.chdir(root)
    sys.path[:0] = [str(root / folder) for folder in path]
    sys.argv[1:] = []
    module, _, attribute = backend.partition(":")
    hooks: Any = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        hooks = getattr(hooks, name)
    if ask and hasattr(hooks, "get_requires_for_build_wheel"):
        needs = [
            requirement
            for requirement in hooks.get_requires_for_build_wheel(None)
            if not _is_there(requirement)
        ]
        if needs:
            (work_dir / "made" / NEEDS).write_text(json.dumps(needs), encoding="utf-8")
            return
    hooks.build_wheel(str(work_dir / "made"), None, None)


if __name__ == "__main__":
    _build(**json.loads(sys.argv[1]))
