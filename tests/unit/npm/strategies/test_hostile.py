"""What a repository may name, and no client of ours may follow: places, addresses, options, bombs."""

import json
import os
import time
from itertools import product
from pathlib import Path

import pytest

from fallback_audit.vocabulary import BlockerKind, LadderStep, RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.pnpm import carried_text
from fallback_plugins.npm.clients.registry import NpmRegistry
from fallback_plugins.npm.clients.scratch import NEST, check_paths, check_places, scratch_project
from fallback_plugins.npm.locks.pnpm_lock import parse_pnpm_lock
from fallback_plugins.npm.manifests.manifest import with_value
from fallback_plugins.npm.manifests.specs import admits
from fallback_plugins.npm.surveying.projects import _matches
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker
from tests.choice import a_choice
from tests.kinds import OfKind
from tests.registry import Universe
from tests.unit.npm.world import at, bad, manifest, project, versions, world
from tests.unit.shared.recipes import FakeClients

LEAF = bad("leaf", ("0", "1.2.0"))


def leaves() -> Universe:
    universe = Universe()
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        universe.npm("leaf", version)
    return universe


def test_a_lock_alone_writes_nowhere_but_into_the_scratch_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    packages = {
        "": {"name": "app", "dependencies": {"leaf": "^1.0.0"}},
        str(outside / "absolute"): {"name": "evil", "version": "1.0.0"},
        f"{'../' * 40}{str(outside)[1:]}/relative": {"name": "evil", "version": "1.0.0"},
        "node_modules/leaf": {"version": "1.0.0"},
    }
    lock = json.dumps({"lockfileVersion": 3, "packages": packages})
    with world(leaves(), tmp_path) as here:
        result = here.fix(LEAF, {"package-lock.json": lock})
    assert [move.step for move in result.moves] == [LadderStep.LOCK_EDIT]
    assert not outside.exists()


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "a\0b", "x" * 300, "dir"])
def test_a_scratch_project_takes_no_path_that_it_cannot_hold(path: str) -> None:
    with pytest.raises(RecipeError), scratch_project({"dir/file": "", path: ""}):
        pass


def test_a_scratch_project_lies_below_no_folder_that_others_may_write_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with scratch_project({"package.json": "{}"}) as folder:
        own = folder.relative_to(tmp_path).parts
        assert own[:2] == ("fallback-tier", "scratch")
        assert len(own) == 3 + NEST
        assert (tmp_path / "fallback-tier/scratch").stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "fallback-tier/scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("section", "form"),
    a_choice(
        product(
            ["dependencies", "overrides", "workspaces"],
            ["file:{}", "{}", "link:{}", "file:%2e%2e/" + "%2e%2e/" * NEST],
        ),
        step=5,
    ),
)
def test_what_lies_outside_is_not_read(tmp_path: Path, form: str, section: str) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "package.json").write_text('{"name": "secret", "version": "6.6.6"}')
    named = form.format(secret)
    more = {section: [named] if section == "workspaces" else {"secret": named}}
    files = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    files["package.json"] = manifest(**{"dependencies": {"leaf": "^1.0.0"}} | more)
    if section == "dependencies":
        files["package.json"] = manifest(dependencies={"leaf": "^1.0.0", "secret": named})
    with world(leaves(), tmp_path) as here, pytest.raises(RecipeError, check=OfKind("outside")):
        here.fix(LEAF, files)
    assert not [call for call in here.clients.calls if call[1] == "install"]


DEEP = "../" * (NEST + 1)


@pytest.mark.parametrize(
    ("lock", "text"),
    [
        ("package-lock.json", json.dumps({"packages": {f"{DEEP}etc": {}}})),
        ("package-lock.json", json.dumps({"packages": {"n": {"resolved": "/etc", "link": True}}})),
        ("yarn.lock", '"l@patch:l@npm%3A1.0.0#/etc/passwd":\n'),
        ("yarn.lock", f'  resolution: "l@patch:l@npm%3A1.0.0#optional!./{DEEP}x::version=1.0.0"\n'),
    ],
)
def test_a_lock_may_lead_nowhere_outside(lock: str, text: str) -> None:
    with pytest.raises(RecipeError, check=OfKind("outside")):
        check_places(Files(".", {"package.json": "{}"}, lock, text))


