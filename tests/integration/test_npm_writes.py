"""What real clients write while a project is installed: nothing outside of their scratch folder, whatever a
repository or a published package calls a dependency."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.choice import a_choice
from tests.integration.gate_setup import needs_sandbox
from tests.integration.test_hosts import World, cache, home, installed, manifest, npm
from tests.registry import Universe

__all__ = ["cache", "home", "npm"]  # fixtures

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.registry("npm"),
    pytest.mark.xdist_group("hosts"),
]

#: Out of every folder: what follows is a path on this machine.
UP = "../" * 40

#: A patch that makes a file there.
PATCH = (
    "diff --git a/{path} b/{path}\nnew file mode 100644\n"
    "--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
)

Files = dict[str, str]


def _pnpm_lock(form: str) -> str:
    """A lock of that format that has left alone."""
    head = f"lockfileVersion: {form}\n\n" if form == "5.4" else f"lockfileVersion: '{form}'\n\n"
    inner = "left:\n{0}  specifier: 1.0.0\n{0}  version: 1.0.0\n"
    if form == "9.0":
        root = "importers:\n\n  .:\n    dependencies:\n      " + inner.format(" " * 6)
        packages = "packages:\n\n  left@1.0.0:\n    resolution: {integrity: sha512-AA}\n"
        return f"{head}{root}\n{packages}\nsnapshots:\n\n  left@1.0.0: {{}}\n"
    if form == "6.0":
        root = "dependencies:\n  " + inner.format("  ")
        return (
            f"{head}{root}\npackages:\n\n  /left@1.0.0:\n    resolution: {{integrity: sha512-AA}}\n"
        )
    root = "specifiers:\n  left: 1.0.0\n\ndependencies:\n  left: 1.0.0\n"
    return f"{head}{root}\npackages:\n\n  /left/1.0.0:\n    resolution: {{integrity: sha512-AA}}\n"


LOCKS: dict[str, Files] = {
    "pnpm 9": {"pnpm-lock.yaml": _pnpm_lock("9.0")},
    "yarn": {"yarn.lock": '# yarn lockfile v1\n\n\nleft@1.0.0:\n  version "1.0.0"\n'},
    "pnpm 8": {"pnpm-lock.yaml": _pnpm_lock("6.0")},
    "pnpm 7": {"pnpm-lock.yaml": _pnpm_lock("5.4")},
    "npm": {},
}


def by_alias(name: str) -> Files:
    return {"package.json": manifest(dependencies={"left": "1.0.0", name: "npm:clean@1.0.0"})}


def by_package(name: str) -> Files:
    return {"package.json": manifest(dependencies={"left": "1.0.0", "naming": "1.0.0"})}


def by_extension(name: str) -> Files:
    added = {"left@1.0.0": {"dependencies": {name: "npm:clean@1.0.0"}}}
    facts = manifest(dependencies={"left": "1.0.0"}, pnpm={"packageExtensions": added})
    return {"package.json": facts}


def by_settings(name: str) -> Files:
    added = {"left@1.0.0": {"dependencies": {name: "npm:clean@1.0.0"}}}
    return {
        "package.json": manifest(dependencies={"left": "1.0.0"}),
        "pnpm-workspace.yaml": json.dumps({"packages": ["."], "packageExtensions": added}),
    }


def by_member(name: str) -> Files:
    return {
        "package.json": manifest(dependencies={"left": "1.0.0"}, workspaces=["a"]),
        "pnpm-workspace.yaml": "packages:\n  - a\n",
        "a/package.json": manifest(name=name, version="1.0.0", dependencies={"left": "1.0.0"}),
    }


def by_bin(name: str) -> Files:
    """A member's program, which a client links by its name."""
    return {
        "package.json": manifest(dependencies={"left": "1.0.0", "a": "1.0.0"}, workspaces=["a"]),
        "pnpm-workspace.yaml": "packages:\n  - a\n",
        "a/package.json": manifest(name="a", version="1.0.0", bin={name: "package.json"}),
    }


def by_patch(name: str) -> Files:
    patches = {"patchedDependencies": {"left@1.0.0": "left.patch"}}
    return {
        "package.json": manifest(dependencies={"left": "1.0.0"}, pnpm=patches),
        "left.patch": PATCH.format(path=name),
    }


WAYS: dict[str, Callable[[str], Files]] = {
    "an alias": by_alias,
    "a package": by_package,
    "an extension": by_extension,
    "an extension in the settings": by_settings,
    "a member": by_member,
    "a program": by_bin,
    "a patch": by_patch,
}


CASES = {
    f"{way} by {client}, {start or 'at once'}": (way, client, start)
    for client in LOCKS
    for way in WAYS
    for start in ("a/../", "")
}


@pytest.mark.parametrize("case", a_choice(CASES, step=7))
def test_no_name_leads_out_of_the_scratch_folder(npm: World, tmp_path: Path, case: str) -> None:
    way, client, start = CASES[case]
    needs_sandbox()
    outside = tmp_path / "outside"
    name = start + UP + str(outside).removeprefix("/")
    universe: Universe = npm.registry.universe
    universe.npm("naming", "1.0.0", {name: "npm:clean@1.0.0"})
    installed(npm, {**WAYS[way](name), **LOCKS[client]})
    assert not outside.exists()
