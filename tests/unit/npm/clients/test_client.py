"""npm as the ladder's client: locks keep their shape, wishes are granted exactly, nothing else runs."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.npm_client import NpmClient
from fallback_plugins.npm.clients.registry import MAX_PACKAGES_OF_A_VIEW, NpmRegistry
from fallback_tier.errors import RecipeError
from tests.registry import Universe
from tests.unit.npm.world import World, at, bad, manifest, project, world
from tests.unit.shared.recipes import FakeClients, after


def leaves() -> Universe:
    universe = Universe()
    for version in ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "2.0.0"):
        universe.npm("leaf", version)
    return universe.npm("mid", "1.0.0", {"leaf": "^1.0.0"})


def made(here: World, text: str, version: int) -> str:
    """A lock that npm itself wrote, while 1.0.0 was all there was."""
    folder = here.root.parent / f"made-{version}"
    folder.mkdir()
    (folder / "package.json").write_text(text)
    options = ["--package-lock-only", "--no-audit", f"--lockfile-version={version}"]
    assert here.clients.inner.run("npm", ["install", *options], cwd=folder, timeout_s=120).ok
    return (folder / "package-lock.json").read_text()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_lock_version_is_kept_and_only_the_copy_changes(tmp_path: Path, version: int) -> None:
    text = manifest(dependencies={"leaf": "^1.0.0", "mid": "^1.0.0"})
    universe = Universe().npm("leaf", "1.0.0").npm("mid", "1.0.0", {"leaf": "^1.0.0"})
    with world(universe, tmp_path) as here:
        old = made(here, text, version).replace("\n", "\r\n")
        universe.npm("leaf", "1.1.0").npm("leaf", "1.2.0").npm("leaf", "1.3.0")
        files = {"package.json": text, "package-lock.json": old}
        result = here.fix(bad("leaf", ("0", "1.2.0")), files)
    new = after(result, "package-lock.json")
    assert json.loads(new)["lockfileVersion"] == version
    changed = [
        (a, b)
        for a, b in zip(old.splitlines(keepends=True), new.splitlines(keepends=True), strict=True)
        if a != b
    ]
    messages = {line.split('"')[1] for pair in changed for line in pair}
    assert messages == {"version", "resolved", "integrity"}
    assert new.count('"version": "1.2.0"') == (2 if version == 2 else 1)
    assert "leaf-1.2.0.tgz" in new


def test_a_wish_that_no_ask_admits_is_not_granted(tmp_path: Path) -> None:
    text = project({"mid": "1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="^1.0.0")})
    files = Files(
        ".", {"package.json": text["package.json"]}, "package-lock.json", text["package-lock.json"]
    )
    with world(leaves(), tmp_path) as here:
        client = NpmClient(here.clients)
        found = client.resolve(files, {("leaf", "1.0.0"): "2.0.0"})
        assert [node.version for node in client.tree(found).of("leaf")] == ["1.0.0"]
        granted = client.resolve(files, {("leaf", "1.0.0"): "1.1.0"})
        assert [node.version for node in client.tree(granted).of("leaf")] == ["1.1.0"]
        assert granted.manifests == files.manifests


def test_a_wish_that_an_override_forbids_is_not_granted(tmp_path: Path) -> None:
    """Else npm ci would say that the lock is out of step with its manifest."""
    text = manifest(dependencies={"mid": "1.0.0"}, overrides={"leaf": "1.0.0"})
    with world(leaves(), tmp_path) as here:
        client = NpmClient(here.clients)
        files = client.resolve(Files(".", {"package.json": text}))
        found = client.resolve(files, {("leaf", "1.0.0"): "1.1.0"})
        assert [node.version for node in client.tree(found).of("leaf")] == ["1.0.0"]


def test_a_second_run_takes_what_the_registry_said_in_the_first(tmp_path: Path) -> None:
    files = Files(".", {"package.json": manifest(dependencies={"mid": "1.0.0"})})
    with world(leaves(), tmp_path) as here:
        client = NpmClient(here.clients)
        fresh = client.resolve(files)
        client.update(fresh, ["leaf"])
        first, second = here.clients.calls
    assert "--prefer-offline" not in first
    assert "--prefer-offline" in second
    assert {"--ignore-scripts", "--allow-git=none", "--package-lock-only"} <= set(first)


def test_only_harmless_settings_of_the_repository_reach_npm(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def act(tool: str, args: object, cwd: Path) -> tuple[int, str]:
        seen.append(sorted(path.name for path in cwd.iterdir()))
        return 1, "npm error code EWHATEVER\nnpm error A complete log of this run: x\n"

    clients = FakeClients(act)
    files = Files(
        ".",
        {"package.json": manifest(dependencies={"a": "1"})},
        settings={".npmrc": "legacy-peer-deps=true\n"},
    )
    with pytest.raises(RecipeError, match="EWHATEVER") as caught:
        NpmClient(clients).resolve(files)
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED
    assert "complete log" not in caught.value.problem
    assert seen == [["package.json"]]
    assert "--legacy-peer-deps" in clients.calls[0]
    assert not any(folder.exists() for folder in clients.folders)


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ({}, {"mid": {"leaf": "1.2.0"}}),
        ({"x": "1"}, {"x": "1", "mid": {"leaf": "1.2.0"}}),
        ({"mid": {"x": "1"}}, {"mid": {"x": "1", "leaf": "1.2.0"}}),
        ({"mid": {"leaf": "1.1.0"}}, {"mid": {"leaf": "1.2.0"}}),
        ({"mid": "^1.0.0"}, {"mid": {".": "^1.0.0", "leaf": "1.2.0"}}),
    ],
)
def test_an_override_is_added_beside_those_that_are_there(
    before: dict[str, object], wanted: dict[str, object]
) -> None:
    sections = {"overrides": before} if before else {}
    files = Files(".", {"package.json": manifest(dependencies={"mid": "1"}, **sections)})
    client = NpmClient(FakeClients())
    new = client.with_override(files, "mid", "leaf", "1.2.0")
    found = json.loads(new.manifests["package.json"])
    assert found["overrides"] == wanted
    places = client.overrides(new, "leaf")
    assert [(place.keys, place.spec) for place in places] == [
        (("overrides", "mid", "leaf"), "1.2.0")
    ]


@pytest.mark.parametrize("output", ['"1.0.0"', "[]", '["1.0.0"]', "1", "null", ""])
def test_an_answer_that_is_not_a_document_has_no_tags_and_dates(output: str) -> None:
    registry = NpmRegistry(FakeClients(lambda *_: (0, output)))
    assert registry.tags("leaf") == {}
    assert registry.published_at("leaf", "1.0.0") is None


def releases_of(registry: NpmRegistry, *packages: str) -> list[list[str]]:
    return [[release.version for release in registry.releases(name)] for name in packages]


def test_several_packages_are_looked_up_by_one_run_of_npm(tmp_path: Path) -> None:
    """The answers are those about each alone."""
    universe = leaves().npm("@s/p", "1.0.0", {"leaf": "^2.0.0"}).npm("@s/p", "2.0.0-rc.1")
    universe.npm("plug", "1.0.0", peerDependencies={"leaf": "1"}, deprecated="gone")
    packages = ["leaf", "mid", "@s/p", "plug"]
    with world(universe, tmp_path) as here:
        registry, alone = NpmRegistry(here.clients), NpmRegistry(here.clients)
        registry.look_up([*packages, "leaf"])
        answers = [registry.releases(name) for name in packages]
        assert here.verbs() == ["view"]
        assert answers == [alone.releases(name) for name in packages]
        assert len(here.verbs()) == 5
        registry.look_up(packages)
        assert len(here.verbs()) == 5


def test_a_package_that_the_registry_lacks_is_asked_about_alone(tmp_path: Path) -> None:
    with world(leaves(), tmp_path) as here:
        registry = NpmRegistry(here.clients)
        registry.look_up(["leaf", "absent", "mid", "../mid", "error"])
        with pytest.raises(RecipeError, match="absent"):
            registry.releases("absent")
        assert releases_of(registry, "mid", "leaf") == [
            ["1.0.0"],
            ["1.0.0", "1.1.0", "1.2.0", "1.3.0", "2.0.0"],
        ]


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        ('{"a@>=0.0.0": "1.0.0", "b@>=0.0.0": ["1.0.0", "2.0.0"]}', 1),
        ('{"a": "1.0.0", "b": ["1.0.0", "2.0.0"]}', 1),
        ('{"a@>=0.0.0": "1.0.0", "error": {"b": {"code": "E404"}}}', 2),
        ('{"error": {"code": "E404"}}', 3),
        ('error: host.test was not asked\n{"a": "1.0.0", "b": "1.0.0"}', 3),
        ("[]", 3),
        ("", 3),
    ],
)
def test_what_one_run_does_not_answer_is_left_to_single_queries(answer: str, calls: int) -> None:
    def act(_tool: str, words: Sequence[str], _cwd: Path) -> tuple[int, str]:
        single = {"a@>=0.0.0": '"1.0.0"', "b@>=0.0.0": '["1.0.0", "2.0.0"]'}
        return (0, single[words[1]]) if words[1] in single else (1, answer)

    clients = FakeClients(act)
    registry = NpmRegistry(clients)
    registry.look_up(["a", "b"])
    assert releases_of(registry, "a", "b") == [["1.0.0"], ["1.0.0", "2.0.0"]]
    assert len(clients.calls) == calls


def test_no_run_about_several_follows_one_that_answered_nothing() -> None:
    clients = FakeClients(lambda *_: (1, ""))
    registry = NpmRegistry(clients)
    for packages in (["a", "b"], ["c", "d"]):
        registry.look_up(packages)
    assert len(clients.calls) == 1


def test_many_packages_are_looked_up_by_some_runs() -> None:
    asked: list[int] = []

    def act(_tool: str, _words: Sequence[str], cwd: Path) -> tuple[int, str]:
        names = [json.loads(path.read_text()).get("name") for path in cwd.glob("p/*/package.json")]
        asked.append(len(names))
        return 0, json.dumps(dict.fromkeys(names, "1.0.0"))

    NpmRegistry(FakeClients(act)).look_up(
        f"a{number}" for number in range(MAX_PACKAGES_OF_A_VIEW + 2)
    )
    assert asked == [MAX_PACKAGES_OF_A_VIEW, 2]
