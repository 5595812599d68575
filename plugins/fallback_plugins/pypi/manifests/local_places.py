"""Folders of a repository that a project takes packages from, in place of a registry.

They are not installed: Python finds their code where it lies (ADR-0039).
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.pypi.manifests.groups import table_of, texts
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.requirements import logical_lines
from fallback_plugins.shared.gates.gating import in_folder
from fallback_tier.repo import RepoContext

#: A line of a requirements file that names a folder.
_FOLDER = re.compile(r"\s*(?:(?:-e|--editable)[\s=]*)?(?P<path>\.{1,2}(?:/[^\s\[#;]*)?)")

#: Folders that one project names; more of them, and the path of every program would be endless.
MAX_PLACES = 50


def local_places(repo: RepoContext, folder: str, manifests: Mapping[str, str]) -> tuple[str, ...]:
    """Those that the folder's manifests name (path sources, ``-e ./lib``), and workspace members."""
    found: dict[str, None] = {}
    for path, text in manifests.items():
        here = posixpath.dirname(path)
        for named in _named(path, text, own=here == ("" if folder == "." else folder)):
            place = posixpath.normpath(posixpath.join(here, named))
            found |= dict.fromkeys(_projects(repo, place))
    return tuple(place for place in found if place != folder)[:MAX_PLACES]


def _named(path: str, text: str, *, own: bool) -> Iterator[str]:
    match kind_of(path):
        case Kind.REQUIREMENTS:
            for line in logical_lines(text):
                if (found := _FOLDER.match(line)) is not None:
                    yield found["path"]
        case Kind.PYPROJECT:
            document = parse_toml(path, text)
            if own:
                yield from _sources(document)
            yield from texts(table_of(document, "tool", "uv", "workspace").get("members"))


def _sources(document: Mapping[str, Any]) -> Iterator[str]:
    poetry = table_of(document, "tool", "poetry", "dependencies")
    for reported in (*table_of(document, "tool", "uv", "sources").values(), *poetry.values()):
        for one in reported if isinstance(reported, list) else [reported]:
            yield from texts([one.get("path")]) if isinstance(one, dict) else ()


def _projects(repo: RepoContext, pattern: str) -> Iterator[str]:
    """Folders with a project of their own that a path, or a pattern of a workspace, means."""
    for name in ("pyproject.toml", "setup.py", "setup.cfg"):
        wanted = in_folder(pattern, name)
        for path in repo.tracked_files:
            if path == wanted or ("*" in wanted and PurePosixPath(path).match(wanted)):
                yield posixpath.dirname(path) or "."
