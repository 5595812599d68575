"""npm as the ladder's client: locks keep their shape, wishes are granted exactly, nothing else runs."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.npm_client import NpmClient
from fallback_plugins.npm.clients.registry import NpmRegistry
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
