"""An override of the project's own that holds the affected version is what has to be raised: in each of its
forms, to the lowest version that serves, with a lock that its client takes as it is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.pnpm import PNPM, PnpmClient
from fallback_plugins.npm.clients.provision import ClientStore, PinnedClient
from fallback_plugins.npm.clients.yarn import YARN, YarnClient
from fallback_tier.advisory import Advisory
from fallback_tier.outcome import Selected
from tests.choice import a_choice
from tests.registry import Universe
from tests.unit.npm.world import World, bad, manifest, versions, world
from tests.unit.shared.real_clients import provisioned
from tests.unit.shared.recipes import after

#: 6.7.3 serves who was held at 6.7.0; what ``top`` and ``inner`` ask for is 6.11.0.
LEAF = bad("leaf", ("0", "6.7.3"), ("6.8.0", "6.9.7"))

#: Nothing serves within ~6.7.
ALL_OF_6_7 = bad("leaf", ("0", "6.9.7"))

TOP = {"top": "^1.0.0"}


def universe() -> Universe:
    found = Universe()
    for version in ("6.7.0", "6.7.3", "6.9.7", "6.11.0", "6.12.0"):
        found.npm("leaf", version)
    return (
        found.npm("top", "1.0.0", {"leaf": "6.11.0", "inner": "1.0.0"})
        .npm("top", "1.1.0", {"leaf": "6.11.0", "inner": "1.0.0"})
        .npm("inner", "1.0.0", {"leaf": "6.11.0"})
        .npm("tilde", "1.0.0", {"leaf": "~6.7.0"})
    )


def fixed(
    here: World, sections: Mapping[str, Any], was: Mapping[str, Any], record: Advisory = LEAF
) -> tuple[dict[str, Any], dict[str, str], LadderStep]:
    """The new manifest and the new lock, which npm installs; ``was``: what the lock was made from."""
    files = {"package.json": manifest(**{"dependencies": TOP, **sections})}
    old = manifest(**{"dependencies": TOP, **sections, **was})
    result = here.fix(record, here.locked(files, old))
    reported = here.written(result)
    assert reported.ok, reported.output
    (move,) = result.moves
    return json.loads((here.root / "package.json").read_text()), versions(result), move.step


@pytest.mark.parametrize(
    ("overrides", "raised"),
    a_choice([
        ({"leaf@^6": "6.7.0"}, {"leaf@^6": "6.7.3"}),
        ({"leaf": {".": "6.7.0"}}, {"leaf": {".": "6.7.3"}}),
        ({"top": {"leaf": "6.7.0"}, "x": "1"}, {"top": {"leaf": "6.7.3"}, "x": "1"}),
        ({"inner@^1": {"leaf@6": "6.7.0"}, "leaf": "6.7.0"},
         {"inner@^1": {"leaf@6": "6.7.3"}, "leaf": "6.7.3"}),
        ({"leaf": "npm:leaf@6.7.0"}, {"leaf": "npm:leaf@6.7.3"}),
        ({"leaf": "6.7.0"}, {"leaf": "6.7.3"}),
        ({"leaf": "6.7.0", "other": {"leaf": "6.0.0"}}, {"leaf": "6.7.3", "other": {"leaf": "6.0.0"}}),
    ], step=3),
    ids=["key with a version", "dot", "nested", "nested and flat", "alias", "flat", "unrelated"],
)  # fmt: skip
def test_every_form_is_raised(
    tmp_path: Path, overrides: dict[str, Any], raised: dict[str, Any]
) -> None:
    with world(universe(), tmp_path) as here:
        new, held, step = fixed(here, {"overrides": overrides}, {})
    assert new["overrides"] == raised
    assert new["dependencies"] == TOP
    assert held == {"leaf": "6.7.3", "top": "1.1.0", "inner": "1.0.0"}
    assert step is LadderStep.DIRECT_BUMP


def test_a_reference_follows_the_declaration_that_is_raised(tmp_path: Path) -> None:
    sections = {"dependencies": {**TOP, "leaf": "6.7.0"}, "overrides": {"leaf": "$leaf"}}
    with world(universe(), tmp_path) as here:
        new, held, _ = fixed(here, sections, {})
    assert new["overrides"] == {"leaf": "$leaf"}
    assert (new["dependencies"]["leaf"], held["leaf"]) == ("6.7.3", "6.7.3")


@pytest.mark.parametrize(
    ("sections", "was"),
    [
        ({"overrides": {"leaf": "^6.7.0"}}, {"overrides": {"leaf": "6.7.0"}}),
        (
            {"dependencies": {**TOP, "leaf": "^6.7.0"}, "overrides": {"leaf": "$leaf"}},
            {"dependencies": {**TOP, "leaf": "6.7.0"}},
        ),
    ],
    ids=["range", "reference to a range"],
)
def test_an_override_that_admits_the_fix_stays(
    tmp_path: Path, sections: dict[str, Any], was: dict[str, Any]
) -> None:
    """Neither the highest of its range nor what the parents ask for: the lowest that serves."""
    with world(universe(), tmp_path) as here:
        new, held, _ = fixed(here, sections, was)
    assert new == json.loads(manifest(**{"dependencies": TOP, **sections}))
    assert held["leaf"] == "6.7.3"


@pytest.mark.parametrize(("spec", "raised"), [("6.7.0", "6.9.7"), ("^6.7.0", "^6.7.0")])
def test_it_is_raised_past_what_somebody_else_asks_for(
    tmp_path: Path, spec: str, raised: str
) -> None:
    """``tilde`` asks for ~6.7.0, and is forced already: no second override is put beside the first."""
    sections = {"dependencies": {**TOP, "tilde": "1.0.0"}, "overrides": {"leaf": spec}}
    was = {"overrides": {"leaf": "6.7.0"}}
    with world(universe(), tmp_path) as here:
        new, held, _ = fixed(here, sections, was, ALL_OF_6_7)
    assert new["overrides"] == {"leaf": raised}
    assert held["leaf"] == "6.9.7"


def test_what_the_parents_ask_for_serves_where_nothing_compatible_does(tmp_path: Path) -> None:
    found = universe().npm("leaf", "5.0.0")
    with world(found, tmp_path) as here:
        new, held, _ = fixed(
            here, {"overrides": {"leaf": "5.0.0"}}, {}, bad("leaf", ("0", "6.0.0"))
        )
    assert new["overrides"] == {"leaf": "6.11.0"}
    assert held["leaf"] == "6.11.0"


def test_no_step_leaves_a_lock_that_the_override_would_take_back(tmp_path: Path) -> None:
    """Who asks for it admits 6.11.0, but the project's override does not, whatever npm was told besides."""
    candidate = Selected(recipe="npm-ladder", left_out=(LadderStep.DIRECT_BUMP,))
    files = {"package.json": manifest(dependencies=TOP, overrides={"leaf": "6.7.0"})}
    with world(universe(), tmp_path) as here:
        result = here.plugin.apply(candidate, LEAF, here.repo(here.locked(files)))
        reported = here.written(result)
    assert reported.ok, reported.output
    assert versions(result)["leaf"] == "6.7.3"
    assert result.moves[0].step is LadderStep.OVERRIDE


