"""A command in a tree with its own dependencies: real npm, uv and bubblewrap, a made-up registry."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_plugins.npm.plugin import NpmEcosystem
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_tier.errors import ToolFailedError
from fallback_tier.sandbox.clients import SubprocessClients
from tests.integration.gate_setup import Case, advisory, needs_sandbox, patched
from tests.kinds import OfKind
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

SHOUT = "#!/usr/bin/env node\nconsole.log(`shouts with ${require('left')}`);\n"


def left(version: str) -> dict[str, str]:
    return {"index.js": f"module.exports = '{version}';\n"}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = (
        Universe()
        .npm("left", "1.0.0", files=left("1.0.0"))
        .npm("left", "1.0.1", files=left("1.0.1"))
        .npm(
            "shout",
            "1.0.0",
            {"left": "*"},
            files={"shout.js": SHOUT},
            manifest={"bin": {"shout": "shout.js"}},
        )
        .pypi("left", "1.0.0", files={"left/version.py": "V = '1.0.0'\n"})
        .pypi("left", "1.0.1", files={"left/version.py": "V = '1.0.1'\n"})
        .pypi("source", "1.0", sdist_only=True)
    )
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def package_json(version: str, **facts: object) -> str:
    wanted = {"left": version, "shout": "1.0.0"}
    return json.dumps({"name": "app", "version": "1.0.0", "dependencies": wanted, **facts})


def at(registry: Registry, case: Case) -> Case:
    return case.with_(clients=SubprocessClients(os.environ | registry.environ))


def npm(case: Case, *argv: str, base: bool = False) -> tuple[int | None, str] | None:
    return ran(NpmEcosystem(case.context.clients), case, argv, base=base)


def pypi(case: Case, *argv: str, base: bool = False) -> tuple[int | None, str] | None:
    return ran(PyPIEcosystem(case.context.clients), case, argv, base=base)


def ran(
    plugin: NpmEcosystem | PyPIEcosystem, case: Case, argv: tuple[str, ...], *, base: bool
) -> tuple[int | None, str] | None:
    context = case.context
    tree = context.repo if base else context.repo.laid_out(context.worktree.tree)
    found = plugin.run(context, tree, argv)
    if (result := found.result) is None:
        assert found.installed, "why not is told"
        return None
    assert result.argv == argv
    assert str(tree.root) not in result.output
    return result.exit_code, result.output


REQUIRE = ("node", "-e", "console.log(require('left'))")
IMPORT = ("python", "-c", "import left.version, app; print(left.version.V, app.__file__)")


def test_npm_installs_what_each_tree_declares(registry: Registry, tmp_path: Path) -> None:
    files = {"package.json": package_json("1.0.0")}
    changes: dict[str, str | None] = {"package.json": package_json("1.0.1")}
    with patched(tmp_path, files, changes, about=advisory(), manifests=tuple(files)) as found:
        case = at(registry, found)
        assert npm(case, *REQUIRE, base=True) == (0, "1.0.0\n")
        assert npm(case, *REQUIRE) == (0, "1.0.1\n")
        assert npm(case, "shout") == (0, "shouts with 1.0.1\n")


def test_npm_installs_workspaces_with_their_root(registry: Registry, tmp_path: Path) -> None:
    member = json.dumps({"name": "b", "version": "1.0.0", "dependencies": {"left": "1.0.1"}})
    files = {
        "package.json": json.dumps({"name": "app", "workspaces": ["packages/*"]}),
        "packages/b/package.json": member,
        "packages/b/index.js": "module.exports = require('left');\n",
    }
    with patched(tmp_path, files, {"x.js": ""}, about=advisory(), manifests=tuple(files)) as found:
        reported = npm(at(registry, found), "node", "-e", "console.log(require('b'))")
    assert reported == (0, "1.0.1\n")


def test_npm_runs_without_a_manifest(tmp_path: Path) -> None:
    with patched(tmp_path, {"a.js": "1;\n"}, {"a.js": "2;\n"}, about=advisory()) as found:
        assert npm(found, "cat", "a.js") == (0, "2;\n")


@pytest.mark.parametrize(
    "facts", [{"dependencies": {"absent": "1"}}, {"dependencies": {"left": "9"}}]
)
def test_what_npm_cannot_install_is_told_beside_the_result(
    registry: Registry, tmp_path: Path, facts: dict[str, object]
) -> None:
    files = {"package.json": package_json("1", **facts), "a.js": ""}
    manifests = ("package.json",)
    with patched(tmp_path, files, {"a.js": "1;"}, about=advisory(), manifests=manifests) as found:
        case = at(registry, found)
        ran = NpmEcosystem(case.context.clients).run(case.context, case.context.repo, ("true",))
    assert ran.result is not None
    assert ran.result.ok
    assert ran.installed.startswith("its metadata alone; not: ")


def test_pypi_installs_what_each_tree_declares(registry: Registry, tmp_path: Path) -> None:
    files = {"requirements.txt": "left==1.0.0\n", "src/app.py": ""}
    changes: dict[str, str | None] = {"requirements.txt": "left==1.0.1\n"}
    manifests = ("requirements.txt",)
    with patched(tmp_path, files, changes, about=advisory(), manifests=manifests) as found:
        case = at(registry, found)
        assert pypi(case, *IMPORT, base=True) == (0, "1.0.0 src/app.py\n")
        assert pypi(case, *IMPORT) == (0, "1.0.1 src/app.py\n")
        code, output = pypi(case, "sh", "-c", 'command -v python; echo "$VIRTUAL_ENV"') or (1, "")
    program, environment = output.split()
    assert code == 0
    assert program == f"{environment}/bin/python"


def test_pypi_runs_without_a_manifest(registry: Registry, tmp_path: Path) -> None:
    with patched(tmp_path, {"app.py": "A = 1\n"}, {"app.py": "A = 2\n"}, about=advisory()) as found:
        reported = pypi(at(registry, found), "python", "-c", "import app; print(app.A)")
    assert reported == (0, "2\n")


@pytest.mark.parametrize("missing", ["absent", "source"])
def test_what_uv_cannot_install_is_told_beside_the_result(
    registry: Registry, tmp_path: Path, missing: str
) -> None:
    files = {"requirements.txt": f"{missing}\nleft==1.0.0\n", "src/app.py": ""}
    with patched(tmp_path, files, {"x": "1"}, about=advisory()) as found:
        case = at(registry, found)
        assert pypi(case, *IMPORT) == (0, "1.0.0 src/app.py\n")
        plugin = PyPIEcosystem(case.context.clients)
        message = plugin.run(case.context, case.context.repo, IMPORT).installed
    assert message.startswith("in part; not: ")
    assert missing in message
    assert "left" not in message


@pytest.mark.parametrize("which", [NpmEcosystem, PyPIEcosystem])
def test_an_unreachable_registry_says_nothing_about_the_tree(
    tmp_path: Path, which: type[NpmEcosystem | PyPIEcosystem]
) -> None:
    files = {"package.json": package_json("1.0.0"), "requirements.txt": "left\n"}
    with serve(Universe()) as closed:
        gone = dict(closed.environ)
    clients = SubprocessClients(os.environ | gone)
    with patched(tmp_path, files, {"a": "1"}, about=advisory(), manifests=tuple(files)) as found:
        case = found.with_(clients=clients)
        with pytest.raises(ToolFailedError, check=OfKind("registry_unreachable")):
            ran(which(clients), case, ("true",), base=False)


@pytest.mark.parametrize("which", [NpmEcosystem, PyPIEcosystem])
def test_the_command_has_a_clock_of_its_own(
    tmp_path: Path, which: type[NpmEcosystem | PyPIEcosystem]
) -> None:
    with patched(tmp_path, {"a": "1"}, {"a": "2"}, about=advisory()) as found:
        plugin, context = which(found.context.clients), found.context
        tree = context.repo.laid_out(context.worktree.tree)
        slept = plugin.run(context, tree, ("sleep", "60"), 1.0)
        lost = plugin.run(context, tree, ("no-such-program",))
    assert slept.result is not None
    assert slept.result.timed_out
    assert lost.result is not None
    assert lost.result.exit_code == 127
