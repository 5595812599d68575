"""PyPI's gates over real projects: unittest without dependencies needs no registry."""

from pathlib import Path

import pytest

from fallback_audit.vocabulary import AffectedCode, DecidedBy, FailureKind, GateStatus
from fallback_plugins.pypi.gates import build_gates
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.manifests.pyproject import NO_BACKEND, harmless
from fallback_tier.affected import Affected, OwnPackage
from fallback_tier.errors import ToolFailedError
from fallback_tier.sandbox.runners import UnsandboxedRunner
from tests.integration.gate_setup import advisory, needs_sandbox, patched
from tests.kinds import OfKind

pytestmark = pytest.mark.sandbox

OWN = advisory("calc", "PyPI")
APP = "def add(a, b):\n    return a - b\n"
FIXED = "def add(a, b):\n    return a + b\n"
UNITTEST = """import unittest
from calc import add

class Add(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)

    def test_zero(self):
        self.assertEqual(add(0, 0), 0)
"""
PROJECT = {"calc.py": APP, "tests/test_calc.py": UNITTEST, "README.md": "calc\n"}


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def test_a_good_fix_without_dependencies_passes_its_tests(tmp_path: Path) -> None:
    with patched(tmp_path, PROJECT, {"calc.py": FIXED}, about=OWN) as case:
        verdicts = case.judge(build_gates())
    assert verdicts["resolves"].status is GateStatus.SKIPPED
    assert verdicts["resolves"].kinds == {"no_dependencies"}
    assert verdicts["not_vulnerable"].status is GateStatus.SKIPPED
    assert verdicts["tests"].status is GateStatus.PASSED
    assert verdicts["tests"].detail == "2 test(s) pass"


