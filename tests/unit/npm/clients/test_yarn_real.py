"""The real yarn classic over a made-up registry on loopback: what it resolves, what we keep of it."""

import difflib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.by_lock import own_command
from fallback_plugins.npm.clients.provision import ClientStore
from fallback_plugins.npm.clients.yarn import YARN, YarnClient
from fallback_plugins.npm.installing.installation import BERRY
from fallback_plugins.npm.locks.yarn_lock import YarnLock, berry_tree, parse_yarn_lock
from fallback_tier.errors import RecipeError
from fallback_tier.sandbox.clients import SubprocessClients
from tests.kinds import OfKind
from tests.registry.server import Registry, serve
from tests.registry.universe import Universe
from tests.unit.shared.real_clients import loopback, provisioned

pytestmark = [pytest.mark.registry("npm"), pytest.mark.xdist_group("yarn-real")]


@pytest.fixture(scope="session")
def yarn_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioned(tmp_path_factory.mktemp("yarn-clients"), YARN)


@dataclass(frozen=True)
class Yarn:
    client: YarnClient
    clients: SubprocessClients
    script: Path
    registry: Registry

    def project(self, root: dict[str, object], lock: str = "", **members: object) -> Files:
        manifests = {"package.json": json.dumps(root, indent=2) + "\n"}
        manifests |= {f"{name}/package.json": json.dumps(one) for name, one in members.items()}
        return Files(".", manifests, "yarn.lock", lock)

    def installs(self, files: Files, folder: Path) -> str:
        """The lock that yarn leaves behind when it installs for good, every digest checked; or what it
        says. (``--frozen-lockfile`` would look at the root's own ranges only.)"""
        for path, text in files.texts.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())
        arguments = [
            "install",
            "--ignore-scripts",
            "--non-interactive",
            f"--cache-folder={folder}/c",
        ]
        result = self.clients.run("node", [str(self.script), *arguments], cwd=folder, timeout_s=120)
        return (folder / "yarn.lock").read_bytes().decode() if result.ok else result.output


