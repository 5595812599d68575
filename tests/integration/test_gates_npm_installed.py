"""What the gate on versions reads of an installed tree: real npm, yarn and pnpm over made-up packages.

A lock's text can claim one version and name the archive of another: only what was installed shows which.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.gates.all_gates import NotVulnerableGate, ResolvesGate
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.sandbox.clients import SubprocessClients
from tests.choice import a_choice
from tests.integration.gate_setup import advisory, needs_sandbox, patched
from tests.registry import Registry, Universe, serve
from tests.unit.shared.real_clients import provisioned

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.registry("npm"),
    pytest.mark.xdist_group("npm-installs"),
]

Files = dict[str, str]
Edit = Callable[[dict[str, Any]], None]


def _packed(version: str) -> str:
    return json.dumps({"name": "left", "version": version})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    provisioned(folder / "fallback-tier" / "clients", YARN, PNPM["9"])
    return folder


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = Universe()
    for name in ("left", "right", "@acme/left"):
        for version in ("1.0.0", "2.0.0", "2.1.0"):
            universe.npm(name, version)
    for version, held in (("1.0.0", "1.0.0"), ("2.0.0", "2.0.0"), ("2.1.0", "2.1.0")):
        inside = {"node_modules/left/package.json": _packed(held)}
        bundles = {"bundleDependencies": ["left"]}
        universe.npm("bundler", version, {"left": held}, files=inside, manifest=bundles)
    universe.npm("hider", "1.0.0", files={"lib/node_modules/left/package.json": _packed("1.0.0")})
    tested = {"test/app/node_modules/left/package.json": _packed("1.0.0")}
    universe.npm("tested", "1.0.0", files=tested)
    for version in ("1.0.0", "2.0.0"):
        universe.npm("picky", version, manifest={"os": ["none"]})
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _sandbox(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sandbox()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


class Bench:
    """Projects with locks that npm makes, and the verdict on a change of one."""

    def __init__(self, registry: Registry, place: Path, locks: dict[tuple[str, int], str]) -> None:
        self.registry = registry
        self.place = place
        self.locks = locks
        self.clients = SubprocessClients(os.environ | registry.environ)

    def locked(self, edit: Edit = lambda _: None, version: int = 3, **facts: object) -> Files:
        """A manifest, and its lock as npm makes it and ``edit`` leaves it. npm makes each lock once."""
        text = json.dumps({"name": "app", "version": "1.0.0", **facts})
        if (text, version) not in self.locks:
            self.locks[text, version] = self._made(text, version)
        lock = json.loads(self.locks[text, version])
        edit(lock)
        return {"package.json": text, "package-lock.json": json.dumps(lock, indent=2)}

    def _made(self, text: str, version: int) -> str:
        folder = self.place / "made"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(text)
        words = ["install", "--package-lock-only", f"--lockfile-version={version}"]
        done = self.clients.run("npm", words, cwd=folder, timeout_s=120)
        assert done.ok, done.output
        return (folder / "package-lock.json").read_text()

    def verdict(
        self, base: Mapping[str, str], change: Mapping[str, str], package: str = "left"
    ) -> GateVerdict:
        """The gate's, behind the one that installs. A change that is none touches ``x.js``."""
        changes = {path: text for path, text in change.items() if base.get(path) != text}
        about = advisory(package)
        with patched(self.place, dict(base), changes or {"x.js": ""}, about=about) as case:
            context = case.with_(clients=self.clients).context
            assert ResolvesGate().judge(context).failure_kind is None
            return NotVulnerableGate().judge(context)

    def clear(self) -> None:
        """Make room for another repository; what npm has in its cache stays."""
        for folder in ("repo", "state"):
            shutil.rmtree(self.place / folder)

    def of(self, version: str, name: str = "left") -> dict[str, str]:
        """Where a release's archive is, and its digest."""
        release = self.registry.universe.npm_packages[name][version]
        address = f"{self.registry.npm_url}{name}/-/{release.file}"
        return {"resolved": address, "integrity": release.integrity}


@pytest.fixture(scope="module")
def locks() -> dict[tuple[str, int], str]:
    """What npm made of a manifest, in a lock's version: of one registry, whose address is in it."""
    return {}


@pytest.fixture
def bench(registry: Registry, tmp_path: Path, locks: dict[tuple[str, int], str]) -> Bench:
    return Bench(registry, tmp_path, locks)


