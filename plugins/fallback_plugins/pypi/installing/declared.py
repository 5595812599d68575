"""Declarations in a Python project's own files, file by file, as lines that uv may read (ADR-0039).

They are for an environment to test in: pins of locks whose own client is not run, metadata in all its
forms, requirements files, tox's dependencies. Lines that lead elsewhere are left out, and listed.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.locks.pipfile_lock import PipfileLock
from fallback_plugins.pypi.manifests.indexes import is_public
from fallback_plugins.pypi.manifests.install_options import SHORT_FLAGS, takes_word
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.metadata import (
    METADATA_FILES,
    Stated,
    in_setup_cfg,
    in_setup_py,
    items,
    own_name,
    parsed,
)
from fallback_plugins.pypi.manifests.metadata import lines as lines_of
from fallback_plugins.pypi.manifests.pyproject import (
    of_extra,
    of_group,
    parse_toml,
    pipfile_entries,
    poetry_entries,
    table_of,
    texts,
)
from fallback_plugins.pypi.manifests.requirements import (
    clean,
    includes,
    logical_lines,
    requirement_in,
    with_included,
)
from fallback_plugins.pypi.surveying.survey import locked_in_toml, metadata_files
from fallback_plugins.shared.gates.gating import in_folder
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.repo import RepoContext

#: Extras and dependency groups that a project's tests need, by the names in use (PEP 621, PEP 735).
TEST_GROUPS = frozenset({"dev", "develop", "development", "test", "tests", "testing"})
_TEST_REQUIREMENTS = re.compile(r"dev|test", re.IGNORECASE)

#: ``-e .`` and ``.[extra]``: the project itself, which is not installed; its extras are.
_ITSELF = re.compile(r"(?:-e\s*|--editable[\s=])?\.(?:/|\[(?P<extras>[\w\s,.-]*)\])?(?:\s|$)")

#: Keys of an entry in pdm.lock or Pipfile.lock that state its origin.
_ELSEWHERE = ("git", "hg", "svn", "bzr", "url", "file", "path")

#: Endings of a repository's files that are installed, and can't be imported in place.
_ARCHIVES = (".whl", ".zip", ".tar.gz")

#: Options after a requirement, and a comment.
_BEHIND = re.compile(r"(?:^|\s)#.*$|\s--[a-z].*$")


@dataclass(frozen=True)
class Source:
    """One file's, or one group's, requirements.

    ``pinned``: it lists all that is installed. ``left_out``: lines that uv does not get. ``option``: the
    option by which ``uv pip install`` reads it itself (a file, an extra, a group); None: uv does not read
    it.
    """

    name: str
    lines: tuple[str, ...]
    for_tests: bool = False
    pinned: bool = False
    left_out: tuple[str, ...] = ()
    option: tuple[str, str] | None = None


def declared(repo: RepoContext, folder: str, changed: Sequence[str] = ()) -> tuple[Source, ...]:
    """Return every source of a folder's project that has a line, runtime requirements before those of
    tests.

    ``changed``: requirements files that count under any name. A file that can't be read has no lines.
    """
    project = ProjectFiles(repo, folder, changed)
    sources = [source for read in _READERS for source in _readable(read(project))]
    sources = [source for source in sources if source.lines or source.left_out]
    return tuple(sorted(sources, key=lambda source: source.for_tests))


def constraints(texts: Mapping[str, str]) -> Source:
    """Return the lines of the constraint files that these requirements files include, directly or not."""
    paths = [
        included_path
        for path, text in texts.items()
        for included_path, binds in includes(path, text)
        if binds
    ]
    included = with_included(paths, texts.get).items()
    lines = ([f"-c {path}"] if text is None else _requirements_in(text) for path, text in included)
    return _source("constraints", chain.from_iterable(lines))


def is_wanted(path: str, folder: str, changed: Sequence[str]) -> bool:
    """Return whether a file is requirements.txt, a requirements file for tests, or changed by a patch."""
    if kind_of(path) is not Kind.REQUIREMENTS:
        return False
    pure, near = PurePosixPath(path), PurePosixPath(folder)
    if "constraints" in pure.name:
        return False
    if pure.parent not in {near, near / "requirements", near / "reqs"}:
        return False
    plain = pure.name == "requirements.txt" or _TEST_REQUIREMENTS.search(pure.stem) is not None
    return path in changed or (plain and pure.suffix == ".txt")


def is_itself(line: str) -> bool:
    """Return whether a line of a requirements file means the project itself."""
    return _ITSELF.match(line.strip()) is not None


#: Files with commands that install what tests need.
_SAYING = re.compile(
    r"(?:\.github/workflows/[^/]+|\.travis|\.gitlab-ci|\.circleci/config|azure-pipelines|appveyor)\.ya?ml"
    r"|(?:.*/)?(?:tox\.ini|tox\.toml|noxfile\.py|(?:GNU)?[Mm]akefile|[Jj]ustfile)"
)

#: In such files: a requirements file, extras of the project itself, extras and groups by name, an install.
_FILES_NAMED = re.compile(
    rf"""(?:-{SHORT_FLAGS}r|--requirements?)[\s=,"']*(?:\{{toxinidir\}}/)?([\w./-]+\.(?:txt|in))"""
)
_EXTRAS_NAMED = re.compile(
    r"""(?<![\w./-])\.\[([\w\s,.-]+)\]|^\s*extras\s*=\s*([\w,\s-]+)$""", re.MULTILINE
)
_GROUPS_NAMED = re.compile(r"""--(?:extra|group|only-group|with)[\s=]+["']?([\w,.-]+)""")
_INSTALLS = re.compile(r"""\bpip3?[ ]install[ ]+([^\n;&|#]+)|\bsession\.install\(([^()]*)\)""")
_PLAIN = re.compile(r"""[A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?(?:(?:[<>=!~]=?|===)[\w.*,<>=!~]+)?""")

