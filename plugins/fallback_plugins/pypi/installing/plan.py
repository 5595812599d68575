"""Plan of a project's installation, read from its manifests: the ways to try, in order.

Nothing runs here. uv reads copies of the manifests, and no line in them leads it out of them (ADR-0039).
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, reduce
from operator import and_
from pathlib import Path, PurePosixPath

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, canonicalize_version

from fallback_plugins.pypi.installing.declared import (
    TEST_GROUPS,
    Source,
    TestInstalls,
    constraints,
    declared,
    is_itself,
    is_wanted,
    stated_for_tests,
    stated_installs,
)
from fallback_plugins.pypi.installing.install import InstallWay
from fallback_plugins.pypi.locks.uv_lock import (
    LOCK,
    foreign_source,
    local_source,
    locked_in,
    package_tables,
)
from fallback_plugins.pypi.manifests.indexes import (
    Indexes,
    index_variables,
    indexes_named,
    leading_out,
    settings_of,
)
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.metadata import METADATA_FILES
from fallback_plugins.pypi.manifests.pyproject import (
    UV_RULES,
    asking_nothing,
    harmless,
    parse_toml,
    table_of,
    tables,
    texts,
)
from fallback_plugins.pypi.manifests.requirements import (
    VARIABLE,
    is_plain,
    local_folders,
    requirement_in,
    with_included,
)
from fallback_plugins.pypi.surveying.survey import metadata_files
from fallback_plugins.shared.gates.gating import in_folder
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.repo import RepoContext

#: Options of a requirements file that name a file or a folder.
_PATH_OPTION = re.compile(
    r"\s*(?:-r|-c|-e|-f|--requirement|--constraint|--editable|--find-links)[\s=]*(?P<path>\S+)"
)
_TEST_FILE = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test|tests?)\.py")

#: A test that only pytest finds: by its import, or a function outside any class.
_FOR_PYTEST = re.compile(r"^(?:import pytest|from pytest|(?:async )?def test_)", re.MULTILINE)

#: Programs that build the project, or run its tasks.
_RUN = frozenset({"setup.py", "noxfile.py", "fabfile.py", "tasks.py"})

#: Length to which a line is cut if it is only named in a message (characters).
_SHOWN = 80

#: Step with requirements in generated files, for projects whose files uv can't read as they are.
FLATTENED = "all of it"

#: File with the packages that tox installs next to a project; read, though it declares nothing that is
#: shipped.
_TOX = "tox.ini"

#: Most folders that one project may name; with more of them, every program's path would be too long.
MAX_PLACES = 50


class Manifests:
    """A project folder's manifests, and what is needed to install what they require.

    ``runner``: a test runner that the caller needs, in addition to that of the project's own tests.
    ``only``: name of a single source; then nothing else is installed.
    """

    def __init__(
        self,
        repo: RepoContext,
        folder: str,
        changed: Sequence[str] = (),
        runner: str | None = None,
        only: str | None = None,
    ) -> None:
        self._repo = repo
        self.folder = folder
        self._runner = runner
        self._only = only
        #: Paths of wanted files that can't be read (UTF-16, a link).
        self._unread: set[str] = set()
        changed = changed if only is None else (*changed, only)
        self.texts = self._read_by_uv(changed)
        #: Folder of the uv.lock that decides what is installed.
        self._lock = locked_in(folder, self.texts)
        root = in_folder(folder if self._lock is None else self._lock, "pyproject.toml")
        self._facts = parse_toml(root, self.texts.get(root, ""))
        sources = () if self.locked else declared(repo, folder, changed)
        self.sources = tuple(source for source in sources if only in {None, source.name})

    @property
    def locked(self) -> bool:
        """Whether uv.lock decides what is installed."""
        return self._lock is not None

    @property
    def lock(self) -> str:
        """The path of the uv.lock that decides what is installed; empty if none does."""
        return "" if self._lock is None else in_folder(self._lock, LOCK)

    @cached_property
    def pinned(self) -> frozenset[str]:
        """The releases that the lock has from a registry (``left==1``); none if there is no readable
        lock."""
        if not self.locked:
            return frozenset()
        with suppress(RecipeError):
            tables = package_tables(self.lock, self.texts[self.lock])
            from_registry = (
                table for table in tables if not foreign_source(table) and not local_source(table)
            )
            return frozenset(
                release(table["name"], str(table.get("version", ""))) for table in from_registry
            )
        return frozenset()

    @property
    def identity(self) -> tuple[object, ...]:
        """All that decides what is installed."""
        return (self.texts, self.folder, self.sources, self.runner, self.indexes, self.for_tests)

    @cached_property
    def for_tests(self) -> tuple[str, ...]:
        """Lines that commands of CI, tox, nox and the like install for tests, and that are in no source."""
        if self._only is not None:
            return ()
        stated = stated_for_tests(self._repo, self.folder, self._stated)
        return tuple(line for line in stated if line not in self.lines)

    @property
    def lines(self) -> frozenset[str]:
        """All lines of the sources."""
        return frozenset(line for source in self.sources for line in source.lines)

    @cached_property
    def _stated(self) -> TestInstalls:
        return stated_installs(self._repo, self.folder)

    def bounds_of(self, name: str) -> SpecifierSet:
        """Return all specifiers of the project for a package: those of its lock, and of its files."""
        lines = [line for source in self.sources for line in source.lines]
        lines += [pin for pin in self.pinned if pin.startswith(f"{name}==")]
        requirements = (requirement_in(line) for line in lines)
        of_package = (
            requirement
            for requirement in requirements
            if requirement is not None and canonicalize_name(requirement.name) == name
        )
        return reduce(and_, (requirement.specifier for requirement in of_package), SpecifierSet())

    def own_code(self) -> Iterator[bytes]:
        """Yield the texts of the project's Python files, except programs that build or automate it."""
        for path in self._repo.tracked_files:
            pure = PurePosixPath(path)
            if pure.suffix == ".py" and pure.is_relative_to(self.folder) and pure.name not in _RUN:
                with suppress(RepositoryError):
                    yield self._repo.read_text(path).encode()

    @cached_property
    def indexes(self) -> Indexes:
        """The registries and folders that the project, or its clients' settings, name."""
        settings = self._read(settings_of(self.places))
        return indexes_named(self.texts | settings, unread=bool(self._unread))

    @property
    def own(self) -> Mapping[str, str]:
        """The folder's own manifests by file name, for the project's own metadata."""
        return self._at(self.folder)

    @property
    def beside(self) -> tuple[Mapping[str, str], ...]:
        """Manifests of the other folders that it takes packages from, by file name."""
        return tuple(self._at(place) for place in self.places[1:])

    def _read_by_uv(self, changed: Sequence[str]) -> dict[str, str]:
        """Return the manifests that uv reads: of this folder, of folders above it, of folders that they
        name, and requirements files with all that they include."""
        tracked = self._repo.tracked_files
        wanted = [path for path in tracked if is_wanted(path, self.folder, changed)]
        metadata = (in_folder(self.folder, name) for name in ("pyproject.toml", "setup.cfg"))
        for path, text in self._read(metadata).items():
            with suppress(RecipeError):
                wanted += [file for _, file in metadata_files(path, text)]
        texts = with_included(wanted, lambda path: self._read([path]).get(path))
        manifests = {path: text for path, text in texts.items() if text is not None}
        manifests |= self._manifests_at(
            [self.folder, *map(str, PurePosixPath(self.folder).parents)]
        )
        manifests |= self._manifests_at(_local_places(self._repo, self.folder, manifests))
        return manifests | self._read([in_folder(self.folder, _TOX)])

    def _read(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the texts that exist, by path. A file that can't be read declares nothing."""
        texts = {}
        for path in filter(self._repo.has, paths):
            try:
                texts[path] = self._repo.read_text(path)
            except RepositoryError:
                self._unread.add(path)
        return texts

    def _manifests_at(self, folders: Collection[str]) -> dict[str, str]:
        not_manifests = {None, Kind.REQUIREMENTS}
        manifests = [
            path for path in self._repo.tracked_files if kind_of(path) not in not_manifests
        ]
        return self._read(path for path in manifests if str(PurePosixPath(path).parent) in folders)

    def _at(self, folder: str) -> Mapping[str, str]:
        paths = {name: in_folder(folder, name) for name in METADATA_FILES}
        return {name: self.texts[path] for name, path in paths.items() if path in self.texts}

    @cached_property
    def runner(self) -> str | None:
        """pytest, if tests are written for it: it is installed even if it is not declared."""
        if self._runner is not None or self._only is not None:
            return self._runner
        tests = [path for path in self._repo.tracked_files if is_test(path, self.folder)]
        pytest_files = (in_folder(self.folder, name) for name in ("conftest.py", "pytest.ini"))
        if tests and (any(map(self._repo.has, pytest_files)) or self._stated.run_pytest):
            return "pytest"
        for path in tests:
            with suppress(RepositoryError):
                if _FOR_PYTEST.search(self._repo.read_text(path)):
                    return "pytest"
        return None

    @property
    def variables(self) -> dict[str, str]:
        """Variables that uv gets empty."""
        return index_variables(self.texts)

    @cached_property
    def strays(self) -> tuple[tuple[str, str], ...]:
        """Lines that would lead uv out of these files: if there are any, it does not get the files as they
        are."""
        return tuple(("as uv reads it", stray) for stray in dict.fromkeys(self._stray_lines()))

    @property
    def places(self) -> tuple[str, ...]:
        """Folders of the repository that the project takes packages from, its own folder first."""
        return (self.folder, *_local_places(self._repo, self.folder, self.texts))

    def copy_to(self, scratch: Path) -> Path:
        """Write the manifests below a folder, without what uv should not act on. Return the folder to run
        uv in: the project's, or its workspace's."""
        for path, text in self.texts.items():
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            if kind_of(path) in {Kind.SETUP_PY, Kind.SETUP_CFG}:
                continue  # uv builds editable packages anyway: without these, there is no code to run
            if kind_of(path) is Kind.PYPROJECT:
                text = asking_nothing(path, text) if self.strays else harmless(path, text)
            (scratch / path).write_bytes(text.encode())
        project = scratch / (self.folder if self._lock is None else self._lock)
        project.mkdir(parents=True, exist_ok=True)
        return project

    def everything(self, write: Callable[[str], Path]) -> Iterator[InstallWay]:
        """Yield the ways to install everything, the most exact first. ``write``: writes lines to a
        generated file and returns its path."""
        if self.locked and self.strays:
            return
        if self.locked:
            options = ["--no-install-local", "--no-default-groups", *self._groups]
            options += self._members
            yield InstallWay("uv.lock", (["sync", "--locked", *options],))
            # Metadata that is computed by a build can't be compared with the lock: nothing is built.
            yield InstallWay("uv.lock as it stands", (["sync", "--frozen", *options],))
            return
        if not self.strays and self.sources and self._is_plain:
            arguments = [argument for source in self.sources for argument in source.option or ()]
            yield InstallWay("all of it, as uv reads it", (["pip", "install", *arguments],))
        if any(source.left_out for source in self.sources):
            return
        pins = [line for source in self.sources if source.pinned for line in source.lines]
        free = [line for source in self.sources if not source.pinned for line in source.lines]
        commands = []
        if pins:
            arguments = ["pip", "install", "--no-deps", "-r"]
            commands.append([*arguments, str(write("\n".join(pins)))])
        if free:
            bounds = constraints({path: self.texts[path] for path in self._requirements}).lines
            arguments = ["-c", str(write("\n".join(bounds)))] if bounds else []
            commands.append(["pip", "install", "-r", str(write("\n".join(free))), *arguments])
        if commands:
            yield InstallWay(FLATTENED, tuple(commands))

    @property
    def flattening_drops(self) -> bool:
        """Whether ``FLATTENED`` leaves out something that affects versions: constraints that can't be read,
        uv's own sources and rules, an index."""
        texts = {path: self.texts[path] for path in self._requirements}
        uv_tables = [
            table_of(parse_toml(path, text), "tool", "uv")
            for path, text in self.texts.items()
            if kind_of(path) is Kind.PYPROJECT
        ]
        own_rules = any(not UV_RULES.isdisjoint(table) for table in uv_tables)
        return own_rules or self.indexes.own or bool(constraints(texts).left_out)

    def installs(self, path: str) -> bool:
        """Return whether this file is part of what is installed: the lock, a manifest of the folder, or
        requirements that are read with it."""
        if path == self.lock:
            return True
        if kind_of(path) not in {None, Kind.REQUIREMENTS}:
            return str(PurePosixPath(path).parent) == self.folder
        if self.locked or self._only is None:
            return not self.locked and path in self.texts
        return path in with_included([self._only], self.texts.get)

    def export(self, path: Path) -> Sequence[str]:
        """Return the command that writes the lock's pins to a file, if they can't be installed as a
        whole."""
        options = ["--no-hashes", "--no-emit-local", "--no-header", "--no-annotate"]
        options += ["--no-default-groups", *self._groups, *self._members]
        return ["export", "--frozen", *options, "-o", str(path)]

    def _stray_lines(self) -> Iterator[str]:
        """Yield the lines of requirements files that would lead uv out of them: to files of this machine,
        or to its environment variables.

        uv quotes a file that it can't read as requirements, and inserts variables into addresses.
        """
        requirements = frozenset(self._requirements)
        for path, text in self.texts.items():
            if kind_of(path) is Kind.PYPROJECT:
                yield from leading_out(path, text)
            if path not in requirements:
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                option = None if is_itself(line) else _PATH_OPTION.match(line)
                target = option and posixpath.normpath(
                    posixpath.join(posixpath.dirname(path), option["path"].strip("'\""))
                )
                if (target and target not in self.texts) or VARIABLE.search(line):
                    yield f"{path}, line {number} leads out of the repository's requirements files"

    @property
    def _is_plain(self) -> bool:
        """Whether uv reads the files as they were read here: requirements, includes, indexes."""
        return all(source.option and not source.left_out for source in self.sources) and all(
            is_plain(path, self.texts[path]) for path in self._requirements
        )

    @property
    def _requirements(self) -> list[str]:
        """Requirements files, also those with any other name that they include."""
        return [
            path
            for path in self.texts
            if kind_of(path) in {None, Kind.REQUIREMENTS} and PurePosixPath(path).name != _TOX
        ]

    @property
    def _members(self) -> list[str]:
        """Options for all members of a workspace: their tests are in the same repository."""
        return ["--all-packages"] if "workspace" in table_of(self._facts, "tool", "uv") else []

    @property
    def _groups(self) -> list[str]:
        """Options for the extras and groups that tests need, the workspace's and the folder's."""
        options: list[str] = []
        manifest = in_folder(self.folder, "pyproject.toml")
        # uv takes a member's group as the workspace's; it knows no group of a folder that is not a member.
        member = parse_toml(manifest, self.texts.get(manifest, "")) if self._members else {}
        facts = (self._facts, member)
        for option, *keys in (
            ("--extra", "project", "optional-dependencies"),
            ("--group", "dependency-groups"),
        ):
            tables = [table_of(document, *keys) for document in facts]
            wanted = TEST_GROUPS.union(self._stated.groups)
            names = sorted(wanted.intersection(set().union(*tables)))
            options += [argument for name in names for argument in (option, name)]
        return options


def release(name: str, version: str) -> str:
    """Return the normal form of a release."""
    return f"{canonicalize_name(name)}=={canonicalize_version(version)}"


def pins_of(exported: str) -> tuple[Source, ...]:
    """Return uv's export of a lock as one source; packages from elsewhere than a registry are left out."""
    lines = [line.strip() for line in exported.splitlines() if line.strip()]
    pins = tuple(line for line in lines if "==" in line and "@" not in line)
    left_out = tuple(line[:_SHOWN] for line in lines if line not in pins)
    return (Source("uv.lock", pins, pinned=True, left_out=left_out),) if lines else ()


def is_test(path: str, folder: str) -> bool:
    """Return whether this is a test file in a folder, by the names that pytest and unittest look for."""
    is_inside = folder == "." or path.startswith(f"{folder}/")
    return is_inside and _TEST_FILE.fullmatch(path) is not None


def _local_places(repo: RepoContext, folder: str, manifests: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders that the folder's manifests name (path sources, ``-e ./lib``), and workspace
    members. They are not installed: Python imports their code from the repository (ADR-0039)."""
    projects: dict[str, None] = {}
    for path, text in manifests.items():
        is_own = posixpath.dirname(path) == ("" if folder == "." else folder)
        for pattern in _named(path, text, own=is_own):
            projects |= dict.fromkeys(_projects(repo, pattern))
    return tuple(project for project in projects if project != folder)[:MAX_PLACES]


def _named(path: str, text: str, *, own: bool) -> Iterator[str]:
    if kind_of(path) is Kind.REQUIREMENTS:
        yield from local_folders(path, text)
    elif kind_of(path) is Kind.PYPROJECT:
        document = parse_toml(path, text)
        sources = table_of(document, "tool", "uv", "sources")
        poetry = table_of(document, "tool", "poetry", "dependencies")
        paths = []
        for source in (*sources.values(), *poetry.values()) if own else ():
            for table in tables(source if isinstance(source, list) else [source]):
                paths += texts([table.get("path")])
        paths += texts(table_of(document, "tool", "uv", "workspace").get("members"))
        for target in paths:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def _projects(repo: RepoContext, pattern: str) -> Iterator[str]:
    """Yield the folders with a project that a path, or a workspace's pattern, means."""
    for name in ("pyproject.toml", "setup.py", "setup.cfg"):
        manifest = in_folder(pattern, name)
        for path in repo.tracked_files:
            if path == manifest or ("*" in manifest and PurePosixPath(path).match(manifest)):
                yield posixpath.dirname(path) or "."
