"""A project's own test commands, and what they need: its client, git, places to write, servers."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.gates import testing
from fallback_plugins.npm.gates.all_gates import MAX_MEMBERS
from fallback_plugins.npm.gates.all_gates import TestsGate as NpmTests
from fallback_plugins.npm.installing.installation import BERRY
from fallback_plugins.shared.gates.test_commands import CommandKind
from fallback_plugins.shared.gates.test_commands import TestCommand as Command
from fallback_tier.gate_ports import GateVerdict
from tests.integration import gate_setup
from tests.integration.gate_setup import advisory, clients_in, needs_sandbox, patched
from tests.registry import Registry, Universe, serve
from tests.unit.shared.real_clients import provisioned

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.registry("npm"),
    pytest.mark.xdist_group("npm-own-tests"),
]

GOOD, BAD = "exports.add = (a, b) => b + a;\n", "exports.add = () => 7;\n"
CALC = "exports.add = (a, b) => a + b;\n"

SUM = """const {test} = require('node:test');
const assert = require('node:assert');
const {add} = require('PLACE/calc.js');
test('sum', () => assert.equal(add(1, 2), 3));
test('broken for years', () => assert.fail());
"""

#: What jasmine's callers and its reporters see of it, and no more.
CORE = """const reporters = [];
const tell = (what, ...values) => reporters.forEach((one) => one[what]?.(...values));
const specs = require(process.cwd() + '/spec.js');
exports.boot = () => ({getEnv: () => ({addReporter: (one) => reporters.push(one), run() {
  let failed = 0;
  for (const [name, run] of Object.entries(specs)) {
    const status = run() ? 'passed' : 'failed';
    failed += status === 'failed';
    tell('specDone', {fullName: name, status});
  }
  console.log(`${Object.keys(specs).length} specs, ${failed} failures`);
  tell('jasmineDone', {});
  process.exit(failed ? 3 : 0);
}})});
"""
JASMINE = "#!/usr/bin/env node\nrequire('jasmine-core').boot().getEnv().run();\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    provisioned(folder / "fallback-tier" / "clients", YARN, PNPM["9"], *BERRY.values())
    return folder


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = Universe()
    for version in ("1.0.0", "1.0.1"):
        universe.npm("left", version, files={"index.js": f"module.exports = '{version}';\n"})
    universe.npm("jasmine-core", "5.0.0", files={"index.js": CORE})
    bin_ = {"bin": {"jasmine": "jasmine.js"}}
    universe.npm(
        "jasmine", "5.0.0", {"jasmine-core": "*"}, files={"jasmine.js": JASMINE}, manifest=bin_
    )
    with serve(universe) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _places(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sandbox()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(gate_setup, "CACHE", tmp_path / "cache")


def package(scripts: Mapping[str, str], **facts: object) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", "scripts": dict(scripts), **facts})


def judge(
    place: Path,
    files: Mapping[str, str],
    changes: Mapping[str, str] | str = GOOD,
    registry: Registry | None = None,
    manifests: tuple[str, ...] = ("package.json",),
) -> GateVerdict:
    """``changes``: a text is the patched calc.js."""
    patch = {"calc.js": changes} if isinstance(changes, str) else changes
    with patched(
        place, {"calc.js": CALC, **files}, patch, about=advisory("calc"), manifests=manifests
    ) as case:
        if registry is not None:
            case = case.with_(clients=clients_in(os.environ | registry.environ))
        return NpmTests().judge(case.context)


def stated(monkeypatch: pytest.MonkeyPatch, *commands: Command) -> None:
    """What a finder of commands would find for the root."""
    monkeypatch.setattr(
        testing, "own_commands", lambda _repo, folder, _stated: commands if folder == "." else ()
    )


AS_BEFORE = "1 test(s) pass; 1 fail as at the base commit"


@pytest.mark.parametrize(
    "script",
    [
        "npm run unit && echo done",
        "NODE_OPTIONS=--no-warnings node --test unit.test.js; exit $?",
        "node --test --test-reporter=dot unit.test.js",
        "sh -c 'node --test unit.test.js'",
    ],
    ids=["a script of another", "own options", "its own reporter", "a shell"],
)
def test_tests_are_compared_by_name_whatever_calls_their_runner(
    tmp_path: Path, script: str
) -> None:
    files = {
        "package.json": package({"test": script, "unit": "node --test unit.test.js"}),
        "unit.test.js": SUM.replace("PLACE", "."),
    }
    good = judge(tmp_path / "1", files)
    assert good.status is GateStatus.PASSED, good.detail
    assert good.detail.startswith(AS_BEFORE)
    bad = judge(tmp_path / "2", files, BAD)
    assert (bad.status, bad.broken) == (GateStatus.FAILED, ("unit.test.js > sum",)), bad.detail


def test_reports_of_several_runners_are_one(tmp_path: Path) -> None:
    files = {
        "package.json": package({"test": "node --test a.test.js; node --test b.test.js"}),
        "a.test.js": SUM.replace("PLACE", "."),
        "b.test.js": SUM.replace("PLACE", "."),
    }
    good = judge(tmp_path / "1", files)
    assert good.detail.startswith("2 test(s) pass; 2 fail as at the base commit: a.test.js > br")
    assert judge(tmp_path / "2", files, BAD).broken == ("a.test.js > sum", "b.test.js > sum")


def test_a_jasmine_run_with_old_failures_is_compared(tmp_path: Path, registry: Registry) -> None:
    adds = "'adds\\n numbers': () => require('./calc.js').add(1, 2) === 3"
    files = {
        "package.json": package(
            {"test": "npm run spec"} | {"spec": "jasmine"}, devDependencies={"jasmine": "*"}
        ),
        "spec.js": f"module.exports = {{{adds}, old: () => false}};\n",
    }
    good = judge(tmp_path / "1", files, registry=registry)
    assert good.detail.startswith(f"{AS_BEFORE}: old"), good.detail
    bad = judge(tmp_path / "2", files, BAD, registry=registry)
    assert bad.broken == ("adds\n numbers",)


def test_the_first_command_that_runs_tests_is_taken_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = "require('fs').appendFileSync('made.txt', process.env.WORD)"
    stated(
        monkeypatch,
        Command("eslint .", "ci, job lint", kind=CommandKind.LINT),
        Command("pytest", "ci, job python", runtime="python"),
        Command("no-such-program", "ci, job e2e"),
        Command("node quiet.js", "ci, job other"),
        Command(
            "node --test unit.test.js",
            "ci, job test",
            env={"WORD": "x"},
            before=(f'node -e "{made}"', "no-such-step"),
        ),
        Command("exit 1", "ci, job never"),
    )
    unit = SUM.replace("PLACE", ".") + (
        "test('built', () => assert.equal(require('fs').readFileSync('made.txt', 'utf8'), 'x'));\n"
    )
    files = {
        "package.json": package({"test": "exit 1"}),
        "unit.test.js": unit,
        "quiet.js": "",
    }
    good = judge(tmp_path / "1", files)
    assert good.status is GateStatus.PASSED, good.detail
    assert good.detail.startswith("2 test(s) pass; 1 fail as at the base commit")
    assert "`no-such-step`, which comes before the tests, fails" in good.detail
    assert good.notes[0] == "the tests run by `node --test unit.test.js` (ci, job test)"
    notes = "; ".join(good.notes)
    assert "`no-such-program` (ci, job e2e) does not serve: it runs no test (`no-such-pr" in notes
    assert "`node quiet.js` (ci, job other) does not serve: it runs no test" in notes
    assert judge(tmp_path / "2", files, BAD).broken == ("unit.test.js > sum",)


def test_commands_of_one_job_are_one_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Command("node --test a.test.js", "ci, job test, step a", group="ci, job test")
    stated(monkeypatch, one, Command("node --test b.test.js", "step b", group="ci, job test"))
    passing = "require('node:test').test('b', () => require('assert')(!require('./calc.js').add(0, 0)));\n"
    files = {
        "package.json": package({}),
        "a.test.js": SUM.replace("PLACE", "."),
        "b.test.js": passing,
    }
    assert judge(tmp_path / "1", files).detail.startswith("2 test(s) pass; 1 fail as")
    assert judge(tmp_path / "2", files, BAD).broken == ("a.test.js > sum", "b.test.js > b")
    unit = Command("node --test a.test.js", "ci, job unit", group="unit", is_of_ci=True)
    stated(monkeypatch, unit, Command("node --test b.test.js", "ci", group="b", is_of_ci=True))
    part = judge(tmp_path / "3", files)
    assert part.tests[0].reason == "the tests of one of 2 ways in which CI tests"
    assert any("were not run: `node --test b.test.js` (ci)" in note for note in part.notes)


BERRY_LOCK = """__metadata:
  version: 8
  cacheKey: 10c0

