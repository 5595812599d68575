"""A copy in another package's archive: the bundling package goes to the lowest release whose bundle is
clean. Archives are read, never run; and npm asks no host but its registry, whatever a package names."""

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.npm.clients import archives
from fallback_plugins.npm.clients.archives import Bundled, bundled_in
from fallback_plugins.npm.strategies.bundles import MAX_ARCHIVES
from fallback_tier.advisory import bundle
from fallback_tier.errors import RecipeError
from fallback_tier.repo import Settings
from tests.choice import a_choice
from tests.registry import Universe, serve
from tests.unit.npm.world import World, bad, manifest, versions, world

LEAF = bad("leaf", ("0", "1.2.0"))


def program(
    universe: Universe,
    version: str,
    leaf: str,
    deps: Mapping[str, str] | None = None,
    bundled: tuple[str, ...] = ("leaf",),
) -> Universe:
    """A release whose archive holds a leaf. ``bundled``: what its manifest names as bundled."""
    inner = json.dumps({"name": "leaf", "version": leaf})
    return universe.npm(
        "program",
        version,
        {"leaf": "^1.0.0", **(deps or {})},
        manifest={"bundleDependencies": [*bundled]},
        files={"node_modules/leaf/package.json": inner, "node_modules/leaf/index.js": ""},
    )


def universe(*held: tuple[str, str]) -> Universe:
    """``held``: releases of the program, and the leaf that each bundles."""
    found = Universe().npm("leaf", "1.0.0").npm("leaf", "1.2.0")
    for version, leaf in held:
        program(found, version, leaf)
    return found


USUAL = (("1.0.0", "1.0.0"), ("1.0.1", "1.0.0"), ("1.1.0", "1.2.0"), ("1.2.0", "1.2.0"))


def locked(here: World, spec: str, lock_version: int = 3, **more: str) -> dict[str, str]:
    """The lock was made when 1.0.0 was what was asked for."""
    was = manifest(dependencies={"program": "1.0.0", **dict.fromkeys(more, "1.0.0")})
    files = {"package.json": manifest(dependencies={"program": spec, **more})}
    return here.locked(files, was, lock_version)


def test_a_listed_copy_is_fixed_beside_a_name_that_no_lock_lists(tmp_path: Path) -> None:
    """Archives name packages as bundled that they don't hold. That says nothing of the listed ones."""
    published = universe()
    for version, leaf in USUAL:
        program(published, version, leaf, bundled=("leaf", "phantom"))
    with world(published, tmp_path) as here:
        result = here.fix(LEAF, locked(here, "^1.0.0"))
    (move,) = result.moves
    assert (move.package, move.after, move.raised) == ("leaf", "1.2.0", ("program 1.1.0",))


# A lock of version 2 has what 1 and 3 have; of version 3 are the other tests' locks.
@pytest.mark.parametrize("lock_version", a_choice((1, 2, 3), step=3))
def test_within_its_range_only_the_lock_changes(tmp_path: Path, lock_version: int) -> None:
    with world(universe(*USUAL), tmp_path) as here:
        result = here.fix(LEAF, locked(here, "^1.0.0", lock_version))
        reported = here.written(result)
        tree = json.loads((here.root / "node_modules/.package-lock.json").read_text())["packages"]
    assert reported.ok, reported.output
    (move,) = result.moves
    assert (move.package, move.before, move.after) == ("leaf", ("1.0.0",), "1.2.0")
    assert (move.step, move.raised) == (LadderStep.LOCK_REFRESH, ("program 1.1.0",))
    assert [change.path for change in result.changes] == ["package-lock.json"]
    assert tree["node_modules/program"]["version"] == "1.1.0"
    assert tree["node_modules/program/node_modules/leaf"]["version"] == "1.2.0"


def test_a_declaration_that_holds_it_back_is_raised(tmp_path: Path) -> None:
    with world(universe(*USUAL), tmp_path) as here:
        result = here.fix(LEAF, locked(here, "1.0.0"))
        assert here.written(result).ok
        declared = json.loads((here.root / "package.json").read_text())["dependencies"]
    assert declared == {"program": "1.1.0"}
    assert result.moves[0].step is LadderStep.PARENT_BUMP
    assert result.moves[0].raised == ("program 1.1.0",)
    assert "leaf 1.0.0 is bundled in program 1.0.0" in result.moves[0].declined[0].reason


def test_who_asks_for_the_bundling_package_is_raised_where_that_holds_it_back(
    tmp_path: Path,
) -> None:
    found = universe(*USUAL).npm("top", "1.0.0", {"program": "1.0.0"})
    found.npm("top", "1.1.0", {"program": "~1.1.0"})
    with world(found, tmp_path) as here:
        files = {"package.json": manifest(dependencies={"top": "^1.0.0"})}
        files = here.locked(files, manifest(dependencies={"top": "1.0.0"}))
        result = here.fix(LEAF, files)
        assert here.written(result).ok
    held = versions(result)
    assert (held["top"], held["program"]) == ("1.1.0", "1.1.0")


def test_other_copies_are_fixed_with_it(tmp_path: Path) -> None:
    with world(universe(*USUAL), tmp_path) as here:
        result = here.fix(LEAF, locked(here, "^1.0.0", leaf="^1.0.0"))
        assert here.written(result).ok
    assert versions(result) == {
        "leaf": "1.2.0",
        "program": "1.1.0",
        "program/node_modules/leaf": "1.2.0",
    }