CLIMBING = f"a/../{DEEP}etc"


@pytest.mark.parametrize(
    "facts",
    [
        {"dependencies": {"a/../../x": "npm:l@1.0.0"}},
        {"optionalDependencies": {"../x": "1.0.0"}},
        {"pnpm": {"packageExtensions": {"l": {"dependencies": {"../x": "npm:l@1.0.0"}}}}},
    ],
)
def test_no_package_is_called_by_a_path_that_climbs(facts: dict[str, object]) -> None:
    with pytest.raises(RecipeError, check=OfKind("outside")):
        check_paths(Files(".", {"package.json": json.dumps(facts)}))


@pytest.mark.parametrize(
    ("lock", "text"),
    [
        ("yarn.lock", f'"{CLIMBING}@npm:l@1.0.0":\n  version "1.0.0"\n'),
        ("yarn.lock", f'l@1.0.0:\n  version "1.0.0"\n  dependencies:\n    "{CLIMBING}" "1.0.0"\n'),
        (
            "pnpm-lock.yaml",
            f"snapshots:\n  l@1.0.0:\n    dependencies:\n      '{CLIMBING}': m@1.0.0\n",
        ),
        ("pnpm-lock.yaml", f'packages:\n  "/{CLIMBING}@1.0.0":\n    dev: false\n'),
        (
            "pnpm-lock.yaml",
            'packages:\n  "' + r"\x2e\x2e/" * (NEST + 1) + 'x@1.0.0":\n    dev: false\n',
        ),
    ],
)
def test_no_package_of_a_lock_is_called_so(lock: str, text: str) -> None:
    with pytest.raises(RecipeError, check=OfKind("outside")):
        check_places(Files(".", {"package.json": "{}"}, lock, text))


@pytest.mark.parametrize(
    "line",
    [
        "diff --git a/x b/../x",
        "+++ b/a/../../x",
        "rename to ../x",
        '--- "a/../x"',
        "copy from x/../y",
    ],
)
def test_a_patch_changes_files_of_its_package(line: str) -> None:
    with pytest.raises(RecipeError, check=OfKind("outside"), match=r"l\.patch"):
        check_places(Files(".", {"package.json": "{}"}), {"l.patch": f"x\n{line}\n"})


def test_ordinary_names_are_no_reason_to_refuse() -> None:
    root = json.dumps({"dependencies": {"@s/l": "file:../l", "m": "link:../../m"}})
    lock = "importers:\n  ../l:\n    dependencies: {}\npackages:\n  l@file:../l:\n    dev: false\n"
    change = "@@ -1 +1 @@\n-import '../x'\n+import '../y'\n"
    patch = f"diff --git a/..x/y b/..x/y\n--- a/..x/y\n+++ b/..x/y\n{change}"
    files = Files(".", {"package.json": root}, "pnpm-lock.yaml", lock)
    check_places(files, {"patches/l.patch": patch})


@pytest.mark.parametrize(
    "text", ["#~builtin<compat/fsevents>", "#./.yarn/patches/l.patch", "#~/.yarn/patches/l.patch"]
)
def test_a_patch_of_the_repository_is_no_reason_to_refuse(text: str) -> None:
    spec = f"patch:l@npm%3A1.0.0{text}"
    manifest = json.dumps({"dependencies": {"l": spec}})
    lock = f'__metadata:\n  version: 8\n\n"l@{spec}":\n'
    check_places(Files(".", {"package.json": manifest}, "yarn.lock", lock))


@pytest.mark.parametrize("glob", ["/etc/*", f"!{DEEP}*", "{..,x}/" * (NEST + 1)])
def test_members_of_a_workspace_are_in_the_repository(glob: str) -> None:
    with pytest.raises(RecipeError, check=OfKind("outside")):
        carried_text({"packages": [glob]})
    with pytest.raises(RecipeError, check=OfKind("outside")):
        check_paths(Files(".", {"package.json": json.dumps({"workspaces": [glob]})}))