def _claims(key: str, **facts: object) -> Edit:
    """An edit that makes an entry say other things; of a lock of version 1 the entry of that name."""

    def edit(lock: dict[str, Any]) -> None:
        for entries, name in (("packages", key), ("dependencies", key.rpartition("/")[2])):
            if entries in lock:
                lock[entries][name].update(facts)

    return edit


def _fails(found: GateVerdict, *messages: str) -> None:
    assert found.failure_kind is FailureKind.STILL_VULNERABLE, found
    for message in messages:
        assert message in found.detail


def _proves(found: GateVerdict, level: ProofLevel, detail: str) -> None:
    assert (found.status, found.proof_level) == (GateStatus.PASSED, level), found
    assert detail in found.detail


# --- npm --------------------------------------------------------------------------------------------


# A lock of version 2 has what 1 and 3 have.
@pytest.mark.parametrize("version", a_choice((1, 2, 3), step=2))
def test_lock_that_claims_a_fixed_version_with_the_affected_archive_fails(
    bench: Bench, version: int
) -> None:
    base = bench.locked(version=version, dependencies={"left": "1.0.0"})
    claim = _claims("node_modules/left", **bench.of("1.0.0"))
    change = bench.locked(claim, version=version, dependencies={"left": "2.0.0"})
    found = bench.verdict(base, change)
    _fails(found, "node_modules/left is 1.0.0", "package-lock.json says 2.0.0")


def test_lie_that_is_older_than_the_patch_is_never_fixed(bench: Bench) -> None:
    claim = _claims("node_modules/left", **bench.of("1.0.0"))
    base = bench.locked(claim, dependencies={"left": "2.0.0"})
    _fails(bench.verdict(base, {}), "node_modules/left is 1.0.0")


@pytest.mark.parametrize("key", ["right", "left-2"])
def test_alias_without_a_name_is_the_package_that_was_installed(bench: Bench, key: str) -> None:
    def nameless(lock: dict[str, Any]) -> None:
        del lock["packages"][f"node_modules/{key}"]["name"]

    asked = {key: "npm:left@1.0.0"}
    base = bench.locked(dependencies=asked)
    _fails(bench.verdict(base, bench.locked(nameless, dependencies=asked)), f"node_modules/{key}")


def test_alias_that_hides_the_package_below_another_name_fails(bench: Bench) -> None:
    """Only its digest is the affected archive's, which npm takes from its cache."""
    base = bench.locked(dependencies={"left": "1.0.0"})
    _fails(bench.verdict(base, {}), "node_modules/left is 1.0.0")
    bench.clear()
    right = bench.locked(dependencies={"right": "2.0.0"})
    lie = _edited(right, "node_modules/right", {"integrity": bench.of("1.0.0")["integrity"]})
    _fails(bench.verdict(base, right | {"package-lock.json": lie}), "node_modules/right is 1.0.0")


def _edited(files: Files, key: str, facts: Mapping[str, object]) -> str:
    lock = json.loads(files["package-lock.json"])
    lock["packages"][key].update(facts)
    return json.dumps(lock, indent=2)


def test_bundled_copy_that_the_lock_does_not_list_fails(bench: Bench) -> None:
    def unlisted(lock: dict[str, Any]) -> None:
        del lock["packages"]["node_modules/bundler/node_modules/left"]

    asked = {"left": "2.0.0", "bundler": "1.0.0"}
    base = bench.locked(dependencies=asked | {"left": "1.0.0"})
    found = bench.verdict(base, bench.locked(unlisted, dependencies=asked))
    _fails(found, "node_modules/bundler/node_modules/left is 1.0.0")


def test_copy_in_an_archive_that_no_lock_can_list_fails(bench: Bench) -> None:
    """Nothing but the installed files names the package after the patch."""
    base = bench.locked(dependencies={"left": "1.0.0", "hider": "1.0.0"})
    found = bench.verdict(base, bench.locked(dependencies={"hider": "1.0.0"}))
    _fails(found, "node_modules/hider/lib/node_modules/left is 1.0.0")


def test_copy_among_a_packages_tests_is_named_and_does_not_fail(bench: Bench) -> None:
    base = bench.locked(dependencies={"left": "1.0.0", "tested": "1.0.0"})
    found = bench.verdict(base, bench.locked(dependencies={"left": "2.0.0", "tested": "1.0.0"}))
    _proves(found, ProofLevel.RESOLVED_TREE, "resolved tree: left 2.0.0")
    assert "node_modules/tested/test/app/node_modules/left 1.0.0" in found.detail


