"""Which files of a repository a file imports, by its text: Python and JavaScript, nothing is run.

Every place that a name may stand for counts: search paths, aliases and workspaces are settings of tools
that are not asked. So a file may seem to import more than it does, and what is put together from parts at
run time is not seen.

An import of Python also runs the packages around a module, which often import all that they have: through
them nearly every file reaches nearly every other. ``Imports.is_direct`` leaves them out.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import PurePosixPath

from fallback_tier.errors import RepositoryError
from fallback_tier.files.source_paths import PYTHON_SUFFIXES, SOURCE_SUFFIXES
from fallback_tier.lazy_patterns import lazy_pattern
from fallback_tier.repo import RepoContext

_START = r"(?:^|[;:])[ \t]*"
_FROM = lazy_pattern(
    rf"{_START}from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|(?:[^\n#;\\]|\\\n)*)", re.MULTILINE
)
_IMPORT = lazy_pattern(rf"{_START}import[ \t]+((?:[^\n#;\\]|\\\n)+)", re.MULTILINE)
_BY_CALL = lazy_pattern(r"\b(?:import_module|importorskip|__import__)\(\s*['\"]([\w.]+)['\"]")
_NAME = lazy_pattern(r"[A-Za-z_][\w.]{0,1000}+")
_COMMENT = lazy_pattern(r"#[^\n]*")

#: Characters of a name that is looked for: each of its parts is tried.
_MAX_NAME = 1_000

_SPECIFIER = lazy_pattern(
    r"(?:\bfrom|\bimport|\b(?:require(?:\.resolve|Actual)?|import|mock|importActual)\s*\()\s*"
    r"['\"`]([^'\"`\n]{1,1000})['\"`]"
)
#: Aliases that settings of bundlers give to a source folder.
_ALIAS = lazy_pattern(r"^(?:[@~#]/|[~#](?=\w))")

#: Folders that are put on search paths, below any folder above the file that imports.
_ROOTS = ("", "src", "lib", "python", "app")

#: Folders in which a name of Python may begin: a name with more (``tests``, ``utils``) is left out.
_MAX_ROOTS = 20

#: Folders of a package in which its sources lie.
_SOURCE_FOLDERS = ("", "src", "lib")

_ENDINGS = ("", ".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx", ".json", ".vue")
_BUILT = lazy_pattern(r"\.([cm]?)js(x?)$")


@dataclass
class Imports:
    """Of one repository, each file read once.

    ``is_direct``: only the file that has what is imported, without the packages around it. ``any_root``: a
    name of Python that begins in none of the usual folders may begin in any that is no package (members of
    a monorepo). ``places``: folders by the beginnings of JavaScript's names that stand for them (members
    of a workspace, aliases of a compiler).
    """

    repo: RepoContext
    is_direct: bool = False
    any_root: bool = False
    places: Mapping[str, str] = field(default_factory=dict)
    _known: dict[str, frozenset[str]] = field(default_factory=dict)

    def of(self, path: str) -> frozenset[str]:
        """The tracked files that a tracked file may import; none for what is no source."""
        if path not in self._known:
            self._known[path] = frozenset(self._found(path))
        return self._known[path]

    def names(self, path: str) -> Collection[str]:
        """What a source file imports, as it writes it: dotted names of Python, with relative ones as places
        (``/pkg/module``); specifiers of JavaScript. None of what is no source."""
        suffix = PurePosixPath(path).suffix.lower()
        if suffix in PYTHON_SUFFIXES:
            return _modules(self.text(path), path, is_direct=self.is_direct)
        return set(_SPECIFIER.findall(self.text(path))) if suffix in SOURCE_SUFFIXES else ()

    def reached(self, starts: Iterable[str]) -> set[str]:
        """The files that these import, and what those import, and so on; the first ones as well."""
        reached = set(starts)
        pending = list(reached)
        while pending:
            new = self.of(pending.pop()) - reached
            reached |= new
            pending.extend(new)
        return reached

    def module(self, name: str, importer: str) -> Iterator[str]:
        """The files that a dotted name of Python may stand for, the packages around it among them."""
        parts = name.split(".")
        beginnings = self._beginnings.get(parts[0], set())
        roots = beginnings and beginnings.intersection(_search_paths(importer))
        if self.any_root and not roots and len(beginnings) <= _MAX_ROOTS:
            roots = {it for it in beginnings if not self.repo.has(f"{it}/__init__.py")}
        for root in roots:
            around = [posixpath.join(root, *parts[:end]) for end in range(1, len(parts) + 1)]
            found = [[*self._there(f"{it}/__init__.py", f"{it}.py")] for it in around]
            yield from chain(*(list(filter(None, found))[-1:] if self.is_direct else found))

    def file(self, specifier: str, folder: str) -> Iterator[str]:
        """The files that a relative path may stand for, as node and its bundlers look for them."""
        place = posixpath.normpath(posixpath.join(folder, specifier))
        yield from self._there(*(f"{place}{ending}" for ending in _ENDINGS))
        yield from self._there(*(f"{place}/index{ending}" for ending in _ENDINGS[1:]))
        if _BUILT.search(place):  # written in TypeScript, asked for by what it is compiled to
            yield from self._there(_BUILT.sub(r".\1ts\2", place), _BUILT.sub(r".tsx", place))

    def text(self, path: str) -> str:
        """A file's text; empty where it is none."""
        with suppress(RepositoryError):
            return self.repo.read_text(path)
        return ""

    @cached_property
    def _beginnings(self) -> dict[str, set[str]]:
        """The folders in which a name of Python may begin: most names are none of the repository's."""
        found: dict[str, set[str]] = {}
        for path in self.repo.tracked_files:
            if path.endswith(".py"):
                parts = path.removesuffix(".py").split("/")
                for at, part in enumerate(parts):
                    found.setdefault(part, set()).add("/".join(parts[:at]))
        return found

    def _there(self, *paths: str) -> Iterator[str]:
        return filter(self.repo.has, paths)

    def _found(self, path: str) -> Iterator[str]:
        names = self.names(path)
        if PurePosixPath(path).suffix.lower() not in PYTHON_SUFFIXES:
            for specifier in names:
                yield from self._specified(specifier, path)
            return
        for name in names:
            yield from self._at(name) if name.startswith("/") else self.module(name, path)

    def _at(self, place: str) -> Iterator[str]:
        """A module at a place of the repository, as a relative import names it."""
        place = place.lstrip("/")
        folder = posixpath.dirname(place)
        if not self.is_direct:
            yield from self._there(f"{place}.py", f"{place}/__init__.py", f"{folder}/__init__.py")
            return
        own = [*self._there(f"{place}.py", f"{place}/__init__.py")]
        # What is no module is a name in the one that it is imported from.
        yield from own or self._there(f"{folder}.py", f"{folder}/__init__.py")

    def _specified(self, specifier: str, path: str) -> Iterator[str]:
        if specifier.startswith("."):
            yield from self.file(specifier, posixpath.dirname(path))
            return
        for beginning in _beginnings_of(specifier):
            if (folder := self.places.get(beginning)) is not None:
                rest = specifier[len(beginning) :].lstrip("/")
                for inner in _SOURCE_FOLDERS:
                    yield from self.file(rest, posixpath.join(folder, inner))
        if "/" in specifier:
            plain = _ALIAS.sub("", specifier)
            for root in _search_paths(path):
                yield from self.file(plain, root)


