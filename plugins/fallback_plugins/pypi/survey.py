"""Where a Python project holds a package: what can be bumped, and what stands in the way."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.pins import pinned_versions
from fallback_plugins.pypi.pyproject import foreign_declaration, parse_toml, requirement_strings
from fallback_plugins.pypi.requirements import Declaration, declaration_in, declarations
from fallback_tier.advisory import sort_key
from fallback_tier.advisory.versions import PYPI
from fallback_tier.repo import RepoContext

ECOSYSTEM = PYPI

#: Why a place of these kinds isn't edited; the sentence is "<path> holds <package> …, but <this>."
_NOT_DRIVEN = {
    Kind.POETRY_LOCK: "only poetry writes it",
    Kind.PDM_LOCK: "only pdm writes it",
    Kind.PYLOCK: "only the client that made it writes it",
    Kind.PIPFILE_LOCK: "only pipenv writes it",
    Kind.PIPFILE: "this recipe doesn't edit it",
    Kind.SETUP_CFG: "this recipe doesn't edit it",
    Kind.SETUP_PY: "it is a program, which this recipe doesn't edit",
}
_QUOTED = re.compile(r"""(?P<quote>['"])(?P<text>[^'"\n]*)(?P=quote)""")


@dataclass(frozen=True)
class Place:
    """One place that holds the package in ``current`` (None: no version can be read there).

    ``keys`` lead to a string of pyproject.toml; ``blocker`` says why the place can't be changed.
    """

    path: str
    kind: Kind
    current: str | None
    declaration: Declaration | None = None
    keys: tuple[str | int, ...] = ()
    blocker: str | None = None


def survey(repo: RepoContext, package: str) -> tuple[Place, ...]:
    """Every place that holds the package, by path.

    Raises RecipeError (a manifest can't be parsed) or RepositoryError (one can't be read).
    Files that don't name the package are not parsed: a broken one elsewhere blocks nothing.
    """
    named = name_pattern(package)
    places: list[Place] = []
    for path in sorted(repo.tracked_files):
        kind = kind_of(path)
        if kind is not None and named.search(text := repo.read_text(path)):
            places.extend(_READERS.get(kind, _read_lock)(path, kind, text, package))
    return tuple(places)


def name_pattern(package: str) -> re.Pattern[str]:
    """Matches the package's name in any PEP 503 spelling, as a whole word."""
    spelled = r"[-_.]+".join(map(re.escape, canonicalize_name(package).split("-")))
    return re.compile(rf"(?<![A-Za-z0-9]){spelled}(?![A-Za-z0-9])", re.IGNORECASE)


def is_the_package(repo: RepoContext, package: str) -> bool:
    """Is this repository the source of the package itself?"""
    assignment = re.compile(
        rf"""^\s*name\s*=\s*['"]?{name_pattern(package).pattern}['"]?\s*,?\s*$""",
        re.IGNORECASE | re.MULTILINE,
    )
    own = [path for path in ("pyproject.toml", "setup.cfg", "setup.py") if repo.has(path)]
    return any(assignment.search(repo.read_text(path)) for path in own)


def current_of(declaration: Declaration) -> str | None:
    """The version a declaration stands for: its pin, else its highest lower bound."""
    if declaration.pin is not None:
        return declaration.pin.version
    bounds = [clause.version for clause in declaration.floors]
    return max(bounds, key=lambda version: sort_key(ECOSYSTEM, version), default=None)


def _read_requirements(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    for declaration in declarations(text, package):
        yield _declared(path, kind, declaration)


def _read_pyproject(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    for string in requirement_strings(path, text, package):
        yield _declared(path, kind, string.declaration, string.keys)
    table = foreign_declaration(path, text, package)
    if table is not None:
        yield Place(
            path, kind, None, blocker=f"it does so in [{table}], which this recipe doesn't edit"
        )


def _read_lock(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    for version in pinned_versions(path, text, package):
        yield Place(path, kind, version, blocker=_NOT_DRIVEN.get(kind))


def _read_pipfile(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    document = parse_toml(path, text)
    for section in ("packages", "dev-packages"):
        table = document.get(section)
        for name, asked in table.items() if isinstance(table, dict) else ():
            spec = asked.get("version", "*") if isinstance(asked, dict) else asked
            declaration = declaration_in(f"{name}{spec}".removesuffix("*"), package)
            if declaration is not None and declaration.clauses:
                yield Place(path, kind, current_of(declaration), blocker=_NOT_DRIVEN[kind])


def _read_setup_cfg(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    for declaration in declarations(text, package):
        if declaration.clauses:
            yield Place(path, kind, current_of(declaration), blocker=_NOT_DRIVEN[kind])


def _read_setup_py(path: str, kind: Kind, text: str, package: str) -> Iterator[Place]:
    for match in _QUOTED.finditer(text):
        declaration = declaration_in(match["text"], package)
        if declaration is not None and declaration.clauses:
            yield Place(path, kind, current_of(declaration), blocker=_NOT_DRIVEN[kind])


def _declared(
    path: str, kind: Kind, declaration: Declaration, keys: tuple[str | int, ...] = ()
) -> Place:
    return Place(path, kind, current_of(declaration), declaration, keys, declaration.refusal)


_READERS: dict[Kind, Callable[[str, Kind, str, str], Iterator[Place]]] = {
    Kind.REQUIREMENTS: _read_requirements,
    Kind.PYPROJECT: _read_pyproject,
    Kind.PIPFILE: _read_pipfile,
    Kind.SETUP_CFG: _read_setup_cfg,
    Kind.SETUP_PY: _read_setup_py,
}