def test_a_release_that_bundles_nothing_any_more_serves(tmp_path: Path) -> None:
    found = universe(*USUAL[:2]).npm("program", "1.3.0", {"leaf": "^1.0.0"})
    with world(found, tmp_path) as here:
        result = here.fix(LEAF, locked(here, "^1.0.0"))
        assert here.written(result).ok
    assert versions(result) == {"leaf": "1.2.0", "program": "1.3.0"}


def test_what_a_release_asks_for_besides_is_looked_up(tmp_path: Path) -> None:
    """npm's last run may ask nobody: what the new release brings along has to be known by then."""
    found = universe(*USUAL[:2]).npm("dep", "1.0.0", {"deep": "^1.0.0"})
    found.npm("deep", "1.0.0", {"deeper": "^1.0.0"}).npm("deeper", "1.0.0")
    program(found, "2.0.0", "1.2.0", {"dep": "^1.0.0"})
    with world(found, tmp_path) as here:
        result = here.fix(LEAF, locked(here, "^1.0.0"))
        assert here.written(result).ok
    assert versions(result)["deeper"] == "1.0.0"
    assert any("a major step" in note for note in result.notes)


def test_the_lowest_is_found_by_halves(tmp_path: Path) -> None:
    """Of 40 releases, the 28th is the first that is clean; the next major's first is not."""
    held = [(f"1.{n}.0", "1.2.0" if n >= 28 else "1.0.0") for n in range(40)]
    with world(universe(*held, ("2.0.0", "1.0.0")), tmp_path) as here:
        result = here.fix(LEAF, locked(here, "^1.0.0"))
        read = [call for call in here.clients.calls if call[1] == "pack"]
    assert versions(result)["program"] == "1.28.0"
    assert len(read) <= 7 <= MAX_ARCHIVES


@pytest.mark.parametrize(
    "held",
    [USUAL[:2], USUAL[:1], (*USUAL[:2], ("2.0.0", "1.1.0"))],
    ids=["none", "no other", "new"],
)
def test_where_no_release_serves_the_bundling_package_is_named(
    tmp_path: Path, held: tuple[tuple[str, str], ...]
) -> None:
    with world(universe(*held), tmp_path) as here:
        files = locked(here, "^1.0.0")
        with pytest.raises(RecipeError, match=r"leaf 1\.0\.0 .* program 1\.0\.0") as caught:
            here.fix(LEAF, files)
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    assert caught.value.next_step.startswith("Replace program")


def test_of_a_bundle_of_advisories_the_rest_is_fixed(tmp_path: Path) -> None:
    second = bad("other", ("0", "1.1.0")).model_copy(update={"id": "OSV-TEST-2"})
    found = universe(*USUAL[:2]).npm("other", "1.0.0").npm("other", "1.1.0")
    with world(found, tmp_path) as here:
        result = here.fix(bundle([LEAF, second]), locked(here, "^1.0.0", other="^1.0.0"))
    assert [(it.package, it.reason) for it in result.left] == [
        ("leaf", RefusalReason.BLOCKED_BY_CONSTRAINT)
    ]
    assert [move.package for move in result.moves] == ["other"]


def test_offline_no_archive_is_fetched(tmp_path: Path) -> None:
    with world(universe(*USUAL), tmp_path) as here:
        files = locked(here, "^1.0.0")
        here.settings = Settings(offline=True)
        with pytest.raises(RecipeError, match=r"leaf 1\.0\.0 .* program"):
            here.fix(LEAF, files)
        assert "pack" not in here.verbs()


def test_an_address_that_a_release_names_is_not_asked(tmp_path: Path) -> None:
    """Where npm is allowed to look into archives, it may ask nobody."""
    with serve(Universe().npm("x", "1.0.0")) as elsewhere:
        found = universe(*USUAL[:2])
        program(found, "1.1.0", "1.2.0", {"x": f"{elsewhere.npm_url}x/-/x-1.0.0.tgz"})
        with world(found, tmp_path) as here:
            files = locked(here, "^1.0.0")
            with pytest.raises(RecipeError):
                here.fix(LEAF, files)
        assert elsewhere.requests == []


# --- reading ------------------------------------------------------------------------------------------


def test_every_depth_and_scope_is_read(tmp_path: Path) -> None:
    files = {
        f"{place}/package.json": json.dumps({"name": name, "version": "1.0.0"})
        for place, name in {
            "node_modules/a": "a",
            "node_modules/@s/b": "@s/b",
            "node_modules/a/node_modules/@s/c": "@s/c",
            "lib/node_modules/d": "d",
            "node_modules/a/test": "no-package",
        }.items()
    }
    found = Universe().npm("p", "1.0.0", manifest={"bundleDependencies": ["a"]}, files=files)
    with world(found, tmp_path) as here:
        read = bundled_in("p", "1.0.0", here.clients)
    assert set(read) == {Bundled(name, "1.0.0") for name in ("a", "@s/b", "@s/c")}


@pytest.mark.parametrize("fault", ["unpacks", "manifest", "no JSON", "no archive", "fetched"])
def test_an_archive_that_nobody_needs_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo("package/node_modules/a/package.json")
        text = b"{" if fault == "no JSON" else b'{"name": "a", "version": "1"}'
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    limits = {
        "unpacks": "MAX_UNPACKED_BYTES",
        "manifest": "_MAX_MANIFEST_BYTES",
        "fetched": "MAX_ARCHIVE_BYTES",
    }
    if fault in limits:
        monkeypatch.setattr(archives, limits[fault], 5)
    path = tmp_path / "it.tgz"
    path.write_bytes(b"no archive" if fault == "no archive" else packed.getvalue())
    with pytest.raises((ValueError, tarfile.TarError)):
        list(archives._read(path))
