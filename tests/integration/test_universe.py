"""The registry on loopback, asked by the real npm and uv."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_tier.execution import CommandResult
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Registry, Universe, serve

_SCHEMA = """\
system: npm
schema: |
  top
    1.0.0
      @scope/leaf@^1.0.0
      Dev|tool@latest
      Opt|extra@<3
  @scope/leaf
    1.0.0
    1.1.0
    2.0.0-rc.1
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = (
        Universe()
        .npm("top", "1.0.0", {"@scope/leaf": "^1.0.0"})
        .npm("@scope/leaf", "1.0.0")
        .npm("@scope/leaf", "1.1.0", deprecated="use 2")
        .npm("@scope/leaf", "2.0.0-rc.1")
        .pypi("top", "1.0", ["leaf>=1,<2", "other ; sys_platform == 'nowhere'"])
        .pypi("leaf", "1.0")
        .pypi("leaf", "1.1", extras={"fast": ["other"]})
        .pypi("leaf", "1.2", yanked="broken")
        .pypi("leaf", "1.3", requires_python=">=4")
        .pypi("leaf", "2.0")
        .pypi("other", "1.0")
        .pypi("source", "1.0", ["leaf"], sdist_only=True)
    )
    with serve(universe) as registry:
        yield registry


def _run(registry: Registry, tool: str, *args: str, cwd: Path) -> CommandResult:
    clients = SubprocessClients(os.environ | registry.environ)
    return clients.run(tool, args, cwd=cwd, timeout_s=60)


def _written(path: Path, document: object) -> None:
    path.write_text(json.dumps(document))


def test_npm_resolves_installs_and_views(registry: Registry, tmp_path: Path) -> None:
    _written(
        tmp_path / "package.json", {"name": "p", "version": "1.0.0", "dependencies": {"top": "^1"}}
    )

    made = _run(registry, "npm", "install", "--package-lock-only", cwd=tmp_path)
    installed = _run(registry, "npm", "ci", "--ignore-scripts", cwd=tmp_path)
    viewed = _run(registry, "npm", "view", "@scope/leaf", "--json", cwd=tmp_path)

    assert made.ok, made.output
    packages = json.loads((tmp_path / "package-lock.json").read_text())["packages"]
    leaf = packages["node_modules/@scope/leaf"]
    release = registry.universe.npm_packages["@scope/leaf"][leaf["version"]]
    assert leaf["integrity"] == release.integrity
    assert installed.ok, installed.output
    assert (tmp_path / "node_modules/@scope/leaf/package.json").is_file()
    reported = json.loads(viewed.output)
    assert reported["dist-tags"] == {"latest": "1.1.0"}
    assert reported["time"]["1.1.0"] > reported["time"]["1.0.0"]
    assert reported["deprecated"] == "use 2"
    assert "/npm/@scope%2fleaf" in registry.paths()


def test_npm_is_told_what_is_missing(registry: Registry, tmp_path: Path) -> None:
    done = _run(registry, "npm", "view", "nowhere", "version", cwd=tmp_path)

    assert not done.ok
    assert "E404" in done.output


def test_npm_refuses_a_tarball_with_another_hash(registry: Registry, tmp_path: Path) -> None:
    _written(
        tmp_path / "package.json", {"name": "p", "version": "1.0.0", "dependencies": {"top": "^1"}}
    )
    _run(registry, "npm", "install", "--package-lock-only", cwd=tmp_path)
    lock = tmp_path / "package-lock.json"
    other = registry.universe.npm_packages["@scope/leaf"]["2.0.0-rc.1"].integrity
    document = json.loads(lock.read_text())
    document["packages"]["node_modules/top"]["integrity"] = other
    _written(lock, document)

    done = _run(registry, "npm", "ci", "--ignore-scripts", cwd=tmp_path)

    assert not done.ok
    assert "EINTEGRITY" in done.output


def test_uv_compiles_with_hashes_and_installs(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("top\n")

    compiled = _run(
        registry,
        "uv",
        *("pip", "compile", "--generate-hashes", "--quiet", "in.txt", "-o", "out.txt"),
        cwd=tmp_path,
    )
    installed = _run(
        registry,
        "uv",
        *("pip", "install", "--require-hashes", "-r", "out.txt", "--target", "here"),
        cwd=tmp_path,
    )

    assert compiled.ok, compiled.output
    locked = (tmp_path / "out.txt").read_text()
    assert "leaf==1.1 \\" in locked  # 1.2 is yanked, 1.3 needs a Python that there is not
    assert registry.universe.pypi_packages["leaf"]["leaf-1.1-py3-none-any.whl"].sha256 in locked
    assert installed.ok, installed.output
    assert (tmp_path / "here/leaf/__init__.py").is_file()


def test_uv_locks_a_project(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["top", "leaf[fast]"]\n'
    )

    done = _run(registry, "uv", "lock", cwd=tmp_path)

    assert done.ok, done.output
    lock = (tmp_path / "uv.lock").read_text()
    assert 'name = "leaf"\nversion = "1.1"' in lock
    assert 'name = "other"' in lock
    assert f'registry = "{registry.pypi_url}"' in lock
    assert 'upload-time = "2020-01-02T00:00:00' in lock


def test_an_sdist_needs_a_build(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("source\n")

    done = _run(registry, "uv", "pip", "compile", "--no-build", "in.txt", cwd=tmp_path)

    assert not done.ok
    assert "source" in done.output


def test_a_schema_is_read() -> None:
    universe = Universe.from_schema(_SCHEMA)

    assert list(universe.npm_packages["@scope/leaf"]) == ["1.0.0", "1.1.0", "2.0.0-rc.1"]
    assert universe.npm_packages["top"]["1.0.0"].manifest == {
        "name": "top",
        "version": "1.0.0",
        "dependencies": {"@scope/leaf": "^1.0.0"},
        "devDependencies": {"tool": "latest"},
        "optionalDependencies": {"extra": "<3"},
    }
    with pytest.raises(ValueError, match="Odd"):
        Universe.from_schema(_SCHEMA.replace("Dev|", "Odd|"))


def test_the_same_universe_has_the_same_bytes() -> None:
    one, two = (Universe().npm("a", "1.0.0").pypi("a", "1") for _ in range(2))

    assert one.npm_packages == two.npm_packages
    assert one.pypi_packages == two.pypi_packages
