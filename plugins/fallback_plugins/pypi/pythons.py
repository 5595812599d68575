"""The Pythons that are here: ours first, others for projects that can't be installed with ours.

A pin of yesterday has no wheel for the Python of today, and a project may ask for another Python outright.
Nothing is downloaded: only what the user has installed is taken.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from fallback_plugins.pypi.poetry_constraints import admits

#: The oldest minor version of Python 3 that our own probes run on.
OLDEST_MINOR = 8
_NEWEST_MINOR = 20

#: Others that are tried: each costs a resolution that mostly fails.
MAX_OTHERS = 3

_MINOR = re.compile(r"python3\.(\d+)$")

#: Where pyenv and uv keep theirs, below the home folder; they need not be on the path.
_KEPT = (".pyenv/versions/*/bin/python3.*", ".local/share/uv/python/*/bin/python3.*")


def ours() -> Path:
    """The Python under ours: an environment made from a virtual environment would need that one."""
    return Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def installed(home: Path | None = None) -> tuple[Path, ...]:
    """Ours, then one of each other minor version that is here, the nearest to ours first."""
    mine = sys.version_info.minor
    others: dict[int, Path] = {}
    for path in _here(Path.home() if home is None else home):
        minor = minor_of(path)
        if OLDEST_MINOR <= minor != mine:
            others.setdefault(minor, path)
    nearest = sorted(others, key=lambda minor: (abs(minor - mine), minor))
    return (ours(), *(others[minor] for minor in nearest))


def suited(asked: str, here: Callable[[], tuple[Path, ...]] = installed) -> tuple[Path, ...]:
    """Those that a project may run with, by what it asks for (``>=3.8,<3.12``); all, where none is."""
    every = here()
    fit = [path for path in every if not asked or _fits(asked, minor_of(path))]
    return tuple(fit or every)[: MAX_OTHERS + 1]


def minor_of(python: Path) -> int:
    """11 of ``…/bin/python3.11``; -1 of anything else."""
    found = _MINOR.search(python.name)
    return int(found[1]) if found else -1


def _fits(asked: str, minor: int) -> bool:
    return any(admits(asked, f"3.{minor}.{patch}") for patch in (0, 99))


def readable(environment: Path) -> list[Path]:
    """What a sandbox must be able to read to run an environment whose Python is not ours."""
    home = (environment / "bin" / "python").resolve().parent
    if home == ours().resolve().parent:
        return []
    places = [home, home.parent / "lib", home.parent / "lib64"]
    return [place for place in places if place.is_dir() and not place.is_relative_to("/usr")]


def _here(home: Path) -> Iterator[Path]:
    """Programs, no scripts: what pyenv puts on the path only sometimes leads to a Python."""
    for minor in range(OLDEST_MINOR, _NEWEST_MINOR):
        found = shutil.which(f"python3.{minor}")
        if found is not None and Path(found).is_absolute():
            path = Path(found).resolve()
            with path.open("rb") as file:
                is_script = file.read(2) == b"#!"
            if minor_of(path) == minor and not is_script:
                yield path
    for pattern in _KEPT:
        yield from (path for path in sorted(home.glob(pattern)) if os.access(path, os.X_OK))