def test_a_failing_test_is_named_and_its_paths_are_relative(tmp_path: Path) -> None:
    wrong = "def add(a, b):\n    return a * b\n"
    with patched(tmp_path, PROJECT | {"calc.py": FIXED}, {"calc.py": wrong}, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.failure_kind is FailureKind.TESTS_FAILED
    assert "test_sum" in verdict.log
    assert str(tmp_path) not in verdict.log


def test_code_that_ends_the_test_run_early_is_no_pass(tmp_path: Path) -> None:
    silent = "import os\nos._exit(0)\n"
    with patched(tmp_path, PROJECT, {"calc.py": silent}, about=OWN) as case:
        imports = case.judge(build_gates())["imports"]
        verdict = build_gates()[-1].judge(case.context)
    assert imports.failure_kind is FailureKind.BUILD_FAILED
    assert "cannot import calc: it ends the interpreter, with exit code 0" in imports.log
    assert verdict.failure_kind is FailureKind.TESTS_MISSING
    assert verdict.detail == (
        "1 test(s) pass at the base commit and have no report here that its log agrees with: "
        "test_zero (test_calc.Add.test_zero)"
    )


def test_fewer_tests_than_at_the_base_commit_is_a_failure(tmp_path: Path) -> None:
    files = PROJECT | {
        "tests/test_calc.py": UNITTEST.replace("class Add", "import calc\nclass Add").replace(
            "    def test_zero",
            "    @unittest.skipIf(hasattr(calc, 'LESS'), '')\n    def test_zero",
        )
    }
    change = {"calc.py": FIXED + "LESS = True\n"}
    with patched(tmp_path, files, change, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.failure_kind is FailureKind.TESTS_MISSING
    assert verdict.detail == (
        "1 test(s) pass at the base commit and did not run here: "
        "test_zero (test_calc.Add.test_zero)"
    )


def test_tests_that_hang_time_out(tmp_path: Path) -> None:
    hang = {"calc.py": "import time\ntime.sleep(600)\n"}
    with patched(tmp_path, PROJECT, hang, about=OWN, timeout_s=3) as case:
        verdict = build_gates()[-1].judge(case.context)
    assert verdict.failure_kind is FailureKind.GATE_TIMEOUT


def test_a_repository_without_tests_is_skipped_with_the_reason(tmp_path: Path) -> None:
    files = {"calc.py": APP}
    with patched(tmp_path, files, {"calc.py": FIXED}, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.kinds == {"no_tests"}


def test_tests_that_need_an_undeclared_pytest_are_skipped(tmp_path: Path) -> None:
    files = {"calc.py": APP, "test_calc.py": "import pytest\ndef test_add():\n    pass\n"}
    with patched(tmp_path, files, {"calc.py": FIXED}, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.status is GateStatus.SKIPPED
    assert "pytest" in verdict.detail


@pytest.mark.registry("uv")
def test_another_clients_lock_is_installed_by_its_pins(tmp_path: Path) -> None:
    lock = '[[package]]\nname = "iniconfig"\nversion = "1.1.1"\n'
    files = PROJECT | {"poetry.lock": lock, "pyproject.toml": "[tool.poetry]\nname = 'calc'\n"}
    with patched(tmp_path, files, {"calc.py": FIXED}, about=OWN) as case:
        verdicts = case.judge(build_gates())
        held = Environment(case.context, case.context.repo, ".").resolved("iniconfig")
    assert verdicts["resolves"].detail == "uv installs poetry.lock"
    assert verdicts["tests"].status is GateStatus.PASSED
    assert held == ("1.1.1",)


def test_an_unreadable_manifest_fails_to_resolve(tmp_path: Path) -> None:
    files = PROJECT | {"pyproject.toml": "[project]\nname = 'calc'\n"}
    with patched(tmp_path, files, {"pyproject.toml": "[project\n"}, about=OWN) as case:
        verdict = case.judge(build_gates())["resolves"]
    assert verdict.failure_kind is FailureKind.RESOLUTION_FAILED


def test_a_pin_that_stays_affected_is_still_vulnerable_without_any_client(tmp_path: Path) -> None:
    files = {"uv.lock": '[[package]]\nname = "left"\nversion = "1.0.0"\n'}
    after = {"uv.lock": '[[package]]\nname = "left"\nversion = "1.5.0"\n'}
    with patched(tmp_path, files, after, about=advisory("left", "PyPI")) as case:
        verdict = build_gates()[1].judge(case.context)
    assert verdict.failure_kind is FailureKind.STILL_VULNERABLE
    assert "1.5.0" in verdict.detail


def test_a_range_beside_a_lock_is_no_copy_of_the_own_package(tmp_path: Path) -> None:
    asks = '[tool.poetry.dependencies]\ncalc = ">=1.0"\n'
    lock = '[[package]]\nname = "calc"\nversion = "2.0.0"\n'
    files = PROJECT | {"a/pyproject.toml": asks, "a/poetry.lock": lock, "b/pyproject.toml": asks}
    own = OwnPackage(name="calc", manifest="pyproject.toml")
    affected = Affected(code=AffectedCode.OWN, decided_by=DecidedBy.PERSON, own=(own,))
    with patched(tmp_path, files, {"calc.py": FIXED}, about=OWN) as case:
        repo = case.context.repo.model_copy(update={"affected": affected})
        verdict = build_gates()[1].judge(case.with_(repo=repo).context)
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.detail.endswith("not changed: b/pyproject.toml (1.0)")


# --- with a registry ------------------------------------------------------------------------------

PYTEST_TEST = """import iniconfig

def test_version():
    assert iniconfig.IniConfig
"""
REQUIREMENTS = {
    "requirements.txt": "iniconfig==1.1.1  # config\n",
    "requirements-dev.txt": "pytest==8.4.2\n",
    "tests/test_app.py": PYTEST_TEST,
}
INICONFIG = advisory("iniconfig", "PyPI", fixed="2.0.0")


@pytest.mark.registry("uv")
def test_a_bump_resolves_is_no_longer_affected_and_passes_pytest(tmp_path: Path) -> None:
    change = {"requirements.txt": "iniconfig==2.0.0  # config\n"}
    with patched(tmp_path, REQUIREMENTS, change, about=INICONFIG) as case:
        verdicts = case.judge(build_gates())
        again = case.judge(build_gates())
    assert {name: v.status for name, v in verdicts.items()} == {
        "resolves": GateStatus.PASSED,
        "not_vulnerable": GateStatus.PASSED,
        "imports": GateStatus.PASSED,
        "typecheck": GateStatus.SKIPPED,
        "tests": GateStatus.PASSED,
    }
    assert "resolved tree: iniconfig 2.0.0" in verdicts["not_vulnerable"].detail
    assert [v.status for v in again.values()] == [v.status for v in verdicts.values()]


@pytest.mark.registry("uv")
def test_a_bump_to_an_affected_version_is_still_vulnerable(tmp_path: Path) -> None:
    files = REQUIREMENTS | {"requirements.txt": "iniconfig==1.0.99\n"}
    change = {"requirements.txt": "iniconfig==1.1.1\n"}
    with patched(tmp_path, files, change, about=INICONFIG) as case:
        verdict = case.judge(build_gates())["not_vulnerable"]
    assert verdict.failure_kind is FailureKind.STILL_VULNERABLE


@pytest.mark.registry("uv")
def test_an_environment_tells_nothing_of_another_folders_range(tmp_path: Path) -> None:
    files = {"a/requirements.txt": "iniconfig==1.1.1\n", "b/requirements.txt": "iniconfig>=1\n"}
    change = {"a/requirements.txt": "iniconfig==2.0.0\n"}
    with patched(tmp_path, files, change, about=INICONFIG) as case:
        verdict = case.judge(build_gates())["not_vulnerable"]
    assert verdict.failure_kind is FailureKind.STILL_VULNERABLE
    assert verdict.detail == "iniconfig is still affected: b/requirements.txt has 1"


@pytest.mark.registry("uv")
def test_a_version_that_does_not_exist_fails_to_resolve(tmp_path: Path) -> None:
    change = {"requirements.txt": "iniconfig==99.0.0\n"}
    with patched(tmp_path, REQUIREMENTS, change, about=INICONFIG) as case:
        verdict = case.judge(build_gates())["resolves"]
    assert verdict.failure_kind is FailureKind.RESOLUTION_FAILED
    assert "99.0.0" in verdict.log


@pytest.mark.registry("uv")
def test_no_code_of_the_target_runs_outside_the_sandbox(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    setup = f"open({str(witness)!r}, 'w')\nfrom setuptools import setup\nsetup(name='app')\n"
    files = REQUIREMENTS | {"requirements.txt": "iniconfig==1.1.1\n-e .\n", "setup.py": setup}
    change = {"requirements.txt": "iniconfig==2.0.0\n-e .\n"}
    with patched(tmp_path, files, change, about=INICONFIG) as case:
        verdict = case.judge(build_gates())["resolves"]
    assert not witness.exists()
    assert verdict.status is GateStatus.PASSED


@pytest.mark.registry("uv")
def test_a_projects_own_build_backend_is_neither_fetched_nor_run(tmp_path: Path) -> None:
    """Two safeguards, either of which holds alone: --no-build, and a stand-in for the backend."""
    text = (
        '[project]\nname = "app"\ndynamic = ["version"]\nrequires-python = ">=3.11"\n'
        'dependencies = ["iniconfig=={}"]\n'
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    )
    lock = 'version = 1\nrequires-python = ">=3.11"\n'
    files = {"pyproject.toml": text.format("1.1.1"), "uv.lock": lock}
    change = {"pyproject.toml": text.format("2.0.0")}
    with patched(tmp_path, files, change, about=INICONFIG) as case:
        verdict = case.judge(build_gates())["resolves"]
    assert verdict.status is GateStatus.SKIPPED
    assert "Building source distributions for `app` is disabled" in verdict.log
    assert "hatchling" not in harmless("pyproject.toml", text)
    assert NO_BACKEND in harmless("pyproject.toml", text)


@pytest.mark.registry("uv")
def test_a_stale_uv_lock_fails_to_resolve_and_a_fresh_one_passes(tmp_path: Path) -> None:
    pyproject = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\n{}\n'
    before = pyproject.format('dependencies = ["iniconfig==1.1.1"]')
    after = pyproject.format('dependencies = ["iniconfig==2.0.0"]')
    locks = {}
    for name, text in (("before", before), ("after", after)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "pyproject.toml").write_text(text)
        from fallback_tier.sandbox.clients import SubprocessClients

        done = SubprocessClients().run("uv", ["lock"], cwd=folder, timeout_s=120)
        assert done.ok, done.output
        locks[name] = (folder / "uv.lock").read_text()
    files = {"pyproject.toml": before, "uv.lock": locks["before"]}
    stale = {"pyproject.toml": after}
    with patched(tmp_path / "stale", files, stale, about=INICONFIG) as case:
        verdict = case.judge(build_gates())["resolves"]
    assert verdict.failure_kind is FailureKind.RESOLUTION_FAILED
    fresh = {"pyproject.toml": after, "uv.lock": locks["after"]}
    with patched(tmp_path / "fresh", files, fresh, about=INICONFIG) as case:
        verdicts = case.judge(build_gates())
    assert verdicts["resolves"].status is GateStatus.PASSED
    assert "resolved tree: iniconfig 2.0.0" in verdicts["not_vulnerable"].detail


def test_an_unreachable_registry_says_nothing_about_the_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fallback_tier.sandbox.clients import SubprocessClients

    nowhere = SubprocessClients(
        {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple",
            "UV_HTTP_RETRIES": "0",
            "UV_CACHE_DIR": str(tmp_path / "uv"),
        }
    )
    change = {"requirements.txt": "iniconfig==2.0.0\n"}
    with (
        patched(tmp_path, REQUIREMENTS, change, about=INICONFIG) as case,
        pytest.raises(ToolFailedError, check=OfKind("registry_unreachable")),
    ):
        build_gates()[0].judge(case.with_(clients=nowhere).context)


def test_the_plain_runner_judges_the_same(tmp_path: Path) -> None:
    sandbox = UnsandboxedRunner()
    with patched(tmp_path, PROJECT, {"calc.py": FIXED}, about=OWN, sandbox=sandbox) as case:
        assert case.judge(build_gates())["tests"].status is GateStatus.PASSED


def test_both_trees_are_alike_but_for_the_patch(tmp_path: Path) -> None:
    """pytest calls a parameter by its number where it is long, and a path in it is longer in one tree."""
    named = (
        "import os, unittest\n"
        "class T(unittest.TestCase): pass\n"
        "setattr(T, f\"test_{len(os.getcwd())}_{os.path.exists('.git')}\", lambda self: None)\n"
    )
    files = {"calc.py": APP, "test_calc.py": named}
    with patched(tmp_path, files, {"calc.py": FIXED}, about=OWN) as case:
        verdict = case.judge(build_gates())["tests"]
    assert verdict.status is GateStatus.PASSED, verdict.detail
