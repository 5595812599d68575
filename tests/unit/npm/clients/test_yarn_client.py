"""yarn as a client without a yarn: trees, scratch projects, resolutions, what is refused."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.provision import ClientStore
from fallback_plugins.npm.clients.yarn import YARN, YarnClient, yarn_project
from fallback_plugins.npm.locks.yarn_lock import parse_yarn_lock
from fallback_tier.errors import RecipeError, ToolMissingError
from fallback_tier.execution import CommandResult
from tests.kinds import OfKind
from tests.unit.npm.locks.test_yarn_lock import block, lock

FOLDER = '"f@file:./lib":\n  version "3.0.0"\n  dependencies:\n    a "^1.0.0"\n'
LINK = '"l@link:./other":\n  version "0.0.0"\n  uid ""\n'
LOCK = lock(block("a@^1.0.0", "1.0.0", asks='b "^2.0.0"'), block("b@^2.0.0", "2.0.0"), FOLDER, LINK)


@pytest.fixture(autouse=True)
def _pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that stands for yarn here is what was published."""
    line = hashlib.sha256(b"yarn").hexdigest()
    code = hashlib.sha256(f"{YARN.script} {line}\n".encode()).hexdigest()
    monkeypatch.setattr("fallback_plugins.npm.clients.yarn.YARN", replace(YARN, code=code))


@dataclass
class Clients:
    """Plays npm and node: writes what it is told to, and remembers what it was asked."""

    lock: str | None = None
    output: str = ""
    exit_code: int = 0
    calls: list[tuple[str, tuple[str, ...], Mapping[str, str]]] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    hooks: str = ""

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        self.calls.append((tool, tuple(args), dict(env or {})))
        if tool == "npm" and not self.exit_code:
            place = cwd / "node_modules" / YARN.name / YARN.script
            place.parent.mkdir(parents=True)
            place.write_text("yarn")  # its digest is that of nothing published: see _pinned
        if tool == "node":
            paths = (path for path in cwd.rglob("*") if path.is_file())
            self.seen = {str(path.relative_to(cwd)): path.read_text() for path in paths}
            self.hooks = Path(args[1]).read_text()
            if self.lock is not None:
                (cwd / "yarn.lock").write_text(self.lock)
        return CommandResult(
            argv=(tool, *args), exit_code=self.exit_code, output=self.output, duration_ms=0
        )


def files(root: Mapping[str, Any], text: str = LOCK, **members: Mapping[str, Any]) -> Files:
    manifests = {"package.json": json.dumps(root)}
    manifests |= {f"{name}/package.json": json.dumps(one) for name, one in members.items()}
    return Files(".", manifests, "yarn.lock", text)


def client(clients: Clients, tmp_path: Path) -> YarnClient:
    return YarnClient(clients, ClientStore(clients, tmp_path / "clients"))


ROOT = {"name": "r", "version": "1.0.0", "dependencies": {"a": "^1.0.0", "f": "file:./lib"}}


def test_the_tree_says_who_asks_for_what(tmp_path: Path) -> None:
    member = {"name": "m", "devDependencies": {"b": "^2.0.0"}, "peerDependencies": {"a": "*"}}
    tree = client(Clients(), tmp_path).tree(files(ROOT, m=member))
    dependency_paths = tree.paths_to("b@2.0.0")
    assert [[node.label for node in dependency_path] for dependency_path in dependency_paths] == [
        ["m", "b 2.0.0"],
        ["r 1.0.0", "a 1.0.0", "b 2.0.0"],
        ["r 1.0.0", "f 3.0.0", "a 1.0.0", "b 2.0.0"],
    ]
    assert {root.key for root in tree.roots} == {"package.json", "m/package.json"}
    peer = next(ask for ask in tree.roots[1].asks if ask.peer)
    assert (peer.name, peer.to) == ("a", None)


def test_a_range_that_a_resolution_answers_is_answered_in_the_tree(tmp_path: Path) -> None:
    forced = LOCK.replace("b@^2.0.0:", "b@2.0.0:")
    root = {**ROOT, "resolutions": {"**/a/**/b": "2.0.0"}}
    tree = client(Clients(), tmp_path).tree(files(root, forced))
    assert [dependent.name for dependent, _ in tree.dependents("b@2.0.0")] == ["a"]
    without = client(Clients(), tmp_path).tree(files(ROOT, forced))
    assert without.dependents("b@2.0.0") == ()


