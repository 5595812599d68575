"""Locks that contradict themselves, and copies in the repository: never "not affected" on their word."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm import build_ecosystem
from fallback_plugins.npm.locks.addresses import origin_of
from fallback_plugins.npm.recipe import outline
from fallback_plugins.npm.surveying import origins
from fallback_plugins.npm.surveying.origins import local_archives
from fallback_plugins.npm.surveying.survey import survey
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import NotApplicable, RecipeSelection, Selected
from fallback_tier.repo import Settings
from tests.registry import Universe
from tests.unit.npm.npm_files import manifest
from tests.unit.npm.world import world
from tests.unit.shared.recipes import FakeClients, advisory, repository, tracked

LEFT = advisory("npm", "left", [("0", "2.0.0")])
SCOPED = advisory("npm", "@acme/left", [("0", "2.0.0")])

AT = "https://registry.example/"
OLD = f"{AT}left/-/left-1.0.0.tgz"
NEW = f"{AT}left/-/left-2.0.0.tgz"
PNPM_OLD = f"{{resolution: {{integrity: x, tarball: {OLD}}}}}"
Files = dict[str, str]


def entry(version: str, name: str = "left", held: str | None = None, **facts: object) -> Any:
    """An entry of a lock that states a version; ``held``: that of its archive."""
    file = f"{name.rpartition('/')[2]}-{held or version}.tgz"
    return {"version": version, "resolved": f"{AT}{name}/-/{file}", **facts}


def lock(entries: Mapping[str, Any], version: int = 3, **root: Any) -> Files:
    """A manifest and a lock; keys are npm's paths."""
    facts = {"name": "app", "lockfileVersion": version}
    dependencies = root.pop("dependencies", {})
    if version > 1:
        own = {"": {"name": "app", "dependencies": dependencies}}
        facts["packages"] = own | {f"node_modules/{key}": it for key, it in entries.items()}
    if version < 3:
        facts["dependencies"] = dict(entries)
    return {
        "package.json": manifest(dependencies=dependencies),
        "package-lock.json": json.dumps(facts),
    }


def yarn(patterns: str, version: str, resolved: str, **dependencies: str) -> Files:
    keys = ", ".join(f'"{pattern}"' for pattern in patterns.split(", "))
    return {
        "package.json": manifest(dependencies=dependencies),
        "yarn.lock": f'{keys}:\n  version "{version}"\n  resolved "{resolved}"\n',
    }


def pnpm(key: str, spec: str, ref: str, node: str, facts: str) -> Files:
    text = f"""lockfileVersion: '9.0'
importers:
  .:
    dependencies:
      {key}: {{specifier: '{spec}', version: '{ref}'}}
packages:
  {node}: {facts}
snapshots:
  {node}: {{}}
"""
    return {"package.json": manifest(dependencies={key: spec}), "pnpm-lock.yaml": text}


def select(place: Path, files: Files, record: Any = LEFT) -> RecipeSelection:
    return build_ecosystem(FakeClients()).select(record, repository(place, files))


LIES = {
    "version": lock({"left": entry("2.0.0", held="1.0.0")}, dependencies={"left": "^2.0.0"}),
    "version, v2": lock({"left": entry("2.0.0", held="1.0.0")}, 2, dependencies={"left": "2"}),
    "version, v1": lock({"left": entry("2.0.0", held="1.0.0")}, 1, dependencies={"left": "2"}),
    "nested": lock({"a": entry("1.0.0", "a"), "a/node_modules/left": entry("2.0.0", held="1.9.9")}),
    "pre-release": lock({"left": entry("2.0.0", held="2.0.0-rc.1")}),
    "own name, another's archive": lock({"left": entry("2.0.0", "evil")}),
    "another's name, the archive": lock({"foo": {"version": "2.0.0", "resolved": OLD}}),
    "stated name": lock({"foo": {"name": "bar", **entry("1.0.0")}}),
    "alias that states the package": lock({"foo": {"name": "left", **entry("2.0.0", held="1.0.0")}}),
    "file of another server": lock({"foo": {"version": "2.0.0", "resolved": "https://h/left-1.0.0.tgz"}}),
    "own file of another server": lock({"left": {"version": "2.0.0", "resolved": "https://h/left-1.0.0.tgz"}}),
    "no version": lock({"left": {"resolved": OLD}}),
    "no version, no name": lock({"a/node_modules/foo": {"resolved": OLD, "integrity": "sha512-x"}}),
    "path with a slash": lock({"left/": entry("2.0.0", held="1.0.0")}),
    "git": lock({"foo": {"version": "2.0.0", "resolved": "git+ssh://git@github.com/u/left.git#abc"}}),
    "git, v1": lock({"foo": {"version": "github:u/left#abc", "from": "github:u/left"}}, 1),
    "yarn version": yarn("left@^2.0.0", "2.0.0", f"{AT}left/-/left-1.0.0.tgz#aa", left="^2.0.0"),
    "yarn name": yarn("foo@^1.0.0", "1.0.0", OLD, foo="^1.0.0"),
    "yarn alias": yarn("foo@npm:right@^2", "2.0.0", OLD, foo="npm:right@^2"),
    "yarn git": yarn("foo@u/left", "2.0.0", "https://codeload.github.com/u/left/tar.gz/abc", foo="u/left"),
    "pnpm version": pnpm("left", "^2.0.0", "2.0.0", "left@2.0.0", PNPM_OLD),
    "pnpm name": pnpm("foo", "^2.0.0", "2.0.0", "foo@2.0.0", PNPM_OLD),
    "yarn, two packages in one": yarn("foo@^1, left@^1", "1.0.0", f"{AT}foo/-/foo-1.0.0.tgz", foo="^1"),
}  # fmt: skip