def test_a_relative_folder_of_the_repository_is_no_reason_to_refuse(tmp_path: Path) -> None:
    files = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    packages = json.loads(files["package-lock.json"])
    packages["packages"]["node_modules/shared"] = {"resolved": "../shared", "link": True}
    packages["packages"]["../shared"] = {"name": "shared", "version": "1.0.0"}
    packages["packages"][""]["dependencies"]["shared"] = "file:../shared"
    files["package.json"] = manifest(dependencies={"leaf": "^1.0.0", "shared": "file:../shared"})
    files["package-lock.json"] = json.dumps(packages, indent=2) + "\n"
    with world(leaves(), tmp_path) as here:
        result = here.fix(LEAF, {f"app/{path}": text for path, text in files.items()})
    assert versions(result, "app/package-lock.json")["leaf"] == "1.2.0"


def test_no_host_but_the_registry_is_asked_for_a_tarball(tmp_path: Path) -> None:
    x = "http://127.0.0.1:9/x.tgz"
    files = project({"leaf": "^1.0.0", "x": x}, {"leaf": at("1.0.0")})
    with world(leaves(), tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(LEAF, files)
    steps = caught.value.declined
    found = {it for step in steps if step.step is not LadderStep.OVERRIDE for it in step.blockers}
    (blocker,) = found
    assert (blocker.kind, blocker.package, blocker.constraint) == (BlockerKind.ADDRESS, "x", x)
    known = {"x": {"version": "1.0.0", "resolved": x}, "leaf": at("1.0.0")}
    with world(leaves(), tmp_path) as here:  # what is locked need not be fetched
        result = here.fix(LEAF, project({"leaf": "^1.0.0", "x": x}, known))
    assert versions(result) == {"leaf": "1.2.0", "x": "1.0.0"}


@pytest.mark.parametrize(
    "name",
    ["http://host/x.tgz", "--registry=http://host/", "../x", "a b", "@/x", "git+ssh://h/x", ""],
)
def test_the_registry_is_asked_about_names_only(name: str) -> None:
    clients = FakeClients()
    with pytest.raises(RecipeError, check=OfKind("not_a_name")):
        NpmRegistry(clients).releases(name)
    assert clients.calls == []


def test_packages_of_an_update_are_no_options(tmp_path: Path) -> None:
    from fallback_plugins.npm.client import Files
    from fallback_plugins.npm.clients.npm_client import NpmClient

    files = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    texts = {"package.json": files["package.json"]}
    held = Files(".", texts, "package-lock.json", files["package-lock.json"])
    with world(leaves(), tmp_path) as here:
        with pytest.raises(RecipeError, match="EUPDATEARGS"):
            NpmClient(here.clients).update(held, ["--no-save"])
        (call,) = here.clients.calls
    assert call[-2:] == ("--", "--no-save")
    assert call[1] == "update"


def test_configuration_in_the_systems_temporary_folder_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user of the machine can put it there."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    (shared / ".npmrc").write_text("package-lock=false\nregistry=http://127.0.0.1:9/\n")
    (shared / "package.json").write_text('{"workspaces": ["fallback-tier-npm-*"]}')
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    with world(leaves(), tmp_path) as here:
        environ = dict(here.clients.inner._environ)
        user = tmp_path / "npmrc"
        user.write_text(f"registry={environ['npm_config_registry']}\n")
        for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
            environ.pop(name, None)
        environ |= {"npm_config_userconfig": str(user), "NPM_CONFIG_USERCONFIG": str(user)}
        here.clients.inner._environ = environ
        assert versions(here.fix(LEAF, files))["leaf"] == "1.2.0"


def test_a_glob_takes_no_time() -> None:
    started = time.monotonic()
    assert not _matches("a" * 250, "*a" * 60 + "b")
    assert not _matches("a/" * 100 + "a", "**/" * 60 + "b")
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("folder", "glob", "is_member"),
    [
        ("packages/a", "packages/*", True),
        ("packages/a/b", "packages/*", False),
        ("packages/a/b", "packages/**", True),
        ("a/b/c", "**/c", True),
        ("c", "**/c", True),
        ("a/x/y/b", "a/**/b", True),
        ("packages/ab", "./packages/a*/", True),
        ("packages/ba", "packages/a*", False),
        ("x-a-y", "x-*-y", True),
        ("x-y", "x-*-y", False),
        ("aXbXc", "a*b*c", True),
        ("aXc", "a*b*c", False),
    ],
)
def test_globs_name_members(folder: str, glob: str, is_member: bool) -> None:
    assert _matches(folder, glob) is is_member