_PYTEST = re.compile(r"(?<![\w./-])(?:pytest|py\.test)(?![\w-])")

#: Packages of an install command that tests don't need: tools that build, check, publish or run other
#: tools.
_TOOLS = frozenset(
    {"pip", "setuptools", "wheel", "uv", "poetry", "pipenv", "pdm", "hatch", "tox", "nox"}
    | {"build", "twine", "virtualenv", "codecov", "coveralls", "pre-commit", "black"}
    | {"flake8", "ruff", "mypy", "isort", "pylint", "cibuildwheel", "tox-gh-actions"}
    | {"tox-uv", "bandit", "safety", "pip-audit", "install", "sphinx"}
)

#: Names of requirements files that are not for tests.
_ASIDE = re.compile(r"doc|lint|release|deploy|prod|publish|format|build", re.IGNORECASE)

#: Most lines and files that are used of one project's commands.
_MAX_STATED = 60


@dataclass(frozen=True)
class TestInstalls:
    """What commands of a project's CI and task runners install for its tests, by name, and whether they run
    pytest."""

    files: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()
    lines: tuple[str, ...] = ()
    run_pytest: bool = False


def stated_installs(repo: RepoContext, folder: str) -> TestInstalls:
    """Read the install commands of a folder's project: of CI, tox, nox, make, just. Nothing is run."""
    files, lines, groups = dict[str, None](), dict[str, None](), set[str]()
    run_pytest = False
    near = {"." if folder == "." else folder, "."}
    for path in repo.tracked_files:
        if not _SAYING.fullmatch(path):
            continue
        if not path.startswith(".") and str(PurePosixPath(path).parent) not in near:
            continue
        text = repo.glimpse(path) or ""
        run_pytest |= _PYTEST.search(text) is not None
        for name in _FILES_NAMED.findall(text):
            wanted = posixpath.normpath(posixpath.join(folder, name))
            if repo.has(wanted) and not _ASIDE.search(name):
                files[wanted] = None
        for captured in (
            *_EXTRAS_NAMED.findall(text),
            *((group, "") for group in _GROUPS_NAMED.findall(text)),
        ):
            groups.update(filter(None, re.split(r"[\s,]+", " ".join(captured))))
        for shell, nox in _INSTALLS.findall(text):
            arguments = re.split(r"[\s,\"']+", shell or nox)
            lines |= dict.fromkeys(_packages(arguments))
    groups = {group for group in groups if not _ASIDE.search(group)}
    first = tuple(files)[:_MAX_STATED], frozenset(groups), tuple(lines)[:_MAX_STATED]
    return TestInstalls(*first, run_pytest)


