"""npm's gates over real projects: node's own test runner without dependencies needs no registry."""

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.npm.gates.all_gates import NotVulnerableGate, build_gates
from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.sandbox.clients import SubprocessClients
from tests import hanging
from tests.integration.gate_setup import advisory, needs_sandbox, patched
from tests.kinds import OfKind

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not on PATH"),
]

OWN = advisory("calc")
MANIFEST = {"name": "calc", "version": "1.0.0", "scripts": {"test": "node --test"}}
TEST = """const { test } = require('node:test');
const assert = require('node:assert');
const { add } = require('../calc.js');
test('adds', () => assert.strictEqual(add(1, 2), 3));
test('adds nothing', () => assert.strictEqual(add(0, 0), 0));
"""
APP = "exports.add = (a, b) => a - b;\n"
FIXED = "exports.add = (a, b) => a + b;\n"


def project(**facts: object) -> dict[str, str]:
    return {
        "package.json": json.dumps(MANIFEST | facts, indent=2),
        "calc.js": APP,
        "test/calc.test.js": TEST,
    }


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def test_a_good_fix_without_dependencies_passes_its_tests(tmp_path: Path) -> None:
    with patched(tmp_path, project(), {"calc.js": FIXED}, about=OWN) as case:
        verdicts = case.judge(build_gates())
    assert verdicts["resolves"].status is GateStatus.SKIPPED
    assert verdicts["resolves"].kinds == {"no_dependencies"}
    assert verdicts["not_vulnerable"].status is GateStatus.SKIPPED
    assert verdicts["tests"].status is GateStatus.PASSED
    assert verdicts["tests"].detail == "2 test(s) pass"