@pytest.mark.parametrize("files", LIES.values(), ids=LIES)
def test_lock_that_contradicts_itself_is_refused_by_its_entry(tmp_path: Path, files: Files) -> None:
    found = select(tmp_path, files)
    assert isinstance(found, NotApplicable)
    assert found.reason is RefusalReason.UNKNOWN
    assert "left" in found.sentence
    assert next(path for path in files if "lock" in path) in found.sentence
    (left,) = outline(LEFT, tracked(tmp_path), FakeClients()).left
    assert left.sentence in found.sentence


def test_address_in_a_versions_place_is_never_safe(tmp_path: Path) -> None:
    """So a lock of version 1 has what a project takes from an address."""
    reported = select(tmp_path, lock({"foo": {"version": OLD}}, 1))
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert "left in package-lock.json" in reported.sentence


@pytest.mark.parametrize("held", [entry("1.0.0"), None, entry("2.1.0")])
@pytest.mark.parametrize(
    ("part", "key"), [("dependencies", "left"), ("packages", "node_modules/left")]
)
def test_parts_of_a_lock_that_differ_are_refused(
    tmp_path: Path, held: Any, part: str, key: str
) -> None:
    """Version 2 has the tree twice: npm 6 installs the second."""
    files = lock({"left": entry("2.0.0"), "right": entry("1.0.0", "right")}, 2)
    mixed = json.loads(files["package-lock.json"])
    del mixed[part][key]
    if held is not None:
        mixed[part][key] = held
    reported = select(tmp_path, files | {"package-lock.json": json.dumps(mixed)})
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.UNKNOWN
    assert "left" in reported.sentence


@pytest.mark.parametrize("name", ["@acme/left", "@acme%2fleft", "@acme%2Fleft"])
def test_scope_is_read_however_the_address_spells_it(tmp_path: Path, name: str) -> None:
    address = f"{AT}{name}/-/left-1.0.0.tgz"
    files = lock({"foo": {"name": "foo", "version": "1.0.0", "resolved": address}})
    found = select(tmp_path, files, SCOPED)
    assert isinstance(found, NotApplicable)
    assert found.reason is RefusalReason.UNKNOWN


def test_slash_that_json_escapes_hides_no_package(tmp_path: Path) -> None:
    files = lock(
        {"@acme/left": entry("1.0.0", "@acme/left")}, dependencies={"@acme/left": "^1.0.0"}
    )
    files = {path: text.replace("@acme/left", r"@acme\/left") for path, text in files.items()}
    assert isinstance(select(tmp_path, files, SCOPED), Selected)


ALIASES = {
    "v3": lock({"foo": entry("1.0.0")}, dependencies={"foo": "npm:left@^1.0.0"}),
    "v2": lock({"foo": entry("1.0.0")}, 2, dependencies={"foo": "npm:left@^1.0.0"}),
    "v1": lock({"foo": entry("1.0.0")}, 1, dependencies={"foo": "npm:left@^1.0.0"}),
    "v1 as npm writes it": lock({"foo": {"version": "npm:left@1.0.0"}}, 1),
    "version as of v1": lock({"foo": {"version": "npm:left@1.0.0"}}),
    "nested": lock({"a": entry("1.0.0", "a"), "a/node_modules/foo": entry("1.0.0")}),
}