def _packages(arguments: Sequence[str]) -> Iterator[str]:
    after_option = False
    for argument in arguments:
        is_plain = _PLAIN.fullmatch(argument) and not after_option
        after_option = takes_word("pip", argument)
        if is_plain and not argument.endswith((".txt", ".in", ".whl")):
            requirement = requirement_in(argument)
            if requirement is not None and canonicalize_name(requirement.name) not in _TOOLS:
                yield argument


def stated_for_tests(repo: RepoContext, folder: str, stated: TestInstalls) -> tuple[str, ...]:
    """Return the requirements of files, extras, groups and packages that a project's commands install."""
    project = ProjectFiles(repo, folder)

    def of_files() -> Iterator[Source]:
        for path in stated.files:
            if not is_wanted(path, folder, ()):
                yield _source(path, _requirement_lines(project, path))

    def of_groups() -> Iterator[Source]:
        for name in sorted(stated.groups - TEST_GROUPS):
            yield _source(f"extra {name}", of_extra(project.extras, name, project.name))
            groups = table_of(project.pyproject, "dependency-groups")
            yield _source(f"group {name}", of_group(groups, name))

    sources = [*_readable(of_files()), *_readable(of_groups())]
    sources.append(_source("commands", stated.lines))
    lines = (line for source in sources for line in source.lines)
    return tuple(dict.fromkeys(line for line in lines if requirement_in(line) is not None))


def naming(repo: RepoContext, folder: str, module: str) -> str:
    """Return the file, extra or group that names a module's package; empty if none does."""
    name = canonicalize_name(module)

    def names_it(lines: Iterable[str]) -> bool:
        requirements = (requirement_in(line) for line in lines)
        return any(
            requirement is not None and canonicalize_name(requirement.name) == name
            for requirement in requirements
        )

    project = ProjectFiles(repo, folder)
    for path in repo.tracked_files:
        if kind_of(path) is Kind.REQUIREMENTS and names_it(_requirements_in(project.read(path))):
            return path
    with suppress(RecipeError):
        for extra in project.extras:
            if names_it(of_extra(project.extras, extra, project.name)):
                return f"the extra {extra!r}"
        groups = table_of(project.pyproject, "dependency-groups")
        for group in groups:
            if names_it(of_group(groups, group)):
                return f"the group {group!r}"
    return ""


class ProjectFiles:
    """Files of one project folder."""

    def __init__(self, repo: RepoContext, folder: str, changed: Sequence[str] = ()) -> None:
        self.repo, self.folder, self.changed = repo, folder, changed

    def text(self, name: str) -> str:
        """Return a file's text; empty if there is no readable one."""
        path = in_folder(self.folder, name)
        return self.read(path) if self.repo.has(path) else ""

    def read(self, path: str) -> str:
        """Return a file's text; empty if it can't be read (UTF-16, a link)."""
        try:
            return self.repo.read_text(path)
        except RepositoryError:
            return ""

    @property
    def pyproject(self) -> Mapping[str, Any]:
        """Its pyproject.toml. Raises RecipeError."""
        return parse_toml("pyproject.toml", self.text("pyproject.toml"))

    @property
    def setup_files(self) -> Mapping[str, Stated]:
        """The metadata in its setup.cfg and setup.py, by their names."""
        config, script = self.text("setup.cfg"), self.text("setup.py")
        return {"setup.cfg": in_setup_cfg(config), "setup.py": in_setup_py(script)}

    @property
    def name(self) -> str:
        """The project's own name; empty if it can't be read."""
        return own_name({name: self.text(name) for name in METADATA_FILES})

    @property
    def extras(self) -> Mapping[str, Any]:
        """Extras by name, from all files that declare any."""
        extras = dict(table_of(self.pyproject, "project", "optional-dependencies"))
        for stated in self.setup_files.values():
            extras |= stated.extras
        return extras


