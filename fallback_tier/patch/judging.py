"""Files outside the tests' own folders that judge a fix all the same: taken from the base, never edited.

A patch that breaks the code and empties ``testutils.assert_safe`` passes every test. So a patch may not
change what the tests import, or what the configuration of a test runner loads, unless it is part of the
product. The base commit's imports decide that:

* *Product* is what a source file imports that is not a test, is not named like one, and that no test
  reaches; what a package with the project's own name contains; what package.json names as its entries;
  what entry points, scripts and texts of the product name. And whatever those import. ``flask/testing.py``
  is product, because the application imports it.
* A file that a runner's configuration names (``setupFiles``, ``--require``, ``-p``) judges unless it is
  product.
* A file judges if tests reach it, or name it, and it is *named* like a part of them (``testutils.py``,
  ``testing/``, ``fixtures/``, ``mocks/``).
* A file judges if tests reach it, and nothing in its folder is product, if the product is known.

The cost of a wrong refusal is a person's look; the cost of a wrong permission is the proof.
"""

import json
import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from fallback_tier.files.source_paths import SOURCE_SUFFIXES, is_beside
from fallback_tier.imports_here import Imports
from fallback_tier.lazy_patterns import lazy_pattern
from fallback_tier.patch.policy import is_test, recipe_only_reason
from fallback_tier.repo import RepoContext

#: Words of a name, as people join them: ``setupTests``, ``test_utils``, ``jest-setup``.
_WORDS = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SIGNIFICANT = lazy_pattern(
    r"(?:unit)?test(?:s|ing|er|ers|(?:s|ing)?(?:utils?|helpers?|libs?|cases?|kit|bed|suites?|data|support|"
    r"tools?|base|setup|runner|client|server|app|env))?"
    r"|fixtures?|mock(?:s|ed|ing|er)?|stub(?:s|bed)?|fakes?|dumm(?:y|ies)|specs?|e2e|snapshots?|golden"
    r"|harness|conftest|pytest|unittest|nose|jest|mocha|vitest|jasmine|karma|cypress|playwright|qunit"
)

#: Folders of source, from which entries are often built.
_SOURCES = lazy_pattern(r"(?:.*/)?(?:src|lib|libs|source|sources|app|packages|dist|build)/")

#: Folders of examples and documentation.
_SHOWN = lazy_pattern(r"(?:.*/)?(?:examples?|demos?|samples?|docs?|website|tutorials?|playground)/")

#: Files that test runners read, in addition to the test configuration in ``policy``.
_RUNNERS = lazy_pattern(
    r"(?:jest|vitest|ava|playwright|cypress|nyc|wdio|web-test-runner|vite|karma)[\w.-]*"
    r"\.(?:[cm]?[jt]s|json)"
    r"|\.(?:mocharc|taprc|c8rc|nycrc)[\w.-]*|mocha\.opts|karma\.conf[\w.]*"
)
_PYTHON_RUNNERS = frozenset(
    {"pytest.ini", ".pytest.ini", "pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml"}
)
_IN_PACKAGE_JSON = frozenset(
    {"jest", "mocha", "ava", "tap", "vitest", "nyc", "c8", "jasmine", "karma", "qunit"}
)
_ENTRIES = ("main", "module", "browser", "bin", "exports", "source")

_QUOTED = lazy_pattern(r"""["'`]([^"'`\n]+)["'`]""")
_WORD = lazy_pattern(r"""[^\s"'`,=\[\]]+""")
_ROOT_DIR = lazy_pattern(r"^<rootDir>/?")

#: pytest's options, including ``-p NAME``, and the names that a conftest.py lists. Other programs have a
#: ``-p`` as well.
_OPTIONS = lazy_pattern(
    r"^\s*addopts\s*=.*(?:\n[ \t]+.*)*|^.*\b(?:pytest|py\.test) .*$", re.MULTILINE
)
_PLUGIN = lazy_pattern(r"(?:^|[\s\"'=,])-p[\s\"',]*(?!no:)([A-Za-z_][\w.]*)")
_PLUGINS = lazy_pattern(r"^pytest_plugins\b[^=\n]*=\s*(\[[^\]]*\]|\([^)]*\)|[^\n]*)", re.MULTILINE)

_OWN_NAME = lazy_pattern(r"""^\s*name\s*=\s*["']?([\w.-]+)""", re.MULTILINE)
_MANIFESTS = frozenset({"package.json", "pyproject.toml", "setup.py", "setup.cfg"})


