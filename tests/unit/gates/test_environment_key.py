"""What decides which environment a Python project gets: its manifests, uv, the interpreter, the machine."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.pypi import environment
from fallback_plugins.pypi.environment import Environment
from fallback_tier.execution import CommandResult
from tests.integration.gate_setup import applied, repository
from tests.unit.gates.test_flaky import context

FILES = {"requirements.txt": "left==1.0.0\n", "app.py": "import left\n"}


class Uv:
    """Says a version, and counts how often it was asked."""

    def __init__(self, version: str = "uv 1.0") -> None:
        self.version = version
        self.asked: list[Sequence[str]] = []

    def run(self, tool: str, args: Sequence[str], **_: Any) -> CommandResult:
        self.asked.append(args)
        return CommandResult(argv=(tool, *args), exit_code=0, output=self.version, duration_ms=1)


def key(place: Path, files: Mapping[str, str] = FILES, uv: Uv | None = None) -> str:
    number = len(list(place.iterdir())) if place.exists() else 0
    repo = repository(place / f"repo-{number}", files)
    found = replace(context(place), clients=uv or Uv(), application=applied(), repo=repo)
    return Environment(found, repo, ".").key


def test_equal_things_share_one(tmp_path: Path) -> None:
    assert key(tmp_path) == key(tmp_path)
    assert key(tmp_path, {**FILES, "app.py": "import left, os\n"}) == key(tmp_path)


def test_what_differs_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        key(tmp_path),
        key(tmp_path, {**FILES, "requirements.txt": "left==2.0.0\n"}),
        key(tmp_path, {**FILES, "test_app.py": "import pytest\n"}),
        key(tmp_path, uv=Uv("uv 2.0")),
    }
    monkeypatch.setattr(environment, "this_python", lambda: ("3.99", "linux-x86_64"))
    found.add(key(tmp_path))
    monkeypatch.setattr(environment, "this_python", lambda: ("3.99", "linux-arm64"))
    found.add(key(tmp_path))
    monkeypatch.setattr(environment, "_FORMAT", 0)
    found.add(key(tmp_path))
    assert len(found) == 7


def test_a_version_is_asked_for_once(tmp_path: Path) -> None:
    uv = Uv()
    for _ in range(3):
        key(tmp_path, uv=uv)
    assert uv.asked == [["--version"]]