def test_folders_that_the_lock_knows_stand_in_the_scratch_project() -> None:
    read = parse_yarn_lock(LOCK)
    texts = yarn_project(files(ROOT), read)[0]
    made = json.loads(texts["lib/package.json"])
    assert made["dependencies"] == {"a": "^1.0.0"}
    assert "other/package.json" not in texts  # yarn found no manifest there either
    outside = parse_yarn_lock(LOCK.replace("file:./lib", "file:../lib"))
    assert set(yarn_project(files(ROOT), outside)[0]) == {"package.json"}


def test_unseen_members_are_stood_in_for_without_touching_the_known_ones() -> None:
    text = lock(block("a@^1.0.0", "1.0.0"), block("u@^1", "1.0.0"), block("u@^2", "2.0.0"))
    root = {"name": "r", "workspaces": {"packages": ["m"]}, "dependencies": {"a": "^1.0.0"}}
    texts = yarn_project(files(root, text, m={"name": "m"}), parse_yarn_lock(text))[0]
    asks = [json.loads(texts[f".members/{n}/package.json"])["dependencies"] for n in (0, 1)]
    assert asks == [{"u": "^1"}, {"u": "^2"}]
    assert json.loads(texts["package.json"])["workspaces"] == ["m", ".members/*"]
    assert texts["m/package.json"] == '{"name": "m"}'


def test_a_member_under_its_range_stays_although_yarn_cannot_look_it_up(tmp_path: Path) -> None:
    member = 'm@^19.0.0:\n  version "0.0.0"\n  uid ""\n'
    text = lock(block("a@^1.0.0", "1.0.0"), member)
    clients = Clients(lock=lock(block("a@^1.0.0", "1.0.0")))
    root = {"name": "r", "dependencies": {"a": "^1.0.0"}}
    assert client(clients, tmp_path).resolve(files(root, text)).lock_text == text
    assert "m@" not in "".join(text for path, text in clients.seen.items() if "members" in path)


def test_nothing_of_anybody_runs_and_git_clones_nothing(tmp_path: Path) -> None:
    clients = Clients(lock=LOCK)
    client(clients, tmp_path).resolve(files(ROOT))
    (_, fetch, _), (tool, arguments, env) = clients.calls
    assert "--ignore-scripts" in fetch
    assert tool == "node"
    assert arguments[0] == "--require"
    assert "starts no program" in clients.hooks
    assert {"install", "--ignore-scripts"} <= set(arguments)
    assert env["YARN_IGNORE_PATH"] == "1"
    assert env["GIT_ALLOW_PROTOCOL"] == "none"
    for step in ("fetchStep", "linkStep", "buildStep"):
        assert step in clients.hooks


def test_yarns_own_words_are_in_the_refusal(tmp_path: Path) -> None:
    store = tmp_path / "clients"
    client(Clients(lock=LOCK), tmp_path).resolve(files(ROOT))
    clients = Clients(exit_code=1, output='yarn install\nerror Couldn\'t find "a@^9"\ninfo Visit\n')
    with pytest.raises(RecipeError, match='Couldn\'t find "a@\\^9"') as refused:
        YarnClient(clients, ClientStore(clients, store)).resolve(files(ROOT))
    assert refused.value.reason is RefusalReason.RESOLVER_FAILED
    assert [tool for tool, _, _ in clients.calls] == ["node"]  # kept: nothing is fetched again


def test_a_client_that_cannot_be_had_is_a_missing_tool(tmp_path: Path) -> None:
    clients = Clients(exit_code=1, output="npm error code E404\n")
    with pytest.raises(
        RecipeError, check=OfKind("client_missing"), match=r"yarn 1\.22\.22.*E404"
    ) as refused:
        client(clients, tmp_path).resolve(files(ROOT))
    assert refused.value.reason is RefusalReason.TOOL_MISSING
    assert list((tmp_path / "clients").iterdir()) == []


def test_no_npm_is_a_missing_tool(tmp_path: Path) -> None:
    class NoNpm(Clients):
        def run(self, *_args: Any, **_named: Any) -> CommandResult:
            raise ToolMissingError("npm is not on PATH.", next_step="Install it.")

    with pytest.raises(RecipeError, check=OfKind("client_missing")) as refused:
        client(NoNpm(), tmp_path).resolve(files(ROOT))
    assert refused.value.reason is RefusalReason.TOOL_MISSING


