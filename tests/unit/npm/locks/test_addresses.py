"""Registry addresses of a lock stay the project's own; odd names and pre-releases."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_plugins.npm.locks.addresses import Addresses, origin_of
from fallback_plugins.npm.locks.lockfile import identity, lock_tree
from tests.registry import Universe
from tests.unit.npm.world import World, at, bad, project, versions, world

OWN = "https://reg.invalid/npm/"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    universe = (
        Universe()
        .npm("leaf", "1.0.0")
        .npm("leaf", "1.0.1", dependencies={"fresh": "^1.0.0"})
        .npm("fresh", "1.0.0")
        .npm("early", "1.0.0")
        .npm("early", "1.2.0-rc.1")
        .npm("early", "1.2.0")
    )
    with world(universe, tmp_path) as found:
        yield found


def entry(name: str, version: str) -> dict[str, object]:
    return {**at(version), "resolved": f"{OWN}{name}/-/{name}-{version}.tgz"}


def test_a_refreshed_lock_names_no_other_registry_than_it_did(here: World) -> None:
    """The machine's own registry is another; what is new beside the fix gets the project's too."""
    files = project({"leaf": "^1.0.0"}, {"leaf": entry("leaf", "1.0.0")})
    result = here.fix(bad("leaf", ("0", "1.0.1")), files)
    (text,) = (change.after for change in result.changes)
    assert text is not None
    found = {key: entry["resolved"] for key, entry in json.loads(text)["packages"].items() if key}
    assert found == {
        "node_modules/fresh": f"{OWN}fresh/-/fresh-1.0.0.tgz",
        "node_modules/leaf": f"{OWN}leaf/-/leaf-1.0.1.tgz",
    }
    assert "127.0.0.1" not in text


def test_scopes_have_registries_of_their_own_and_other_sources_stay() -> None:
    addresses = Addresses.of(
        [("a", f"{OWN}a/-/a-1.0.0.tgz"), ("@corp/b", "https://corp.invalid/@corp/b/-/b-1.0.0.tgz")]
    )
    here = "http://127.0.0.1:9/"
    assert addresses.like_the_others("c", f"{here}c/-/c-2.0.0.tgz") == f"{OWN}c/-/c-2.0.0.tgz"
    moved = addresses.like_the_others("@corp/d", f"{here}@corp/d/-/d-2.0.0.tgz")
    assert moved == "https://corp.invalid/@corp/d/-/d-2.0.0.tgz"
    git = "git+ssh://git@host.invalid/a/b.git#0123"
    assert addresses.like_the_others("b", git) == git
    assert Addresses.of([]).like_the_others("c", f"{here}c/-/c-2.0.0.tgz").startswith(here)


def test_a_mirror_that_says_download_is_a_registry_of_its_neighbours() -> None:
    mirror = "https://mirror.invalid/npm/"
    addresses = Addresses.of(
        [
            ("a", f"{mirror}a/download/a-1.0.0.tgz?cache=0&sync_timestamp=1#0123"),
            ("@corp/b", f"{mirror}@corp/b/download/@corp/b-1.0.0.tgz#0123"),
        ]
    )
    here = "http://127.0.0.1:9/"
    moved = addresses.like_the_others("c", f"{here}c/-/c-2.0.0.tgz#4567")
    assert moved == f"{mirror}c/-/c-2.0.0.tgz#4567"
    moved = addresses.like_the_others("@corp/d", f"{here}@corp/d/-/d-2.0.0.tgz")
    assert moved == f"{mirror}@corp/d/-/d-2.0.0.tgz"
    other = "https://code.invalid/a/download/1.0.0/archive.tgz"
    assert addresses.like_the_others("a", other) == other


def test_a_release_is_taken_before_a_pre_release(here: World) -> None:
    """The record names the candidate as fixed; the release above it is published."""
    files = project({"early": "^1.0.0"}, {"early": at("1.0.0")})
    result = here.fix(bad("early", ("0", "1.2.0-rc.1")), files)
    assert versions(result) == {"early": "1.2.0"}


@pytest.mark.parametrize("name", [["x"], {"a": 1}, 7])
def test_a_name_that_is_none_breaks_nothing(name: object) -> None:
    lock = {
        "lockfileVersion": 3,
        "packages": {"node_modules/a": {"version": "1.0.0", "name": name}},
    }
    tree = lock_tree("package-lock.json", json.dumps(lock), {}, "package.json")
    assert [node.version for node in tree.of("a")] == ["1.0.0"]


@pytest.mark.parametrize("name", ["left", "@s/left", "real", "@s/real"])
@pytest.mark.parametrize(
    "before", ["", "https://r.example/", "https://r.example/@s/", "https://h/real/-/"]
)
@pytest.mark.parametrize(
    "after", ["left-1.0.0.tgz", "x.tgz", "left-1.0.0.tgz?x=/real/-/", "left-1.0.0.tgz#a"]
)
def test_an_address_in_its_plain_form_is_read_like_any_other(
    name: str, before: str, after: str
) -> None:
    """An entry's name is the archive's, however the address is written."""
    for own in ("left", "@s/left", "@s%2fleft", "real", "@s/real"):
        address = f"{before}{own}/-/{after}"
        found, _ = identity(f"node_modules/{name}", {"version": "1.0.0", "resolved": address})
        assert found == (origin_of(address).name or name)
