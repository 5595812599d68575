"""A project's own metadata, as an installation would leave it, without running its build.

Programs ask for their own version and plugins (``importlib.metadata``), and their tests with them; some
import a file that only a build writes. Building the project would run its code outside the sandbox; what
its manifests say is enough to write the records that installers write (core metadata, entry points
specification).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.groups import table_of, texts
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.setup_call import setup_call
from fallback_plugins.pypi.manifests.setup_config import items, parsed
from fallback_tier.errors import RecipeError

#: Where a version is computed at build time and no tag tells it: older than every release.
DYNAMIC_VERSION = "0"

_PROJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[\w.!+-]+")
_TAGGED = re.compile(r"(\d+(?:\.\d+)+\w*)$")
_PROGRAM_NAME = re.compile(r"\w[\w.-]*")
_TARGET = re.compile(r"\s*(?P<module>[\w.]+)\s*:\s*(?P<first>\w+)(?P<rest>[\w.]*)\s*(?:\[.*\])?\s*")
_SCRIPTS = {"scripts": "console_scripts", "gui-scripts": "gui_scripts"}

#: Where build tools are told to write the version that they compute (setuptools-scm, hatch-vcs).
_VERSION_FILES = (
    ("setuptools_scm", "version_file"),
    ("setuptools_scm", "write_to"),
    ("hatch", "build", "hooks", "vcs", "version-file"),
)

#: What setuptools-scm writes, in short.
_VERSION_MODULE = (
    "__version__ = version = {version!r}\n__version_tuple__ = version_tuple = {parts!r}\n"
)


#: A program as an installer writes it, for an environment that may be moved: a shell starts it, and its
#: first line is two texts side by side to Python.
_PROGRAM = """\
#!/bin/sh
"exec" "${{0%/*}}/python" "$0" "$@"
from {module} import {first}
raise SystemExit({first}{rest}())
"""


@dataclass(frozen=True)
class _Own:
    """What a project says of itself. ``points``: entry points, group → lines ``name = target``."""

    name: str
    version: object = None
    points: Mapping[str, list[str]] = field(default_factory=dict)
    python: object = None


def own_name(manifests: Mapping[str, str]) -> str:
    """What a project calls itself; empty where that can't be read."""
    own = _own(manifests)
    return "" if own is None else own.name


def own_metadata(manifests: Mapping[str, str], tag: str = "") -> dict[str, str]:
    """Files of ``NAME-VERSION.dist-info`` by relative path; none where the project has no name.

    ``manifests``: texts of pyproject.toml, setup.cfg and setup.py, by these names; ``tag``: the newest tag,
    which tells a version that is computed.
    """
    own = _own(manifests)
    if own is None:
        return {}
    version = own.version
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        version = version_of(tag)
    folder = f"{canonicalize_name(own.name).replace('-', '_')}-{version}.dist-info"
    points = "\n".join(
        line for group, lines in own.points.items() if lines for line in (f"[{group}]", *lines, "")
    )
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {own.name}\nVersion: {version}\n",
        f"{folder}/entry_points.txt": points,
    }


def own_scripts(manifests: Mapping[str, str]) -> dict[str, str]:
    """The project's own programs by name, to lie beside an environment's Python: its tests call them.

    What is no plain name, or no function of a module, is left out. ``manifests``: as ``own_metadata``.
    """
    own = _own(manifests)
    found = {}
    for group in _SCRIPTS.values():
        for line in () if own is None else own.points.get(group, ()):
            name, _, target = (part.strip() for part in line.partition("="))
            reported = _TARGET.fullmatch(target)
            if reported is not None and _PROGRAM_NAME.fullmatch(name):
                found[name] = _PROGRAM.format(**reported.groupdict())
    return found


def asked_python(manifests: Mapping[str, str]) -> str:
    """The Pythons that it asks for (``>=3.8``), as PEP 440 or Poetry writes it; empty: it says none."""
    own = _own(manifests)
    return own.python if own is not None and isinstance(own.python, str) else ""


def has_dynamic_version(manifests: Mapping[str, str]) -> bool:
    """Is the project's version computed when it is built?"""
    return any(f"-{DYNAMIC_VERSION}.dist-info/" in path for path in own_metadata(manifests))


def version_files(manifests: Mapping[str, str], tag: str = "") -> dict[str, str]:
    """Modules that a build would write the version to, by path in the project's folder."""
    tool = table_of(parse_toml("pyproject.toml", manifests.get("pyproject.toml", "")), "tool")
    reported = [table_of(tool, *keys[:-1]).get(keys[-1]) for keys in _VERSION_FILES]
    scm = setup_call(manifests.get("setup.py", "")).keywords.get("use_scm_version")
    reported += (
        [scm.get(key) for key in ("version_file", "write_to")] if isinstance(scm, dict) else []
    )
    version = version_of(tag)
    parts = tuple(int(part) if part.isdigit() else part for part in version.split("."))
    text = _VERSION_MODULE.format(version=version, parts=parts)
    return {path: text for path in reported if isinstance(path, str) and path.endswith(".py")}


def version_of(tag: str) -> str:
    """The version that a tag names (``v2.3.0``, ``lib-2.3.0``)."""
    found = _TAGGED.search(tag)
    return found[1] if found else DYNAMIC_VERSION


def _own(manifests: Mapping[str, str]) -> _Own | None:
    """What the first file that names the project says."""
    reported = (own for read in (_pyproject, _setup_files) for own in _readable(read, manifests))
    return next((own for own in reported if _PROJECT_NAME.fullmatch(own.name)), None)


def _readable(read: Any, manifests: Mapping[str, str]) -> Iterator[_Own]:
    try:
        yield from read(manifests)
    except RecipeError:
        return


def _pyproject(manifests: Mapping[str, str]) -> Iterator[_Own]:
    document = parse_toml("pyproject.toml", manifests.get("pyproject.toml", ""))
    for table, plugins in (("project", "entry-points"), ("tool.poetry", "plugins")):
        own = table_of(document, *table.split("."))
        points = {group: _points(own.get(key)) for key, group in _SCRIPTS.items()}
        points |= {group: _points(reported) for group, reported in table_of(own, plugins).items()}
        python = own.get("requires-python") or table_of(own, "dependencies").get("python")
        if isinstance(name := own.get("name"), str):
            yield _Own(name, own.get("version"), points, python)


def _setup_files(manifests: Mapping[str, str]) -> Iterator[_Own]:
    parser = parsed(manifests.get("setup.cfg", ""))
    reported = setup_call(manifests.get("setup.py", "")).keywords
    written = dict(items(parser, "metadata"))
    points = {group: value.split("\n") for group, value in items(parser, "options.entry_points")}
    reported_value = reported.get("entry_points")
    if isinstance(reported_value, dict):
        points |= {group: texts(lines) for group, lines in reported_value.items()}
    good = {group: [line for line in lines if "=" in line] for group, lines in points.items()}
    python = reported.get("python_requires") or dict(items(parser, "options")).get(
        "python_requires"
    )
    if isinstance(name := reported.get("name") or written.get("name"), str):
        yield _Own(name, reported.get("version") or written.get("version"), good, python)


def _points(table: object) -> list[str]:
    entries = table.items() if isinstance(table, dict) else ()
    return [f"{name} = {target}" for name, target in entries if isinstance(target, str)]
