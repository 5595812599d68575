"""What npm projects are installed from, step by step: real npm, yarn and pnpm over a made-up registry."""

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.provision import ClientStore, PinnedClient
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.gates.all_gates import ResolvesGate, TestsGate, beside_base
from fallback_plugins.npm.installing import installation
from fallback_plugins.npm.installing.installation import BERRY, Commands, Installation
from fallback_plugins.npm.plugin import NpmEcosystem
from fallback_plugins.shared.gates.gating import failed, passed
from fallback_plugins.shared.installation import Installed, Level
from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateVerdict, TargetRun
from fallback_tier.hosts import ALLOW_HOST
from fallback_tier.sandbox.clients import SubprocessClients
from tests.choice import a_choice
from tests.integration import gate_setup
from tests.integration.gate_setup import Case, advisory, needs_sandbox, patched
from tests.kinds import OfKind
from tests.registry import Registry, Universe, serve
from tests.unit.shared.real_clients import provisioned

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.registry("npm"),
    pytest.mark.xdist_group("npm-installs"),
]

SHOUT = "#!/usr/bin/env node\nconsole.log(`shouts with ${require('left')}`);\n"
REQUIRE = ("node", "-e", "console.log(require('left'))")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's cache that has yarn and pnpm already, so that the made-up registry need not."""
    folder = tmp_path_factory.mktemp("cache")
    provisioned(folder / "fallback-tier" / "clients", YARN, PNPM["9"], *BERRY.values())
    return folder


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = Universe()
    for version in ("1.0.0", "1.0.1", "2.0.0", "3.0.0"):
        universe.npm("left", version, files={"index.js": f"module.exports = '{version}';\n"})
    bin_ = {"bin": {"tape": "tape.js"}}
    universe.npm("tape", "1.0.0", {"left": "*"}, files={"tape.js": SHOUT}, manifest=bin_)
    universe.npm("needs-two", "1.0.0", peerDependencies={"left": "^2.0.0"})
    universe.npm("generates", "1.0.0", {"made": "exec:./make.js"}, files={"make.js": MAKE})
    with serve(universe) as registry:
        yield registry


#: What yarn runs to make a package, if it is let.
MAKE = """const fs = require('node:fs');
fs.writeFileSync(process.env.HOME + '/generator-ran', '');
fs.writeFileSync(execEnv.buildDir + '/package.json', '{"name":"made","version":"1.0.0"}');
"""


@pytest.fixture(autouse=True)
def _sandbox(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sandbox()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@dataclass
class Counting(SubprocessClients):
    """Keeps what was asked of the clients."""

    environ: Mapping[str, str]
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.environ)

    __hash__ = object.__hash__

    def run(self, tool: str, args: Sequence[str], **options: object) -> CommandResult:  # type: ignore[override]
        self.calls.append((tool, *args))
        return super().run(tool, args, **options)  # type: ignore[arg-type]

    @property
    def installs(self) -> list[tuple[str, ...]]:
        return [call for call in self.calls if {"ci", "install"} & set(call)]


def package(**facts: object) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", "private": True, **facts})


def npm_lock(registry: Registry, place: Path, manifest: str) -> str:
    """The lock that npm makes for it."""
    place.mkdir(parents=True)
    (place / "package.json").write_text(manifest)
    clients = SubprocessClients(os.environ | registry.environ)
    options = ["--package-lock-only", "--ignore-scripts", "--legacy-peer-deps"]
    done = clients.run("npm", ["install", *options], cwd=place, timeout_s=120)
    assert done.ok, done.output
    return (place / "package-lock.json").read_text()


