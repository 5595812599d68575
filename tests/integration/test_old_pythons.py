"""A Python that a project supports and that no fixed release does: real uv and bubblewrap, a registry on
loopback. For that Python uv takes an old release, of the package or of what requires it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import GateStatus
from fallback_tier.cli import exit_codes
from tests.e2e.command import Ended, osv, repository, run
from tests.integration.gate_setup import needs_sandbox
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

PROJECT = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
DOCS = PROJECT + 'dependencies = []\n[project.optional-dependencies]\ndocs = ["parent"]\n'
TEST = "import unittest\nclass Test(unittest.TestCase):\n    def test(self) -> None: ...\n"


@pytest.fixture
def universe() -> Universe:
    """left 1 is affected; parent 0.1 contains it, and requires nothing."""
    return Universe().pypi("left", "1.0.0").pypi("parent", "0.1").pypi("parent", "1.0", ["left"])


def publish_fixed(universe: Universe) -> None:
    universe.pypi("left", "1.1.0", requires_python=">=3.10")


@pytest.fixture
def registry(universe: Universe, tmp_path: Path) -> Iterator[Registry]:
    needs_sandbox()
    with serve(universe) as found:
        yield found


def command(name: str, place: Path, registry: Registry, files: Mapping[str, str]) -> Ended:
    record = place / "advisory.json"
    record.write_text(osv("left", ecosystem="PyPI", fixed="1.1.0", id="LEFT-1"))
    repo = repository(place / "repo", files)
    own = ["--state-dir", place / "state"] + ["--keys", place / "keys"] * (name == "fix")
    environ = {**registry.environ, "XDG_CACHE_HOME": str(place / "cache"), "UV_NO_CONFIG": ""}
    return run(name, repo, "--advisory", record, "--json", *own, env=environ)


def test_a_fix_of_pins_goes_on_and_names_what_stays(
    tmp_path: Path, registry: Registry, universe: Universe
) -> None:
    publish_fixed(universe)
    files = {
        "pyproject.toml": DOCS,
        "requirements/docs.txt": "left==1.0.0\nparent==1.0\n",
        "test_app.py": TEST,
    }
    ended = command("fix", tmp_path, registry, files)
    assert ended.code == exit_codes.PATCHED, ended
    assert (tmp_path / "repo" / "pyproject.toml").read_text() == DOCS
    assert (tmp_path / "repo" / "requirements" / "docs.txt").read_text() == files[
        "requirements/docs.txt"
    ].replace("1.0.0", "1.1.0")
    (verdict,) = (it for it in ended.json["verdicts"] if it["gate"] == "not_vulnerable")
    assert verdict["status"] == GateStatus.SKIPPED
    assert "pyproject.toml installs left 1.0.0" in verdict["detail"]


def test_alone_it_is_refused_with_the_python_that_is_to_blame(
    tmp_path: Path, registry: Registry, universe: Universe
) -> None:
    publish_fixed(universe)
    ended = command("plan", tmp_path, registry, {"pyproject.toml": DOCS})
    assert ended.code == exit_codes.REFUSED, ended
    (left,) = ended.json["left"]
    assert "left 1.0.0" in left["sentence"]
    assert "3.10" in left["sentence"]
    assert left["declined"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("runtime.txt", "python-3.9.18\n"),
        (".python-version", "3.9\n"),
        (".tool-versions", "nodejs 20\npython 3.9.18\n"),
        ("mise.toml", '[tools]\npython = "3.9"\n'),
        (
            "Dockerfile",
            "FROM --platform=linux/amd64 docker.test/library/python:3.9-slim AS a\nFROM python:3.12\n",
        ),
    ],
)
@pytest.mark.parametrize("folder", ["", "app/"])
def test_the_python_that_runs_a_program_decides_what_is_installed(
    tmp_path: Path, registry: Registry, universe: Universe, path: str, text: str, folder: str
) -> None:
    """What is not pinned is old there, and a pin could not be installed."""
    publish_fixed(universe)
    files = {path: text, f"{folder}requirements.txt": "parent>=1\n"}
    ended = command("plan", tmp_path, registry, files)
    assert ended.code == exit_codes.REFUSED, ended
    assert "left 1.0.0" in ended.json["left"][0]["sentence"]
    assert "3.9" in ended.json["left"][0]["next_step"]


def test_a_python_that_a_fixed_release_supports_changes_nothing(
    tmp_path: Path, registry: Registry, universe: Universe
) -> None:
    publish_fixed(universe)
    files = {"runtime.txt": "python-3.10.4\n", "requirements.txt": "parent>=1\n"}
    assert command("plan", tmp_path, registry, files).code == exit_codes.NOT_AFFECTED


def test_a_lock_gets_no_older_parent_for_it(
    tmp_path: Path, registry: Registry, universe: Universe
) -> None:
    """uv would take parent 0.1 there, for Python 3.9 alone: a downgrade, and no fix."""
    place = tmp_path / "locking"
    place.mkdir()
    files = {"pyproject.toml": PROJECT + 'dependencies = ["parent"]\n'}
    (place / "pyproject.toml").write_text(files["pyproject.toml"])
    uv = [str(Path(sys.executable).with_name("uv")), "lock", "--cache-dir", str(tmp_path / "uv")]
    environ = {name: value for name, value in {**os.environ, **registry.environ}.items() if value}
    subprocess.run(uv, cwd=place, env=environ, check=True)
    lock = (place / "uv.lock").read_text()
    publish_fixed(universe)
    ended = command("fix", tmp_path, registry, {**files, "uv.lock": lock})
    assert ended.code == exit_codes.REFUSED, ended
    assert "left 1.1.0 requires Python >=3.10" in ended.json["sentence"]
    (blocker,) = (
        it for step in ended.json["declined"] for it in step["blockers"] if it["kind"] == "runtime"
    )
    assert blocker["file"] == "pyproject.toml"
    assert (tmp_path / "repo" / "uv.lock").read_text() == lock