def _readable(sources: Iterator[Source]) -> Iterator[Source]:
    try:
        yield from sources
    except (RecipeError, RepositoryError):
        return


def _locks(project: ProjectFiles) -> Iterator[Source]:
    for name in ("poetry.lock", "pdm.lock"):
        pins = {
            package: _pin(package, f"=={version}", table)
            for package, version, table in locked_in_toml(name, project.text(name))
        }  # if a package is locked for several Pythons: the last, which clients write for the newest
        yield _source(name, filter(None, pins.values()), pinned=True)
    if text := project.text("Pipfile.lock"):
        lock = PipfileLock("Pipfile.lock", text)
        for section in ("default", "develop"):
            locked = []
            for name in table_of(lock.document, section):
                table = table_of(lock.document, section, name)
                marker = f"; {table['markers']}" if table.get("markers") else ""
                locked.append(_pin(name, f"{table.get('version') or ''}{marker}", table))
            yield _source(
                f"Pipfile.lock [{section}]",
                filter(None, locked),
                pinned=True,
                for_tests=section != "default",
            )


def _metadata(project: ProjectFiles) -> Iterator[Source]:
    document = project.pyproject
    project_table = table_of(document, "project")
    option = ("-r", "pyproject.toml")
    yield _source("pyproject.toml", texts(project_table.get("dependencies")), option=option)
    if not project.text("poetry.lock"):
        poetry = (
            entry.requirement for entry in poetry_entries(document) if not entry.declaration.refusal
        )
        yield _source("pyproject.toml [tool.poetry]", poetry)
    groups = table_of(document, "dependency-groups")
    for name in sorted(TEST_GROUPS & groups.keys()):
        lines, option = of_group(groups, name), ("--group", name)
        yield _source(f"pyproject.toml, group {name}", lines, for_tests=True, option=option)
    if not project.text("Pipfile.lock"):
        pipfile = pipfile_entries(parse_toml("Pipfile", project.text("Pipfile")))
        yield _source("Pipfile", (entry.requirement for entry in pipfile))


def _setuptools(project: ProjectFiles) -> Iterator[Source]:
    """Yield the files that metadata takes dependencies from."""
    for name in ("pyproject.toml", "setup.cfg"):
        for extra, path in metadata_files(name, project.text(name)):
            if not extra or extra in TEST_GROUPS:
                lines = _requirement_lines(project, in_folder(project.folder, path))
                option = ("-r", path)
                yield _source(path, lines, for_tests=bool(extra), option=option)


def _setup_files(project: ProjectFiles) -> Iterator[Source]:
    for name, stated in project.setup_files.items():
        yield _source(name, stated.requires)
        yield _source(f"{name}, tests_require", stated.tests_require, for_tests=True)


def _extras(project: ProjectFiles) -> Iterator[Source]:
    extras = project.extras
    readable = table_of(project.pyproject, "project", "optional-dependencies")
    for name in sorted(TEST_GROUPS & extras.keys()):
        option = ("--extra", name) if name in readable else None
        lines = of_extra(extras, name, project.name)
        yield _source(f"extra {name}", lines, for_tests=True, option=option)