@pytest.fixture(scope="module")
def yarn(yarn_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    universe = (
        Universe()
        .npm("leaf", "1.0.0")
        .npm("leaf", "1.1.0")
        .npm("leaf", "1.2.0", {"extra": "^1.0.0"})
        .npm("leaf", "1.3.0")
        .npm("leaf", "2.0.0")
        .npm("extra", "1.0.0")
        .npm("extra", "1.9.0")
        .npm("mid", "1.0.0", {"leaf": "^1.0.0", "extra": "~1.0.0"})
        .npm("strict", "1.0.0", {"leaf": "1.0.0"})
        .npm("@s/p", "1.0.0", {"leaf": "~1.0.0"})
        .npm("top", "1.0.0", {"deep": "^1.0.0"})
        .npm("deep", "1.0.0")
        .npm("gone", "2.0.0")
        .npm("holder", "1.0.0")
        .npm("holder", "2.0.0", {"gone": "1.0.0", "top": "^1.0.0"})
        .npm("holder", "2.0.1", {"gone": "1.0.0", "top": "^1.0.0"})
        .npm("deep", "1.1.0", {"extra": "^1.5.0", "mid": "^1.0.0"})
    )
    with loopback(universe, tmp_path_factory.mktemp("yarn")) as (clients, registry):
        store = ClientStore(clients, yarn_folder)
        yield Yarn(YarnClient(clients, store), clients, store.script(YARN), registry)


def versions(yarn: Yarn, files: Files, name: str) -> list[str]:
    return sorted(node.version for node in yarn.client.tree(files).of(name))


def changed(before: Files, after: Files) -> list[str]:
    lines = difflib.ndiff(before.lock_text.splitlines(), after.lock_text.splitlines())
    return [line for line in lines if line[0] in "+-"]


ROOT: dict[str, object] = {
    "name": "r",
    "version": "1.0.0",
    "license": "MIT",
    "private": True,
    "dependencies": {"mid": "^1.0.0", "strict": "^1.0.0", "@s/p": "^1.0.0"},
}


@pytest.fixture(scope="module")
def locked(yarn: Yarn) -> Files:
    """A lock in which everything is as old as it can be."""
    files = yarn.client.resolve(yarn.project(ROOT))
    return yarn.client.resolve(files, {("leaf", "1.3.0"): "1.0.0", ("extra", "1.9.0"): "1.0.0"})


@dataclass
class Runs:
    """Runs of yarn, by the manifest that each got."""

    manifests: list[str]

    @classmethod
    def counted(cls, monkeypatch: pytest.MonkeyPatch) -> "Runs":
        runs, own = cls([]), YarnClient._run

        def run(client: YarnClient, files: Files, texts: Mapping[str, str]) -> YarnLock:
            runs.manifests.append(texts["package.json"])
            return own(client, files, texts)

        monkeypatch.setattr(YarnClient, "_run", run)
        return runs


def test_a_wish_is_granted_by_range_and_only_its_lines_change(
    yarn: Yarn, locked: Files, tmp_path: Path
) -> None:
    assert versions(yarn, locked, "leaf") == ["1.0.0"]
    after = yarn.client.resolve(locked, {("leaf", "1.0.0"): "1.1.0"})
    read = parse_yarn_lock(after.lock_text).by_pattern
    held = {pattern: b.version for pattern, b in read.items() if b.name == "leaf"}
    assert held == {"leaf@^1.0.0": "1.1.0", "leaf@1.0.0": "1.0.0", "leaf@~1.0.0": "1.0.0"}
    assert yarn.installs(after, tmp_path) == after.lock_text
    assert after.manifests == locked.manifests
    other = [line for line in changed(locked, after) if "leaf" not in line]
    assert not any("resolved" in line for line in other)


def test_yarn_is_asked_once_for_a_version_that_no_lock_holds(
    yarn: Yarn, locked: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which block answers it is the registry's word, whatever the lock: the second run has it already."""
    runs, fresh = Runs.counted(monkeypatch), YarnClient(yarn.clients, yarn.client.store)
    first = fresh.resolve(locked, {("leaf", "1.0.0"): "1.1.0"})
    assert len(runs.manifests) == 2
    assert fresh.resolve(locked, {("leaf", "1.0.0"): "1.1.0"}) == first
    assert len(runs.manifests) == 3
    more = {("leaf", "1.0.0"): "1.1.0", ("extra", "1.0.0"): "1.9.0"}
    assert versions(yarn, fresh.resolve(locked, more), "leaf") == ["1.0.0", "1.1.0"]
    assert len(runs.manifests) == 5
    assert "leaf@1.1.0" not in runs.manifests[3]


def with_top(yarn: Yarn, locked: Files, **sections: object) -> Files:
    dependencies = {"mid": "^1.0.0", "strict": "^1.0.0", "@s/p": "^1.0.0", "top": "^1.0.0"}
    return yarn.project({**ROOT, "dependencies": dependencies, **sections}, locked.lock_text)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_what_one_trial_looked_up_is_known_in_the_next(
    yarn: Yarn, locked: Files, tmp_path: Path, line_end: str
) -> None:
    """The lock is the same as that of a client that has to query all of it."""
    files = with_top(yarn, locked)
    files = files.with_lock(files.lock_text.replace("\n", line_end))
    wanted = {("leaf", "1.0.0"): "1.1.0"}
    client, other = (YarnClient(yarn.clients, yarn.client.store) for _ in range(2))
    client.resolve(files)
    yarn.registry.requests.clear()
    after = client.resolve(files, wanted)
    assert not [
        path for path in yarn.registry.paths() if path.endswith(("/top", "/deep", "/extra"))
    ]
    yarn.registry.requests.clear()
    assert other.resolve(files, wanted) == after
    assert [path for path in yarn.registry.paths() if path.endswith("/deep")]
    assert versions(yarn, after, "extra") == ["1.0.0", "1.9.0"]
    if line_end == "\n":
        assert yarn.installs(after, tmp_path) == after.lock_text


def test_what_resolutions_answer_is_known_to_no_other_trial(yarn: Yarn, locked: Files) -> None:
    client = YarnClient(yarn.clients, yarn.client.store)
    forced = client.resolve(with_top(yarn, locked, resolutions={"**/top/**/deep": "1.0.0"}))
    assert versions(yarn, forced, "deep") == ["1.0.0"]
    plain = client.resolve(with_top(yarn, locked))
    assert versions(yarn, plain, "deep") == ["1.1.0"]
    assert client.resolve(with_top(yarn, locked, resolutions={"**/top/**/deep": "1.0.0"})) == forced


def test_what_no_resolution_is_about_is_known_beside_one(yarn: Yarn, locked: Files) -> None:
    client, other = (YarnClient(yarn.clients, yarn.client.store) for _ in range(2))
    client.resolve(with_top(yarn, locked))
    files = with_top(yarn, locked, resolutions={"**/top/**/deep": "1.1.0"})
    yarn.registry.requests.clear()
    after = client.resolve(files)
    asked = {path.rpartition("/")[2] for path in yarn.registry.paths()}
    assert "deep" in asked
    assert "top" not in asked
    assert other.resolve(files) == after


def test_one_version_of_each_package_is_known_to_no_other_trial(yarn: Yarn, locked: Files) -> None:
    client = YarnClient(yarn.clients, yarn.client.store)
    flat = {**ROOT, "dependencies": {"extra": "^1.0.0"}}
    client.resolve(yarn.project({**flat, "flat": True}))
    assert client.lookups.version("extra@^1.0.0") is None
    client.resolve(yarn.project(flat))
    assert client.lookups.version("extra@^1.0.0") is not None


def test_a_release_that_a_trial_brought_in_is_no_wish_to_look_up(
    yarn: Yarn, locked: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = YarnClient(yarn.clients, yarn.client.store)
    old = client.resolve(with_top(yarn, locked), {})
    old = client.resolve(old, {("deep", "1.1.0"): "1.0.0"})
    assert versions(yarn, old, "deep") == ["1.0.0"]
    runs = Runs.counted(monkeypatch)
    after = client.resolve(old, {("deep", "1.0.0"): "1.1.0"})
    assert len(runs.manifests) == 1
    assert after == YarnClient(yarn.clients, yarn.client.store).resolve(
        old, {("deep", "1.0.0"): "1.1.0"}
    )


def test_a_release_that_does_not_exist_is_looked_up_once(
    yarn: Yarn, locked: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, runs = YarnClient(yarn.clients, yarn.client.store), Runs.counted(monkeypatch)
    errors = []
    for wanted in (
        {("leaf", "1.0.0"): "1.7.7"},
        {("leaf", "1.0.0"): "1.7.7", ("extra", "1.0.0"): "1.9.0"},
    ):
        with pytest.raises(RecipeError, match=r"leaf 1\.7\.7") as refused:
            client.resolve(locked, wanted)
        errors.append(refused.value)
    assert errors[0] is errors[1]
    assert len(runs.manifests) == 1


def test_a_release_that_requires_what_does_not_exist_is_refused_without_another_run(
    yarn: Yarn, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = {**ROOT, "dependencies": {"holder": ">=1.0.0"}}
    text = """# yarn lockfile v1


holder@>=1.0.0:
  version "1.0.0"
  resolved "{url}holder/-/holder-1.0.0.tgz#{zeros}"
"""
    files = yarn.project(root, text.format(url=yarn.registry.npm_url, zeros="0" * 40))
    client, runs = YarnClient(yarn.clients, yarn.client.store), Runs.counted(monkeypatch)
    counts = []
    for version in ("2.0.0", "2.0.1", "2.0.0"):
        yarn.registry.requests.clear()
        with pytest.raises(RecipeError, match=r"the registry has no gone 1\.0\.0"):
            client.resolve(files, {("holder", "1.0.0"): version})
        counts.append(len(runs.manifests))
        runs.manifests.clear()
    # It fails, and is looked up but for that; the second is looked up; nothing.
    assert counts == [2, 1, 0]
    assert yarn.registry.requests == []
    gone = text.replace("holder@>=1.0.0", "gone@1.0.0").replace("holder", "gone")
    locked = files.with_lock(files.lock_text + gone.partition("\n\n\n")[2].format(url="", zeros=""))
    wanted = {("holder", "1.0.0"): "2.0.0"}
    after = client.resolve(locked, wanted)
    assert versions(yarn, after, "holder") == ["2.0.0"]
    assert versions(yarn, after, "gone") == ["1.0.0"]
    assert YarnClient(yarn.clients, yarn.client.store).resolve(locked, wanted) == after
    assert "absent.invalid" not in after.lock_text


def test_a_new_dependency_is_answered_from_the_lock_where_it_can_be(
    yarn: Yarn, locked: Files, tmp_path: Path
) -> None:
    after = yarn.client.resolve(locked, {("leaf", "1.0.0"): "1.2.0"})
    assert versions(yarn, after, "extra") == ["1.0.0"]  # yarn alone would add 1.9.0
    assert yarn.installs(after, tmp_path) == after.lock_text


def test_yarn_does_not_take_what_is_wrong(yarn: Yarn, locked: Files, tmp_path: Path) -> None:
    """The alarm of every ``installs`` above: a digest that isn't the tarball's, a range left out."""
    broken = locked.with_lock(
        locked.lock_text.replace("integrity sha512-", "integrity sha512-AAAA")
    )
    assert "ntegrity check failed" in yarn.installs(broken, tmp_path / "broken")
    missing = locked.with_lock(locked.lock_text.replace(", leaf@~1.0.0", ""))
    assert missing != locked
    assert yarn.installs(missing, tmp_path / "missing") != missing.lock_text


def test_a_raised_declaration_takes_its_former_range_with_it(yarn: Yarn, tmp_path: Path) -> None:
    start = yarn.client.resolve(yarn.project({**ROOT, "dependencies": {"leaf": "^1.0.0"}}))
    files = yarn.client.resolve(start, {("leaf", "1.3.0"): "1.0.0"})
    assert versions(yarn, files, "leaf") == ["1.0.0"]
    raised = {**ROOT, "dependencies": {"leaf": "^1.1.0"}}
    after = yarn.client.resolve(yarn.project(raised, files.lock_text), {("leaf", "1.0.0"): "1.1.0"})
    assert list(parse_yarn_lock(after.lock_text).by_pattern) == ["leaf@^1.1.0"]
    assert yarn.installs(after, tmp_path) == after.lock_text


def test_a_raised_resolution_takes_its_former_range_with_it(yarn: Yarn, tmp_path: Path) -> None:
    root = {**ROOT, "dependencies": {"mid": "^1.0.0"}}
    start = yarn.client.resolve(yarn.project({**root, "resolutions": {"**/mid/leaf": "~1.0.0"}}))
    assert versions(yarn, start, "leaf") == ["1.0.0"]
    raised = yarn.project({**root, "resolutions": {"**/mid/leaf": "~1.1.0"}}, start.lock_text)
    after = yarn.client.resolve(raised, {("leaf", "1.0.0"): "1.1.0"})
    assert versions(yarn, after, "leaf") == ["1.1.0"]
    assert "leaf@~1.0.0" not in after.lock_text
    assert yarn.installs(after, tmp_path) == after.lock_text


def test_an_update_goes_as_far_as_the_ranges_allow(yarn: Yarn, locked: Files) -> None:
    after = yarn.client.update(locked, ["leaf"])
    assert versions(yarn, after, "leaf") == ["1.0.0", "1.3.0"]
    assert versions(yarn, after, "extra") == ["1.0.0"]


def test_what_changes_nothing_changes_no_byte(yarn: Yarn, locked: Files) -> None:
    assert yarn.client.resolve(locked).lock_text == locked.lock_text
    crlf = locked.with_lock(locked.lock_text.replace("\n", "\r\n"))
    assert yarn.client.resolve(crlf).lock_text == crlf.lock_text
    raised = yarn.client.resolve(crlf, {("leaf", "1.0.0"): "1.1.0"}).lock_text
    assert raised.count("\n") == raised.count("\r\n")


def test_addresses_of_a_mirror_stay_the_mirrors(yarn: Yarn, locked: Files) -> None:
    """The mirror answers nobody here: what is locked is not asked for again."""
    mirror = "https://mirror.test/npm/"
    moved = locked.with_lock(locked.lock_text.replace(yarn.registry.npm_url, mirror))
    after = yarn.client.resolve(moved, {("leaf", "1.0.0"): "1.1.0"})
    assert yarn.registry.npm_url not in after.lock_text
    assert f"{mirror}leaf/-/leaf-1.1.0.tgz#" in after.lock_text


def test_a_resolution_below_a_parent_holds_and_is_seen(
    yarn: Yarn, locked: Files, tmp_path: Path
) -> None:
    forced = yarn.client.with_override(locked, "@s/p", "leaf", "1.1.0")
    after = yarn.client.resolve(forced)
    tree = yarn.client.tree(after)
    (node,) = tree.of("@s/p")
    assert tree.nodes[str(node.asks[0].to)].version == "1.1.0"
    assert "1.0.0" in versions(yarn, after, "leaf")  # strict's own is another matter
    assert yarn.installs(after, tmp_path) == after.lock_text


def test_members_share_the_lock(yarn: Yarn, tmp_path: Path) -> None:
    root = {"name": "r", "private": True, "license": "MIT", "workspaces": ["packages/*"]}
    members = {
        "packages/one": {"name": "one", "version": "1.0.0", "dependencies": {"mid": "^1.0.0"}},
        "packages/two": {"name": "two", "version": "1.0.0", "dependencies": {"one": "1.0.0"}},
    }
    files = yarn.client.resolve(yarn.project(root, **members))
    assert versions(yarn, files, "leaf") == ["1.3.0"]
    assert yarn.installs(files, tmp_path) == files.lock_text
    unseen = yarn.project(root, files.lock_text)
    after = yarn.client.resolve(unseen, {("extra", "1.0.0"): "1.0.0"})
    assert (
        after.lock_text == files.lock_text
    )  # members that we don't have still have their packages


def test_nothing_is_fetched_and_what_does_not_exist_is_said(yarn: Yarn, locked: Files) -> None:
    yarn.registry.requests.clear()
    yarn.client.resolve(locked, {("leaf", "1.0.0"): "1.1.0"})
    assert not [path for path in yarn.registry.paths() if path.endswith(".tgz")]
    with pytest.raises(RecipeError, match="leaf"):
        yarn.client.resolve(locked, {("leaf", "1.0.0"): "1.7.7"})


def test_a_client_with_another_digest_is_not_had(yarn: Yarn, tmp_path: Path) -> None:
    """Our own registry serves a yarn of its own making: npm must see that it isn't the one pinned."""
    universe = Universe().npm("yarn", YARN.version, files={"bin/yarn.js": "hello"})
    with loopback(universe, tmp_path) as (clients, _):
        with pytest.raises(RecipeError, check=OfKind("client_missing"), match="EINTEGRITY"):
            ClientStore(clients, tmp_path / "clients").script(YARN)
        assert list((tmp_path / "clients").iterdir()) == []


@pytest.mark.parametrize(
    ("sections", "words", "held"),
    [
        ({"devDependencies": {"leaf": "~1.0.0"}}, "up leaf@~1.1.0", "1.1.0"),
        ({"dependencies": {"leaf": "1.0.0"}}, "up leaf@1.1.0", "1.1.0"),
        ({"dependencies": {"mid": "1.0.0"}}, "up -R leaf", "1.3.0"),
        ({"dependencies": {"strict": "1.0.0"}}, "install", "1.1.0"),
    ],
    ids=["a range", "a pin", "in range", "by an override"],
)
def test_the_command_that_a_newer_yarn_is_refused_with_brings_the_fix(
    tmp_path: Path, sections: dict[str, dict[str, str]], words: str, held: str
) -> None:
    """The real yarn 4 runs what the refusal says, and calls its lock in step."""
    yarn = BERRY[8]
    store = provisioned(tmp_path / "clients", yarn)
    script = ClientStore(SubprocessClients(), store).script(yarn)
    project = tmp_path / "project"
    project.mkdir()
    universe = (
        Universe()
        .npm("leaf", "1.0.0")
        .npm("leaf", "1.1.0")
        .npm("leaf", "1.3.0")
        .npm("mid", "1.0.0", {"leaf": "^1.0.0"})
        .npm("strict", "1.0.0", {"leaf": "1.0.0"})
    )
    with serve(universe) as registry:
        environ = {
            **os.environ,
            **registry.environ,
            "YARN_NPM_REGISTRY_SERVER": registry.npm_url.rstrip("/"),
            "YARN_UNSAFE_HTTP_WHITELIST": "127.0.0.1",
            "YARN_GLOBAL_FOLDER": str(tmp_path / "global"),
            "YARN_NODE_LINKER": "node-modules",
            "YARN_ENABLE_IMMUTABLE_INSTALLS": "false",
        }

        def run(*args: str) -> None:
            command = ["node", str(script), *args]
            done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout

        def files() -> Files:
            text, lock = ((project / it).read_text() for it in ("package.json", "yarn.lock"))
            return Files(".", {"package.json": text}, "yarn.lock", lock)

        (project / "yarn.lock").write_text("")
        own = {"name": "r", "version": "1.0.0", **sections}
        (project / "package.json").write_text(json.dumps({**own, "resolutions": {"leaf": "1.0.0"}}))
        run("install")
        lock = (
            (project / "yarn.lock").read_text().replace('"leaf@npm:1.0.0":', '"leaf@npm:^1.0.0":')
        )
        if "mid" in str(sections):  # a range whose lock is older than what it admits
            (project / "yarn.lock").write_text(
                lock.replace('leaf: "npm:1.0.0"', 'leaf: "npm:^1.0.0"')
            )
        (project / "package.json").write_text(json.dumps(own))
        run("install")
        tree = berry_tree(files())
        (leaf,) = tree.of("leaf")
        assert leaf.version == "1.0.0"
        step = own_command("yarn.lock", tree, leaf, "1.1.0")
        if words == "install":
            assert 'strict 1.0.0 asks for leaf 1.0.0: add `"leaf": "1.1.0"` to resolutions' in step
            forced = {**own, "resolutions": {"leaf": "1.1.0"}}
            (project / "package.json").write_text(json.dumps(forced))
        assert f"`yarn {words}`" in step
        run(*words.split())
        run("install", "--immutable")
        assert [it.version for it in berry_tree(files()).of("leaf")] == [held]