@pytest.mark.parametrize("files", ALIASES.values(), ids=ALIASES)
def test_alias_without_a_name_is_the_package_of_its_archive(tmp_path: Path, files: Files) -> None:
    assert isinstance(select(tmp_path, files), Selected)
    (project,) = survey(tracked(tmp_path), "left")
    assert {*project.installed.values()} == {"1.0.0"}


HONEST = {
    "plain": entry("2.0.0"),
    "v before the version": entry("2.0.0") | {"resolved": f"{AT}left/-/left-v2.0.0.tgz"},
    "build": entry("2.0.0+a.1", held="2.0.0%2Ba.1"),
    "loose": entry("2.0.1-beta", held="2.0.1beta"),
    "no address": {"version": "2.0.0", "integrity": "sha512-x"},
    "mirror": {"version": "2.0.0", "resolved": "https://art/api/npm/npm/left/-/left-2.0.0.tgz"},
    "another form of mirror": {"version": "2.0.0", "resolved": "https://r.example/left/download/left-2.0.0.tgz?x=1"},
    "digest for a name": {"version": "2.0.0", "resolved": "https://npm.pkg.example/download/left/2.0.0/0123abc"},
    "fork by git": {"version": "2.0.0", "resolved": "git+ssh://git@github.com/u/left-fork.git#abc"},
    "fork by file": {"version": "2.0.0", "resolved": "https://h/left-fork-2.1.0.tgz"},
    "bundled": {"version": "2.0.0", "inBundle": True},
}  # fmt: skip


@pytest.mark.parametrize("found", HONEST.values(), ids=HONEST)
def test_ordinary_entry_is_believed(tmp_path: Path, found: Any) -> None:
    reported = select(tmp_path, lock({"left": found}))
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.NOT_AFFECTED


ELSEWHERE = {
    "another package's lie": lock({"right": entry("2.0.0", "right", "1.0.0"), "left": entry("2.0.0")}),
    "alias of a fork": lock({"left": {"name": "@acme/left", **entry("1.0.0", "@acme/left")}}),
    "alias": lock({"foo": {"name": "right", **entry("1.0.0", "right")}}),
    "scope by npm pack": lock({"@acme/left": {"version": "2.0.0", "resolved": "https://h/acme-left-2.0.0.tgz"}}),
    "yarn": yarn("left@^2.0.0", "2.0.0", f"{AT}left/-/left-2.0.0.tgz#aa", left="^2.0.0"),
    "yarn alias": yarn("foo@npm:left@^2.0.0", "2.0.0", NEW, foo="npm:left@^2.0.0"),
    "pnpm alias": pnpm("foo", "npm:left@^2", "left@2.0.0", "left@2.0.0", "{resolution: {integrity: x}}"),
}  # fmt: skip