@dataclass
class Project:
    """A repository, a patch of it, and clients that know one registry."""

    case: Case
    clients: Counting

    @property
    def base(self) -> Installation:
        return Installation(self.case.context, self.case.context.repo, ".")

    @property
    def patched(self) -> Installation:
        context = self.case.context
        return Installation(context, context.repo.laid_out(context.worktree.tree), ".")

    def run(self, *argv: str) -> TargetRun:
        context = self.case.context
        tree = context.repo.laid_out(context.worktree.tree)
        return NpmEcosystem(context.clients).run(context, tree, argv)

    def says(self, *argv: str) -> str:
        ran = self.run(*argv)
        assert ran.result is not None, ran.installed
        return ran.result.output


@pytest.fixture
def project(registry: Registry, tmp_path: Path) -> Iterator[object]:
    opened = []

    def make(files: dict[str, str], changes: dict[str, str | None] | None = None) -> Project:
        manager = patched(tmp_path, files, changes or {"x.js": ""}, about=advisory())
        found = manager.__enter__()
        opened.append(manager)
        clients = Counting(os.environ | registry.environ)
        return Project(found.with_(clients=clients), clients)

    yield make
    for manager in opened:
        manager.__exit__(None, None, None)


def whole(step: str) -> Installed:
    """Everything was installed, by this step of the ladder."""
    return Installed(Level.EVERYTHING, step=step, by_lock=step != "npm install")


def steps(found: Installed) -> list[str]:
    return [what for what, _ in found.declined]


# --- npm ------------------------------------------------------------------------------------------