def test_patch_that_makes_the_lock_say_another_safe_version_fails(bench: Bench) -> None:
    base = bench.locked(dependencies={"left": "1.0.0"})
    claim = _claims("node_modules/left", version="2.1.0")
    change = bench.locked(claim, dependencies={"left": "2.0.0"})
    change["package.json"] = change["package.json"].replace("2.0.0", "^2.0.0")
    lock = json.loads(change["package-lock.json"])
    lock["packages"][""]["dependencies"]["left"] = "^2.0.0"
    found = bench.verdict(base, change | {"package-lock.json": json.dumps(lock)})
    assert found.failure_kind is FailureKind.RESOLUTION_FAILED
    assert "node_modules/left is 2.0.0" in found.detail
    assert "2.1.0" in found.detail


def test_such_a_lock_that_is_older_than_the_patch_is_reported(bench: Bench) -> None:
    claim = _claims("node_modules/left", version="2.1.0")
    base = bench.locked(claim, dependencies={"left": "^2.0.0", "right": "1.0.0"})
    lock = json.loads(base["package-lock.json"])
    lock["packages"]["node_modules/left"].update(bench.of("2.0.0"))
    base["package-lock.json"] = json.dumps(lock)
    found = bench.verdict(base, {"x.js": "1"})
    _proves(found, ProofLevel.PINS, "left")
    assert "package-lock.json says 2.1.0" in found.detail


def test_whose_doing_it_is_is_a_question_if_the_base_commit_is_not_installed(bench: Bench) -> None:
    change = bench.locked(dependencies={"left": "^2.0.0"})
    lie = {"version": "2.1.0", **bench.of("2.0.0")}
    change["package-lock.json"] = _edited(change, "node_modules/left", lie)
    base = dict(change)
    asked = json.loads(base["package.json"])
    asked["dependencies"]["gone"] = "9.9.9"
    base["package.json"] = json.dumps(asked)
    found = bench.verdict(base, change)
    assert found.status is GateStatus.UNDECIDED
    assert "package-lock.json says 2.1.0" in found.detail


def test_installation_without_the_lock_proves_no_tree(bench: Bench) -> None:
    """The archive of the lock can't be had: npm takes what the registry has now, and users do not."""
    base = bench.locked(dependencies={"left": "^2.0.0"})
    digest = {"integrity": "sha512-" + "A" * 86 + "=="}
    base["package-lock.json"] = _edited(base, "node_modules/left", digest)
    found = bench.verdict(base, {"x.js": "1"})
    _proves(found, ProofLevel.PINS, "not installed here: package-lock.json")


def test_committed_copy_is_found_by_its_own_name(bench: Bench) -> None:
    base = bench.locked(dependencies={"left": "1.0.0"})
    base["node_modules/foo/package.json"] = _packed("1.0.0")
    found = bench.verdict(base, bench.locked(dependencies={"left": "2.0.0"}))
    assert found.status is GateStatus.SKIPPED
    assert "committed as node_modules/foo/package.json" in found.detail


def test_second_lock_that_lists_an_affected_version_counts(bench: Bench) -> None:
    base = bench.locked(dependencies={"left": "1.0.0"})
    base["yarn.lock"] = _yarn(bench, "left@1.0.0", "1.0.0", "left", "1.0.0")
    change = bench.locked(dependencies={"left": "2.0.0"})
    change["yarn.lock"] = _yarn(bench, "left@2.0.0", "1.0.0", "left", "1.0.0")
    _fails(bench.verdict(base, change), "left@1.0.0 is 1.0.0")
    bench.clear()
    change["yarn.lock"] = _yarn(bench, "left@2.0.0", "2.0.0", "left", "2.0.0")
    _proves(bench.verdict(base, change), ProofLevel.RESOLVED_TREE, "left 2.0.0")


def test_legitimate_alias_of_a_fork_is_not_the_package(bench: Bench) -> None:
    base = bench.locked(dependencies={"left": "1.0.0"})
    fork = {"left": "npm:@acme/left@1.0.0"}
    found = bench.verdict(base, bench.locked(dependencies=fork))
    _proves(found, ProofLevel.RESOLVED_TREE, "left is no longer in it")


def test_ordinary_lock_is_proved_by_what_was_installed(bench: Bench) -> None:
    asked = {"left": "1.0.0", "bundler": "1.0.0", "other": "npm:left@1.0.0"}
    fixed = {"left": "2.0.0", "bundler": "2.0.0", "other": "npm:left@2.1.0"}
    for version in (1, 2, 3):
        base = bench.locked(version=version, dependencies=asked)
        found = bench.verdict(base, bench.locked(version=version, dependencies=fixed))
        _proves(found, ProofLevel.RESOLVED_TREE, "resolved tree: left 2.0.0, 2.1.0")
        assert {one.proof_level for one in found.projects} == {ProofLevel.RESOLVED_TREE}
        bench.clear()


