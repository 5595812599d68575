"""The Pythons that are here: ours first, others for projects that can't be installed with ours.

A pin of yesterday has no wheel for the Python of today, and a project may ask for another Python outright.
Nothing is downloaded: only what the user has installed is taken.
"""

import os
import posixpath
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from fallback_plugins.pypi.manifests.markers import admits
from fallback_tier.errors import RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext

#: The oldest minor version of Python 3 that our own probes run on.
OLDEST_MINOR = 8
_NEWEST_MINOR = 20

#: Others that are tried: each costs a resolution that mostly fails.
MAX_OTHERS = 3

_MINOR = re.compile(r"python3\.(\d+)$")

#: Files that name the Python on which a program runs: a platform's, version managers', an image's.
_NAMING = {
    "runtime.txt": re.compile(r"^python-3\.(\d+)", re.MULTILINE),
    ".python-version": re.compile(r"^(?:cpython-)?3\.(\d+)", re.MULTILINE),
    ".tool-versions": re.compile(r"^python[ \t]+3\.(\d+)", re.MULTILINE),
    "mise.toml": re.compile(r"^python[ \t]*=[ \t]*[\"']3\.(\d+)", re.MULTILINE),
    "Dockerfile": re.compile(r"(?im)^FROM[ \t]+(?:--\S+[ \t]+)*(?:\S+/)?python:3\.(\d+)"),
}

#: Where pyenv and uv keep theirs, below the home folder; they need not be on the path.
_KEPT = (".pyenv/versions/*/bin/python3.*", ".local/share/uv/python/*/bin/python3.*")


def ours() -> Path:
    """The Python under ours: an environment made from a virtual environment would need that one."""
    return Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def installed(home: Path | None = None) -> tuple[Path, ...]:
    """Return our Python, then one of each other installed minor version, the nearest first."""
    mine = sys.version_info.minor
    others: dict[int, Path] = {}
    for path in _here(_home() if home is None else home):
        minor = minor_of(path)
        if OLDEST_MINOR <= minor != mine:
            others.setdefault(minor, path)
    nearest = sorted(others, key=lambda minor: (abs(minor - mine), minor))
    return (ours(), *(others[minor] for minor in nearest))


def named(repo: RepoContext, folder: str) -> str:
    """Return the lowest Python (``3.9``) on which files of a folder, or of the nearest one above that has
    any, run a program; empty: none is named."""
    while True:
        minors: list[int] = []
        for name, pattern in _NAMING.items():
            path = posixpath.join(folder, name)
            with suppress(RepositoryError):
                text = repo.read_text(path) if repo.has(path) else ""
                minors += map(int, pattern.findall(text))
        if minors or not folder:
            return f"3.{min(minors)}" if minors else ""
        folder = posixpath.dirname(folder)


def suited(asked: str, here: Callable[[], tuple[Path, ...]] = installed) -> tuple[Path, ...]:
    """Return the Pythons that a specifier (``>=3.8,<3.12``) admits, at most four; if none, of all."""
    every = here()
    fit = [path for path in every if not asked or fits(asked, minor_of(path))]
    return tuple(fit or every)[: MAX_OTHERS + 1]


@lru_cache
def suited_once(_clients: ClientRunner, asked: str) -> tuple[Path, ...]:
    """``suited``, looked for once a run (of these clients): both trees have the same choice."""
    return suited(asked)


def minor_of(python: Path) -> int:
    """Return 11 for ``…/bin/python3.11``, and -1 for any other program."""
    found = _MINOR.search(python.name)
    return int(found[1]) if found else -1


def fits(asked: str, minor: int) -> bool:
    """Return whether a project that asks for this (``>=3.8,<3.12``) may run with a minor version."""
    return any(admits(asked, f"3.{minor}.{patch}") for patch in (0, 99))


def identity(python: Path) -> tuple[str, ...]:
    """Another Python's file as it is now: an upgrade may leave its path as it was."""
    place = python.resolve()
    found = place.stat()
    return str(place), str(found.st_size), str(found.st_mtime_ns)


def readable(environment: Path) -> list[Path]:
    """What a sandbox must be able to read to run an environment whose Python is not ours: the program and
    its own library, nothing else of the folders that they lie in."""
    python = (environment / "bin" / "python").resolve()
    if python == ours().resolve() or python.is_relative_to("/usr"):
        return []
    version, prefix = f"python3.{minor_of(python)}", python.parent.parent
    libraries = [prefix / name / version for name in ("lib", "lib64")]
    return [
        python,
        *(place for place in libraries if place.is_dir()),
        *sorted((prefix / "lib").glob("libpython3*")),
    ]


def headers(environment: Path) -> list[Path]:
    """Return the folders that a compiler must read in a sandbox to build against a Python."""
    python = (environment / "bin" / "python").resolve()
    place = python.parent.parent / "include" / f"python3.{minor_of(python)}"
    return [place] if place.is_dir() and not place.is_relative_to("/usr") else []


def _here(home: Path | None) -> Iterator[Path]:
    """Programs by their real paths, no scripts: what pyenv puts on the path only sometimes leads to a
    Python. PyPy's have another name."""
    found = (shutil.which(f"python3.{minor}") for minor in range(OLDEST_MINOR, _NEWEST_MINOR))
    kept = [] if home is None else [path for one in _KEPT for path in sorted(home.glob(one))]
    for path in (*(Path(one) for one in found if one is not None), *kept):
        with suppress(OSError):
            place = path.resolve(strict=True)
            if path.is_absolute() and minor_of(place) >= 0 and os.access(place, os.X_OK):
                with place.open("rb") as file:
                    is_script = file.read(2) == b"#!"
                if not is_script:
                    yield place


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None
