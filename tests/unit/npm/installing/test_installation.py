"""What is installed for a project is looked at once by each object, and again by the next one."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.shared import store
from fallback_plugins.shared.installation import Installed, Level
from fallback_plugins.shared.resolution import InstallCommand, Resolution, ResolvedBy
from fallback_tier.execution import CommandResult
from fallback_tier.files.tree import FileTree
from fallback_tier.gate_ports import GateContext
from tests.fakes.repository import write
from tests.integration.gate_setup import applied, repository
from tests.unit.shared.gates.test_flaky import context


class Clients:
    """Say one version."""

    def run(self, tool: str, args: Sequence[str], **_: Any) -> CommandResult:
        return CommandResult(argv=(tool, *args), exit_code=0, output="v1", duration_ms=1)


class Making(Installation):
    """Installs one file."""

    def _make(self, entry: Path, _: Resolution | None) -> tuple[Installed, Resolution]:
        module = entry / "tree" / "node_modules" / "left" / "index.js"
        module.parent.mkdir(parents=True)
        module.write_text("1")
        command = InstallCommand(client="npm", files=("package.json",), label="npm install")
        resolution = Resolution(ecosystem="npm", command=command, by=ResolvedBy.CLIENT)
        return Installed(Level.EVERYTHING), resolution


def manifest(version: str) -> str:
    return json.dumps({"name": "app", "dependencies": {"left": version}})


@pytest.fixture
def found(tmp_path: Path) -> GateContext:
    repo = repository(tmp_path / "repo", {"package.json": manifest("1.0.0")})
    facts = {"clients": Clients(), "application": applied(), "repo": repo}
    made: GateContext = replace(context(tmp_path), **facts)
    return made


def test_the_files_are_looked_at_once_by_an_object(
    found: GateContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Making(found, found.repo, ".").install().level is Level.EVERYTHING
    looks: list[Path] = []
    digest = store._digest

    def looked(top: Path, of: Callable[[bytes, os.stat_result], object]) -> str:
        looks.append(top)
        return digest(top, of)

    monkeypatch.setattr(store, "_digest", looked)
    project = Making(found, found.repo, ".")
    assert (project.found(), project.install()) == (project.install(), project.found())
    assert project.tree.root == found.repo.root
    assert project.contents() == project.contents()
    assert len(looks) == 1


def test_what_was_changed_since_is_made_again_for_the_next_object(found: GateContext) -> None:
    project = Making(found, found.repo, ".")
    project.install()
    (folder,) = (found.cache / "installed").glob("npm-*/installed")
    module = folder / "tree" / "node_modules" / "left" / "index.js"
    module.write_text("changed")
    assert Making(found, found.repo, ".").install().level is Level.EVERYTHING
    assert module.read_text() == "1"


def test_another_tree_has_another_key(found: GateContext, tmp_path: Path) -> None:
    patched = found.repo.laid_out(FileTree(root=tmp_path / "patched"))
    keys = []
    for version in ("1.0.0", "2.0.0", "1.0.0"):
        write(patched.root, {"package.json": manifest(version)})
        keys.append(Installation(found, patched, ".").wanted.asked)
    assert keys[0] == keys[2] == Installation(found, found.repo, ".").wanted.asked != keys[1]