def test_members_of_a_workspace_are_read_at_their_places(bench: Bench, tmp_path: Path) -> None:
    member = json.dumps({"name": "a", "version": "1.0.0", "dependencies": {"left": "1.0.0"}})
    root = {"name": "app", "version": "1.0.0", "workspaces": ["packages/*"]}
    for lockless in (False, True):
        folder = tmp_path / f"ws-{lockless}"
        files = {"package.json": json.dumps({**root, "dependencies": {"left": "2.0.0"}})}
        files["packages/a/package.json"] = member
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        if not lockless:
            done = bench.clients.run(
                "npm", ["install", "--package-lock-only"], cwd=folder, timeout_s=120
            )
            assert done.ok, done.output
            files["package-lock.json"] = (folder / "package-lock.json").read_text()
        found = Bench(bench.registry, folder / "bench", bench.locks).verdict(files, {"x.js": ""})
        _fails(found, "packages/a/node_modules/left is 1.0.0")


def test_optional_copy_that_is_not_for_this_machine_proves_no_tree(bench: Bench) -> None:
    base = bench.locked(optionalDependencies={"picky": "1.0.0"})
    change = bench.locked(optionalDependencies={"picky": "2.0.0"})
    found = bench.verdict(base, change, "picky")
    _proves(found, ProofLevel.PINS, "pins: picky 2.0.0")
    assert "not installed here: package-lock.json" in found.detail


def test_what_a_project_without_a_lock_has_is_read_from_its_files(bench: Bench) -> None:
    base = {"package.json": json.dumps({"name": "app", "dependencies": {"left": "1.0.0"}})}
    hidden = {"package.json": json.dumps({"name": "app", "dependencies": {"hider": "1.0.0"}})}
    _fails(bench.verdict(base, hidden), "node_modules/hider/lib/node_modules/left is 1.0.0")


# --- several projects -------------------------------------------------------------------------------


def test_project_that_the_patch_does_not_touch_is_installed_too(bench: Bench) -> None:
    safe = bench.locked(dependencies={"left": "2.0.0"})
    lie = bench.locked(
        _claims("node_modules/left", **bench.of("1.0.0")), dependencies={"left": "2.0.0"}
    )
    base = {
        f"a/{path}": text for path, text in bench.locked(dependencies={"left": "1.0.0"}).items()
    }
    change = {f"a/{path}": text for path, text in safe.items()}
    honest = {f"b/{path}": text for path, text in safe.items()}
    _proves(bench.verdict(base | honest, change), ProofLevel.RESOLVED_TREE, "left 2.0.0")
    bench.clear()
    lying = {f"b/{path}": text for path, text in lie.items()}
    _fails(bench.verdict(base | lying, change), "b/node_modules/left is 1.0.0")


def test_project_that_can_not_be_installed_lowers_the_level_of_all(bench: Bench) -> None:
    base = {
        f"a/{path}": text for path, text in bench.locked(dependencies={"left": "1.0.0"}).items()
    }
    safe = bench.locked(dependencies={"left": "2.0.0"})
    change = {f"a/{path}": text for path, text in safe.items()}
    gone = _edited(safe, "node_modules/left", {"integrity": "sha512-" + "A" * 86 + "=="})
    asked = safe["package.json"].replace('"left": "2.0.0"', '"left": "2.0.0", "gone": "9.9.9"')
    broken = {"b/package.json": asked, "b/package-lock.json": gone}
    found = bench.verdict(base | broken, change)
    _proves(found, ProofLevel.PINS, "pins: left 2.0.0")
    assert "b/package-lock.json" in found.detail


# --- yarn, pnpm -------------------------------------------------------------------------------------


def _manifest(**dependencies: str) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", "dependencies": dependencies})


def _yarn(bench: Bench, pattern: str, claimed: str, name: str, version: str) -> str:
    found = bench.of(version, name)
    return (
        "# yarn lockfile v1\n\n\n"
        f'"{pattern}":\n  version "{claimed}"\n  resolved "{found["resolved"]}"\n'
        f"  integrity {found['integrity']}\n"
    )


def test_yarn_lock_is_held_against_what_yarn_installed(bench: Bench) -> None:
    base = {
        "package.json": _manifest(left="^1.0.0"),
        "yarn.lock": _yarn(bench, "left@^1.0.0", "1.0.0", "left", "1.0.0"),
    }
    lie = {
        "package.json": _manifest(left="^2.0.0"),
        "yarn.lock": _yarn(bench, "left@^2.0.0", "2.0.0", "left", "1.0.0"),
    }
    _fails(bench.verdict(base, lie), "node_modules/left is 1.0.0", "yarn.lock says 2.0.0")


