"""A lock of version 1 is handed to npm as one of version 3: npm asks the registry about what changes, not
about every package of the lock, and what lies in archives stays as the lock has it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.npm.locks.lockfile import modern
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Universe, serve
from tests.unit.npm.world import Counting, World, bad, manifest, world

#: A public project had five times as many, and its plan took three minutes: npm asked about each of them.
PACKAGES = 300

LEAF = bad("leaf", ("0", "1.2.0"))


def big() -> tuple[Universe, dict[str, str]]:
    """Each package requires two others; the last one a leaf and, as an optional package of another system,
    ``events``, whose archive has ``pre`` and what that requires, ``inner``."""
    universe = Universe()
    entries: dict[str, Any] = {}
    for number in range(PACKAGES):
        below = (2 * number + 1, 2 * number + 2)
        needs = {f"p{it}": "^1.0.0" for it in below if it < PACKAGES} or {"leaf": "^1.0.0"}
        optional = {} if number + 1 < PACKAGES else {"events": "^1.0.0"}
        universe.npm(f"p{number}", "1.0.0", needs, optionalDependencies=optional)
        entries[f"p{number}"] = {"version": "1.0.0", "requires": {**needs, **optional}}
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        universe.npm("leaf", version)
    universe.npm("other", "1.0.0").npm("pre", "1.0.0", {"inner": "1.0.0"}).npm("inner", "1.0.0")
    universe.npm(
        "events",
        "1.0.0",
        {"pre": "^1.0.0", "other": "^1.0.0"},
        manifest={"os": ["darwin"], "bundleDependencies": ["pre"]},
        files={
            "node_modules/pre/package.json": '{"name": "pre", "version": "1.0.0"}',
            "node_modules/inner/package.json": '{"name": "inner", "version": "1.0.0"}',
        },
    )
    inside = {"version": "1.0.0", "bundled": True, "optional": True}
    entries |= {
        "leaf": {"version": "1.1.0"},
        "other": {"version": "1.0.0", "optional": True},
        "events": {
            "version": "1.0.0",
            "optional": True,
            "requires": {"other": "^1.0.0", "pre": "^1.0.0"},
            "dependencies": {"inner": inside, "pre": {**inside, "requires": {"inner": "1.0.0"}}},
        },
    }
    head = {"name": "app", "version": "1.0.0", "lockfileVersion": 1, "requires": True}
    lock = {**head, "dependencies": dict(sorted(entries.items()))}
    return universe, {
        "package.json": manifest(dependencies={"p0": "^1.0.0"}),
        "package-lock.json": json.dumps(lock, indent=2) + "\n",
    }


def test_a_large_lock_takes_one_run_that_asks_about_the_package(tmp_path: Path) -> None:
    universe, files = big()
    with serve(universe) as registry:
        clients = Counting(SubprocessClients({**os.environ, **registry.environ}))
        here = World(universe, clients, tmp_path / "repo")
        result = here.fix(LEAF, files)
        asked = [path for path in registry.paths() if "/npm/p" in path]
    assert [call[:2] for call in here.clients.calls] == [("npm", "view"), ("npm", "install")]
    assert not asked
    (move,) = result.moves
    assert (move.step, move.before, move.after) == (LadderStep.LOCK_REFRESH, ("1.1.0",), "1.2.0")
    (change,) = result.changes
    before, after = (json.loads(text or "") for text in (change.before, change.after))
    assert after["dependencies"].pop("leaf")["version"] == "1.2.0"
    del before["dependencies"]["leaf"]
    assert after == before


@pytest.mark.parametrize(
    "entry",
    [{"version": "1.0.0", "peer": True}, {"version": "git+https://host/leaf.git#abc"}, {}],
    ids=["a peer", "git", "no version"],
)
def test_a_lock_that_does_not_say_enough_is_left_to_npm(entry: dict[str, Any]) -> None:
    text = json.dumps({"lockfileVersion": 1, "dependencies": {"leaf": entry}})
    assert modern(text, "{}") == text


def test_an_alias_keeps_the_name_of_its_package() -> None:
    text = json.dumps({"lockfileVersion": 1, "dependencies": {"l": {"version": "npm:leaf@1.0.0"}}})
    entry = json.loads(modern(text, "{}"))["packages"]["node_modules/l"]
    assert entry == {"name": "leaf", "version": "1.0.0"}


def test_a_lock_of_version_one_is_fixed_in_its_own_format(tmp_path: Path) -> None:
    """An optional package stays optional, a missing one missing, an alias an alias."""
    universe = Universe().npm("leaf", "1.0.0").npm("leaf", "1.2.0").npm("gone", "1.0.0")
    universe.npm("mac", "1.0.0", manifest={"os": ["darwin"]})
    universe.npm("top", "1.0.0", {"leaf": "^1.0.0"}, optionalDependencies={"mac": "^1.0.0"})
    with world(universe, tmp_path) as here:
        files = here.locked(
            {"package.json": manifest(dependencies={"t": "npm:top@^1.0.0"})}, version=1
        )
        files["package-lock.json"] = files["package-lock.json"].replace('"1.2.0"', '"1.0.0"')
        lock = json.loads(files["package-lock.json"])
        lock["dependencies"]["leaf"] = {"version": "1.0.0"}
        files["package-lock.json"] = json.dumps(lock, indent=2) + "\n"
        result = here.fix(LEAF, files)
    after = json.loads(result.changes[0].after or "")["dependencies"]
    assert after["leaf"]["version"] == "1.2.0"
    assert after["mac"]["optional"] is True
    assert {key: it for key, it in after.items() if key != "leaf"} == {
        key: it for key, it in lock["dependencies"].items() if key != "leaf"
    }
