"""Selection of the test files that reach what a patch changes, by their imports (ADR-0122). Nothing is run.

A test file reaches a source file or a package if it imports it, or a file of the repository that does, and
so on. Imports whose name is composed at run time, and what a runner's settings load, are not seen: a
selection says which tests are compared first, never that the others are unaffected.
"""

import json
import posixpath
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import PurePosixPath

from fallback_plugins.shared.gates.gating import some_of
from fallback_tier.files.source_paths import PYTHON_SUFFIXES, SOURCE_SUFFIXES, is_lock
from fallback_tier.imports_here import Imports
from fallback_tier.repo import RepoContext

#: Test files that are selected, at most, the nearest first.
MAX_TEST_FILES = 500

#: Characters of their paths: they are one argument of a program, of which Linux takes 128 KiB
#: (MAX_ARG_STRLEN), each with the path of the tree before it.
_MAX_CHARS = 50_000

#: Source files that are read, at most: about 10 s.
MAX_SOURCES = 20_000

#: Files that no program reads.
_TEXTS = frozenset({".md", ".rst", ".adoc"})

#: Names that a sentence repeats.
_NAMED = 2

#: A file that pytest loads for all tests below its folder, without an import.
_CONFTEST = "conftest.py"


@dataclass(frozen=True)
class Change:
    """The changes of a patch: tracked source files, and packages by the names by which code imports them
    (modules of Python, packages of npm). ``title``: both, for people."""

    files: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    title: str = ""

    @classmethod
    def of(
        cls, files: Iterable[str], packages: Collection[str], modules: Collection[str]
    ) -> "Change":
        """Return the change of these source files, and of packages with the names by which they are
        imported."""
        sorted_files = sorted(files)
        return cls(
            frozenset(sorted_files),
            frozenset(modules),
            some_of([*sorted_files, *sorted(packages)], _NAMED),
        )


@dataclass(frozen=True)
class Reaching:
    """The test files that reach what a patch changes, the nearest first, and the number of all test files
    (``of``). ``title``: what they reach, for people; ``is_cut``: more files reach it, through more
    imports."""

    files: tuple[str, ...]
    of: int
    title: str
    is_cut: bool = False

    @property
    def which(self) -> str:
        """A clause that says which files they are, for people."""
        return f"{'the nearest of ' if self.is_cut else ''}those that reach {self.title}"


def changed_sources(
    changed: Iterable[str], is_manifest: Callable[[str], bool]
) -> tuple[list[str], str]:
    """Return the source files among those that a patch changes, and "". If imports don't show which files
    read a changed one, return no files, and its path."""
    sources = []
    for path in changed:
        suffix = PurePosixPath(path).suffix.lower()
        if is_manifest(path) or is_lock(path) or suffix in _TEXTS:
            continue
        if suffix not in SOURCE_SUFFIXES:
            return [], path
        sources.append(path)
    return sources, ""


def find(
    repo: RepoContext,
    change: Change,
    tests: Collection[str],
    places: Mapping[str, str] | None = None,
) -> Reaching | str:
    """Return the test files of a tree that reach a change, or why none are selected, as a clause.

    Direct imports come first. If no test file has any, indirect ones through packages count too, and what
    pytest loads for a folder. If more than half of the test files reach the change, only the nearest are
    taken: more would take nearly as long as all. ``tests``: the test files to choose from; ``places``: as
    for ``Imports``.
    """
    sources = [path for path in repo.tracked_files if PurePosixPath(path).suffix in SOURCE_SUFFIXES]
    if not (change.files or change.modules):
        return "nothing that the patch changes is imported by name"
    if len(sources) > MAX_SOURCES:
        return f"there are {len(sources):,} source files, more than are read"
    for is_direct in (True, False):
        imports = Imports(repo, is_direct, any_root=True, places=places or {})
        if levels := [*_levels(imports, sources, tests, change)]:
            break
    else:
        return f"no test file imports {change.title}, directly or through others"
    ends = [*accumulate(map(len, levels))]
    near = max(ends[0], *(end for end in ends if end <= len(tests) / 2), 0)
    if near == len(tests):
        return f"every test file imports {change.title}"
    ranked = [*chain(*levels)]
    lengths = accumulate(len(json.dumps(path)) for path in ranked)
    within = sum(length <= _MAX_CHARS for length in lengths)
    files = ranked[: min(near, within, MAX_TEST_FILES)]
    return Reaching(tuple(files), len(tests), change.title, is_cut=len(files) < len(ranked))


def _levels(
    imports: Imports, sources: Collection[str], tests: Collection[str], change: Change
) -> Iterator[list[str]]:
    """Yield the test files that reach a change, grouped by the number of imports between, nearest first."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for path in sources:
        for imported in imports.of(path):
            importers[imported].add(path)
    # A changed conftest.py always counts, others only if indirect imports count.
    for conftest in change.files if imports.is_direct else sources:
        if posixpath.basename(conftest) == _CONFTEST:
            folder = posixpath.dirname(conftest)
            below = (test for test in tests if not folder or test.startswith(f"{folder}/"))
            importers[conftest].update(below)
    near = {*change.files}
    if change.modules:
        near |= {path for path in sources if _names(imports, path, change.modules)}
    seen = {*near}
    while near:
        if reached := sorted(near.intersection(tests)):
            yield reached
        near = set().union(*(importers[path] for path in near)) - seen
        seen |= near


def _names(imports: Imports, path: str, modules: Collection[str]) -> bool:
    """Return whether a file imports one of these modules, or something in one."""
    sign = "." if PurePosixPath(path).suffix.lower() in PYTHON_SUFFIXES else "/"
    for name in imports.names(path):
        parts = name.split(sign)
        if any(sign.join(parts[:end]) in modules for end in range(1, len(parts) + 1)):
            return True
    return False
