"""Which Python distributions a repository is the source of: its own manifests, parsed (ADR-0037).

A name stands in ``[project]`` (PEP 621), ``[tool.poetry]``, ``[tool.flit.metadata]``, in setup.cfg's
``[metadata]`` or in the call of ``setup()``, in this order; nothing else in these files is one.
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

#: PyPI refuses what has a classifier of this kind (PEP 301; the registry's own rule).
_PRIVATE = "Private ::"

#: No second try: an answer is a second witness, never a condition.
_ONCE = {
    "UV_HTTP_RETRIES": "0",
    "UV_HTTP_TIMEOUT": "10",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_COMPILE_BYTECODE": "",
}

#: Seconds for one question: a wheel is fetched for the addresses in its metadata.
LINKS_TIMEOUT_S = 20.0


_ModulesByFolder = Callable[[], Mapping[str, set[str]]]


def own_packages(repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
    """The distributions that folders' first telling files name; with a doubt, those among examples, tests
    and other people's code, and those of a root whose name can't be read."""
    folders: dict[str, None] = {}
    for path in repo.tracked_files:
        if kind_of(path) in _KINDS:
            folders[str(PurePosixPath(path).parent)] = None
    modules = cache(partial(_modules, repo))  # read once, when it is needed
    return tuple(
        package for folder in folders for package in _packages(repo, folder, names, modules)
    )


def source_links(package: str, clients: ClientRunner) -> tuple[str, ...]:
    """What the metadata of its newest release says; empty where the registry does not answer."""
    with scratch_folder("uv") as folder:
        place = folder / "target"
        words = ["pip", "install", "--no-deps", "--no-build", "--no-config", "--target", str(place)]
        try:
            command = [*words, str(canonicalize_name(package))]
            clients.run("uv", command, cwd=folder, timeout_s=LINKS_TIMEOUT_S, env=_ONCE)
        except ToolError:
            return ()
        for metadata in (found.metadata for found in distributions(path=[str(place)])):
            if canonicalize_name(metadata["Name"]) == canonicalize_name(package):
                urls = metadata.get_all("Project-URL", [])
                named = (url.partition(",")[2].strip() for url in urls)
                return texts(*metadata.get_all("Home-page", []), *named)
    return ()


def _modules(repo: RepoContext) -> Mapping[str, set[str]]:
    """Top-level packages and modules by folder, flat or below ``src``."""
    found: dict[str, set[str]] = {}
    for path in repo.tracked_files:
        pure = PurePosixPath(path)
        if pure.suffix == ".py":
            named = pure.parent if pure.name == "__init__.py" else pure
            place = named.parent.parent if named.parent.name == "src" else named.parent
            found.setdefault(str(place), set()).add(canonicalize_name(named.stem or "."))
    return found


def _packages(
    repo: RepoContext, folder: str, names: Collection[str], modules: _ModulesByFolder
) -> Iterator[OwnPackage]:
    """What one folder's manifests name, of ``names``."""

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
        if any(str(one).startswith(_PRIVATE) for one in classifiers):
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
    """A distribution whose name can't be read is taken to be called as what it installs; else, where
    nothing but examples or tests ask for the package, nobody can tell whose it is."""
    script = in_folder(folder, "setup.py")
    called = modules().get(folder, set()).intersection(names)
    doubt = ASIDE if is_aside(script) else ""
    yield from (OwnPackage(name=name, manifest=script, doubt=doubt) for name in sorted(called))
    if folder == "." and not called:
        asked_aside = (name for name in sorted(names) if _is_asked_aside_only(repo, name))
        yield from (OwnPackage(name=it, manifest=script, doubt=UNREADABLE) for it in asked_aside)


def _is_asked_aside_only(repo: RepoContext, name: str) -> bool:
    try:
        places = {place.path for place in survey(repo, name)}
    except (RecipeError, RepositoryError):
        return False  # whoever would raise the version says so
    return bool(places) and all(map(is_aside, places))


def _declarations(
    repo: RepoContext, folder: str, names: Collection[str]
) -> Iterator[tuple[str, Stated]]:
    for file, stated in _READERS.items():
        path = in_folder(folder, file)
        if not repo.has(path):
            continue
        try:
            text = repo.read_text(path)
            # A script can put its name together; what only a table may say stands there in full.
            if file == "setup.py" or mentioned(text, frozenset(names)) or "name" in text:
                yield from ((path, one) for one in stated(text))
        except (RecipeError, RepositoryError):
            yield path, Stated(hides_its_name=True)


_READERS: Mapping[str, Callable[[str], Iterable[Stated]]] = {
    "pyproject.toml": in_pyproject,
    "setup.cfg": lambda text: (in_setup_cfg(text),),
    "setup.py": lambda text: (in_setup_py(text),),
}


def _asks_for(name: str, requires: Sequence[str]) -> bool:
    """A requirement of one's own extras (``lib[all]``) puts extras together, and names no other package."""
    return any(
        declaration_in(line.strip(), name) is not None
        and "[" not in line
        and "extra ==" not in line
        for line in requires
    )
