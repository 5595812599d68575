"""Which Python distributions a repository is the source of: its own manifests, parsed (ADR-0037).

A name stands in ``[project]`` (PEP 621), ``[tool.poetry]``, ``[tool.flit.metadata]``, in setup.cfg's
``[metadata]`` or in the call of ``setup()``, in this order; nothing else in these files is one.
"""

from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.gating import in_folder
from fallback_plugins.identity import is_aside, texts, told_version
from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.pyproject import parse_toml
from fallback_plugins.pypi.requirements import declaration_in
from fallback_plugins.pypi.resolver import run_uv
from fallback_plugins.pypi.setup_call import setup_keywords
from fallback_plugins.pypi.touched import own_packages as top_level_packages
from fallback_plugins.scratch import scratch_folder
from fallback_tier.affected import OwnPackage
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext

_KINDS = frozenset({Kind.PYPROJECT, Kind.SETUP_CFG, Kind.SETUP_PY})

#: PyPI refuses what has a classifier of this kind (PEP 301; the registry's own rule).
_PRIVATE = "Private ::"

#: No second try: an answer is a second witness, never a condition.
_ONCE = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "10"}


@dataclass(frozen=True)
class _Told:
    """What one file says."""

    name: object
    version: object = None
    links: tuple[str, ...] = ()
    classifiers: object = ()
    requires: object = ()


def own_packages(repo: RepoContext) -> tuple[OwnPackage, ...]:
    """The distributions of the root and of other folders, a folder's first telling file counts.

    A file that can't be read names nothing.
    """
    folders: dict[str, None] = {}
    for path in repo.tracked_files:
        if kind_of(path) in _KINDS and not is_aside(path):
            folders[str(PurePosixPath(path).parent)] = None
    return tuple(package for folder in folders for package in _packages(repo, folder))


def source_links(package: str, clients: ClientRunner) -> tuple[str, ...]:
    """What the metadata of its newest release says; empty where the registry does not answer."""
    with scratch_folder("uv") as folder:
        place = folder / "target"
        words = ["pip", "install", "--no-deps", "--no-build", "--no-config", "--target", str(place)]
        try:
            run_uv(clients, folder, [*words, str(canonicalize_name(package))], _ONCE)
        except ToolError:
            return ()
        for found in distributions(path=[str(place)]):
            if canonicalize_name(found.metadata["Name"]) == canonicalize_name(package):
                metadata = found.metadata
                named = (
                    url.partition(",")[2].strip() for url in metadata.get_all("Project-URL", [])
                )
                return texts(*metadata.get_all("Home-page", []), *named)
    return ()


def _packages(repo: RepoContext, folder: str) -> tuple[OwnPackage, ...]:
    """What the folder's first telling file names. Where a setup script computes its name, or is none of
    today's Python, the distribution is taken to be called as its top-level packages are."""
    for manifest, told in _tellings(repo, folder):
        if not isinstance(told.name, str) or not told.name.strip():
            continue
        classifiers = told.classifiers if isinstance(told.classifiers, list) else ()
        if any(str(one).startswith(_PRIVATE) for one in classifiers):
            return ()
        return (_as_told(told.name.strip(), manifest, told),)
    script = in_folder(folder, "setup.py")
    if not repo.has(script):
        return ()
    names = sorted({PurePosixPath(path).name for path in top_level_packages(repo, folder)})
    return tuple(OwnPackage(name=canonicalize_name(name), manifest=script) for name in names)


def _as_told(name: str, manifest: str, told: _Told) -> OwnPackage:
    return OwnPackage(
        name=canonicalize_name(name),
        manifest=manifest,
        version=told_version(told.version),
        links=told.links,
        asks_for_itself=_asks_for(canonicalize_name(name), told.requires),
    )


def _tellings(repo: RepoContext, folder: str) -> Iterator[tuple[str, _Told]]:
    readers = {"pyproject.toml": _pyproject, "setup.cfg": _setup_cfg, "setup.py": _setup_py}
    for name, read in readers.items():
        path = in_folder(folder, name)
        if repo.has(path):
            try:
                told = list(read(path, repo.read_text(path)))
            except (RecipeError, RepositoryError):
                continue
            yield from ((path, one) for one in told)


def _pyproject(path: str, text: str) -> Iterator[_Told]:
    document = parse_toml(path, text)
    project = _table(document, "project")
    yield _Told(
        project.get("name"),
        project.get("version"),
        texts(*_table(project, "urls").values()),
        project.get("classifiers"),
        project.get("dependencies"),
    )
    poetry = _table(document, "tool", "poetry")
    pages = ("repository", "homepage", "documentation")
    yield _Told(
        poetry.get("name"),
        poetry.get("version"),
        texts(*(poetry.get(page) for page in pages), *_table(poetry, "urls").values()),
        poetry.get("classifiers"),
        [name for name, spec in _table(poetry, "dependencies").items() if isinstance(spec, str)],
    )
    flit = _table(document, "tool", "flit", "metadata")
    yield _Told(flit.get("dist-name") or flit.get("module"), None, texts(flit.get("home-page")))


def _setup_cfg(_path: str, text: str) -> Iterator[_Told]:
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except ConfigParserError:
        return
    said = dict(parser.items("metadata")) if parser.has_section("metadata") else {}
    version = said.get("version", "")
    computed = version.startswith(("attr:", "file:"))
    pages = (line.partition("=")[2].strip() for line in said.get("project_urls", "").splitlines())
    requires = parser.get("options", "install_requires", fallback="")
    yield _Told(
        said.get("name"),
        None if computed else version,
        texts(said.get("url"), said.get("home_page"), said.get("home-page"), *pages),
        said.get("classifiers", said.get("classifier", "")).split("\n"),
        requires.splitlines(),
    )


def _setup_py(_path: str, text: str) -> Iterator[_Told]:
    said = setup_keywords(text)
    pages = said.get("project_urls")
    yield _Told(
        said.get("name"),
        said.get("version"),
        texts(said.get("url"), *(pages.values() if isinstance(pages, dict) else ())),
        said.get("classifiers"),
        said.get("install_requires"),
    )


def _asks_for(name: str, requires: object) -> bool:
    lines = requires if isinstance(requires, list) else ()
    return any(isinstance(line, str) and declaration_in(line.strip(), name) for line in lines)


def _table(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    found: Any = document
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
