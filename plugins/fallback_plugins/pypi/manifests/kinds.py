"""Files of a Python project that declare or lock dependencies, and the kind of each."""

import posixpath
import re
from enum import StrEnum
from functools import lru_cache
from pathlib import PurePosixPath

from fallback_plugins.shared.commands import SCRIPTS
from fallback_tier.lazy_patterns import lazy_pattern
from fallback_tier.limits import MAX_TRACKED_FILES

#: OSV's name of the ecosystem.
PYPI = "PyPI"


class Kind(StrEnum):
    """Kind of a manifest: it decides how the file is read, and whether it can be edited. Most are file
    names."""

    REQUIREMENTS = "requirements"
    PYPROJECT = "pyproject.toml"
    UV_LOCK = "uv.lock"
    #: Locks whose own client is not run here: read, never edited.
    POETRY_LOCK = "poetry.lock"
    PDM_LOCK = "pdm.lock"
    PYLOCK = "pylock"
    PIPFILE_LOCK = "Pipfile.lock"
    PIPFILE = "Pipfile"
    SETUP_CFG = "setup.cfg"
    SETUP_PY = "setup.py"
    #: Commands of a shell, a task runner, an image: only the literals of install commands are read.
    COMMANDS = "commands"
    #: Commands of CI, notebooks and the like, which no fix changes.
    CI = "ci"
    #: A Python program: one with its own metadata (PEP 723), or that starts install commands, which no fix
    #: changes.
    SCRIPT = "script"


#: Kinds of files that clients lock.
LOCKS = frozenset({Kind.UV_LOCK, Kind.POETRY_LOCK, Kind.PDM_LOCK, Kind.PYLOCK, Kind.PIPFILE_LOCK})

#: Kinds that a file's name does not determine: their files have other content too.
IN_OTHER_TEXT = frozenset({Kind.COMMANDS, Kind.CI, Kind.SCRIPT})

#: Kinds that are file names.
_NAMES = frozenset(Kind) - {Kind.REQUIREMENTS, Kind.PYLOCK} - IN_OTHER_TEXT

#: Files whose commands install packages.
_COMMANDS = lazy_pattern(
    r"(?:docker|container)file(?:\..*)?|.*\.(?:dockerfile|containerfile)|(?:gnu)?makefile|.*\.mk|\.?justfile"
    r"|tox\.ini|(?:noxfile|toxfile|tasks|fabfile|dodo)\.py|.*\.(?:sh|bash|zsh|ps1|bat|cmd|ya?ml)"
    r"|procfile|vagrantfile|jenkinsfile|earthfile",
    re.IGNORECASE,
)
#: CI files among them.
_CI = lazy_pattern(
    r"(?:.*/)?(?:\.[^/.][^/]*/.*|\.[^/]*|(?:azure-pipelines|bitbucket-pipelines|appveyor|buildspec|cloudbuild"
    r"|wercker|codemagic|codecov|action|jenkinsfile)[^/]*)",
    re.IGNORECASE,
)

#: Files that no fix changes, by their paths: notebooks, and scripts without an ending.
_ONLY_READ = lazy_pattern(
    rf"(?:.*/)?(?:\.?devcontainer\.json|[^/]*\.(?:ipynb|nix)|{SCRIPTS})",
    re.IGNORECASE,
)

_PYLOCK = lazy_pattern(r"pylock(\.[^.]+)?\.toml")
_REQUIREMENTS = lazy_pattern(r".*(requirements|constraints).*\.(txt|in)", re.IGNORECASE)
_REQUIREMENTS_FOLDER = lazy_pattern(r"requirements|constraints|reqs", re.IGNORECASE)

#: Installed or vendored trees: their manifests are not this project's.
_NOT_OURS = frozenset({"node_modules", "site-packages", ".venv", "venv", "vendor", "_vendor"})


@lru_cache(maxsize=MAX_TRACKED_FILES)  # every gate calls it for every tracked file
def kind_of(path: str) -> Kind | None:
    """Return a manifest's kind; None if it is not one, or is in an installed tree."""
    pure = PurePosixPath(path)
    if _NOT_OURS.intersection(pure.parts[:-1]):
        return None
    if pure.name in _NAMES:
        return Kind(pure.name)
    if _PYLOCK.fullmatch(pure.name):
        return Kind.PYLOCK
    in_folder = (
        len(pure.parts) > 1
        and _REQUIREMENTS_FOLDER.fullmatch(pure.parts[-2])
        and pure.suffix in {".txt", ".in"}
    )
    return Kind.REQUIREMENTS if in_folder or _REQUIREMENTS.fullmatch(pure.name) else None


def kind_in_set(path: str) -> Kind:
    """Return the kind of a file that a project consists of. A file that ``kind_of`` does not know has
    commands or script metadata, by its name, or is included, or reads, as requirements."""
    if (kind := kind_of(path)) is not None:
        return kind
    name = posixpath.basename(path)
    if _COMMANDS.fullmatch(name):
        return Kind.CI if _CI.fullmatch(path) else Kind.COMMANDS
    if _ONLY_READ.fullmatch(path):
        return Kind.CI
    return Kind.SCRIPT if name.endswith(".py") else Kind.REQUIREMENTS