def _hatch(project: ProjectFiles) -> Iterator[Source]:
    """Yield hatch's environments for tests: the dependencies that they add, and their extras."""
    environments = table_of(project.pyproject, "tool", "hatch", "envs")
    for name in sorted((TEST_GROUPS | {"default", "hatch-test"}) & environments.keys()):
        table = table_of(environments, name)
        lines = [*texts(table.get("dependencies")), *texts(table.get("extra-dependencies"))]
        for extra in texts(table.get("features")):
            lines += of_extra(project.extras, extra, project.name)
        plain = (line for line in lines if not set("{}") & set(line))
        yield _source(f"pyproject.toml, hatch environment {name}", plain, for_tests=True)


def _requirements(project: ProjectFiles) -> Iterator[Source]:
    for path in project.repo.tracked_files:
        if not is_wanted(path, project.folder, project.changed):
            continue
        is_runtime = PurePosixPath(path).name == "requirements.txt"
        text = project.read(path)
        # uv would have to build the project itself to install it.
        has_itself = any(is_itself(line) for line in logical_lines(text))
        option = (
            None if has_itself else ("-r", str(PurePosixPath(path).relative_to(project.folder)))
        )
        lines = _requirement_lines(project, path)
        yield _source(path, lines, for_tests=not is_runtime, option=option)


def _requirement_lines(project: ProjectFiles, path: str) -> Iterator[str]:
    """Yield a file's requirements, with those of the files that it includes."""

    def text_of(path: str) -> str | None:
        with suppress(RepositoryError):
            return project.repo.read_text(path)
        return None

    for included_path, text in with_included([path], text_of, constrain=False).items():
        if text is None:
            yield f"-r {included_path}"  # will be listed as left out
        for bare in _requirements_in(text or ""):
            if itself := _ITSELF.match(bare):
                for name in (itself["extras"] or "").split(","):
                    yield from of_extra(project.extras, name.strip(), project.name)
            else:
                yield bare


def _requirements_in(text: str) -> list[str]:
    """Return a file's lines without options and comments; of its option lines only those that install the
    project itself."""
    lines = (_BEHIND.sub("", line).strip() for line in logical_lines(text))
    return [line for line in lines if line and (not line.startswith("-") or is_itself(line))]


def _tox(project: ProjectFiles) -> Iterator[Source]:
    parser = parsed(project.text("tox.ini"))
    plain = lines_of(dict(items(parser, "testenv")).get("deps"))
    # Conditions (``py311: name``) and substitutions are tox's own syntax.
    requirements = (
        line for line in plain if line and not line.startswith("-") and not set("{}:") & set(line)
    )
    yield _source("tox.ini", requirements, for_tests=True)


_READERS = (_locks, _metadata, _setuptools, _setup_files, _extras, _hatch, _requirements, _tox)


def _source(
    name: str,
    lines: Iterable[str],
    *,
    for_tests: bool = False,
    pinned: bool = False,
    option: tuple[str, str] | None = None,
) -> Source:
    usable, left_out = [], []
    for line in lines:
        try:
            usable.append(clean(name, line))
        except RecipeError:
            left_out.append(line[:80])
    return Source(name, tuple(dict.fromkeys(usable)), for_tests, pinned, tuple(left_out), option)


def _pin(name: str, version: str, table: Mapping[str, Any]) -> str:
    """Return a lock's entry as a line. A package from elsewhere than the registry gets an address, so that
    it is left out and listed; empty for a folder of the repository, whose package is imported in place."""
    source = table_of(table, "source")
    origin = next(filter(None, (source.get("url"), *map(table.get, _ELSEWHERE))), "")
    is_near = "path" in table or str(source.get("type")) in {"directory", "file"}
    if is_near and not str(origin).endswith(_ARCHIVES):
        return ""
    from_registry = not origin or is_public(str(origin))
    return f"{name}{version}" if from_registry else f"{name} @ {origin}"
