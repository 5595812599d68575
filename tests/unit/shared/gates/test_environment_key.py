"""What decides which environment a Python project gets: its manifests, uv, the interpreter, the machine."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.npm.gates import testing as npm_testing
from fallback_plugins.pypi.installing import building, environment
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.shared.installation import interpreters
from fallback_plugins.shared.store import MARK
from fallback_tier.execution import CommandResult
from fallback_tier.files.tree import FileTree
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.repository import write
from tests.integration.gate_setup import applied, repository
from tests.unit.shared.gates.test_flaky import context

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
    return Environment(found, repo, ".").wanted.asked


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
    count = len(found)
    assert count == 7
    monkeypatch.setattr(environment, "today", lambda: "2001-01-01")
    monkeypatch.setattr(building, "today", lambda: "2001-01-01")
    found.add(key(tmp_path))
    assert len(found) == count  # no day


def test_a_tree_is_read_anew_and_the_base_commit_once(tmp_path: Path) -> None:
    """What a run left in a tree, and what a patch made of it, is another environment; so is what the same
    tree became since."""
    repo = repository(tmp_path / "repo", FILES)
    found = replace(context(tmp_path), clients=Uv(), application=applied(), repo=repo)
    patched = repo.laid_out(FileTree(root=tmp_path / "patched"))
    write(patched.root, {**FILES, "requirements.txt": "left==2.0.0\n"})
    here = Environment(found, patched, ".")
    keys = [here.wanted.asked, here.base.wanted.asked]
    for requirement in ("left==2.0.0", "left==3.0.0", "left==1.0.0"):
        write(patched.root, {"requirements.txt": f"{requirement}\n"})
        again = here.in_tree(patched)
        keys.append(again.wanted.asked)
        assert again.base is here.base
    assert here.base.base is here.base
    assert keys[0] == keys[2]
    assert keys[1] == keys[4]
    assert len(set(keys)) == 3


def test_a_version_is_asked_for_once(tmp_path: Path) -> None:
    uv = Uv()
    for _ in range(3):
        key(tmp_path, uv=uv)
    assert uv.asked == [["--version"]]


class Made(Environment):
    """One that is there already."""

    def contents(self) -> str:
        self.place = self.context.cache / "made" / "content"
        self.place.mkdir(parents=True, exist_ok=True)
        (self.place.parent / MARK).write_text('{"content": "x"}')
        return super().contents()


@pytest.mark.parametrize("files", [FILES, {"package.json": "{}"}, {"proof.js": ""}])
def test_what_the_base_commit_did_is_of_one_python_and_one_node(
    tmp_path: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another interpreter is another run: a Python project's tests may run node, and the other way."""
    repo = repository(tmp_path / "repo", files)

    def runs_on(node: str) -> str:
        programs = tmp_path / f"programs-{node}"
        programs.mkdir(exist_ok=True)
        for name, version in (("npm", "1.0"), ("uv", "1.0"), ("node", node)):
            (programs / name).write_text(f"#!/bin/sh\necho {version}\n")
            (programs / name).chmod(0o755)
        clients = SubprocessClients({"PATH": str(programs)}, python=programs / "python")
        found = replace(context(tmp_path), clients=clients, application=applied(), repo=repo)
        return (
            Made(found, repo, ".").contents()
            if files is FILES
            else npm_testing.runs_on(found, repo)
        )

    runs = [runs_on("v18.0.0"), runs_on("v22.0.0"), runs_on("v22.0.0")]
    assert runs[0] != runs[1] == runs[2]
    monkeypatch.setattr(sys, "version", "3.99.0")
    assert runs_on("v22.0.0") != runs[2]


def test_without_node_there_is_a_key_too(tmp_path: Path) -> None:
    assert "node none" in interpreters(SubprocessClients({"PATH": str(tmp_path)}))
