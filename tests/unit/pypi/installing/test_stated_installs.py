"""What a project's CI and task runners install for its tests, read from their texts."""

from pathlib import Path

import pytest

from fallback_plugins.pypi.installing.declared import naming, stated_for_tests, stated_installs
from fallback_plugins.pypi.installing.plan import Manifests
from tests.integration.gate_setup import repository

PYPROJECT = """
[project]
name = "app"
version = "1"
[project.optional-dependencies]
all = ["left"]
redis = ["redis>=4"]
[dependency-groups]
unit = ["hypothesis"]
"""


@pytest.mark.parametrize(
    ("path", "text", "lines"),
    [
        (".github/workflows/t.yml", "run: pip install -e '.[all,redis]'", {"left", "redis>=4"}),
        (".travis.yml", "install: pip install -r requirements/ci.txt", {"mock"}),
        ("tox.ini", "[testenv]\ndeps =\n  -r{toxinidir}/requirements/ci.txt\n", {"mock"}),
        ("tox.ini", "[testenv]\nextras = redis\n", {"redis>=4"}),
        ("noxfile.py", "session.install('-r', 'requirements/ci.txt', 'moto')", {"mock", "moto"}),
        ("Makefile", "test:\n\tuv sync --group unit && uv run pytest\n", {"hypothesis"}),
        (".gitlab-ci.yml", "script:\n  - pip install -U pip tox moto==4.0 && tox", {"moto==4.0"}),
        (".github/workflows/t.yml", "run: pip install -r requirements/docs.txt", set()),
        (".github/workflows/t.yml", "run: pip install --index-url u -c x $(cat y) ../lib", set()),
        ("docs/Makefile", "pip install moto", set()),
    ],
)
def test_the_lines_that_it_installs(tmp_path: Path, path: str, text: str, lines: set[str]) -> None:
    files = {"requirements/ci.txt": "mock\n", "requirements/docs.txt": "furo\n"}
    repo = repository(tmp_path, files | {"pyproject.toml": PYPROJECT, path: f"{text}\n"})
    assert {*stated_for_tests(repo, ".", stated_installs(repo, "."))} == lines


def test_the_file_extra_or_group_that_names_a_module(tmp_path: Path) -> None:
    files = {"requirements/ci.txt": "pytest-django\n", "pyproject.toml": PYPROJECT}
    repo = repository(tmp_path, files)
    found = [naming(repo, ".", it) for it in ("pytest_django", "redis", "hypothesis", "absent")]
    assert found == ["requirements/ci.txt", "the extra 'redis'", "the group 'unit'", ""]


@pytest.mark.parametrize(
    ("text", "runner"),
    [
        ("commands = pytest -x {posargs}", "pytest"),
        ("commands = python -m pytest", "pytest"),
        ("commands = python -m unittest  # no pytest-cov", None),
    ],
)
def test_a_runner_that_commands_name_is_installed(
    tmp_path: Path, text: str, runner: str | None
) -> None:
    files = {"tests/test_it.py": "import unittest\n", "tox.ini": f"[testenv]\n{text}\n"}
    assert Manifests(repository(tmp_path, files), ".").runner == runner
