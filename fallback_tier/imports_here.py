"""The files of a repository that a file imports, by its text: Python and JavaScript, nothing is run.

Every location that a name may refer to counts: search paths, aliases and workspaces are settings of tools
that are not read. So a file may seem to import more than it does, and a name that is composed at run time
is not seen.

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

#: Most characters of a name that is looked up: each of its parts is tried.
_MAX_NAME = 1_000

_SPECIFIER = lazy_pattern(
    r"(?:\bfrom|\bimport|\b(?:require(?:\.resolve|Actual)?|import|mock|importActual)\s*\()\s*"
    r"['\"`]([^'\"`\n]{1,1000})['\"`]"
)
#: Aliases that settings of bundlers give to a source folder.
_ALIAS = lazy_pattern(r"^(?:[@~#]/|[~#](?=\w))")

#: Folders that are put on search paths, below any folder above the importing file.
_ROOTS = ("", "src", "lib", "python", "app")

#: Most folders in which a Python name may begin: a name with more (``tests``, ``utils``) is left out.
_MAX_ROOTS = 20

#: Folders of a package that hold its sources.
_SOURCE_FOLDERS = ("", "src", "lib")

_ENDINGS = ("", ".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx", ".json", ".vue")
_BUILT = lazy_pattern(r"\.([cm]?)js(x?)$")


@dataclass
class Imports:
    """Imports of one repository, each file read once.

    ``is_direct``: only the file that has what is imported, without the packages around it. ``any_root``: a
    Python name that begins in none of the usual folders may begin in any that is not a package (members of
    a monorepo). ``places``: folders by the beginnings of JavaScript names that refer to them (members of a
    workspace, aliases of a compiler).
    """

    repo: RepoContext
    is_direct: bool = False
    any_root: bool = False
    places: Mapping[str, str] = field(default_factory=dict)
    _known: dict[str, frozenset[str]] = field(default_factory=dict)

    def of(self, path: str) -> frozenset[str]:
        """Return the tracked files that a tracked file may import; none if it is not source."""
        if path not in self._known:
            self._known[path] = frozenset(self._found(path))
        return self._known[path]

    def names(self, path: str) -> Collection[str]:
        """Return what a source file imports, as it writes it: dotted Python names, with relative ones as
        paths (``/pkg/module``); JavaScript specifiers. Nothing if it is not source."""
        suffix = PurePosixPath(path).suffix.lower()
        if suffix in PYTHON_SUFFIXES:
            return _modules(self.text(path), path, is_direct=self.is_direct)
        return set(_SPECIFIER.findall(self.text(path))) if suffix in SOURCE_SUFFIXES else ()

    def reached(self, starts: Iterable[str]) -> set[str]:
        """Return these files, those that they import, those that these import, and so on."""
        reached = set(starts)
        pending = list(reached)
        while pending:
            new = self.of(pending.pop()) - reached
            reached |= new
            pending.extend(new)
        return reached

    def module(self, name: str, importer: str) -> Iterator[str]:
        """Yield the files that a dotted Python name may refer to, with the packages around it."""
        parts = name.split(".")
        beginnings = self._beginnings.get(parts[0], set())
        roots = beginnings and beginnings.intersection(_search_paths(importer))
        if self.any_root and not roots and len(beginnings) <= _MAX_ROOTS:
            roots = {
                beginning
                for beginning in beginnings
                if not self.repo.has(f"{beginning}/__init__.py")
            }
        for root in roots:
            paths = [posixpath.join(root, *parts[:end]) for end in range(1, len(parts) + 1)]
            matches = [[*self._there(f"{path}/__init__.py", f"{path}.py")] for path in paths]
            yield from chain(*(list(filter(None, matches))[-1:] if self.is_direct else matches))

    def file(self, specifier: str, folder: str) -> Iterator[str]:
        """Yield the files that a relative path may refer to, as node and its bundlers look for them."""
        path = posixpath.normpath(posixpath.join(folder, specifier))
        yield from self._there(*(f"{path}{ending}" for ending in _ENDINGS))
        yield from self._there(*(f"{path}/index{ending}" for ending in _ENDINGS[1:]))
        if _BUILT.search(path):  # written in TypeScript, imported by the name of its output
            yield from self._there(_BUILT.sub(r".\1ts\2", path), _BUILT.sub(r".tsx", path))

    def text(self, path: str) -> str:
        """Return a file's text; empty if it can't be read."""
        with suppress(RepositoryError):
            return self.repo.read_text(path)
        return ""

    @cached_property
    def _beginnings(self) -> dict[str, set[str]]:
        """The folders in which a Python name may begin. Most names are not the repository's."""
        folders_by_name: dict[str, set[str]] = {}
        for path in self.repo.tracked_files:
            if path.endswith(".py"):
                parts = path.removesuffix(".py").split("/")
                for depth, part in enumerate(parts):
                    folders_by_name.setdefault(part, set()).add("/".join(parts[:depth]))
        return folders_by_name

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

    def _at(self, path: str) -> Iterator[str]:
        """Yield the files of a module at a path of the repository, as a relative import names it."""
        path = path.lstrip("/")
        folder = posixpath.dirname(path)
        if not self.is_direct:
            yield from self._there(f"{path}.py", f"{path}/__init__.py", f"{folder}/__init__.py")
            return
        module_files = [*self._there(f"{path}.py", f"{path}/__init__.py")]
        # What is not a module is a name in the module that it is imported from.
        yield from module_files or self._there(f"{folder}.py", f"{folder}/__init__.py")

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
    """Return dotted names, and paths for relative imports (``/pkg/module``). ``is_direct``: for ``from m
    import n`` only ``m.n``, without ``m``."""
    imported = chain.from_iterable(
        (part.split()[0] for part in _COMMENT.sub("", listed).split(",") if part.split())
        for listed in _IMPORT.findall(text)
    )
    names = {name for name in (*imported, *_BY_CALL.findall(text)) if _NAME.fullmatch(name)}
    for module, listed in (groups for groups in _FROM.findall(text) if len(groups[0]) <= _MAX_NAME):
        members = [name for name in _NAME.findall(_COMMENT.sub("", listed)) if name != "as"]
        if module.startswith("."):
            inner = module.lstrip(".")
            folder = PurePosixPath(f"/{path}").parent
            for _ in range(len(module) - len(inner) - 1):
                folder = folder.parent
            module_path = posixpath.join(str(folder), *filter(None, inner.split(".")))
            whole, parts = module_path, [posixpath.join(module_path, name) for name in members]
        else:
            whole, parts = module, [f"{module}.{name}" for name in members]
        names |= {*parts} if is_direct and parts else {whole, *parts}
    return names
