"""The Python distributions of which a repository is the source, by its own manifests (ADR-0037).

A distribution's name is in ``[project]`` (PEP 621), ``[tool.poetry]``, ``[tool.flit.metadata]``, in
setup.cfg's ``[metadata]`` or in the call of ``setup()``, in this order. Nothing else in these files counts
as a name.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import distributions
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.metadata import Stated, in_pyproject, in_setup_cfg, in_setup_py
from fallback_plugins.pypi.manifests.requirements import declaration_in
from fallback_plugins.pypi.surveying.survey import mentioned, survey
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.identity import (
    ASIDE,
    UNPUBLISHED,
    UNREADABLE,
    declared_version,
    has_source,
    is_aside,
    texts,
)
from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.affected import OwnPackage
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext

_KINDS = frozenset({Kind.PYPROJECT, Kind.SETUP_CFG, Kind.SETUP_PY})

#: PyPI refuses packages with a classifier that starts with this (PEP 301; a rule of the registry).
_PRIVATE = "Private ::"

#: Without retries, as the registry's answer is only additional evidence and not required.
_ONCE = {
    "UV_HTTP_RETRIES": "0",
    "UV_HTTP_TIMEOUT": "10",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_COMPILE_BYTECODE": "",
}

#: Timeout of one query, which fetches a wheel for the URLs in its metadata.
LINKS_TIMEOUT_S = 20.0


_ModulesByFolder = Callable[[], Mapping[str, set[str]]]


def own_packages(repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
    """Return, of ``names``, the distributions of the repository's folders: of each by the first manifest
    that names one. A ``doubt`` marks those among examples, tests and vendored code, those not to be
    published, and those of a root whose name can't be read."""
    folders: dict[str, None] = {}
    for path in repo.tracked_files:
        if kind_of(path) in _KINDS:
            folders[str(PurePosixPath(path).parent)] = None
    modules = cache(partial(_modules, repo))  # read once, when it is needed
    return tuple(
        package for folder in folders for package in _packages(repo, folder, names, modules)
    )


def source_links(package: str, clients: ClientRunner) -> tuple[str, ...]:
    """Return the URLs in the metadata of a package's newest release; empty if the registry does not
    answer."""
    with scratch_folder("uv") as folder:
        target = folder / "target"
        arguments = [
            "pip",
            "install",
            "--no-deps",
            "--no-build",
            "--no-config",
            "--target",
            str(target),
        ]
        try:
            command = [*arguments, str(canonicalize_name(package))]
            clients.run("uv", command, cwd=folder, timeout_s=LINKS_TIMEOUT_S, env=_ONCE)
        except ToolError:
            return ()
        for metadata in (
            distribution.metadata for distribution in distributions(path=[str(target)])
        ):
            if canonicalize_name(metadata["Name"]) == canonicalize_name(package):
                urls = metadata.get_all("Project-URL", [])
                project_urls = (url.partition(",")[2].strip() for url in urls)
                return texts(*metadata.get_all("Home-page", []), *project_urls)
    return ()


def _modules(repo: RepoContext) -> Mapping[str, set[str]]:
    """Return the top-level packages and modules by folder, directly in it or in its ``src``."""
    modules: dict[str, set[str]] = {}
    for path in repo.tracked_files:
        pure = PurePosixPath(path)
        if pure.suffix == ".py":
            module = pure.parent if pure.name == "__init__.py" else pure
            folder = module.parent.parent if module.parent.name == "src" else module.parent
            modules.setdefault(str(folder), set()).add(canonicalize_name(module.stem or "."))
    return modules


def _packages(
    repo: RepoContext, folder: str, names: Collection[str], modules: _ModulesByFolder
) -> Iterator[OwnPackage]:
    """Yield the distribution that one folder's manifests name, if it is one of ``names``."""

    def is_code(path: str) -> bool:
        return path.endswith(".py") and not path.endswith("setup.py")

    hidden = False
    for manifest, stated in _declarations(repo, folder, names):
        hidden = hidden or stated.hides_its_name
        (name, *_) = texts(stated.name) or ("",)
        if not name.strip():
            continue
        name = canonicalize_name(name.strip())
        doubt = ASIDE if is_aside(manifest) else ""
        classifiers = stated.classifiers if isinstance(stated.classifiers, list) else ()
        if any(str(classifier).startswith(_PRIVATE) for classifier in classifiers):
            doubt = UNPUBLISHED
        if name in names and (not doubt or has_source(repo, manifest, is_code)):
            yield OwnPackage(
                name=name,
                manifest=manifest,
                version=declared_version(stated.version),
                links=stated.links,
                asks_for_itself=_asks_for(name, stated.requires),
                doubt=doubt,
            )
        return
    if hidden:
        yield from _by_its_modules(repo, folder, names, modules)


def _by_its_modules(
    repo: RepoContext, folder: str, names: Collection[str], modules: _ModulesByFolder
) -> Iterator[OwnPackage]:
    """Yield the distributions that a folder may be if its name can't be read: those named like its modules.
    If there are none in the root, those that only examples or tests require, as unreadable."""
    script = in_folder(folder, "setup.py")
    matching_names = modules().get(folder, set()).intersection(names)
    doubt = ASIDE if is_aside(script) else ""
    yield from (
        OwnPackage(name=name, manifest=script, doubt=doubt) for name in sorted(matching_names)
    )
    if folder == "." and not matching_names:
        asked_aside = (name for name in sorted(names) if _is_asked_aside_only(repo, name))
        yield from (
            OwnPackage(name=name, manifest=script, doubt=UNREADABLE) for name in asked_aside
        )


def _is_asked_aside_only(repo: RepoContext, name: str) -> bool:
    try:
        paths = {place.path for place in survey(repo, name)}
    except (RecipeError, RepositoryError):
        return False  # what would raise the version reports it
    return bool(paths) and all(map(is_aside, paths))


def _declarations(
    repo: RepoContext, folder: str, names: Collection[str]
) -> Iterator[tuple[str, Stated]]:
    for file, reader in _READERS.items():
        path = in_folder(folder, file)
        if not repo.has(path):
            continue
        try:
            text = repo.read_text(path)
            # Only a script may compute its name; in the other files the name is written out.
            if file == "setup.py" or mentioned(text, frozenset(names)) or "name" in text:
                yield from ((path, stated) for stated in reader(text))
        except (RecipeError, RepositoryError):
            yield path, Stated(hides_its_name=True)


_READERS: Mapping[str, Callable[[str], Iterable[Stated]]] = {
    "pyproject.toml": in_pyproject,
    "setup.cfg": lambda text: (in_setup_cfg(text),),
    "setup.py": lambda text: (in_setup_py(text),),
}


def _asks_for(name: str, requires: Sequence[str]) -> bool:
    """Return whether a package requires itself. A requirement with extras (``lib[all]``), or in an extra,
    doesn't count: it combines the package's own extras."""
    return any(
        declaration_in(line.strip(), name) is not None
        and "[" not in line
        and "extra ==" not in line
        for line in requires
    )