@pytest.mark.parametrize(("name", "fails"), [("left", True), ("right", False)])
def test_yarn_alias_is_what_its_archive_is(bench: Bench, name: str, fails: bool) -> None:
    base = {
        "package.json": _manifest(left="^1.0.0"),
        "yarn.lock": _yarn(bench, "left@^1.0.0", "1.0.0", "left", "1.0.0"),
    }
    change = {
        "package.json": _manifest(foo="npm:right@^1.0.0"),
        "yarn.lock": _yarn(bench, "foo@npm:right@^1.0.0", "1.0.0", name, "1.0.0"),
    }
    found = bench.verdict(base, change)
    if fails:
        _fails(found, "node_modules/foo is 1.0.0")
    else:
        _proves(found, ProofLevel.RESOLVED_TREE, "no longer in it")


def test_what_yarn_never_lists_is_read_and_raised_with_its_bundler(bench: Bench) -> None:
    """yarn's lock has no bundled copies: another safe one is no contradiction."""
    base = {
        "package.json": _manifest(bundler="^1.0.0", left="2.0.0"),
        "yarn.lock": _yarn(bench, "bundler@^1.0.0", "1.0.0", "bundler", "1.0.0")
        + "\n"
        + _yarn(bench, "left@1.0.0", "1.0.0", "left", "1.0.0").partition("\n\n\n")[2]
        + "\n"
        + _yarn(bench, "left@2.0.0", "2.0.0", "left", "2.0.0").partition("\n\n\n")[2],
    }
    _fails(bench.verdict(base, {"x.js": "1"}), "node_modules/bundler/node_modules/left is 1.0.0")
    bench.clear()
    change = {
        "package.json": _manifest(bundler="^2.0.0", left="2.0.0"),
        "yarn.lock": _yarn(bench, "bundler@^2.0.0", "2.1.0", "bundler", "2.1.0")
        + "\n"
        + _yarn(bench, "left@2.0.0, left@2.1.0", "2.0.0", "left", "2.0.0")
        .replace('"left@2.0.0, left@2.1.0"', "left@2.0.0")
        .partition("\n\n\n")[2]
        + "\n"
        + _yarn(bench, "left@2.1.0", "2.1.0", "left", "2.1.0").partition("\n\n\n")[2],
    }
    found = bench.verdict(base, change)
    assert found.status is GateStatus.PASSED, found


PNPM_LOCK = """lockfileVersion: '9.0'

settings:
  autoInstallPeers: true
  excludeLinksFromLockfile: false

importers:

  .:
    dependencies:
      {key}:
        specifier: {spec}
        version: {ref}

packages:

  {node}:
    resolution: {{integrity: {integrity}{more}}}

snapshots:

  {node}: {{}}
"""


def _pnpm(key: str, spec: str, node: str, integrity: str, ref: str, tarball: str = "") -> Files:
    more = f", tarball: {tarball}" if tarball else ""
    facts = {"key": key, "spec": spec, "node": node, "integrity": integrity, "ref": ref}
    return {
        "package.json": _manifest(**{key: spec}),
        "pnpm-lock.yaml": PNPM_LOCK.format(more=more, **facts),
    }


def test_pnpm_lock_is_held_against_what_pnpm_installed(bench: Bench, cache: Path) -> None:
    affected = bench.of("1.0.0")
    base = _pnpm("left", "1.0.0", "left@1.0.0", affected["integrity"], "1.0.0")
    alias = _pnpm(
        "foo", "npm:left@2.0.0", "left@2.0.0", bench.of("2.0.0")["integrity"], "left@2.0.0"
    )
    _proves(bench.verdict(base, alias), ProofLevel.RESOLVED_TREE, "resolved tree: left 2.0.0")
    bench.clear()
    # pnpm itself would find the lie in its own store, which has that archive of the base commit.
    shutil.rmtree(cache / "fallback-tier" / "clients" / "pnpm-store")
    claims = affected["integrity"], "2.0.0", affected["resolved"]
    lie = _pnpm("left", "2.0.0", "left@2.0.0", *claims)
    found = bench.verdict(base, lie)
    assert (
        found.status is not GateStatus.PASSED or found.proof_level is not ProofLevel.RESOLVED_TREE
    )
    _fails(found, "node_modules/left is 1.0.0")