def test_a_failing_test_is_named_and_its_paths_are_relative(tmp_path: Path) -> None:
    change = {"calc.js": "exports.add = (a, b) => a * b;\n"}
    with patched(tmp_path, project() | {"calc.js": FIXED}, change, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.failure_kind is FailureKind.TESTS_FAILED
    assert verdict.broken == ("test/calc.test.js > adds",)
    assert "not ok" in verdict.log
    assert str(tmp_path) not in verdict.log


def test_fewer_tests_than_at_the_base_commit_is_a_failure(tmp_path: Path) -> None:
    files = project() | {
        "test/calc.test.js": TEST.replace(
            "test('adds nothing', ", "test('adds nothing', { skip: !!require('../calc.js').LESS }, "
        )
    }
    change = {"calc.js": FIXED + "exports.LESS = true;\n"}
    with patched(tmp_path, files, change, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.failure_kind is FailureKind.TESTS_MISSING
    assert verdict.detail == (
        "1 test(s) pass at the base commit and did not run here: test/calc.test.js > adds nothing"
    )


def test_tests_that_hang_time_out(tmp_path: Path) -> None:
    change = {"calc.js": hanging.IN_NODE}
    with patched(tmp_path, project(), change, about=OWN, timeout_s=4) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.failure_kind is FailureKind.GATE_TIMEOUT


@pytest.mark.parametrize(
    "scripts", [{}, {"test": 'echo "Error: no test specified" && exit 1'}, {"test": " "}]
)
def test_no_real_test_script_is_skipped_with_the_reason(
    tmp_path: Path, scripts: dict[str, str]
) -> None:
    with patched(tmp_path, project(scripts=scripts), {"calc.js": FIXED}, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.kinds == {"no_tests"}


def test_a_runner_that_tells_no_count_is_judged_by_its_end(tmp_path: Path) -> None:
    files = project(scripts={"test": "node -e 0"})
    with patched(tmp_path, files, {"calc.js": FIXED}, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.status is GateStatus.PASSED
    assert "not_counted" in verdict.kinds


def test_a_patch_that_ends_the_runner_before_its_tests_does_not_pass(tmp_path: Path) -> None:
    files = project(scripts={"test": "node test/calc.test.js"})
    change = {"calc.js": "process.exit(0);\n" + FIXED}
    with patched(tmp_path, files, change, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.failure_kind is FailureKind.TESTS_MISSING
    assert "2 did at the base commit" in verdict.detail


def test_a_project_without_a_lock_is_tested_beside_one_with_a_lock(tmp_path: Path) -> None:
    files = {f"{place}/{path}": text for place in "ab" for path, text in project().items()}
    files["a/package-lock.json"] = json.dumps({"lockfileVersion": 3, "packages": {"": {}}})
    change = {"a/calc.js": FIXED, "b/calc.js": "exports.add = () => 7;\n"}
    with patched(tmp_path, files, change, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.failure_kind is FailureKind.TESTS_FAILED


def test_a_nested_project_is_tested_in_its_folder(tmp_path: Path) -> None:
    files = {f"apps/calc/{path}": text for path, text in project().items()}
    files["package.json"] = json.dumps({"name": "root", "scripts": {"test": "exit 1"}})
    with patched(tmp_path, files, {"apps/calc/calc.js": FIXED}, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.detail == "2 test(s) pass"


def test_a_lock_that_can_not_be_read_is_not_taken_for_installed(tmp_path: Path) -> None:
    files = project(dependencies={"left": "^1.0.0"}) | {"yarn.lock": "__metadata:\n  version: 6\n"}
    manifests = ("package.json", "yarn.lock")
    about = advisory("left")
    with patched(tmp_path, files, {"calc.js": FIXED}, about=about, manifests=manifests) as case:
        verdict = NotVulnerableGate().judge(case.context)
    assert verdict.status is GateStatus.SKIPPED
    assert "yarn.lock" in verdict.detail


def test_an_unreadable_manifest_fails_to_resolve(tmp_path: Path) -> None:
    with patched(tmp_path, project(), {"package.json": "{"}, about=OWN) as case:
        verdict = case.judge(build_gates())["resolves"]
    assert verdict.failure_kind is FailureKind.RESOLUTION_FAILED


def test_an_unreachable_registry_says_nothing_about_the_patch(tmp_path: Path) -> None:
    nowhere = SubprocessClients(
        {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "npm_config_registry": "http://127.0.0.1:9/",
            "npm_config_fetch_retries": "0",
        }
    )
    files = project(dependencies={"ms": "2.1.2"})
    after = {"package.json": project(dependencies={"ms": "2.1.3"})["package.json"]}
    manifests = ("package.json",)
    with (
        patched(tmp_path, files, after, about=advisory("ms"), manifests=manifests) as case,
        pytest.raises(ToolFailedError, check=OfKind("registry_unreachable")),
    ):
        build_gates()[0].judge(case.with_(clients=nowhere).context)


# --- with a registry ------------------------------------------------------------------------------

MS = advisory("ms", fixed="2.1.3")
MS_TEST = "require('node:test').test('ms', () => { if (require('ms')('1s') !== 1000) throw 1; });\n"


@cache
def locked(version: str) -> Mapping[str, str]:
    """A project with ``ms`` in one version, and the lock that npm makes for it."""
    manifest = project(dependencies={"ms": version})["package.json"]
    with TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "package.json").write_text(manifest)
        args = ["install", "--package-lock-only", "--ignore-scripts", "--no-audit"]
        done = SubprocessClients().run("npm", args, cwd=place, timeout_s=120)
        assert done.ok, done.output
        lock = (place / "package-lock.json").read_text()
    return {"package.json": manifest, "package-lock.json": lock}


@pytest.mark.registry("npm")
def test_a_bump_installs_is_no_longer_affected_and_passes(tmp_path: Path) -> None:
    files = {**locked("2.1.2"), "test/ms.test.js": MS_TEST}
    change = locked("2.1.3")
    with patched(tmp_path, files, change, about=MS, manifests=tuple(change)) as case:
        verdicts = case.judge(build_gates())
        case.worktree.reset()
        assert case.worktree.tree.find("node_modules") is None
    assert {name: verdict.status for name, verdict in verdicts.items()} == {
        "resolves": GateStatus.PASSED,
        "not_vulnerable": GateStatus.PASSED,
        "imports": GateStatus.PASSED,
        "typecheck": GateStatus.SKIPPED,
        "build": GateStatus.SKIPPED,
        "checks": GateStatus.SKIPPED,
        "tests": GateStatus.PASSED,
    }
    assert verdicts["resolves"].detail == "npm installs package.json"
    assert verdicts["not_vulnerable"].detail == "resolved tree: ms 2.1.3"
    assert verdicts["tests"].detail == "1 test(s) pass"


@pytest.mark.registry("npm")
def test_a_bump_to_an_affected_version_is_still_vulnerable(tmp_path: Path) -> None:
    files = locked("2.1.1")
    change = locked("2.1.2")
    with patched(tmp_path, files, change, about=MS, manifests=tuple(change)) as case:
        verdict = case.judge(build_gates())["not_vulnerable"]
    assert verdict.failure_kind is FailureKind.STILL_VULNERABLE
    assert "node_modules/ms is 2.1.2" in verdict.detail


@pytest.mark.registry("npm")
def test_a_lock_that_does_not_match_its_manifest_fails_to_resolve(tmp_path: Path) -> None:
    files = locked("2.1.2")
    change = {"package.json": files["package.json"].replace("2.1.2", "2.1.3")}
    with patched(tmp_path, files, change, about=MS, manifests=tuple(files)) as case:
        verdict = case.judge(build_gates())["resolves"]
    assert verdict.failure_kind is FailureKind.RESOLUTION_FAILED
    assert str(tmp_path) not in verdict.log


@pytest.mark.registry("npm")
def test_without_a_lock_what_npm_installed_is_judged(tmp_path: Path) -> None:
    files = project(dependencies={"ms": "2.1.1"})
    change = {"package.json": project(dependencies={"ms": "2.1.2"})["package.json"]}
    manifests = ("package.json",)
    with patched(tmp_path, files, change, about=MS, manifests=manifests) as case:
        verdicts = case.judge(build_gates())
    assert verdicts["resolves"].status is GateStatus.PASSED
    assert verdicts["not_vulnerable"].failure_kind is FailureKind.STILL_VULNERABLE


@pytest.mark.registry("npm")
def test_what_the_base_commit_can_not_install_either_is_no_verdict_on_the_patch(
    tmp_path: Path,
) -> None:
    files = project(dependencies={"ms": "99.0.0"})
    change = {"package.json": project(dependencies={"ms": "98.0.0"})["package.json"]}
    manifests = ("package.json",)
    with patched(tmp_path, files, change, about=MS, manifests=manifests) as case:
        verdicts = case.judge(build_gates())
    assert verdicts["resolves"].status is GateStatus.SKIPPED
    assert verdicts["resolves"].kinds == {"base_not_installable"}
    assert verdicts["not_vulnerable"].detail == "pins: ms 98.0.0"
    assert verdicts["tests"].status is GateStatus.SKIPPED


@pytest.mark.registry("npm")
def test_neither_scripts_nor_npmrc_of_the_target_run_outside_the_sandbox(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    touch = f"touch {witness}"
    scripts = {"test": "node --test", "preinstall": touch, "prepare": touch, "install": touch}
    files = project(scripts=scripts, dependencies={"ms": "2.1.2"})
    files[".npmrc"] = f"ignore-scripts=false\nscript-shell={tmp_path}/shell\ngit={tmp_path}/git\n"
    change = {"package.json": files["package.json"].replace("2.1.2", "2.1.3")}
    manifests = ("package.json",)
    with patched(tmp_path, files, change, about=MS, manifests=manifests) as case:
        verdict = case.judge(build_gates())["resolves"]
    assert verdict.status is GateStatus.PASSED, verdict.log
    assert not witness.exists()


@pytest.mark.registry("npm")
def test_a_run_that_is_resumed_behind_the_first_gate_has_what_it_installed(tmp_path: Path) -> None:
    files = project(dependencies={"ms": "2.1.2"})
    files |= {"test/ms.test.js": MS_TEST, "calc.js": FIXED}
    change = {"package.json": project(dependencies={"ms": "2.1.3"})["package.json"]}
    manifests = ("package.json",)
    with patched(tmp_path, files, change, about=MS, manifests=manifests) as case:
        assert case.judge(build_gates())["tests"].status is GateStatus.PASSED
        case.worktree.reset()
        case.worktree.apply(case.context.application.diff)
        nowhere = case.with_(clients=Nowhere())
        assert NotVulnerableGate().judge(nowhere.context).detail == "resolved tree: ms 2.1.3"
        assert build_gates()[-1].judge(nowhere.context).status is GateStatus.PASSED


class Nowhere(SubprocessClients):
    """Reaches nothing, and may not need to."""

    def run(self, tool: str, args: Sequence[str], **options: object) -> CommandResult:  # type: ignore[override]
        assert "install" not in args
        return super().run(tool, args, **options)  # type: ignore[arg-type]