@pytest.mark.parametrize("files", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_says_nothing_against_the_package_is_not_affected(
    tmp_path: Path, files: Files
) -> None:
    reported = select(tmp_path, files)
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.NOT_AFFECTED


def test_such_a_lock_among_fixtures_stops_no_fix_and_is_not_clean(tmp_path: Path) -> None:
    lie = {f"tests/data/{path}": text for path, text in LIES["version"].items()}
    reported = select(tmp_path / "a", lie)
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.UNKNOWN
    held = lock({"left": entry("1.0.0")}, dependencies={"left": "^1.0.0"})
    assert isinstance(select(tmp_path / "b", lie | held), Selected)


# --- the repository's own archives and folders ----------------------------------------------------


def packed(name: str, version: str, **files: str) -> bytes:
    return Universe().npm(name, version, files=files).npm_packages[name][version].tarball


def with_archive(
    place: Path, files: Files, archive: bytes, path: str = "vendor/x.tgz", record: Any = LEFT
) -> RecipeSelection:
    repository(place, files)
    (place / path).parent.mkdir(parents=True, exist_ok=True)
    (place / path).write_bytes(archive)
    return build_ecosystem(FakeClients()).select(record, tracked(place))


SPECS = ["file:vendor/x.tgz", "file:./vendor/x.tgz", "./vendor/x.tgz", "vendor/x.tgz"]


def _locked(spec: str, version: str) -> Files:
    held = {"version": version, "resolved": "file:vendor/x.tgz"}
    return lock({"foo": held}, dependencies={"foo": spec})


LOCAL: dict[str, Callable[[str], Files]] = {
    "no lock": lambda spec: {"package.json": manifest(dependencies={"foo": spec})},
    "v3": lambda spec: _locked(spec, "2.0.0"),
    "v1": lambda spec: lock({"foo": {"version": "file:vendor/x.tgz"}}, 1, dependencies={"foo": spec}),
    "yarn": lambda spec: yarn(f"foo@{spec}", "2.0.0", "file:vendor/x.tgz#aa", foo=spec),
}  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("made", LOCAL.values(), ids=LOCAL)
def test_archive_of_the_repository_is_what_its_own_manifest_says(
    tmp_path: Path, made: Callable[[str], Files], spec: str
) -> None:
    reported = with_archive(tmp_path, made(spec), packed("left", "1.0.0"))
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert "left 1.0.0 from 'vendor/x.tgz'" in reported.sentence


def test_package_that_such_an_archive_bundles_counts(tmp_path: Path) -> None:
    inside = {"node_modules/left/package.json": json.dumps({"name": "left", "version": "1.0.0"})}
    reported = with_archive(tmp_path, LOCAL["v3"](SPECS[0]), packed("foo", "1.0.0", **inside))
    assert "left 1.0.0 from 'vendor/x.tgz'" in str(reported)


@pytest.mark.parametrize("name", ["x.tgz", "left-2.0.0.tgz"])
def test_archive_that_can_not_be_read_is_unknown(tmp_path: Path, name: str) -> None:
    files = {"package.json": manifest(dependencies={"foo": f"file:vendor/{name}"})}
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    reported = with_archive(tmp_path, files, pointer, f"vendor/{name}")
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert f"vendor/{name}" in reported.sentence


@pytest.mark.parametrize("archive", [packed("left", "2.0.0"), packed("right", "1.0.0")])
def test_archive_that_is_safe_stops_nothing(tmp_path: Path, archive: bytes) -> None:
    reported = with_archive(tmp_path, LOCAL["v3"](SPECS[0]), archive)
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize("spec", ["file:libs/l", "link:./libs/l", "portal:libs/l"])
@pytest.mark.parametrize(("version", "affected"), [("1.0.0", True), ("2.0.0", False)])
def test_folder_of_the_repository_is_what_its_manifest_says(
    tmp_path: Path, spec: str, version: str, affected: bool
) -> None:
    files = lock({"foo": {"resolved": "libs/l", "link": True}}, dependencies={"foo": spec}) | {
        "libs/l/package.json": json.dumps({"name": "left", "version": version})
    }
    reported = select(tmp_path, files)
    assert isinstance(reported, NotApplicable)
    expected = RefusalReason.RECIPE_UNSUPPORTED if affected else RefusalReason.NOT_AFFECTED
    assert reported.reason is expected


# --- bundled copies that no lock lists --------------------------------------------------------------


def _universe() -> Universe:
    universe = Universe()
    for version in ("1.0.0", "2.0.0"):
        inside = {
            "node_modules/left/package.json": json.dumps({"name": "left", "version": version})
        }
        universe.npm("left", version)
        bundles = {"bundleDependencies": ["left"]}
        universe.npm("bundler", version, {"left": version}, files=inside, manifest=bundles)
    return universe


def _bundling(version: str, form: str) -> Files:
    if form == "npm":
        held = {"bundleDependencies": ["left"], "dependencies": {"left": version}}
        entries = {"bundler": entry(version, "bundler", **held)}
        return lock(entries, dependencies={"bundler": version})
    facts = "{resolution: {integrity: x}, bundledDependencies: [left]}"
    return pnpm("bundler", version, version, f"bundler@{version}", facts)


@pytest.mark.registry("npm")
@pytest.mark.parametrize("form", ["npm", "pnpm"])
@pytest.mark.parametrize(("version", "affected"), [("1.0.0", True), ("2.0.0", False)])
def test_unlisted_bundled_copy_is_read_from_the_archive(
    tmp_path: Path, form: str, version: str, affected: bool
) -> None:
    with world(_universe(), tmp_path) as here:
        selection = here.select(LEFT, _bundling(version, form))
        assert isinstance(selection, Selected)
        with pytest.raises(RecipeError) as raised:
            here.plugin.apply(selection, LEFT, tracked(tmp_path / "repo"))
    if affected:
        assert raised.value.reason is RefusalReason.RECIPE_UNSUPPORTED
        assert "bundler 1.0.0 bundles left" in raised.value.problem
    else:
        assert raised.value.reason is RefusalReason.NOT_AFFECTED


@pytest.mark.registry("npm")
@pytest.mark.parametrize("form", ["npm", "pnpm"])
@pytest.mark.parametrize(("version", "affected"), [("1.0.0", True), ("2.0.0", False)])
def test_what_a_bundled_package_requires_lies_in_the_archive_too(
    tmp_path: Path, form: str, version: str, affected: bool
) -> None:
    """No file names it."""
    inside = {"node_modules/mid/package.json": json.dumps({"name": "mid", "version": "1.0.0"})}
    inside["node_modules/left/package.json"] = json.dumps({"name": "left", "version": version})
    bundles = {"bundleDependencies": ["mid"]}
    universe = Universe().npm("mid", "1.0.0", {"left": version}).npm("left", version)
    universe.npm("bundler", "1.0.0", {"mid": "1.0.0"}, files=inside, manifest=bundles)
    files = {path: text.replace("left", "mid") for path, text in _bundling("1.0.0", form).items()}
    with world(universe, tmp_path) as here:
        selection = here.select(LEFT, files)
        assert isinstance(selection, Selected)
        with pytest.raises(RecipeError) as raised:
            here.plugin.apply(selection, LEFT, tracked(tmp_path / "repo"))
    expected = RefusalReason.RECIPE_UNSUPPORTED if affected else RefusalReason.NOT_AFFECTED
    assert raised.value.reason is expected


@pytest.mark.parametrize("form", ["npm", "pnpm"])
def test_unlisted_bundled_copy_is_unknown_offline(tmp_path: Path, form: str) -> None:
    repo = repository(tmp_path, _bundling("2.0.0", form))
    quiet = repo.model_copy(update={"settings": Settings(offline=True)})
    reported = build_ecosystem(FakeClients()).select(LEFT, quiet)
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.UNKNOWN
    assert "bundler 2.0.0 bundles left" in reported.sentence


@pytest.mark.parametrize(
    ("address", "label"),
    [
        ("https://gitlab.example/api/v4/projects/1/packages/npm/@o/p/-/@o/p-1.0.0.tgz", "@o/p 1.0.0"),
        ("https://registry.example/left/-/left-1.0.0.tgz#0123", "left 1.0.0"),
        ("https://registry.example/handlebars/-/handlebars-1.0.6-2.tgz", "handlebars 1.0.6-2"),
        ("https://gitlab.com/u/left/-/archive/v1/left-v1.0.0.tar.gz", "left 1.0.0"),
        ("git@github.com:u/left.git", "left"),
        ("github:u/left#semver:^1", "left"),
        ("https://host/x.tgz", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_address_says_what_is_at_its_end(address: str, label: str) -> None:
    assert origin_of(address).label == label


def test_archives_below_the_folder_are_given_to_its_client(tmp_path: Path) -> None:
    root = repository(
        tmp_path,
        {
            "app/package.json": manifest(
                dependencies={"left": "file:../left.tgz", "b": "file:b.tgz"}
            ),
            "app/member/package.json": manifest(dependencies={"c": "file:./c.tgz"}),
        },
    ).root
    for path in ("left.tgz", "app/b.tgz", "app/member/c.tgz"):
        (root / path).write_bytes(path.encode())
    repo = tracked(root)
    sources = ("app/package.json", "app/member/package.json")
    expected = {"b.tgz": b"app/b.tgz", "member/c.tgz": b"app/member/c.tgz"}
    assert local_archives(repo, sources, "app") == expected
    assert local_archives(repo, sources, ".").keys() == {
        "left.tgz",
        "app/b.tgz",
        "app/member/c.tgz",
    }


def test_archives_beyond_the_limit_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"a": "file:a.tgz", "b": "file:b.tgz"}
    root = repository(tmp_path, {"package.json": manifest(dependencies=asked)}).root
    for path in ("a.tgz", "b.tgz"):
        (root / path).write_bytes(b"1234")
    monkeypatch.setattr(origins, "MAX_ARCHIVE_BYTES", 7)
    assert local_archives(tracked(root), ("package.json",), ".") == {"a.tgz": b"1234"}
