"""Compiled requirements: an ``.in`` says what is asked for, the ``.txt`` made from it what is installed.

A project's own metadata can be what is asked for, too: a set compiled from pyproject.toml, or one that
pins the project itself (ADR-0016).
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.metadata import own_name
from fallback_plugins.pypi.manifests.requirements import logical_lines
from fallback_plugins.pypi.manifests.requirements_files import bare_line, is_closed, with_included
from fallback_plugins.pypi.surveying.out_of_step import LockStep, ManifestRequest, asked_by
from fallback_plugins.pypi.surveying.pins import pinned_versions
from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext

_UV = "uv pip compile"

#: Files of a project's own metadata, which say its name between them.
_METADATA = ("pyproject.toml", "setup.cfg", "setup.py")

#: How compilers name a project's metadata where it asks for a package: ``via NAME (pyproject.toml)``.
_VIA = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z0-9][\w.-]*) "
    r"\((?:[^()\n]*/)?(?:pyproject\.toml|setup\.cfg|setup\.py)\)"
)


def decided_by(texts: Mapping[str, str]) -> dict[str, str]:
    """Each ``.in`` of a set that has been compiled, with the ``.txt`` that was made from it."""
    pairs = ((path, str(PurePosixPath(path).with_suffix(".txt"))) for path in texts)
    return {
        path: target
        for path, target in pairs
        if path.endswith(".in") and is_closed(texts.get(target, ""))
    }


def compiled_for(repo: RepoContext, manifest: str) -> dict[str, str]:
    """Closed requirements files that say what is installed for the project of this metadata, wherever they
    lie: compiled from it, or with the project itself pinned. Empty where it has no name.

    Raises RepositoryError (the metadata can't be read).
    """
    folder = posixpath.dirname(manifest)
    beside = {name: posixpath.join(folder, name) for name in _METADATA}
    name = own_name({one: repo.read_text(path) for one, path in beside.items() if repo.has(path)})
    if not name:
        return {}
    found = {}
    for path in repo.tracked_files:
        if path.endswith(".txt") and kind_of(path) is Kind.REQUIREMENTS:
            with suppress(RepositoryError):  # whoever reads it for itself says why it can't be
                found[path] = repo.read_text(path)
    return {path: text for path, text in found.items() if _is_of(name, path, text)}


def _is_of(name: str, path: str, text: str) -> bool:
    if not is_closed(text):
        return False
    own = canonicalize_name(name)
    via = {canonicalize_name(match["name"]) for match in _VIA.finditer(text)}
    return own in via or bool(pinned_versions(path, text, own))


def steps(texts: Mapping[str, str]) -> Iterator[LockStep]:
    """Each compiled file of a set, with what the ``.in`` beside it asks for."""
    for source, target in decided_by(texts).items():
        compiler = _UV if _UV in texts[target] else "pip-compile"
        asked = tuple(_requests(source, texts[source]))
        yield LockStep(target, f"{compiler} {source}", _held(target, texts), asked)


def _requests(path: str, text: str) -> Iterator[ManifestRequest]:
    if kind_in_set(path) is Kind.REQUIREMENTS:
        for line in logical_lines(text):
            yield from asked_by(path, bare_line(line))


def _held(path: str, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """What a compiled file holds, and those that it includes."""
    held: dict[str, list[str]] = {}
    for here, text in with_included([path], texts.get, constrain=False).items():
        for one in _requests(here, text or ""):
            pin = one.declaration.pin
            held.setdefault(one.name, []).extend([pin.version] if pin else [])
    return held