def test_the_integrity_goes_to_npm_and_no_address_does(tmp_path: Path) -> None:
    kept: dict[str, str] = {}

    class Looking(Clients):
        def run(self, tool: str, args: Sequence[str], *, cwd: Path, **named: Any) -> CommandResult:
            if tool == "npm":
                kept["lock"] = (cwd / "package-lock.json").read_text()
            return super().run(tool, args, cwd=cwd, **named)

    client(Looking(lock=LOCK), tmp_path).resolve(files(ROOT))
    entry = json.loads(kept["lock"])["packages"]["node_modules/yarn"]
    assert entry == {"version": YARN.version, "integrity": YARN.integrity}


@pytest.mark.parametrize("wanted", ["yarn@3.2.1", "yarn@4.0.0+sha224.0", "yarn@10.0.0"])
def test_a_project_of_a_later_yarn_is_refused_by_name(wanted: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=wanted.partition("+")[0]) as refused:
        client(Clients(), tmp_path).resolve(files({**ROOT, "packageManager": wanted}))
    assert refused.value.reason is RefusalReason.RECIPE_UNSUPPORTED


def test_resolutions_are_found_and_added_without_moving_a_byte(tmp_path: Path) -> None:
    text = '{\n\t"name": "r",\n\t"resolutions": {"**/x/b": "2.0.0", "@s/b": "1.0.0"}\n}\n'
    project = Files(".", {"package.json": text}, "yarn.lock", LOCK)
    yarn = client(Clients(), tmp_path)
    (place,) = yarn.overrides(project, "b")
    assert (place.keys, place.spec) == (("resolutions", "**/x/b"), "2.0.0")
    after = yarn.with_override(project, "@p/q", "b", "2.1.0").manifests["package.json"]
    entries = json.loads(after)["resolutions"]
    assert entries == {"**/x/b": "2.0.0", "@s/b": "1.0.0", "**/@p/q/**/b": "2.1.0"}
    assert after.startswith(text[: text.index('"1.0.0"') + 7])
    everywhere = yarn.with_override(project, None, "b", "2.1.0").manifests["package.json"]
    assert json.loads(everywhere)["resolutions"]["b"] == "2.1.0"


def test_what_was_changed_in_the_cache_does_not_run(tmp_path: Path) -> None:
    clients = Clients(LOCK)
    yarn = client(clients, tmp_path)
    yarn.resolve(files(ROOT))
    (script,) = (tmp_path / "clients").rglob("yarn.js")
    script.write_text("yarn, and more")
    clients.calls.clear()
    with pytest.raises(RecipeError, check=OfKind("not_as_published")) as caught:
        yarn.resolve(files(ROOT))
    assert caught.value.reason is RefusalReason.TOOL_MISSING
    assert clients.calls == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_client_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients(LOCK)
    client(clients, tmp_path).resolve(files(ROOT))
    assert (tmp_path / "clients").stat().st_mode & 0o077 == 0
    os.chown(next((tmp_path / "clients").iterdir()), 65534, -1)
    clients.calls.clear()
    with pytest.raises(RecipeError, check=OfKind("another_user")):
        client(clients, tmp_path).resolve(files(ROOT))
    assert clients.calls == []


@pytest.mark.parametrize("address", ["http://host/x.tgz", "git+ssh://host/x.git", "user/repo"])
@pytest.mark.parametrize("place", ["manifest", "resolutions", "lock"])
def test_what_the_lock_does_not_answer_is_fetched_from_the_registry_only(
    tmp_path: Path, address: str, place: str
) -> None:
    root: dict[str, Any] = {"name": "r", "dependencies": {"a": "^1.0.0"}}
    text = LOCK
    if place == "manifest":
        root["dependencies"]["x"] = address
    elif place == "resolutions":
        root["resolutions"] = {"a": address}
    else:
        text = lock(block("a@^1.0.0", "1.0.0", asks=f'x "{address}"'))
    clients = Clients(text)
    with pytest.raises(RecipeError, check=OfKind("not_of_the_registry")):
        client(clients, tmp_path).resolve(files(root, text))
    assert clients.calls == []
    answered = (
        text + f'\n"{"a" if place == "resolutions" else "x"}@{address}":\n  version "1.0.0"\n'
    )
    client(Clients(answered), tmp_path).resolve(files(root, answered))


def test_a_folder_in_the_place_of_our_own_files_is_a_refusal(tmp_path: Path) -> None:
    members = {**files(ROOT).manifests, "yarn.lock/package.json": "{}"}
    with pytest.raises(RecipeError, check=OfKind("not_writable")):
        client(Clients(LOCK), tmp_path).resolve(Files(".", members, "yarn.lock", LOCK))