def test_a_yaml_bomb_is_refused_unread() -> None:
    lines = ["lockfileVersion: &a0 [z, z, z, z, z, z, z, z, z]"]
    lines += [f"k{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(RecipeError, check=OfKind("aliases")):
        parse_pnpm_lock("\n".join([*lines, "packages: *a11"]))
    starred = "lockfileVersion: '9.0'\npackages:\n  a@1.0.0:\n    deprecated: '**no** &a *b'\n"
    assert parse_pnpm_lock(starred).nodes == {}


def test_what_nests_too_deeply_is_a_refusal() -> None:
    deep = '{"dependencies": {"a": "1"}, "x": ' + "[" * 900 + "]" * 900 + "}"
    with pytest.raises(RecipeError):
        with_value("package.json", deep, ("dependencies", "a"), "2")


def test_a_range_that_nobody_can_read_admits_nothing() -> None:
    assert not admits("1  - ->^", "1.0.0")


def test_an_override_does_not_lower_what_another_copy_of_the_parent_gets(tmp_path: Path) -> None:
    universe = leaves().npm("leaf", "3.0.0")
    universe.npm("mid", "1.0.0", {"leaf": "1.0.0"}).npm("mid", "2.0.0", {"leaf": "^3.0.0"})
    universe.npm("a", "1.0.0", {"mid": "^1.0.0"}).npm("other", "1.0.0", {"leaf": "^3.0.0"})
    files = project(
        {"mid": "^2.0.0", "a": "1.0.0", "other": "1.0.0"},
        {
            "leaf": at("3.0.0"),
            "mid": at("2.0.0", leaf="^3.0.0"),
            "other": at("1.0.0", leaf="^3.0.0"),
            "a": at("1.0.0", mid="^1.0.0"),
            "a/node_modules/mid": at("1.0.0", leaf="1.0.0"),
            "a/node_modules/mid/node_modules/leaf": at("1.0.0"),
        },
    )
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
    (changed,) = (c.after for c in result.changes if c.path == "package.json")
    assert json.loads(changed or "")["overrides"] == {"mid@1.0.0": {"leaf": "1.2.0"}}
    assert "mid/node_modules/leaf" not in versions(result)


def described(blocker: Blocker | None) -> str:
    """What a result must not be, as a clause."""
    assert blocker is not None
    return f"{blocker.package} {blocker.constraint}"


def test_a_package_that_stays_and_gets_less_is_no_upgrade() -> None:
    from fallback_plugins.npm.strategies.resolving import let_down
    from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node

    def tree(version: str) -> DependencyTree:
        dependent = Node("mid", "mid", "2.0.0", (DependencyEdge("leaf", "*", "leaf"),))
        other = Node("leaf2", "leaf", "3.0.0")
        return DependencyTree(
            "lock", {n.key: n for n in (dependent, other, Node("leaf", "leaf", version))}
        )

    assert described(let_down(tree("3.0.0"), tree("1.2.0"))) == (
        "mid 2.0.0 would get leaf 1.2.0 instead of 3.0.0"
    )
    assert let_down(tree("1.0.0"), tree("1.2.0")) is None


def test_a_package_that_stays_and_loses_what_it_asks_for_is_no_upgrade() -> None:
    """Nothing affected is left in such a tree, and the package can't be loaded."""
    from fallback_plugins.npm.strategies.resolving import let_down
    from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node

    leaf = Node("leaf", "leaf", "1.0.0")

    def tree(version: str, *asks: DependencyEdge) -> DependencyTree:
        return DependencyTree("lock", {"mid": Node("mid", "mid", version, asks), "leaf": leaf})

    had = tree("2.0.0", DependencyEdge("leaf", "", "leaf"))
    for lost in (tree("2.0.0"), tree("2.0.0", DependencyEdge("leaf", "", None))):
        assert described(let_down(had, lost)) == "mid 2.0.0 would lose leaf, which it depends on"
    assert let_down(had, tree("2.1.0")) is None
    assert (
        let_down(tree("2.0.0", DependencyEdge("leaf", "", "leaf", peer=True)), tree("2.0.0"))
        is None
    )


def test_a_bundled_copy_that_a_new_lock_does_not_list_is_lost_only_if_it_is_affected() -> None:
    """It lies in the archive of a package that stays: nothing is lost, and nothing is fixed either."""
    from fallback_plugins.npm.strategies.resolving import let_down
    from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node

    inside = Node("mid/leaf", "leaf", "1.0.0", bundled=True)
    mid = Node("mid", "mid", "2.0.0", (DependencyEdge("leaf", "", "mid/leaf"),))
    had = DependencyTree("lock", {"mid": mid, "mid/leaf": inside})
    anew = DependencyTree("lock", {"mid": Node("mid", "mid", "2.0.0")})
    assert let_down(had, anew) is None
    assert let_down(had, anew, frozenset({"leaf 1.0.0"})) is not None


def test_an_affected_copy_deep_in_an_archive_that_a_new_lock_does_not_list_is_still_there() -> None:
    """The copy between is not affected, and another one outside answers for it in the new lock."""
    from fallback_plugins.npm.strategies.resolving import let_down
    from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node

    top, in_top = "node_modules/top", "node_modules/top/node_modules"
    leaf = Node(f"{in_top}/leaf", "leaf", "1.0.0", bundled=True)
    between = DependencyEdge("leaf", "^1.0.0", leaf.key)
    mid = Node(f"{in_top}/mid", "mid", "2.0.0", (between,), bundled=True)
    bundler = Node(top, "top", "3.0.0", (DependencyEdge("mid", "", mid.key),))
    had = DependencyTree("lock", {one.key: one for one in (bundler, mid, leaf)})
    fixed = Node("node_modules/leaf", "leaf", "1.0.1")
    outside = Node("node_modules/mid", "mid", "2.0.0", (DependencyEdge("leaf", "", fixed.key),))
    plain = Node(top, "top", "3.0.0")
    anew = DependencyTree("lock", {one.key: one for one in (plain, outside, fixed)})
    assert described(let_down(had, anew, frozenset({"leaf 1.0.0"}))) == (
        "leaf 1.0.0 would still come in the archive of top 3.0.0, unlisted"
    )
    raised = DependencyTree("lock", {top: Node(top, "top", "3.1.0"), fixed.key: fixed})
    assert let_down(had, raised, frozenset({"leaf 1.0.0"})) is None


@pytest.mark.parametrize("shape", ["tabs", "four", "dense", "mark", "no end", "crlf"])
def test_a_lock_keeps_its_own_shape_whatever_the_manifests_is(tmp_path: Path, shape: str) -> None:
    files = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    lock = files["package-lock.json"]
    files["package-lock.json"] = {
        "tabs": lock.replace("  ", "\t"),
        "four": lock.replace("  ", "    "),
        "dense": json.dumps(json.loads(lock), separators=(",", ":")),
        "mark": f"\ufeff{lock}",
        "no end": lock.rstrip(),
        "crlf": lock.replace("\n", "\r\n"),
    }[shape]
    with world(leaves(), tmp_path) as here:
        (change,) = here.fix(LEAF, files).changes
    before, after = change.before or "", change.after or ""
    start, end = before.index('"1.0.0"', before.index("node_modules")), before.rindex('"1.0.0"')
    assert start == end
    assert after.startswith(before[:start])
    assert after.endswith(before[end + len('"1.0.0"') :])


def test_reasons_name_no_folder_of_this_machine(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught, scratch_project({"a/b": "", "a": ""}):
        pass
    assert os.sep + "in" not in caught.value.problem
    assert caught.value.reason is RefusalReason.RECIPE_UNSUPPORTED


def test_a_name_written_with_escapes_is_a_name(tmp_path: Path) -> None:
    files = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    hidden = {path: text.replace("leaf", "l\\u0065af") for path, text in files.items()}
    with world(leaves(), tmp_path) as here:
        assert versions(here.fix(LEAF, hidden))["leaf"] == "1.2.0"