@dataclass(frozen=True)
class Judging:
    """The files of one repository that judge, at its base commit."""

    imports: Imports

    @classmethod
    def of(cls, repo: RepoContext) -> "Judging":
        """Return the repository's rules. Files are read only when needed."""
        return cls(Imports(repo))

    def reason(self, path: str) -> str | None:
        """Return why a file that is not a test by its path may not be changed, as a clause after "``path``
        may not be changed:", or None if it may. Never raises."""
        if not self.imports.repo.has(path) or recipe_only_reason(path) is not None or is_test(path):
            return None
        if path in self._own or path in self._entries:
            return None
        if path in self._configured and path not in self._product:
            return "the configuration of a test runner loads it, so that it judges the fix"
        if is_called_like_a_test(path):
            judges = path in self._reached or self._is_named(path)
        else:
            judges = self._may_stand_apart(path) and path in self._reached
            judges = judges and self._scope(path) not in map(self._scope, self._product)
        if not judges or path in self._product:
            return None
        return "tests are judged with it, and nothing of the product imports it"

    @cached_property
    def _tests(self) -> tuple[str, ...]:
        return tuple(path for path in self.imports.repo.tracked_files if is_test(path))

    @cached_property
    def _reached(self) -> set[str]:
        return self.imports.reached((*self._tests, *self._configured))

    @cached_property
    def _product(self) -> set[str]:
        sources = (
            path
            for path in self.imports.repo.tracked_files
            if PurePosixPath(path).suffix.lower() in SOURCE_SUFFIXES
            and not is_test(path)
            and not is_called_like_a_test(path)
            and not is_beside(path)
        )
        seeds = {path for path in sources if path not in self._reached or path in self._own}
        seeds |= self._entries
        return self.imports.reached(seeds.union(_named_modules(self.imports, seeds, _is_of_tests)))

    def _is_named(self, path: str) -> bool:
        """Return whether a test names it, to load it by its path."""
        name = posixpath.basename(path)
        return any(name in self.imports.text(test) for test in self._tests)

    def _may_stand_apart(self, path: str) -> bool:
        """Return whether the product's location is known, and its entries are in other folders
        than this."""
        product_files, scope = self._own | self._entries, self._scope(path)
        # An example is tested, and tests nothing; files next to package.json are usually published.
        is_published = scope == path and not path.endswith(".py")
        if not product_files or is_published or _SHOWN.match(path) or _SOURCES.match(path):
            return False
        return scope not in map(self._scope, product_files)

    def _scope(self, path: str) -> str:
        """Return the folder, directly below the nearest manifest's, that contains a file; a file next to a
        manifest is its own scope."""
        folders = [*PurePosixPath(path).parents]
        scope = path
        for folder in folders:
            if str(folder) in self._projects:
                return scope
            scope = str(folder)
        return scope

    @cached_property
    def _projects(self) -> frozenset[str]:
        return frozenset(
            str(PurePosixPath(path).parent)
            for path in self.imports.repo.tracked_files
            if PurePosixPath(path).name in _MANIFESTS
        )

    @cached_property
    def _own(self) -> frozenset[str]:
        """Files of Python packages that have their project's name; not those that are named like tests."""
        package_paths = set()
        for path in self._manifests("pyproject.toml", "setup.cfg", "setup.py"):
            folder = posixpath.dirname(path)
            for name in _OWN_NAME.findall(self.imports.text(path)):
                package = re.sub(r"[-.]+", "_", name).lower()
                package_paths |= {
                    posixpath.join(folder, root, package) for root in ("", "src", "lib")
                }
        return frozenset(
            path
            for path in self.imports.repo.tracked_files
            if path.endswith(".py")
            and not is_called_like_a_test(path)
            and _lies_in(path, package_paths)
        )

    @cached_property
    def _entries(self) -> frozenset[str]:
        entries: set[str] = set()
        for path in self._manifests("package.json"):
            package, folder = self._json(path), posixpath.dirname(path)
            named_entries = [text for key in _ENTRIES for text in _texts(package.get(key))]
            for text in (*named_entries, "./index"):
                entries.update(self.imports.file(text, folder))
        return frozenset(entries)

    @cached_property
    def _configured(self) -> frozenset[str]:
        loaded: set[str] = set()
        for path in self.imports.repo.tracked_files:
            name, folder = posixpath.basename(path), posixpath.dirname(path)
            if name == "package.json":
                words = list(_runner_words(self._json(path)))
            elif _RUNNERS.fullmatch(name):
                text = self.imports.text(path)
                words = _QUOTED.findall(text) or _WORD.findall(text)
            else:
                loaded.update(self._plugins(path, name))
                continue
            for word in words:
                loaded.update(self._loaded(_ROOT_DIR.sub("./", word), folder))
        return frozenset(path for path in loaded if recipe_only_reason(path) is None)

    def _loaded(self, word: str, folder: str) -> Iterator[str]:
        """Yield a file by its name, or path without ending. (A folder's name only says where tests are.)"""
        named_path = posixpath.normpath(posixpath.join(folder, word))
        for path in self.imports.file(word, folder):
            if path == named_path or ("/" in word and posixpath.dirname(path) != named_path):
                yield path

    def _plugins(self, path: str, name: str) -> Iterator[str]:
        if name == "conftest.py":
            listings = _PLUGINS.findall(self.imports.text(path))
            names = [name for listing in listings for name in _QUOTED.findall(listing)]
        elif name in _PYTHON_RUNNERS:
            names = _PLUGIN.findall("\n".join(_OPTIONS.findall(self.imports.text(path))))
        else:
            return
        for module in names:
            files = list(self.imports.module(module, path))
            yield from (
                file for file in files if not file.endswith("__init__.py") or len(files) == 1
            )

    def _manifests(self, *names: str) -> Iterator[str]:
        for path in self.imports.repo.tracked_files:
            if (
                posixpath.basename(path) in names
                and not is_test(path)
                and not is_called_like_a_test(path)
            ):
                yield path

    def _json(self, path: str) -> dict[str, Any]:
        try:
            document = json.loads(self.imports.text(path).removeprefix("\ufeff"))
        except (ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}


