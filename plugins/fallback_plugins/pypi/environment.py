"""A virtual environment of a project's dependencies, and its tests run in it.

Everything that downloads runs outside the sandbox over copies of the manifests and takes wheels
only (``--no-build``): no source distribution and no local project is built there, so no target's
code runs. The environment lies in the cache, read-only to what runs inside.
"""

import os
import posixpath
import re
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins import gating
from fallback_plugins.gating import in_folder
from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.metadata import own_metadata
from fallback_plugins.pypi.pyproject import harmless, parse_toml
from fallback_plugins.pypi.summaries import pytest_summary, unittest_summary
from fallback_plugins.pypi.uv_settings import index_variables, leading_out
from fallback_plugins.suites import SuiteRun
from fallback_tier.execution import CommandResult
from fallback_tier.ports import GateContext
from fallback_tier.repo import RepoContext

#: Extras and dependency groups that a project's tests need, by the names in use (PEP 621, PEP 735).
_TEST_GROUPS = frozenset({"dev", "develop", "test", "tests", "testing"})
_TEST_REQUIREMENTS = re.compile(r"dev|test", re.IGNORECASE)

#: Dependencies that are declared in these are another client's, or a program's, to install.
_FOREIGN = ("poetry.lock", "pdm.lock", "Pipfile.lock", "Pipfile")
_PROGRAMS = ("setup.py", "setup.cfg")

#: Folder of an environment with the project's own metadata: the project itself is not installed.
_OWN_METADATA = "own-metadata"

#: Options of a requirements file that name a file or a folder; and its variables.
_PATH_OPTION = re.compile(
    r"\s*(?:-r|-c|-e|-f|--requirement|--constraint|--editable|--find-links)[\s=]*(?P<path>\S+)"
)
_VARIABLE = re.compile(r"\$\{\w+\}")

_TEST_FILE = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test|tests?)\.py")