@pytest.mark.registry("npm")
@pytest.mark.xdist_group("yarn-real")
@pytest.mark.parametrize(
    ("resolutions", "raised"),
    a_choice([
        ({"leaf": "6.7.0", "**/inner/leaf": "6.7.0"}, {"leaf": "6.7.3", "**/inner/leaf": "6.7.3"}),
        ({"top/leaf": "6.7.0", "**/inner/leaf": "6.7.0"}, {"top/leaf": "6.7.3", "**/inner/leaf": "6.7.3"}),
        ({"**/leaf": "6.7.0"}, {"**/leaf": "6.7.3"}),
        ({"leaf": "6.7.0"}, {"leaf": "6.7.3"}),
    ], step=4),
)  # fmt: skip
def test_yarns_resolutions_are_raised(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    resolutions: dict[str, str],
    raised: dict[str, str],
) -> None:
    _raised_in_another_lock(
        tmp_path, monkeypatch, YARN, {"resolutions": resolutions}, {"resolutions": raised}
    )


@pytest.mark.registry("npm")
@pytest.mark.xdist_group("pnpm-real")
@pytest.mark.parametrize(
    ("overrides", "raised"),
    a_choice([
        ({"leaf": "6.7.0", "inner@1>leaf": "6.7.0"}, {"leaf": "6.7.3", "inner@1>leaf": "6.7.3"}),
        ({"top>leaf": "6.7.0", "inner@1>leaf": "6.7.0"}, {"top>leaf": "6.7.3", "inner@1>leaf": "6.7.3"}),
        ({"leaf@^6": "6.7.0"}, {"leaf@^6": "6.7.3"}),
        ({"leaf": "6.7.0"}, {"leaf": "6.7.3"}),
    ], step=4),
)  # fmt: skip
def test_pnpms_overrides_are_raised(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: dict[str, str],
    raised: dict[str, str],
) -> None:
    sections = [{"pnpm": {"overrides": one}} for one in (overrides, raised)]
    _raised_in_another_lock(tmp_path, monkeypatch, PNPM["9"], *sections)


def _raised_in_another_lock(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pinned: PinnedClient,
    sections: dict[str, Any],
    raised: dict[str, Any],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = provisioned(tmp_path / "cache" / "fallback-tier" / "clients", pinned)
    text = manifest(private=True, dependencies={"top": "1.0.0"}, **sections)
    with world(universe(), tmp_path) as here:
        store = ClientStore(here.clients, folder)
        if pinned is YARN:
            client, name, empty = YarnClient(here.clients, store), "yarn.lock", ""
        else:
            client, name = PnpmClient(here.clients, store), "pnpm-lock.yaml"
            empty = "lockfileVersion: '9.0'\n"
        made = client.resolve(Files(".", {"package.json": text}, name, empty))
        result = here.fix(LEAF, made.texts)
        assert here.written(result).argv  # the files are there; npm has no lock to install from
        words = [str(store.script(pinned)), "install", "--frozen-lockfile", "--ignore-scripts"]
        reported = here.clients.inner.run("node", words, cwd=here.root, timeout_s=120)
        assert reported.ok, reported.output
    new = json.loads(after(result, "package.json"))
    assert new == json.loads(manifest(private=True, dependencies={"top": "1.0.0"}, **raised))
    (move,) = result.moves
    assert (move.before, move.after, move.step) == (("6.7.0",), "6.7.3", LadderStep.DIRECT_BUMP)