def test_a_lock_is_followed_and_what_is_kept_serves_every_tree(
    project, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = package(dependencies={"left": "^1.0.0"}, devDependencies={"tape": "1.0.0"})
    files = {
        "package.json": manifest,
        "package-lock.json": npm_lock(registry, tmp_path / "l", manifest),
    }
    made = project(files)
    assert made.base.install() == whole("npm ci")
    assert len(made.clients.installs) == 1
    assert made.patched.install() == whole("npm ci")
    monkeypatch.setattr(installation, "today", lambda: "2199-01-01")
    assert made.says("tape") == "shouts with 1.0.1\n"
    assert len(made.clients.installs) == 1  # nothing was asked a second time, nor on another day


def test_what_a_command_writes_into_it_is_gone_with_its_tree(project) -> None:
    made = project({"package.json": package(dependencies={"left": "1.0.0"})})
    spoil = "echo 'module.exports = 7' >node_modules/left/index.js; node -p 'require(\"left\")'"
    with made.case.worktree.fresh(patched=True) as tree:
        context = made.case.context
        ran = NpmEcosystem(context.clients).run(
            context, context.repo.laid_out(tree), ("sh", "-c", spoil)
        )
        assert ran.result is not None
        assert ran.result.output == "7\n"
    assert made.says(*REQUIRE) == "1.0.0\n"


def test_peers_that_do_not_fit_are_taken_as_npm_once_took_them(project) -> None:
    asked = {"left": "^1.0.0", "needs-two": "1.0.0"}
    made = project({"package.json": package(devDependencies=asked)})
    found = made.base.install()
    assert found.level is Level.EVERYTHING
    assert steps(found) == ["npm install"]
    assert "ERESOLVE" in found.declined[0][1]
    assert made.says(*REQUIRE) == "1.0.1\n"
    assert "ERESOLVE" in made.run("true").installed


def test_a_scope_is_installed_from_its_own_registry(
    project, registry: Registry, tmp_path: Path
) -> None:
    """The repository says whose it is, and the token stays in the user's configuration."""
    with serve(Universe().npm("@acme/left", "1.0.0"), token="sesame") as private:
        user = tmp_path / "npmrc"
        user.write_text(f"{private.npm_url.removeprefix('http:')}:_authToken=sesame\n")
        files = {
            "package.json": package(dependencies={"@acme/left": "1.0.0", "left": "1.0.0"}),
            ".npmrc": f"@acme:registry={private.npm_url}\nignore-scripts=false\n",
        }
        known = {name: str(user) for name in ("npm_config_userconfig", "NPM_CONFIG_USERCONFIG")}
        clients = Counting(os.environ | registry.environ | known)
        made = Project(project(files).case.with_(clients=clients), clients)
        assert made.base.install() == whole("npm install")
        assert {request.authorization for request in private.requests} == {"Bearer sesame"}
        assert not any("acme" in path for path in registry.paths())
        assert {request.authorization for request in registry.requests} <= {""}


def test_a_patch_that_brings_such_peers_fails(project) -> None:
    fits = package(dependencies={"left": "^1.0.0"})
    clash = package(dependencies={"left": "^1.0.0", "needs-two": "1.0.0"})
    made = project({"package.json": fits}, {"package.json": clash})
    verdict = ResolvesGate().judge(made.case.context)
    assert verdict.failure_kind is FailureKind.RESOLUTION_FAILED
    assert "ERESOLVE" in verdict.detail


def test_a_lock_out_of_step_serves_as_far_as_it_goes(
    project, registry: Registry, tmp_path: Path
) -> None:
    locked, asked = (package(dependencies={"left": spec}) for spec in ("1.0.0", "^1.0.1"))
    lock = npm_lock(registry, tmp_path / "l", locked)
    made = project({"package.json": asked, "package-lock.json": lock})
    found = made.base.install()
    assert found.level is Level.IN_PART
    assert steps(found) == ["npm ci", "npm ci --legacy-peer-deps"]
    assert made.says(*REQUIRE) == "1.0.1\n"
    verdict = ResolvesGate().judge(made.case.context)
    assert verdict.status is GateStatus.PASSED
    assert "in part; not: npm ci" in verdict.detail
    assert made.case.context.repo.read_text("package-lock.json") == lock


def test_a_patch_that_fixes_a_lock_out_of_step_passes(
    project, registry: Registry, tmp_path: Path
) -> None:
    old, new = (package(dependencies={"left": spec}) for spec in ("1.0.0", "1.0.1"))
    locks = [npm_lock(registry, tmp_path / name, text) for name, text in (("a", old), ("b", new))]
    made = project(
        {"package.json": new, "package-lock.json": locks[0]}, {"package-lock.json": locks[1]}
    )
    verdict = ResolvesGate().judge(made.case.context)
    assert verdict.status is GateStatus.PASSED
    assert made.base.install().level is Level.IN_PART


def test_a_test_that_had_less_at_the_base_commit_is_not_known_to_fail_there_too(
    project, registry: Registry, tmp_path: Path
) -> None:
    """It may fail there for what the lock lacks, and with the patch for the patch."""
    tests = {"scripts": {"test": "node --test"}}
    old, new = (package(dependencies={"left": spec}, **tests) for spec in ("1.0.0", "1.0.1"))
    locks = [npm_lock(registry, tmp_path / name, text) for name, text in (("a", old), ("b", new))]
    test = "const { test } = require('node:test');\ntest('a', () => {});\ntest('b', () => { throw 1; });\n"
    files = {"package.json": new, "package-lock.json": locks[0], "test/it.test.js": test}
    made = project(files, {"package-lock.json": locks[1]})
    verdict = TestsGate().judge(made.case.context)
    assert verdict.status is GateStatus.UNDECIDED
    assert "1 fail as at the base commit: " in verdict.detail
    assert "not installed as the base commit was: here everything" in verdict.detail


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[tuple[Universe, "Project"]]:
    """Without a lock: the base commit was installed, then a package that nobody pins was released."""
    universe = Universe()
    for name, version in (("left", "1.0.0"), ("left", "1.0.1"), ("@a/alone", "1.0.0")):
        universe.npm(name, version)
    old, new = (
        package(dependencies={"left": version, "@a/alone": "^1.0.0"}).replace(", ", ",\n")
        for version in ("1.0.0", "1.0.1")
    )
    about = advisory()
    change = {"package.json": new}
    with (
        serve(universe) as registry,
        patched(tmp_path, {"package.json": old}, change, about=about) as case,
    ):
        clients = Counting(os.environ | registry.environ)
        made = Project(case.with_(clients=clients), clients)
        assert made.base.install() == whole("npm install")
        yield universe, made


def released(universe: Universe, made: "Project") -> None:
    universe.npm("@a/alone", "1.1.0")
    rmtree(made.case.context.cache / "npm")  # what npm knows of packages


FAILING = passed("tests", "").model_copy(update={"failing_before": ("a test",)})
BROKEN = failed("tests", FailureKind.TESTS_FAILED, "a test fails")


@pytest.mark.parametrize("verdict", [FAILING, BROKEN])
def test_a_release_published_between_the_two_installs_is_in_neither(
    moving: tuple[Universe, "Project"], verdict: GateVerdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    universe, made = moving
    released(universe, made)
    assert beside_base(made.patched, lambda: verdict) == verdict
    both = [versions(made.patched), versions(made.base)]
    assert both[0] == both[1] | {"left": both[0]["left"]}
    assert both[0]["left"] != both[1]["left"]
    assert both[1]["@a/alone"] == "1.0.0"
    assert len(made.clients.installs) == 2
    # The same on another day, though nothing is left of the store.
    monkeypatch.setattr(installation, "today", lambda: "2199-01-01")
    rmtree(made.case.context.cache)
    assert [versions(made.patched), versions(made.base)] == both
    # The next fix resolves anew.
    another = Project(made.case.with_(resolutions={}), made.clients)
    assert versions(another.patched)["@a/alone"] == versions(another.base)["@a/alone"] == "1.1.0"


def test_a_base_commit_that_can_not_be_installed_is_named(project) -> None:
    """Its release is not there any more."""
    old, new = (package(dependencies={"left": version}) for version in ("0.9.0", "1.0.0"))
    made = project({"package.json": old}, {"package.json": new})
    verdict = ResolvesGate().judge(made.case.context)
    assert verdict.status is GateStatus.PASSED
    (note,) = verdict.notes
    assert note.startswith("the base commit can't be installed, so nothing is compared with it: ")
    assert "left@0.9.0" in note


def versions(tree: Installation) -> dict[str, str]:
    tree.install()
    return {one.name: one.version for one in tree.packages()}


@pytest.mark.parametrize("lock", ["package-lock.json", "yarn.lock", "pnpm-lock.yaml"])
def test_what_a_lock_out_of_step_does_not_answer_is_as_at_the_base_commit(
    project, tmp_path: Path, lock: str
) -> None:
    """And what the patch changes in that lock is kept."""
    universe = Universe()
    for version in ("1.0.0", "1.0.1"):
        universe.npm("left", version)
    universe.npm("alone", "1.0.0")
    with serve(universe) as own:
        if lock == "package-lock.json":
            texts = [npm_lock(own, tmp_path / it, locking(it)) for it in ("1.0.0", "1.0.1")]
        elif lock == "yarn.lock":
            texts = [classic(own, it) for it in ("1.0.0", "1.0.1")]
        else:
            texts = [pnpm_project(own, "^1.0.0", "^1.0.0", it)[lock] for it in ("1.0.0", "1.0.1")]
        asked = package(dependencies={"left": "^1.0.0", "alone": "*"})
        clients = Counting(os.environ | own.environ)
        case = project({"package.json": asked, lock: texts[0]}, {lock: texts[1]}).case
        made = Project(case.with_(clients=clients), clients)
        before = versions(made.base)
        universe.npm("alone", "1.1.0")
        for kept in ("npm", "yarn"):
            rmtree(made.case.context.cache / kept, ignore_errors=True)
        now = versions(made.patched)
    assert (before["left"], before["alone"]) == ("1.0.0", "1.0.0")
    assert (now["left"], now["alone"]) == ("1.0.1", "1.0.0")


def locking(version: str) -> str:
    return package(dependencies={"left": version})


@pytest.mark.parametrize("others", a_choice((5, 1), step=2))
def test_a_test_that_had_other_tools_left_out_is_not_known_to_fail_there_too(
    project, others: int
) -> None:
    """Both leave out development dependencies, and not the same: of many, one that no sentence names."""
    facts = {"dependencies": {"left": "1.0.0"}, "scripts": {"test": "tape"}}
    tools = ["tape", *(f"absent-{number}" for number in range(others))]
    old, new = (
        package(**facts, devDependencies=dict.fromkeys([*tools, name], "1.0.0"))
        for name in ("gone", "left")
    )
    made = project({"package.json": old}, {"package.json": new})
    verdict = beside_base(made.patched, lambda: FAILING)
    assert verdict.status is GateStatus.UNDECIDED
    last = " and 1 more" if others == 5 else ", gone"
    assert f"left out: {', '.join(tools[1:])}{last})" in verdict.detail


def test_a_development_dependency_that_nobody_has_does_not_stand_in_the_way(project) -> None:
    asked = {"absent-linter": "1.0.0", "tape": "1.0.0"}
    made = project({"package.json": package(dependencies={"left": "1.0.0"}, devDependencies=asked)})
    found = made.base.install()
    assert found.level is Level.IN_PART
    assert steps(found) == ["npm install", "other devDependencies"]
    assert "absent-linter" in found.declined[0][1]
    assert found.declined[-1][1] == "left out: absent-linter"
    assert made.says("tape") == "shouts with 1.0.0\n"


def test_a_host_that_does_not_answer_is_not_the_registry(
    project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOW_HOST, "127.0.0.1:9")
    asked = {"gone": "http://127.0.0.1:9/gone-1.0.0.tgz", "tape": "1.0.0"}
    made = project({"package.json": package(dependencies={"left": "1.0.0"}, devDependencies=asked)})
    found = made.base.install()
    assert found.level is Level.IN_PART
    assert "ECONNREFUSED" in found.declined[0][1]
    assert made.says("tape") == "shouts with 1.0.0\n"


def test_where_nothing_can_be_had_a_command_runs_on_that_and_says_so(project) -> None:
    made = project({"package.json": package(dependencies={"absent": "1"})})
    assert made.base.install().level is Level.METADATA
    ran = made.run("true")
    assert ran.result is not None
    assert ran.installed.startswith("its metadata alone")
    assert "absent" in ran.installed


def test_a_command_runs_where_the_patch_repairs_what_can_not_be_read(project) -> None:
    """A project's own gate, which compares with nothing."""
    made = project({"package.json": "{"}, {"package.json": package(dependencies={"left": "1.0.0"})})
    assert made.says(*REQUIRE) == "1.0.0\n"


def test_members_of_a_workspace_and_folders_are_links(project) -> None:
    made = project(
        {
            "package.json": package(workspaces=["packages/*"], dependencies={"f": "file:other/f"}),
            "packages/b/package.json": json.dumps(
                {"name": "b", "version": "1.0.0", "dependencies": {"left": "1.0.0"}}
            ),
            "packages/b/index.js": "module.exports = 'b with ' + require('left');\n",
            "other/f/package.json": json.dumps({"name": "f", "version": "1.0.0"}),
            "other/f/index.js": "module.exports = 'f';\n",
        }
    )
    assert made.base.install() == whole("npm install")
    assert made.says("node", "-p", "require('b') + require('f')") == "b with 1.0.0f\n"


def test_packages_of_lerna_are_installed_with_the_root(
    project, registry: Registry, tmp_path: Path
) -> None:
    manifest = package(devDependencies={"tape": "1.0.0"})
    member = {"name": "@a/b", "version": "1.0.0", "dependencies": {"left": "1.0.0"}}
    files = {
        "package.json": manifest,
        "package-lock.json": npm_lock(registry, tmp_path / "l", manifest),
        "lerna.json": json.dumps({"packages": ["packages/*"]}),
        "packages/b/package.json": json.dumps(member),
        "packages/b/index.js": "module.exports = require('left');\n",
    }
    made = project(files)
    assert made.base.install() == whole("npm install with the packages of lerna.json")
    assert made.says("node", "-p", "require('@a/b')") == "1.0.0\n"


def test_a_place_outside_of_the_repository_is_not_read(project, tmp_path: Path) -> None:
    asked = {"secret": f"file:{tmp_path}/secret.tgz"}
    made = project({"package.json": package(dependencies=asked)})
    found = made.base.install()
    assert found.level is Level.METADATA
    assert "outside of the repository" in found.declined[0][1]
    assert made.clients.installs == []


# --- yarn, pnpm, bun ------------------------------------------------------------------------------


def classic(registry: Registry, version: str, asked: str = "^1.0.0") -> str:
    release = registry.universe.npm_packages["left"][version]
    # As it stands in real locks: another registry's address, which nobody answers here.
    address = f"https://registry.invalid/left/-/left-{version}.tgz"
    return (
        "# yarn lockfile v1\n\n\n"
        f'left@{asked}:\n  version "{version}"\n  resolved "{address}"\n'
        f"  integrity {release.integrity}\n"
    )


def test_yarn_classic_follows_its_lock(project, registry: Registry) -> None:
    files = {
        "package.json": package(dependencies={"left": "^1.0.0"}),
        "yarn.lock": classic(registry, "1.0.0"),
    }
    made = project(files)
    assert made.base.install() == whole("yarn 1.22.22 --frozen-lockfile")
    assert made.says(*REQUIRE) == "1.0.0\n"


def test_yarn_classic_resolves_what_its_lock_does_not_answer(project, registry: Registry) -> None:
    files = {
        "package.json": package(dependencies={"left": "^2.0.0"}),
        "yarn.lock": classic(registry, "1.0.0"),
    }
    made = project(files)
    found = made.base.install()
    assert found.level is Level.IN_PART
    assert steps(found) == [f"{YARN.label} --frozen-lockfile"]
    assert "frozen-lockfile" in found.declined[0][1]
    assert made.says(*REQUIRE) == "2.0.0\n"


#: The lock that a yarn makes of ``left`` 1.0.0, with another range for it.
Berry = Callable[[PinnedClient, str], str]


@pytest.fixture(scope="module")
def berry(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Berry:
    @functools.cache
    def made_by(client: PinnedClient) -> str:
        place = tmp_path_factory.mktemp("berry")
        (place / "package.json").write_text(package(dependencies={"left": "1.0.0"}))
        (place / "yarn.lock").touch()
        clients = SubprocessClients(os.environ | registry.environ)
        commands = Commands(clients, ClientStore(clients), place / "cache", 120)
        done = commands.berry(client, place, "0" if client is BERRY[8] else "mixed", frozen=False)
        assert done.ok, done.output
        return (place / "yarn.lock").read_text()

    def of(client: PinnedClient, spec: str) -> str:
        changed = made_by(client).replace('left@npm:1.0.0":\n', f'left@npm:{spec}":\n')
        for reported in ('left: "npm:1.0.0"', "left: 1.0.0"):
            changed = changed.replace(reported, reported.replace("1.0.0", spec))
        return changed

    return of


# The newest one follows its lock in other tests, too.
@pytest.mark.parametrize("version", a_choice(sorted(BERRY), step=2))
def test_yarn_2_and_later_follow_their_lock(project, berry: Berry, version: int) -> None:
    lock = berry(BERRY[version], "^1.0.0")
    assert "left@npm:^1.0.0" in lock
    made = project({"package.json": package(dependencies={"left": "^1.0.0"}), "yarn.lock": lock})
    found = made.base.install()
    assert found == whole(f"yarn {BERRY[version].version} --immutable")
    assert made.says(*REQUIRE) == "1.0.0\n"


def test_yarn_may_start_no_generator(project, berry: Berry) -> None:
    """A package of the registry may ask for one that a script of its own makes."""
    lock = berry(BERRY[8], "1.0.0")
    made = project(
        {"package.json": package(dependencies={"generates": "1.0.0"}), "yarn.lock": lock}
    )
    found = made.base.install()
    assert found.level is Level.METADATA
    assert not Path.home().joinpath("generator-ran").exists()
    assert "starts no program" in dict(found.declined)[f"{BERRY[8].label} without --immutable"]


PNPM_LOCK = """lockfileVersion: '9.0'
settings: {{autoInstallPeers: true, excludeLinksFromLockfile: false}}
importers:
  .: {{dependencies: {{left: {{specifier: {0}, version: 1.0.0}}}}}}
  packages/b: {{dependencies: {{app: {{specifier: 'workspace:*', version: 'link:../..'}}}}}}
packages:
  left@1.0.0: {{resolution: {{integrity: {1}}}}}
snapshots:
  left@1.0.0: {{}}
"""


def pnpm_project(
    registry: Registry, asked: str, locked: str, held: str = "1.0.0"
) -> dict[str, str]:
    digest = registry.universe.npm_packages["left"][held].integrity
    return {
        "package.json": package(dependencies={"left": asked}, packageManager="pnpm@99.0.0"),
        "index.js": "module.exports = require('left');\n",
        "packages/b/package.json": json.dumps(
            {"name": "b", "dependencies": {"app": "workspace:*"}}
        ),
        "packages/b/index.js": "module.exports = require('app');\n",
        "pnpm-workspace.yaml": "packages:\n  - 'packages/*'\n",
        "pnpm-lock.yaml": PNPM_LOCK.format(locked, digest).replace("1.0.0", held),
    }


def test_pnpm_follows_its_lock_and_links_members(project, registry: Registry) -> None:
    made = project(pnpm_project(registry, "^1.0.0", "^1.0.0"))
    assert made.base.install() == whole("pnpm 9.15.9 --frozen-lockfile")
    assert made.says("node", "-p", "require('./packages/b')") == "1.0.0\n"


def test_pnpm_resolves_what_its_lock_does_not_answer(project, registry: Registry) -> None:
    made = project(pnpm_project(registry, "^2.0.0", "^1.0.0"))
    found = made.base.install()
    assert found.level is Level.IN_PART
    assert "ERR_PNPM_OUTDATED_LOCKFILE" in found.declined[0][1]
    assert made.says(*REQUIRE) == "2.0.0\n"


def test_a_private_member_that_can_not_be_had_does_not_stand_in_the_way(
    project, registry: Registry
) -> None:
    files = pnpm_project(registry, "^1.0.0", "^1.0.0")
    site = {"name": "site", "private": True, "dependencies": {"absent": "1.0.0"}}
    files["packages/site/package.json"] = json.dumps(site)
    message = "{dependencies: {absent: {specifier: 1.0.0, version: 1.0.0}}}"
    lock = files["pnpm-lock.yaml"].replace(
        "packages:\n", f"  packages/site: {message}\npackages:\n", 1
    )
    lock = lock.replace(
        "  left@", "  absent@1.0.0: {resolution: {integrity: sha512-AAAA}}\n  left@", 1
    )
    files["pnpm-lock.yaml"] = lock.replace("snapshots:\n", "snapshots:\n  absent@1.0.0: {}\n")
    made = project(files)
    found = made.base.install()
    assert found.level is Level.IN_PART
    assert steps(found) == [f"{PNPM['9'].label} --frozen-lockfile", "private members"]
    assert "404" in found.declined[0][1]
    assert found.declined[1][1] == "left out: packages/site"
    assert made.says("node", "-p", "require('./packages/b')") == "1.0.0\n"


def test_a_lock_that_nobody_reads_is_said_and_npm_installs(project) -> None:
    made = project(
        {
            "package.json": package(dependencies={"left": "^1.0.0"}),
            "bun.lock": '{"lockfileVersion": 1, "workspaces": {"": {}}, "packages": {}}',
        }
    )
    found = made.base.install()
    assert found == Installed(
        Level.IN_PART,
        (("bun.lock", "no client of ours follows it"),),
        step="npm install without a lock",
    )
    assert made.says(*REQUIRE) == "1.0.1\n"


# --- what may not happen --------------------------------------------------------------------------


@pytest.mark.parametrize("lock", ["package-lock.json", "yarn.lock", "berry", "pnpm-lock.yaml"])
def test_nothing_of_the_target_runs_outside_whichever_the_client(
    project, registry: Registry, berry: Berry, tmp_path: Path, lock: str
) -> None:
    witness = tmp_path / "ran"
    code = f"require('node:fs').writeFileSync({json.dumps(str(witness))}, '');\n"
    scripts = dict.fromkeys(("preinstall", "install", "postinstall", "prepare"), "node evil.cjs")
    manifest = package(dependencies={"left": "1.0.0"}, scripts=scripts)
    files = {
        "package.json": manifest,
        "evil.cjs": code,
        ".npmrc": "ignore-scripts=false\nscript-shell=./evil.cjs\nnode-options=--require ./evil.cjs\n",
        ".yarnrc": 'yarn-path "./evil.cjs"\n',
        ".yarnrc.yml": "yarnPath: ./evil.cjs\nplugins: [./evil.cjs]\n",
        ".pnpmfile.cjs": code,
        "yarn.config.cjs": code,
    }
    if lock == "package-lock.json":
        files[lock] = npm_lock(registry, tmp_path / "l", manifest)
    elif lock == "yarn.lock":
        files[lock] = classic(registry, "1.0.0", "1.0.0")
    elif lock == "berry":
        files["yarn.lock"] = berry(BERRY[8], "1.0.0")
    else:
        files |= {lock: pnpm_project(registry, "1.0.0", "1.0.0")[lock]}
        files |= {
            "packages/b/package.json": '{"name": "b", "dependencies": {"app": "workspace:*"}}'
        }
        files |= {"pnpm-workspace.yaml": "packages:\n  - 'packages/*'\npnpmfile: .pnpmfile.cjs\n"}
    made = project(files)
    assert made.base.install().level is Level.EVERYTHING
    assert not witness.exists()


@pytest.mark.parametrize("lock", ["", "yarn.lock", "berry", "pnpm-lock.yaml"])
def test_a_registry_that_does_not_answer_is_no_verdict(
    project, registry: Registry, berry: Berry, lock: str
) -> None:
    files = {"package.json": package(dependencies={"left": "1.0.0"})}
    if lock == "yarn.lock":
        files[lock] = classic(registry, "1.0.0", "1.0.0")
    elif lock == "berry":
        files["yarn.lock"] = berry(BERRY[8], "1.0.0")
    elif lock:
        files = pnpm_project(registry, "3.0.0", "3.0.0", "3.0.0")  # never seen: not in its store
    made = project(files)
    with serve(Universe()) as closed:
        gone = dict(closed.environ)
    case = made.case.with_(clients=SubprocessClients(os.environ | gone))
    with pytest.raises(ToolFailedError, check=OfKind("registry_unreachable")):
        Installation(case.context, case.context.repo, ".").install()
    assert not list((case.context.cache / "installed").glob("part-*"))


def test_a_plain_tree_gets_a_copy(project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_setup, "LAYERED", False)
    made = project({"package.json": package(dependencies={"left": "1.0.0"})})
    spoil = "echo 'module.exports = 7' >node_modules/left/index.js"
    made.says("sh", "-c", spoil)
    assert made.says(*REQUIRE) == "7\n"  # it is this tree's own
    made.case.worktree.reset()
    assert made.says(*REQUIRE) == "1.0.0\n"