def is_called_like_a_test(path: str) -> bool:
    """Return whether the file, or a folder above it, is named like a part of tests."""
    words = _WORDS.findall(str(PurePosixPath(path).with_suffix("")))
    return any(_SIGNIFICANT.fullmatch(word.lower()) for word in words)


def _is_of_tests(path: str) -> bool:
    return is_test(path) or is_called_like_a_test(path)


def _lies_in(path: str, stems: set[str]) -> bool:
    return path.removesuffix(".py").lower() in stems or any(
        str(folder).lower() in stems for folder in PurePosixPath(path).parents
    )


def _runner_words(package: dict[str, Any]) -> Iterator[str]:
    """Yield the words of scripts that run tests, and the runners' own tables."""
    scripts = package.get("scripts")
    for name, script in scripts.items() if isinstance(scripts, dict) else ():
        if is_called_like_a_test(name) and isinstance(script, str):
            yield from _WORD.findall(script)
    for key in _IN_PACKAGE_JSON & package.keys():
        yield from _texts(package[key])


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case dict() as table:
                pending.extend(table.values())
            case list() as items:
                pending.extend(items)


# Modules of a repository's product that nothing has to import, because they are loaded by name: entry
# points (entry points specification, PyPA), programs that a script starts with ``python -m``, texts of the
# product (``BACKEND = "package.module.Class"``). Nothing is run, as for imports (``imports_here``).

#: Files that name programs which nothing imports.
_SCRIPTS = lazy_pattern(
    r"(?i:GNUmakefile|makefile|Procfile|justfile|(?:[\w.-]+\.)?Dockerfile(?:\.[\w.-]+)?)"
    r"|[\w.-]+\.(?:sh|bash|service)|pyproject\.toml|setup\.cfg|setup\.py"
)
#: ``name = package.module:function``, and ``python -m package.module``, also as a list of words.
_ENTRY_POINT = lazy_pattern(r"""([\w.-]+)["']?\s*=\s*["']?([A-Za-z_][\w.]*):[A-Za-z_]""")
#: Python's ``-m``, not another program's: git's text, pytest's marker.
_STARTED = lazy_pattern(
    r"""(?i:python[\d.]*|executable)\b(?:[^\n;&|]*?|["',\s]*)["'\s]-m["',]*\s+["']?([A-Za-z_][\w.]*)"""
)
#: A rule of a makefile: its names and its lines.
_RULE = lazy_pattern(r"^([\w.-]+(?:[ \t]+[\w.-]+)*)[ \t]*::?(?!=).*(?:\n\t.*)*", re.MULTILINE)
#: Names of rules and scripts that run tests.
_CHECKING = lazy_pattern(r"(?i)(?:^|.*[\W_])(?:ci|checks?|verify|qa|cov(?:erage)?)(?:[\W_].*|$)")
#: Entry points of pytest itself: their modules judge.
_PYTEST_GROUP = "pytest11"
#: A text that may be the name of a module, or of an object in it.
_DOTTED = lazy_pattern(r"""["']([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)["']""")


def _named_modules(
    imports: Imports, product: Collection[str], is_of_tests: Callable[[str], bool]
) -> Iterator[str]:
    """Yield the files of modules that ``product``, or a script, names to be loaded.

    ``is_of_tests`` is called with a path or an entry point's name: if it is true, the file may run the
    tests, and is neither read nor yielded.
    """

    def without_checks(rule: re.Match[str]) -> str:
        names = rule[1].split()
        return "" if any(is_of_tests(name) or _CHECKING.match(name) for name in names) else rule[0]

    for path in imports.repo.tracked_files:
        is_script = _SCRIPTS.fullmatch(posixpath.basename(path)) is not None
        if not (is_script or path in product) or is_of_tests(path):
            continue
        text = imports.text(path)
        script_text = _RULE.sub(without_checks, text) if is_script else text
        checks = is_script and _CHECKING.match(posixpath.basename(path)) is not None
        modules = set(() if checks else _STARTED.findall(script_text))
        if is_script and _PYTEST_GROUP not in text:
            calls = _ENTRY_POINT.findall(text)
            modules.update(module for entry_point, module in calls if not is_of_tests(entry_point))
        if path in product and path.endswith(".py"):
            modules.update(_DOTTED.findall(text))
        for module in modules:
            yield from (file for file in imports.module(module, path) if not is_of_tests(file))
