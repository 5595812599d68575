"""Pythons on this machine: the tool's own first, others for projects that can't be installed with it.

An old pin may have no wheel for a new Python, and a project may require another Python. Nothing is
downloaded: only Pythons that the user has installed are used.
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

#: The oldest minor version of Python 3 on which the probes run.
OLDEST_MINOR = 8
_NEWEST_MINOR = 20

#: Most other Pythons that are tried: each costs a resolution that mostly fails.
MAX_OTHERS = 3

_MINOR = re.compile(r"python3\.(\d+)$")

#: Files that name the Python on which a program runs: those of a platform, of version managers, of an
#: image.
_NAMING = {
    "runtime.txt": re.compile(r"^python-3\.(\d+)", re.MULTILINE),
    ".python-version": re.compile(r"^(?:cpython-)?3\.(\d+)", re.MULTILINE),
    ".tool-versions": re.compile(r"^python[ \t]+3\.(\d+)", re.MULTILINE),
    "mise.toml": re.compile(r"^python[ \t]*=[ \t]*[\"']3\.(\d+)", re.MULTILINE),
    "Dockerfile": re.compile(r"(?im)^FROM[ \t]+(?:--\S+[ \t]+)*(?:\S+/)?python:3\.(\d+)"),
}

#: Folders of pyenv's and uv's Pythons, below the home folder; they need not be on the path.
_KEPT = (".pyenv/versions/*/bin/python3.*", ".local/share/uv/python/*/bin/python3.*")


def ours() -> Path:
    """Return the tool's own base Python: an environment made from a virtual environment would need that
    one."""
    return Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def installed(home: Path | None = None) -> tuple[Path, ...]:
    """Return the tool's own Python, then one of each other installed minor version, the nearest first."""
    own_minor = sys.version_info.minor
    path_by_minor: dict[int, Path] = {}
    for path in _here(_home() if home is None else home):
        minor = minor_of(path)
        if OLDEST_MINOR <= minor != own_minor:
            path_by_minor.setdefault(minor, path)
    nearest = sorted(path_by_minor, key=lambda minor: (abs(minor - own_minor), minor))
    return (ours(), *(path_by_minor[minor] for minor in nearest))


def named(repo: RepoContext, folder: str) -> str:
    """Return the lowest Python (``3.9``) on which files of a folder run a program, or files of the nearest
    folder above that has any; empty if none is named."""
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


def suited(
    specifier: str, find_pythons: Callable[[], tuple[Path, ...]] = installed
) -> tuple[Path, ...]:
    """Return the Pythons that a specifier (``>=3.8,<3.12``) admits, or all if it admits none; at most
    four."""
    pythons = find_pythons()
    admitted = [path for path in pythons if not specifier or fits(specifier, minor_of(path))]
    return tuple(admitted or pythons)[: MAX_OTHERS + 1]


@lru_cache
def suited_once(_clients: ClientRunner, specifier: str) -> tuple[Path, ...]:
    """Return ``suited`` Pythons, found once per run (of these clients): both trees have the same choice."""
    return suited(specifier)


def minor_of(python: Path) -> int:
    """Return 11 for ``…/bin/python3.11``, and -1 for any other program."""
    match = _MINOR.search(python.name)
    return int(match[1]) if match else -1


def fits(specifier: str, minor: int) -> bool:
    """Return whether a project that requires this (``>=3.8,<3.12``) may run on a minor version."""
    return any(admits(specifier, f"3.{minor}.{patch}") for patch in (0, 99))


def identity(python: Path) -> tuple[str, ...]:
    """Return a Python's file as it is now: an upgrade may keep its path."""
    path = python.resolve()
    status = path.stat()
    return str(path), str(status.st_size), str(status.st_mtime_ns)


def readable(environment: Path) -> list[Path]:
    """Return what a sandbox must be able to read to run an environment with another Python than the tool's
    own: the program and its library, nothing else in their folders."""
    python = (environment / "bin" / "python").resolve()
    if python == ours().resolve() or python.is_relative_to("/usr"):
        return []
    version, prefix = f"python3.{minor_of(python)}", python.parent.parent
    libraries = [prefix / name / version for name in ("lib", "lib64")]
    return [
        python,
        *(folder for folder in libraries if folder.is_dir()),
        *sorted((prefix / "lib").glob("libpython3*")),
    ]


def headers(environment: Path) -> list[Path]:
    """Return the folders that a compiler must read in a sandbox to build against a Python."""
    python = (environment / "bin" / "python").resolve()
    include_dir = python.parent.parent / "include" / f"python3.{minor_of(python)}"
    return [include_dir] if include_dir.is_dir() and not include_dir.is_relative_to("/usr") else []


def _here(home: Path | None) -> Iterator[Path]:
    """Yield programs by their real paths, without scripts: pyenv's entries on the path only sometimes lead
    to a Python. PyPy's have another name."""
    on_path = (shutil.which(f"python3.{minor}") for minor in range(OLDEST_MINOR, _NEWEST_MINOR))
    in_home = (
        [] if home is None else [path for pattern in _KEPT for path in sorted(home.glob(pattern))]
    )
    for path in (*(Path(program) for program in on_path if program is not None), *in_home):
        with suppress(OSError):
            real_path = path.resolve(strict=True)
            if path.is_absolute() and minor_of(real_path) >= 0 and os.access(real_path, os.X_OK):
                with real_path.open("rb") as file:
                    is_script = file.read(2) == b"#!"
                if not is_script:
                    yield real_path


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None
