"""How a project's dependencies are to be installed, read from its manifests: what to try, in which order.

Nothing runs here. uv reads copies of the manifests, and no line in them leads it out of them (ADR-0039).
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from fallback_plugins.gating import in_folder
from fallback_plugins.pypi.declared import TEST_GROUPS, Source, declared
from fallback_plugins.pypi.installing import Step
from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.pyproject import harmless, parse_toml
from fallback_plugins.pypi.uv_settings import index_variables, leading_out
from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext

#: Says what tox installs beside a project; read, though it declares nothing that is shipped.
_TOX = "tox.ini"

#: Options of a requirements file that name a file or a folder; and its variables.
_PATH_OPTION = re.compile(
    r"\s*(?:-r|-c|-e|-f|--requirement|--constraint|--editable|--find-links)[\s=]*(?P<path>\S+)"
)
_VARIABLE = re.compile(r"\$\{\w+\}")

_TEST_FILE = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test|tests?)\.py")

#: A test that only pytest finds: by its import, or a function outside any class.
_FOR_PYTEST = re.compile(r"^(?:import pytest|from pytest|(?:async )?def test_)", re.MULTILINE)

#: One file's test requirements, written where every tool can read it.
Write = Callable[[str], Path]


class Manifests:
    """One project folder's manifests, and what they say about installing it."""

    def __init__(self, repo: RepoContext, folder: str, changed: Sequence[str]) -> None:
        self._repo = repo
        self.folder = folder
        self.texts: Mapping[str, str] = {
            path: repo.read_text(path)
            for path in repo.tracked_files
            if kind_of(path) is not None or path == in_folder(folder, _TOX)
        }
        own = in_folder(folder, "pyproject.toml")
        self._facts = parse_toml(own, self.texts.get(own, ""))
        self.sources = () if self.locked else declared(repo, folder, changed)

    @property
    def locked(self) -> bool:
        """Does uv.lock decide what is installed?"""
        return in_folder(self.folder, "uv.lock") in self.texts

    @property
    def identity(self) -> tuple[object, ...]:
        """All that decides what is installed."""
        sources = [asdict(source) for source in self.sources]
        return (self.texts, self.folder, sources, self.runner)

    @property
    def project(self) -> dict[str, Any]:
        """The ``[project]`` table."""
        return self._table("project")

    @cached_property
    def runner(self) -> str | None:
        """pytest, where tests are written for it: whoever declares none has it installed."""
        tests = [path for path in self._repo.tracked_files if is_test(path, self.folder)]
        if tests and self._repo.has(in_folder(self.folder, "conftest.py")):
            return "pytest"
        for path in tests:
            with suppress(RepositoryError):
                if _FOR_PYTEST.search(self._repo.read_text(path)):
                    return "pytest"
        return None

    @property
    def variables(self) -> dict[str, str]:
        """Variables that uv is to find empty."""
        return index_variables(self.texts)

    def copy_to(self, scratch: Path) -> Path:
        """Write them below a folder, without what uv should not act on. The project's folder there."""
        for path, text in self.texts.items():
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            if kind_of(path) is Kind.PYPROJECT:
                text = harmless(path, text)
            (scratch / path).write_bytes(text.encode())
        (scratch / self.folder).mkdir(parents=True, exist_ok=True)
        return scratch / self.folder

    def everything(self, write: Write) -> Iterator[Step]:
        """The ways to install all of it, the most exact first."""
        if self.locked:
            options = ["--no-install-workspace", "--no-default-groups", *self._groups]
            yield Step("uv.lock", (["sync", "--locked", *options],))
            # What is computed when the project is built can't be compared with the lock: nothing is built.
            yield Step("uv.lock as it stands", (["sync", "--frozen", *options],))
            return
        if self.sources and all(source.option for source in self.sources):
            words = [word for source in self.sources for word in source.option or ()]
            yield Step("all of it, as uv reads it", (["pip", "install", *words],))
        if any(source.left_out for source in self.sources):
            return
        pins = [line for source in self.sources if source.pinned for line in source.lines]
        free = [line for source in self.sources if not source.pinned for line in source.lines]
        commands = []
        if pins:
            words = ["pip", "install", "--no-deps", "-r"]
            commands.append([*words, str(write("\n".join(pins)))])
        if free:
            commands.append(["pip", "install", "-r", str(write("\n".join(free)))])
        if commands:
            yield Step("all of it", tuple(commands))

    def export(self, place: Path) -> Sequence[str]:
        """The command that writes the lock's pins to a file, for what can't be installed as a whole."""
        options = ["--no-hashes", "--no-emit-workspace", "--no-header", "--no-annotate"]
        options += ["--no-default-groups", *self._groups]
        return ["export", "--frozen", *options, "-o", str(place)]

    def stray_lines(self) -> Iterator[str]:
        """Lines of requirements files that would lead uv out of them: to files, or to variables, of ours.

        uv quotes a file that it can't read as requirements, and puts variables into addresses.
        """
        for path, text in self.texts.items():
            if kind_of(path) is Kind.PYPROJECT:
                yield from leading_out(path, text)
            if kind_of(path) is not Kind.REQUIREMENTS:
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                option = _PATH_OPTION.match(line)
                target = option and posixpath.normpath(
                    posixpath.join(posixpath.dirname(path), option["path"].strip("'\""))
                )
                if (target and target not in self.texts) or _VARIABLE.search(line):
                    yield f"{path}, line {number} leads out of the repository's requirements files"

    @property
    def _groups(self) -> list[str]:
        """Options for the extras and dependency groups that tests need."""
        named: list[str] = []
        for option, table in (
            ("--extra", self.project.get("optional-dependencies")),
            ("--group", self._table("dependency-groups")),
        ):
            names = TEST_GROUPS.intersection(table if isinstance(table, dict) else ())
            named += [word for name in sorted(names) for word in (option, name)]
        return named

    def _table(self, key: str) -> dict[str, Any]:
        value = self._facts.get(key)
        return value if isinstance(value, dict) else {}


def pins_of(exported: str) -> tuple[Source, ...]:
    """uv's export of a lock as one source."""
    lines = (line.strip() for line in exported.splitlines())
    pins = tuple(line for line in lines if "==" in line and "@" not in line)
    return (Source("uv.lock", pins, pinned=True),) if pins else ()


def is_test(path: str, folder: str) -> bool:
    """Is this a test file, by the names that pytest and unittest look for, in a folder?"""
    is_inside = folder == "." or path.startswith(f"{folder}/")
    return is_inside and _TEST_FILE.fullmatch(path) is not None