def _beginnings_of(specifier: str) -> Iterator[str]:
    parts = specifier.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts) + 1))


def _search_paths(path: str) -> Iterator[str]:
    for folder in PurePosixPath(path).parents:
        for root in _ROOTS:
            yield posixpath.join("" if str(folder) == "." else str(folder), root)


def _modules(text: str, path: str, *, is_direct: bool) -> Collection[str]:
    """Dotted names, and for relative imports places (``/pkg/module``). ``is_direct``: of
    ``from m import n`` only ``m.n``, without ``m``."""
    named = chain.from_iterable(
        (one.split()[0] for one in _COMMENT.sub("", listed).split(",") if one.split())
        for listed in _IMPORT.findall(text)
    )
    found = {name for name in (*named, *_BY_CALL.findall(text)) if _NAME.fullmatch(name)}
    for module, listed in (it for it in _FROM.findall(text) if len(it[0]) <= _MAX_NAME):
        brought = [name for name in _NAME.findall(_COMMENT.sub("", listed)) if name != "as"]
        if module.startswith("."):
            inner = module.lstrip(".")
            folder = PurePosixPath(f"/{path}").parent
            for _ in range(len(module) - len(inner) - 1):
                folder = folder.parent
            place = posixpath.join(str(folder), *filter(None, inner.split(".")))
            whole, parts = place, [posixpath.join(place, name) for name in brought]
        else:
            whole, parts = module, [f"{module}.{name}" for name in brought]
        found |= {*parts} if is_direct and parts else {whole, *parts}
    return found