class Environment:
    """One project folder of one tree (patched, or the base commit's), and its environment."""

    def __init__(self, context: GateContext, repo: RepoContext, folder: str) -> None:
        self.context = context
        self.folder = folder
        self._repo = repo
        self._manifests = {
            path: repo.read_text(path)
            for path in repo.tracked_files
            if kind_of(path) in {Kind.REQUIREMENTS, Kind.PYPROJECT, Kind.UV_LOCK}
        }
        self._facts = parse_toml(
            in_folder(folder, "pyproject.toml"),
            self._manifests.get(in_folder(folder, "pyproject.toml"), ""),
        )
        key = gating.content_key(self._manifests, folder, self._arguments, sys.version)
        self._environment = context.cache / "venvs" / key

    @property
    def locked(self) -> bool:
        """Does uv.lock decide what is installed?"""
        return in_folder(self.folder, "uv.lock") in self._manifests

    @property
    def sources(self) -> tuple[str, ...]:
        """The manifests that are installed: the lock, else project metadata and requirements."""
        if self.locked:
            return (in_folder(self.folder, "uv.lock"),)
        own = in_folder(self.folder, "pyproject.toml")
        project = (own,) if "project" in self._facts else ()
        return (*project, *(path for path in self._manifests if self._is_wanted(path)))

    @property
    def declares(self) -> bool:
        """Is there anything to install? An empty list needs no client and no network."""
        if self.locked:
            return True
        project = self._table("project")
        declared = project.get("dependencies") or "dependencies" in project.get("dynamic", ())
        files = (path for path in self.sources if path.endswith((".txt", ".in")))
        return bool(declared or self._groups) or any(self._manifests[f].strip() for f in files)

    @property
    def foreign(self) -> str | None:
        """The file that declares dependencies which uv does not install here, if there is one."""
        if self.sources and self.declares:
            return None
        names = [name for name in _FOREIGN if self._repo.has(in_folder(self.folder, name))]
        for name in _PROGRAMS:
            path = in_folder(self.folder, name)
            if self._repo.has(path) and "install_requires" in self._repo.read_text(path):
                names.append(name)
        if "poetry" in self._table("tool"):
            names.append("pyproject.toml")
        return in_folder(self.folder, names[0]) if names else None

    def install(self) -> CommandResult:
        """Make the environment, once for these manifests. Raises ToolMissingError."""
        if self._environment.is_dir():
            return CommandResult(argv=("uv",), exit_code=0, output="", duration_ms=0)
        if stray := next(self._stray_lines(), None):
            return CommandResult(argv=("uv",), exit_code=2, output=stray, duration_ms=0)
        made = self._environment.with_name(f"{self._environment.name}.{secrets.token_hex(4)}")
        with gating.scratch(self.context) as scratch:
            for path, text in self._manifests.items():
                (scratch / path).parent.mkdir(parents=True, exist_ok=True)
                if kind_of(path) is Kind.PYPROJECT:
                    text = harmless(path, text)
                (scratch / path).write_bytes(text.encode())
            (scratch / self.folder).mkdir(parents=True, exist_ok=True)
            # Renamed when it is whole: a killed run leaves no half of one. Hence relocatable.
            make = ["venv", "--no-project", "--relocatable", "--python", str(_interpreter())]
            result = self._uv([*make, str(made)], scratch)
            if result.ok and self.declares:
                result = self._uv([*self._arguments, str(made / "bin" / "python")], scratch, made)
            output = gating.relative_log(result, scratch)
        if result.ok:
            for path, text in own_metadata(self._table("project")).items():
                (made / _OWN_METADATA / path).parent.mkdir(parents=True, exist_ok=True)
                (made / _OWN_METADATA / path).write_bytes(text.encode())
            made.replace(self._environment)
        else:
            shutil.rmtree(made, ignore_errors=True)
        return result.model_copy(update={"output": output})

    def _stray_lines(self) -> Iterator[str]:
        """Lines of requirements files that would lead uv out of them: to files, or to variables, of ours.

        uv quotes a file that it can't read as requirements, and puts variables into addresses.
        """
        for path, text in self._manifests.items():
            if kind_of(path) is Kind.PYPROJECT:
                yield from leading_out(path, text)
            if kind_of(path) is not Kind.REQUIREMENTS:
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                option = _PATH_OPTION.match(line)
                target = option and posixpath.normpath(
                    posixpath.join(posixpath.dirname(path), option["path"].strip("'\""))
                )
                if (target and target not in self._manifests) or _VARIABLE.search(line):
                    yield f"{path}, line {number} leads out of the repository's requirements files"

    def installed(self, package: str) -> tuple[str, ...]:
        """Versions in the environment, if it was made; its metadata is read, nothing imported."""
        places = [str(path) for path in self._environment.glob("lib/python*/site-packages")]
        name = canonicalize_name(package)
        return tuple(
            found.version
            for found in distributions(path=places)
            if places and canonicalize_name(found.metadata["Name"]) == name
        )

    def sandboxed(self, arguments: Sequence[str]) -> CommandResult:
        """Run the environment's Python in this folder."""
        python = self._environment / "bin" / "python"
        return self.context.sandbox.run(
            gating.command_in(self.folder, [str(python), *arguments]),
            worktree=self._repo.tree,
            timeout_s=self.context.timeout_s,
            env=self.variables(),
            readable=[self._environment],
        )

    @property
    def place(self) -> Path:
        """Where the environment is, once it was made."""
        return self._environment

    def variables(self) -> dict[str, str]:
        """How Python finds the project itself, which is not installed: flat, or below ``src``."""
        root = self._repo.root / self.folder
        places = [root, root / "src", self._environment / _OWN_METADATA]
        return {"PYTHONPATH": os.pathsep.join(map(str, places))}

    def test(self) -> SuiteRun:
        """Run the suite; a run that ends well but reports nothing has run nothing."""
        if self.installed("pytest"):
            options = ["-q", "-ra", "--tb=short", "--color=no", "-p", "no:cacheprovider"]
            # Over a project's own `-x`: behind the first failure there may be others.
            result = self.sandboxed(["-m", "pytest", *options, "--maxfail=0"])
            summary = pytest_summary
        else:
            result = self.sandboxed(["-m", "unittest", "discover", *self._discovery()])
            summary = unittest_summary
        output = gating.relative_log(result, self._repo.root)
        run = SuiteRun.told(result.model_copy(update={"output": output}), summary(output))
        return replace(run, count=0) if run.count is None and result.ok else run

    def _discovery(self) -> list[str]:
        for name in ("tests", "test"):
            inside = in_folder(self.folder, name)
            if any(is_test(path, inside) for path in self._repo.tracked_files):
                package = self._repo.has(f"{inside}/__init__.py")
                return ["-s", name, "-t", "."] if package else ["-s", name]
        return []

    @property
    def _arguments(self) -> list[str]:
        if self.locked:
            options = ["sync", "--locked", "--no-install-workspace"]
        else:
            files = [word for path in self.sources for word in ("-r", self._relative(path))]
            options = ["pip", "install", *files]
        # Compiling would start the new environment's Python, and every .pth file in it, out here.
        return [*options, "--no-build", "--no-compile-bytecode", *self._groups, "--python"]

    @property
    def _groups(self) -> list[str]:
        """Options for the extras and dependency groups that tests need."""
        named = []
        for option, table in (
            ("--extra", self._table("project").get("optional-dependencies")),
            ("--group", self._table("dependency-groups")),
        ):
            names = _TEST_GROUPS.intersection(table if isinstance(table, dict) else ())
            named += [word for name in sorted(names) for word in (option, name)]
        return named

    def _table(self, key: str) -> dict[str, Any]:
        value = self._facts.get(key)
        return value if isinstance(value, dict) else {}

    def _uv(
        self, arguments: Sequence[str], scratch: Path, environment: Path | None = None
    ) -> CommandResult:
        env = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        # uv takes no --no-compile-bytecode beside this variable: without it, there is nothing to say no to.
        env |= {"UV_COMPILE_BYTECODE": "", **index_variables(self._manifests)}
        env["UV_PROJECT_ENVIRONMENT"] = "" if environment is None else str(environment)
        return self.context.clients.run(
            "uv",
            arguments,
            cwd=scratch / self.folder,
            timeout_s=self.context.timeout_s,
            env=env,
        )

    def _is_wanted(self, path: str) -> bool:
        """requirements.txt, the files for tests, and those that the patch changed."""
        pure = PurePosixPath(path)
        if kind_of(path) is not Kind.REQUIREMENTS or "constraints" in pure.name:
            return False
        near = PurePosixPath(self.folder)
        if pure.parent not in {near, near / "requirements"}:
            return False
        plain = pure.name == "requirements.txt" or _TEST_REQUIREMENTS.search(pure.stem) is not None
        return path in self.context.application.files or (plain and pure.suffix == ".txt")

    def _relative(self, path: str) -> str:
        return str(PurePosixPath(path).relative_to(self.folder))


def _interpreter() -> Path:
    """The Python under ours: an environment made from a virtual environment would need that one."""
    return (
        Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    )


def is_test(path: str, folder: str) -> bool:
    """Is this a test file, by the names that pytest and unittest look for, in a folder?"""
    return PurePosixPath(path).is_relative_to(folder) and bool(_TEST_FILE.fullmatch(path))
