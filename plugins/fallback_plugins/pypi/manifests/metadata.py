"""What a project's own files say of it, read without running its build.

Programs ask for their own version and plugins (``importlib.metadata``), and their tests with them; some
import a file that only a build writes. Building the project would run its code outside the sandbox; what
its manifests say is enough to write the records that installers write (core metadata, entry points
specification).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.groups import table_of, texts
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.setup_call import setup_call
from fallback_plugins.pypi.manifests.setup_config import items, lines, read, requirements
from fallback_plugins.shared.identity import texts as shown
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
class Stated:
    """What one file says of its project. ``points``: entry points, group → lines ``name = target``;
    ``hides_its_name``: it has a name, and nobody can read it here."""

    name: object = None
    version: object = None
    python: object = None
    points: Mapping[str, list[str]] = field(default_factory=dict)
    requires: Sequence[str] = ()
    tests_require: Sequence[str] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    classifiers: object = ()
    hides_its_name: bool = False


def in_pyproject(text: str) -> Iterator[Stated]:
    """What ``[project]`` says, Poetry's table and flit's. Raises RecipeError for text that is no TOML."""
    document = parse_toml("pyproject.toml", text)
    project = table_of(document, "project")
    yield Stated(
        project.get("name"),
        project.get("version"),
        project.get("requires-python"),
        _points_of(project, "entry-points"),
        requires=texts(project.get("dependencies")),
        extras=table_of(project, "optional-dependencies"),
        links=shown(*table_of(project, "urls").values()),
        classifiers=project.get("classifiers"),
    )
    poetry = table_of(document, "tool", "poetry")
    asked = table_of(poetry, "dependencies")
    pages = (poetry.get(page) for page in ("repository", "homepage", "documentation"))
    yield Stated(
        poetry.get("name"),
        poetry.get("version"),
        asked.get("python"),
        _points_of(poetry, "plugins"),
        requires=[name for name, spec in asked.items() if isinstance(spec, str)],
        links=shown(*pages, *table_of(poetry, "urls").values()),
        classifiers=poetry.get("classifiers"),
    )
    flit = table_of(document, "tool", "flit", "metadata")
    name, page = flit.get("dist-name") or flit.get("module"), flit.get("home-page")
    yield Stated(name, python=flit.get("requires-python"), links=shown(page))


def in_setup_cfg(text: str) -> Stated:
    """What setup.cfg says, as far as it can be read."""
    parser = read(text)
    if parser is None:
        return Stated(hides_its_name=True)
    metadata, options = dict(items(parser, "metadata")), dict(items(parser, "options"))
    version = metadata.get("version", "")
    pages = (line.partition("=")[2].strip() for line in lines(metadata.get("project_urls")))
    extras = items(parser, "options.extras_require")
    return Stated(
        metadata.get("name"),
        None if version.startswith(("attr:", "file:")) else version,
        options.get("python_requires"),
        {group: lines(value) for group, value in items(parser, "options.entry_points")},
        requires=requirements(options.get("install_requires")),
        tests_require=lines(options.get("tests_require")),
        extras={name: requirements(value) for name, value in extras},
        links=shown(*map(metadata.get, ("url", "home_page", "home-page")), *pages),
        classifiers=lines(metadata.get("classifiers", metadata.get("classifier"))),
    )


def in_setup_py(text: str) -> Stated:
    """What setup.py passes to ``setup()``, as far as it is written out."""
    call = setup_call(text)
    keywords = call.keywords
    tables = {
        key: value if isinstance(value := keywords.get(key), dict) else {}
        for key in ("entry_points", "extras_require", "project_urls")
    }
    return Stated(
        keywords.get("name"),
        keywords.get("version"),
        keywords.get("python_requires"),
        {group: texts(points) for group, points in tables["entry_points"].items()},
        requires=texts(keywords.get("install_requires")),
        tests_require=texts(keywords.get("tests_require")),
        extras=tables["extras_require"],
        links=shown(keywords.get("url"), *tables["project_urls"].values()),
        classifiers=keywords.get("classifiers"),
        hides_its_name=call.hides_its_name,
    )


def own_name(manifests: Mapping[str, str]) -> str:
    """What a project calls itself; empty where that can't be read."""
    return str(_own(manifests).name or "")