"app@workspace:.":
  version: 0.0.0-use.local
  resolution: "app@workspace:."
  languageName: unknown
  linkType: soft
"""
LOCKS = {
    "yarn": ("yarn.lock", "# yarn lockfile v1\n\n\n"),
    "berry": ("yarn.lock", BERRY_LOCK),
    "pnpm": ("pnpm-lock.yaml", "lockfileVersion: '9.0'\n\nimporters:\n\n  .: {}\n"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("client", "script"),
    [
        ("yarn", "yarn unit && yarnpkg run unit"),
        ("yarn", "corepack enable; corepack yarn run unit"),
        ("berry", "yarn run unit"),
        ("pnpm", "pnpm unit"),
        ("pnpm", "pnpm -r --if-present run unit"),
        ("pnpm", "pnpm exec node --test unit.test.js"),
    ],
)
def test_scripts_call_the_projects_client(
    tmp_path: Path, registry: Registry, client: str, script: str
) -> None:
    lock, text = LOCKS[client]
    release = {"yarn": "yarn@1.22.19", "berry": "yarn@4.5.0", "pnpm": "pnpm@9.1.0"}[client]
    files = {
        "package.json": package(
            {"test": script, "unit": "node --test unit.test.js"}, packageManager=release
        ),
        lock: text,
        "unit.test.js": SUM.replace("PLACE", "."),
    }
    good = judge(tmp_path / "1", files, registry=registry, manifests=("package.json", lock))
    assert good.status is GateStatus.PASSED, f"{good.detail}\n{good.log}"
    assert "fail as at the base commit: unit.test.js > broken for years" in good.detail
    bad = judge(tmp_path / "2", files, BAD, registry=registry, manifests=("package.json", lock))
    assert "unit.test.js > sum" in bad.broken


NEEDS = """const {test} = require('node:test');
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const net = require('node:net');
const {execSync} = require('node:child_process');
const ask = (line) => execSync(line, {encoding: 'utf8'}).trim();
test('sum', () => assert.equal(require('./calc.js').add(1, 2), 3));
test('writes', () => {
  const own = ['data', 'node_modules/.cache', 'node_modules/left'];
  for (const place of [...own, os.homedir(), os.tmpdir(), '/var/tmp']) {
    fs.mkdirSync(place, {recursive: true});
    fs.writeFileSync(place + '/test.db', 'x');
  }
});
test('git', () => {
  assert.equal(ask('git status --porcelain -uno'), '');
  assert.equal(ask('git log -1 --format=%s'), 'base');
  assert.equal(ask('git show HEAD:calc.js'), fs.readFileSync('calc.js', 'utf8').trim());
  ask('git -c user.name=a -c user.email=a@b commit --allow-empty -m more');
});
test('locale', () => {
  assert.equal(new Date(0).getHours(), 0);
  assert.equal(ask('locale charmap'), 'UTF-8');
});
for (const host of ['127.0.0.1', '::1', 'localhost', os.hostname()]) {
  test('network ' + host, async () => {
    const server = net.createServer((socket) => socket.end('hello'));
    await new Promise((done) => server.listen(0, host, done));
    const client = net.connect(server.address().port, host);
    const text = await new Promise((done, no) => client.on('data', done).on('error', no));
    assert.equal(String(text), 'hello');
    server.close();
  });
}
"""


def test_tests_find_places_to_write_git_and_a_network(tmp_path: Path, registry: Registry) -> None:
    files = {
        "package.json": package({"test": "node --test"}, dependencies={"left": "1.0.0"}),
        "needs.test.js": NEEDS,
    }
    for _ in range(2):  # what one run writes is not there for the next
        verdict = judge(tmp_path, files, registry=registry)
        assert (verdict.status, verdict.detail) == (GateStatus.PASSED, "8 test(s) pass"), (
            verdict.log
        )
        files = {**files, "more.txt": "x"}
        tmp_path = tmp_path / "again"


@pytest.mark.parametrize(
    ("root", "detail"),
    [
        (
            "root.test.js",
            "1 test(s) pass; packages/a: 1 test(s) pass; packages/b: 1 test(s) pass",
        ),
        # What the root's suite runs is not run again.
        ("root.test.js packages/a/a.test.js", "2 test(s) pass; packages/b: 1 test(s) pass"),
    ],
    ids=["none by the root", "one by the root"],
)
def test_members_that_the_patch_reaches_are_tested(
    tmp_path: Path, registry: Registry, root: str, detail: str
) -> None:
    def member(name: str, **facts: object) -> str:
        return json.dumps(
            {"name": name, "version": "1.0.0", "scripts": {"test": "node --test"}, **facts}
        )

    def lock(version: str) -> str:
        resolved = f"{registry.url}/left/-/left-{version}.tgz"
        return f'# yarn lockfile v1\n\n\nleft@^1.0.0:\n  version "{version}"\n  resolved "{resolved}"\n'

    files = {
        "package.json": package(
            {"test": f"node --test {root}"}, private=True, workspaces=["packages/*"]
        ),
        "root.test.js": "require('node:test').test('root', () => {});\n",
        "packages/a/package.json": member("a", dependencies={"left": "^1.0.0"}),
        "packages/a/a.test.js": "require('node:test').test('left', () => require('left').at(0));\n",
        "packages/b/package.json": member("b", dependencies={"a": "1.0.0"}),
        "packages/b/b.test.js": "require('node:test').test('b', () => {});\n",
        "packages/c/package.json": member("c"),
        "packages/c/c.test.js": "process.exit(1)\n",
        # Without tests there is nothing to judge, however many there are.
        **{
            f"packages/d{number}/package.json": json.dumps(
                {"name": f"d{number}", "version": "1.0.0", "dependencies": {"left": "^1.0.0"}}
                # A script finds none.
                | ({"scripts": {"test": "node --test"}} if number == 0 else {})
            )
            for number in range(MAX_MEMBERS + 1)
        },
        "yarn.lock": lock("1.0.0"),
    }
    changes = {"yarn.lock": lock("1.0.1")}
    found = judge(tmp_path, files, changes, registry, ("package.json", "yarn.lock"))
    assert found.status is GateStatus.PASSED, f"{found.detail}\n{found.log}"
    assert (found.detail, found.tests_level) == (detail, Level.COMPARED)
    assert "test scripts were not run, as no file is a test by its name: packages/d0" in found.notes


SERVED = """const {test} = require('node:test');
const assert = require('node:assert');
const {execSync} = require('node:child_process');
const {add} = require('./calc.js');
test('sum', () => {
  const words = `SELECT ${add(1, 2)}, current_user, current_database()`;
  const ask = `psql "${process.env.DATABASE_URL}" -Atc "${words}"`;
  assert.equal(execSync(ask, {encoding: 'utf8'}).trim(), '3|shop|orders');
});
"""


def test_services_are_started_for_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]:
        pytest.skip("PostgreSQL's server is not installed here")
    env = {"DATABASE_URL": "postgres://shop:secret@postgres:5433/orders"}
    command = Command(
        "node --test db.test.js", "ci, job test", env=env, services=("postgres", "redis")
    )
    stated(monkeypatch, command)
    files = {"package.json": package({}), "db.test.js": SERVED}
    good = judge(tmp_path / "1", files)
    assert good.detail.startswith("1 test(s) pass"), f"{good.detail}\n{good.log}"
    assert judge(tmp_path / "2", files, BAD).failure_kind is FailureKind.TESTS_FAILED
    if "redis" in good.detail:  # a machine may have it
        assert good.detail.endswith("needs redis, which is not installed here")


#: Says something to a server, and wants its answer.
ASKED = """const {test} = require('node:test');
const assert = require('node:assert');
const {add} = require('./calc.js');
test('sum', () => assert.equal(add(1, 2), 3));
test('server', (_, done) => {
  const socket = require('net').connect(PORT, 'HOST', () => socket.write('SAID'));
  socket.on('error', done);
  socket.on('data', (data) => {
    socket.destroy();
    assert.match(data.toString('latin1'), /EXPECTED/);
    done();
  });
});
"""


@pytest.mark.parametrize(
    ("service", "program", "port", "said", "expected"),
    [
        ("redis", "redis-server", 6379, "PING\\r\\n", "PONG"),
        ("memcached", "memcached", 11211, "version\\r\\n", "VERSION"),
        # The server speaks first, and names its way to log in.
        ("mariadb", "mysqld", 3306, "", "mysql_native_password"),
    ],
    ids=["redis", "memcached", "mysql"],
)
def test_each_kind_of_server_answers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    program: str,
    port: int,
    said: str,
    expected: str,
) -> None:
    if shutil.which(program, path="/usr/sbin:/usr/bin") is None:
        pytest.skip(f"{program} is not installed here")
    words = {"PORT": str(port), "HOST": service, "SAID": said, "EXPECTED": expected}
    text = ASKED
    for word, by in words.items():
        text = text.replace(word, by)
    stated(monkeypatch, Command("node --test it.test.js", "ci, job test", services=(service,)))
    files = {"package.json": package({}), "it.test.js": text}
    good = judge(tmp_path / "1", files)
    assert good.detail.startswith("2 test(s) pass"), f"{good.detail}\n{good.log}"
    assert judge(tmp_path / "2", files, BAD).broken == ("it.test.js > sum",)
