"""What blocks is named: package, constraint and file, by what the real clients print (ADR-0105)."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.yarn import YARN
from fallback_tier.cli import exit_codes
from tests.e2e.command import osv, repository, run
from tests.fakes.serving import serving
from tests.registry import Universe, serve
from tests.unit.shared.real_clients import provisioned

Blocks = list[dict[str, Any]]

#: Next steps that a known cause never leads to.
GENERIC = ("by hand", "registry is reachable", "let a model", "<package>")


def universe() -> Universe:
    """left 1 is affected; what holds it back has no later release."""
    made = Universe()
    for version in ("1.0.0", "2.0.0"):
        made.npm("left", version).pypi("left", version)
    made.npm("blob", "1.0.0").npm("carrier", "2.3.0", {"blob": "{{npm}}blob/-/blob-1.0.0.tgz"})
    made.npm("plugin", "1.0.0", peerDependencies={"left": "^1.0.0"})
    made.npm("base", "1.0.0").npm("base", "2.0.0").npm(
        "old", "1.0.0", peerDependencies={"base": "^1.0.0"}
    )
    made.npm("parent", "1.0.0", {"left": "^1.0.0"})
    made.npm("next", "1.0.0", {"left": "^1.0.0"}).npm(
        "next", "1.1.0", {"left": "2", "carrier": "2"}
    )
    made.npm("gone", "1.0.0", {"left": "^1.0.0"}).npm("gone", "1.1.0", {"left": "2", "ghost": "^1"})
    made.npm("high", "1.0.0", {"left": "^1.0.0"}).npm("high", "1.1.0", {"left": "2", "blob": "^9"})
    made.pypi("plugin", "1.2.0", ["left<2"])
    made.pypi("new", "1.0.0", ["left<2"]).pypi(
        "new", "1.1.0", ["left>=2"], requires_python=">=3.99"
    )
    made.pypi("helped", "1.0.0").pypi("helped", "2.0.0", ["helper>=2"])
    made.pypi("aged", "1.0.0").pypi("aged", "2.0.0", requires_python=">=3.11")
    return made.pypi("helper", "1.0.0").pypi("helper", "2.0.0")


def manifest(**dependencies: str) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", "dependencies": dependencies}, indent=2)


def lock_of(registry_url: str, **packages: tuple[str, dict[str, str]]) -> str:
    """A package-lock.json: name → version and dependencies; the root requires all of them."""
    entries: dict[str, Any] = {
        f"node_modules/{name}": {
            "version": version,
            "resolved": f"{registry_url}npm/{name}/-/{name}-{version}.tgz",
            "dependencies": asks,
        }
        for name, (version, asks) in packages.items()
    }
    return json.dumps(
        {"name": "app", "version": "1.0.0", "lockfileVersion": 3, "packages": entries}
    )


class World:
    """A registry, and the commands over a repository."""

    def __init__(self, place: Path, environ: Mapping[str, str]) -> None:
        self.place, self.environ = place, environ

    def plan(
        self, files: Mapping[str, str], ecosystem: str, package: str = "left", **more: str
    ) -> tuple[int, dict[str, Any]]:
        """The plan's exit code and document."""
        record = self.place / "advisory.json"
        record.write_text(osv(package, ecosystem=ecosystem, fixed="2.0.0", id="LEFT-1"))
        repo = repository(self.place / "repo", files)
        ended = run("plan", repo, "--advisory", record, "--json", env={**self.environ, **more})
        assert not any(one in ended.out + ended.err for one in GENERIC), ended
        return ended.code, ended.json


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with serve(universe()) as registry:
        environ = {**registry.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        yield World(tmp_path, {**environ, "UV_NO_CONFIG": ""})


def blockers(document: Mapping[str, Any], step: str | None) -> Blocks:
    """Of one step, of the single thing that is left."""
    (left,) = document["left"]
    return [it for one in left["declined"] if one["step"] == step for it in one["blockers"]]


def named(found: Blocks) -> set[tuple[str, str, str, str]]:
    return {(it["kind"], it["package"], it["constraint"], it["file"]) for it in found}


# --- a conflict: the parent, its constraint, and the file that declares it ---------------------------


def test_pinned_test_tool_and_its_plugin(world: World) -> None:
    code, document = world.plan({"dev.txt": "left==1.0.0\nplugin==1.2.0\n"}, "PyPI")
    assert code == exit_codes.REFUSED
    assert document["left"][0]["reason"] == "blocked_by_constraint"
    found = blockers(document, "direct_bump")
    assert named(found) == {("conflict", "plugin 1.2.0", "left <2", "dev.txt")}


def test_own_pin_of_what_the_fix_needs(world: World) -> None:
    """Not the fixed release is to blame, but the project's own pin."""
    files = {"requirements.txt": "-r base.txt\nhelped==1.0.0\n", "base.txt": "helper==1.0.0\n"}
    files["constraints.txt"] = ""
    code, document = world.plan(files, "PyPI", "helped")
    assert code in {exit_codes.OK, exit_codes.REFUSED}
    if code == exit_codes.REFUSED:
        assert "base.txt" in {it["file"] for it in blockers(document, "direct_bump")}
    else:  # both pins may move together
        changed = {it["file"] for it in document["fixes"][0]["declarations"]}
        assert changed == {"requirements.txt", "base.txt"}


def test_supported_pythons_that_the_fix_has_left(world: World) -> None:
    """Both are named: what the release requires, and what the project supports."""
    text = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
    text += 'dependencies = [\n  "aged==1.0.0",\n]\n'
    code, document = world.plan({"pyproject.toml": text}, "PyPI", "aged")
    assert code == exit_codes.REFUSED
    (blocker,) = blockers(document, "direct_bump")
    assert (blocker["kind"], blocker["constraint"]) == ("runtime", "Python >=3.11")
    assert blocker["required_by"] == "the resolution is for Python >=3.9"
    assert "Python >=3.11, and the resolution is for Python >=3.9 (pyproject.toml)" in str(
        document["left"]
    )


def test_npm_peer_of_a_plugin(world: World) -> None:
    files = {"package.json": manifest(left="1.0.0", plugin="1.0.0")}
    code, document = world.plan(files, "npm")
    assert code == exit_codes.OK  # nothing is locked: what is declared is raised, as it always was
    (declared,) = document["fixes"][0]["declarations"]
    assert (declared["package"], declared["file"], declared["line"]) == ("left", "package.json", 5)
    assert (declared["before"], declared["after"]) == ('"left": "1.0.0"', '"left": "2.0.0"')


@pytest.mark.parametrize(
    ("old", "flag", "is_fixed"),
    [("^1.0.0", "", True), ("", "", False), ("^1.0.0", '"peer": true, ', False)],
    ids=["peers set aside", "a new conflict", "a package that is there as a peer only"],
)
def test_npm_peers_that_exclude_each_other_in_the_lock(
    world: World, tmp_path: Path, old: str, flag: str, is_fixed: bool
) -> None:
    """As npm 6 installed them: what is refreshed beside them is not to blame."""
    place = tmp_path / "locking"
    place.mkdir()
    asked = {"left": ">=1", "base": "^2.0.0"}
    locked = manifest(**{**asked, "left": "1.0.0"}, **({"old": old} if old else {}))
    (place / "package.json").write_text(locked)
    words = ["npm", "install", "--package-lock-only", "--legacy-peer-deps", "--no-audit"]
    subprocess.run(words, cwd=place, env={**os.environ, **world.environ}, check=True)
    lock = (place / "package-lock.json").read_text().replace('"left": "1.0.0"', '"left": ">=1"')
    lock = lock.replace('"version": "2.0.0"', f'{flag}"version": "2.0.0"')
    files = {"package.json": manifest(**asked, old="^1.0.0"), "package-lock.json": lock}
    code, document = world.plan(files, "npm")
    if is_fixed:
        assert code == exit_codes.OK, document["left"]
        (move,) = document["fixes"][0]["moves"]
        assert (move["package"], move["after"]) == ("left", "2.0.0")
    else:
        assert code in {exit_codes.REFUSED, exit_codes.UNKNOWN}, document


@pytest.mark.registry("npm")
@pytest.mark.parametrize("client", ["yarn", "pnpm"])
def test_parent_of_yarn_and_pnpm(world: World, client: str) -> None:
    cache = world.place / "cache" / "fallback-tier" / "clients"
    provisioned(cache, YARN if client == "yarn" else PNPM["9"])
    lock = {
        "yarn.lock": '# yarn lockfile v1\n\n\nleft@^1.0.0:\n  version "1.0.0"\n\nparent@1.0.0:\n'
        '  version "1.0.0"\n  dependencies:\n    left "^1.0.0"\n'
    }
    if client == "pnpm":
        lock = {
            "pnpm-lock.yaml": "lockfileVersion: '9.0'\n\nimporters:\n\n  .:\n    dependencies:\n"
            "      parent:\n        specifier: 1.0.0\n        version: 1.0.0\n\npackages:\n\n"
            "  left@1.0.0:\n    resolution: {integrity: sha512-x}\n\n"
            "  parent@1.0.0:\n    resolution: {integrity: sha512-x}\n\nsnapshots:\n\n"
            "  left@1.0.0: {}\n\n  parent@1.0.0:\n    dependencies:\n      left: 1.0.0\n"
        }
    code, document = world.plan({"package.json": manifest(parent="1.0.0"), **lock}, "npm")
    assert code == exit_codes.REFUSED
    conflict = ("conflict", "parent 1.0.0", "left ^1.0.0", "package.json")
    assert conflict in named(blockers(document, "override"))


# --- what a next release of the parent would bring in ------------------------------------------------


@pytest.mark.parametrize(
    ("parent", "kind", "package", "by"),
    [
        ("next", "address", "blob", "carrier 2.3.0"),
        ("gone", "registry", "ghost", "gone 1.1.0"),
        ("high", "not_published", "blob", "high 1.1.0"),
    ],
)
def test_parent_bump_names_what_npm_blames(
    world: World, parent: str, kind: str, package: str, by: str
) -> None:
    """npm itself names no parent then."""
    url = world.environ["npm_config_registry"].removesuffix("npm/")
    lock = lock_of(url, left=("1.0.0", {}), **{parent: ("1.0.0", {"left": "^1.0.0"})})
    root = {"name": "app", "version": "1.0.0", "dependencies": {parent: "1.0.0"}}
    document = json.loads(lock)
    document["packages"] = {"": root, **document["packages"]}
    files = {"package.json": json.dumps(root), "package-lock.json": json.dumps(document)}
    code, planned = world.plan(files, "npm")
    assert code == exit_codes.REFUSED
    (blocker,) = blockers(planned, "parent_bump")
    assert (blocker["kind"], blocker["package"]) == (kind, package)
    assert blocker["required_by"] == by
    assert blocker["file"] in {"package.json", "package-lock.json"}
    if kind == "registry":
        assert (blocker["status"], blocker["setting"]) == (404, "registry")
        assert blocker["host"] == url.split("/")[2]


# --- a registry --------------------------------------------------------------------------------------


class _Answering(BaseHTTPRequestHandler):
    status = 500

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        """Say nothing."""


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server that answers everything with one status."""
    handler = type("_Bound", (_Answering,), {"status": status})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with serving(server):
        yield f"127.0.0.1:{server.server_port}"


@pytest.mark.parametrize("status", [401, 403, 503])
@pytest.mark.parametrize("ecosystem", ["npm", "PyPI"])
def test_registry_that_refuses_is_named(world: World, ecosystem: str, status: int) -> None:
    files = {"package.json": manifest(parent="^1.0.0")}
    if ecosystem == "PyPI":
        files = {"requirements.txt": "plugin\n"}
    with answering(status) as host:
        url = f"http://{host}/"
        more = {"npm_config_registry": url, "NPM_CONFIG_REGISTRY": url, "UV_DEFAULT_INDEX": url}
        code, document = world.plan(files, ecosystem, **more)
    assert code == exit_codes.UNKNOWN
    (blocker,) = blockers(document, None)
    assert (blocker["kind"], blocker["status"]) == ("registry", status)
    assert blocker["host"] == host
    assert blocker["setting"] == {"npm": "registry", "PyPI": "index"}[ecosystem]


@pytest.mark.parametrize("ecosystem", ["npm", "PyPI"])
def test_registry_out_of_reach_is_named(world: World, ecosystem: str) -> None:
    files = {"package.json": manifest(parent="^1.0.0")}
    if ecosystem == "PyPI":
        files = {"requirements.txt": "plugin\n"}
    url = "http://127.0.0.1:9/"
    more = {"npm_config_registry": url, "NPM_CONFIG_REGISTRY": url, "UV_DEFAULT_INDEX": url}
    code, document = world.plan(files, ecosystem, **more)
    assert code == exit_codes.UNKNOWN
    (blocker,) = blockers(document, None)
    assert (blocker["kind"], blocker["host"], blocker["status"]) == (
        "registry",
        "127.0.0.1:9",
        None,
    )


# --- one fix: its summary ----------------------------------------------------------------------------


def test_refused_fix_lists_every_step_once(world: World) -> None:
    record = world.place / "advisory.json"
    record.write_text(osv("left", ecosystem="PyPI", fixed="2.0.0", id="LEFT-1"))
    repo = repository(world.place / "repo", {"dev.txt": "left==1.0.0\nplugin==1.2.0\n"})
    own: list[str | Path] = [
        "--state-dir",
        world.place / "state",
        "--keys",
        world.place / "keys",
        "--no-sandbox",
    ]
    ended = run("fix", repo, "--advisory", record, "--json", *own, env=world.environ)
    assert ended.code == exit_codes.REFUSED
    assert [it["step"] for it in ended.json["declined"]] == [
        "direct_bump",
        "parent_bump",
        "override",
    ]
    (blocker,) = ended.json["declined"][0]["blockers"]
    assert (blocker["package"], blocker["file"]) == ("plugin 1.2.0", "dev.txt")
    again = run("fix", repo, "--advisory", record, *own, env=world.environ)
    lines = [line for line in again.out.splitlines() if "plugin 1.2.0" in line]
    assert len(lines) == 1, again
    assert "no direct bump" in again.out
    assert not any(one in again.out for one in GENERIC), again