def own_metadata(manifests: Mapping[str, str], tag: str = "") -> dict[str, str]:
    """Files of ``NAME-VERSION.dist-info`` by relative path; none where the project has no name.

    ``manifests``: texts of pyproject.toml, setup.cfg and setup.py, by these names; ``tag``: the newest tag,
    which tells a version that is computed.
    """
    own, name = _own(manifests), own_name(manifests)
    if not name:
        return {}
    version = own.version
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        version = version_of(tag)
    folder = f"{canonicalize_name(name).replace('-', '_')}-{version}.dist-info"
    points = "\n".join(
        line for group, found in own.points.items() if found for line in (f"[{group}]", *found, "")
    )
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/entry_points.txt": points,
    }


def own_scripts(manifests: Mapping[str, str]) -> dict[str, str]:
    """The project's own programs by name, to lie beside an environment's Python: its tests call them.

    What is no plain name, or no function of a module, is left out. ``manifests``: as ``own_metadata``.
    """
    own = _own(manifests)
    found = {}
    for line in (line for group in _SCRIPTS.values() for line in own.points.get(group, ())):
        name, _, target = (part.strip() for part in line.partition("="))
        function = _TARGET.fullmatch(target)
        if function is not None and _PROGRAM_NAME.fullmatch(name):
            found[name] = _PROGRAM.format(**function.groupdict())
    return found


def asked_python(manifests: Mapping[str, str]) -> str:
    """The Pythons that it asks for (``>=3.8``), as PEP 440 or Poetry writes it; empty: it says none."""
    python = _own(manifests).python
    return python if isinstance(python, str) else ""


def has_dynamic_version(manifests: Mapping[str, str]) -> bool:
    """Is the project's version computed when it is built?"""
    return any(f"-{DYNAMIC_VERSION}.dist-info/" in path for path in own_metadata(manifests))


def version_files(manifests: Mapping[str, str], tag: str = "") -> dict[str, str]:
    """Modules that a build would write the version to, by path in the project's folder."""
    tool = table_of(parse_toml("pyproject.toml", manifests.get("pyproject.toml", "")), "tool")
    paths = [table_of(tool, *keys[:-1]).get(keys[-1]) for keys in _VERSION_FILES]
    scm = setup_call(manifests.get("setup.py", "")).keywords.get("use_scm_version")
    paths += [scm.get(key) for key in ("version_file", "write_to")] if isinstance(scm, dict) else []
    version = version_of(tag)
    parts = tuple(int(part) if part.isdigit() else part for part in version.split("."))
    text = _VERSION_MODULE.format(version=version, parts=parts)
    return {path: text for path in texts(paths) if path.endswith(".py")}


def version_of(tag: str) -> str:
    """The version that a tag names (``v2.3.0``, ``lib-2.3.0``)."""
    found = _TAGGED.search(tag)
    return found[1] if found else DYNAMIC_VERSION


def _own(manifests: Mapping[str, str]) -> Stated:
    """What the first file that names the project says, setup.py and setup.cfg together; nothing, if none
    names it."""
    named = (one for one in _stated(manifests) if isinstance(one.name, str))
    return next((one for one in named if _PROJECT_NAME.fullmatch(str(one.name))), Stated())


def _stated(manifests: Mapping[str, str]) -> Iterator[Stated]:
    with suppress(RecipeError):
        yield from in_pyproject(manifests.get("pyproject.toml", ""))
    script = in_setup_py(manifests.get("setup.py", ""))
    config = in_setup_cfg(manifests.get("setup.cfg", ""))
    points = {**config.points, **script.points}
    yield Stated(
        script.name or config.name,
        script.version or config.version,
        script.python or config.python,
        {group: [line for line in found if "=" in line] for group, found in points.items()},
    )


def _points_of(table: Mapping[str, Any], plugins: str) -> dict[str, list[str]]:
    scripts = {group: table.get(key) for key, group in _SCRIPTS.items()}
    groups = {**scripts, **table_of(table, plugins)}
    return {
        group: [f"{name} = {target}" for name, target in found.items() if isinstance(target, str)]
        for group, found in groups.items()
        if isinstance(found, dict)
    }
