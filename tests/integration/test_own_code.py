"""Repositories that are the affected package, each with one cause of a wrong end that real ones had.

The real command, real git, the real sandbox; a script stands for the model.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import Ended, osv, repository, run
from tests.fakes.repository import git
from tests.integration.gate_setup import needs_sandbox

pytestmark = pytest.mark.sandbox

FLAW = "def pad(text):\n    return eval(text)\n"
FIXED, DECORATED = "    return int(text)", "    return eval(text)  # looked at"
TEST = (
    "import unittest\n\nimport left\n\n\nclass LeftTest(unittest.TestCase):\n"
    "    def test_pad(self):\n        self.assertEqual(left.pad('1'), 1)\n"
)
PROOF = (
    "import unittest\n\nimport left\n\n\nclass FlawTest(unittest.TestCase):\n"
    "    def test_no_code_is_run(self):\n"
    "        with self.assertRaises(ValueError):\n            left.pad('1 + 1')\n"
)
PYPROJECT = '[project]\nname = "left"\nversion = "1.0.0"\n'
PYTHON = {"pyproject.toml": PYPROJECT, "left.py": FLAW, "test_left.py": TEST}

JS_FLAW = "module.exports = text => eval(text)\n"
JS_TEST = "require('node:assert').strictEqual(require('./index.js')('1'), 1)\n"


def package(name: str, **facts: Any) -> str:
    return json.dumps({"name": name, "version": "1.0.0", **facts}, indent=2) + "\n"


NPM = {"package.json": package("left"), "index.js": JS_FLAW, "test.js": JS_TEST}


class Scenario:
    """A repository, an advisory, a script, a proof, a state folder."""

    def __init__(self, place: Path, files: dict[str, str], ecosystem: str = "PyPI") -> None:
        self.place = place
        self.repo = repository(place / "repo", files)
        self.state = place / "state"
        (place / "advisory.json").write_text(osv("left", ecosystem=ecosystem))
        (place / "flaw_test.py").write_text(PROOF)

    def answer(self, *edits: tuple[str, str, str] | str) -> None:
        plans: list[dict[str, Any]] = []
        for edit in edits:
            if isinstance(edit, str):
                plans.append({"action": "refuse", "reason": edit})
                continue
            path, old, new = edit
            change = {"path": path, "old": old, "new": new}
            plans.append({"action": "source_edit", "edits": [change]})
        (self.place / "script.json").write_text(json.dumps(plans))

    def fix(self, *options: str | Path, proof: bool = False) -> Ended:
        script = self.place / "script.json"
        given: list[str | Path] = ["--script", script] if script.exists() else []
        if proof:
            command = "python -m unittest flaw_test"
            given += ["--proof", command, "--proof-file", self.place / "flaw_test.py"]
        return run(
            *["fix", self.repo, "--advisory", self.place / "advisory.json", "--offline"],
            *["--state-dir", self.state, *given, *options, "--json"],
        )

    def events(self, fix_id: str) -> list[dict[str, Any]]:
        shown = run("audit", "show", fix_id, "--state-dir", self.state, "--json").json["events"]
        assert isinstance(shown, list)
        return shown

    def is_intact(self) -> bool:
        return run("audit", "verify", "--state-dir", self.state).code == exit_codes.OK


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def scenario_of(tmp_path: Path, files: dict[str, str], ecosystem: str = "PyPI") -> Scenario:
    return Scenario(tmp_path, files, ecosystem)


def locked(**dev: str) -> str:
    """A lock in which a development tool brings the package itself in."""
    tree = {
        "": {"name": "left", "version": "1.0.0", "devDependencies": dev},
        "node_modules/tool": {"version": "1.0.0", "dev": True, "dependencies": {"left": "^1.0.0"}},
        "node_modules/left": {"version": "1.0.0", "dev": True},
    }
    return json.dumps({"name": "left", "lockfileVersion": 3, "packages": tree}, indent=2) + "\n"


COPIES: dict[str, tuple[str, dict[str, str]]] = {
    "an npm example pins it": (
        "npm",
        NPM | {"example/package.json": package("example", dependencies={"left": "1.0.0"})},
    ),
    "a development dependency's dependency": (
        "npm",
        NPM
        | {
            "package.json": package("left", devDependencies={"tool": "1.0.0"}),
            "package-lock.json": locked(tool="1.0.0"),
        },
    ),
    "a Python example pins it": ("PyPI", PYTHON | {"examples/requirements.txt": "left==1.0.0\n"}),
    "its own documentation pins it": ("PyPI", PYTHON | {"docs/requirements.txt": "left==1.0.0\n"}),
    "a setup script on one line": (
        "PyPI",
        {"setup.py": "from setuptools import setup; setup(name='left', version='1.0.0')\n"}
        | {"left.py": FLAW, "test_left.py": TEST, "requirements.txt": "left==1.0.0\n"},
    ),
    "one member of a workspace": (
        "npm",
        {
            "package.json": json.dumps({"private": True, "workspaces": ["packages/*"]}),
            "packages/left/package.json": package("left"),
            "packages/left/index.js": JS_FLAW,
            "packages/web/package.json": package("web", dependencies={"left": "1.0.0"}),
        },
    ),
}


@pytest.mark.parametrize("cause", COPIES)
def test_a_copy_of_the_package_is_never_the_fix(tmp_path: Path, cause: str) -> None:
    ecosystem, files = COPIES[cause]
    scenario = scenario_of(tmp_path, files, ecosystem)
    ended = scenario.fix()
    assert ended.code == exit_codes.REFUSED, ended
    assert ended.json["reason"] == "own_code"
    start = scenario.events(ended.json["fix_id"])[0]["payload"]
    assert (start["affected_code"], start["decided_by"]) == ("own", "manifest")
    assert start["own_packages"] == ["left"]
    planned = run(
        "plan", scenario.repo, "--advisory", tmp_path / "advisory.json", "--offline", "--json"
    )
    assert planned.code == exit_codes.REFUSED, "plan and fix agree"
    assert [left["reason"] for left in planned.json["left"]] == ["own_code"]
    assert scenario.is_intact()


def test_a_line_that_looks_like_a_name_makes_no_own_code(tmp_path: Path) -> None:
    index = '[[tool.uv.index]]\nname = "left"\nurl = "https://host.invalid/simple"\n'
    project = '[project]\nname = "app"\nversion = "1.0.0"\n'
    scenario = scenario_of(
        tmp_path, {"pyproject.toml": project + index, "requirements.txt": "left==2.1.0\n"}
    )
    ended = scenario.fix()
    assert ended.code == exit_codes.NOT_AFFECTED, ended
    assert scenario.events(ended.json["fix_id"])[0]["payload"]["affected_code"] == "dependency"


def test_a_checkout_at_a_fixed_version_is_not_affected_unless_it_is_shown(tmp_path: Path) -> None:
    scenario = scenario_of(
        tmp_path, PYTHON | {"pyproject.toml": PYPROJECT.replace("1.0.0", "2.0.0")}
    )
    unreleased = scenario.fix()
    assert unreleased.json["reason"] == "own_code", (
        "the number was raised, and nothing released yet"
    )
    git(scenario.repo, "tag", "v2.0.0")
    assert scenario.fix().code == exit_codes.NOT_AFFECTED
    scenario.answer(("left.py", "    return eval(text)", FIXED))
    assert scenario.fix("--dry-run").code == exit_codes.NOT_AFFECTED
    shown = scenario.fix("--dry-run", proof=True)
    assert shown.code == exit_codes.OK, shown
    reported = scenario.fix("--dry-run", "--own-code")
    assert reported.code == exit_codes.PATCHED, reported
    assert scenario.events(reported.json["fix_id"])[0]["payload"]["decided_by"] == "person"


LOCK = """\
version = 1
requires-python = ">=3.11"

[[package]]
name = "left"
version = "1.0.0"
source = { virtual = "." }
"""


def test_what_a_right_patch_can_not_change_is_not_held_against_it(tmp_path: Path) -> None:
    """Fixtures with the vulnerable version, and the project's own entry in its lock."""
    scenario = scenario_of(
        tmp_path,
        PYTHON
        | {
            "pyproject.toml": PYPROJECT + 'requires-python = ">=3.11"\n',
            "uv.lock": LOCK,
            "spec/fixtures/requirements.txt": "left==1.0.0\n",
        },
    )
    scenario.answer(("left.py", "    return eval(text)", FIXED))
    reported = scenario.fix(proof=True).json
    assert reported["headline"] == "fixed; the proof passes, tests pass", reported
    (judged,) = [one for one in reported["verdicts"] if one["gate"] == "not_vulnerable"]
    assert judged["status"] == "skipped"
    assert "own code" in judged["detail"]
    assert "spec/fixtures/requirements.txt (1.0.0)" in judged["detail"]
    assert "uv.lock" not in judged["detail"]


def test_a_harmless_edit_on_a_green_suite_is_not_called_fixed(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, PYTHON)
    scenario.answer(("left.py", "    return eval(text)", DECORATED))
    ended = scenario.fix("--report", tmp_path / "report")
    reported = ended.json
    assert ended.code == exit_codes.PATCHED, ended
    assert reported["outcome"] == "patched"
    assert reported["proof_level"] == "tests_only"
    assert reported["headline"] == "patched; tests pass; nothing shows the flaw gone"
    vex = json.loads((tmp_path / "report" / "openvex.json").read_text())
    assert [one["status"] for one in vex["statements"]] == ["under_investigation"]
    body = (tmp_path / "report" / "pull-request.md").read_text()
    assert body.startswith(
        "**Patched; tests pass; nothing shows the flaw gone.** Whether the flaw is gone"
    )
    assert "not shown: proof" in body
    assert scenario.is_intact()


def test_the_same_edit_with_a_proof_is_no_fix(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, PYTHON)
    scenario.answer(("left.py", "    return eval(text)", DECORATED), "nothing else comes to mind")
    ended = scenario.fix(proof=True)
    assert ended.code == exit_codes.ESCALATED, ended
    assert ended.json["prior_attempts"][0]["failing_gates"] == ["proof"]


ASSERTS_THE_FLAW = TEST + (
    "\n    def test_a_sum(self):\n        self.assertEqual(left.pad('1 + 1'), 2)\n"
)


def test_a_fix_that_must_change_a_test_is_a_persons_question(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, PYTHON | {"test_left.py": ASSERTS_THE_FLAW})
    scenario.answer(
        ("left.py", "    return eval(text)", FIXED),
        ("left.py", "    return eval(text)", "    return int(text, 10)"),
        ("left.py", "    return eval(text)", "    return int(text, base=10)"),
    )
    ended = scenario.fix(proof=True)
    reported = ended.json
    assert ended.code == exit_codes.ESCALATED, ended
    assert reported["reason"] == "tests_contradict_patch"
    assert reported["attempts"] == 1, "the vulnerability is gone, and one test alone objects"
    assert "test_a_sum" in reported["question"]
    assert "test_pad" not in reported["question"]
    failed = [
        event for event in scenario.events(reported["fix_id"]) if event["kind"] == "AttemptFailed"
    ]
    assert [len(event["payload"]["contradicting_tests"]) for event in failed] == [1]
    assert scenario.is_intact()


def test_a_model_that_gives_up_before_a_test_leaves_that_question(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, PYTHON | {"test_left.py": ASSERTS_THE_FLAW})
    scenario.answer(("left.py", "    return eval(text)", FIXED), "the test wants the flaw")
    reported = scenario.fix(proof=True).json
    assert reported["reason"] == "tests_contradict_patch"
    shown = run("review", "show", reported["fix_id"], "--state-dir", scenario.state)
    assert "test_a_sum" in shown.out


STARTS = "    import subprocess\n\n    return int(text)"


def test_a_right_fix_that_only_lacked_its_declaration_passes_with_it(tmp_path: Path) -> None:
    """The same edits again: with what they reach for declared, they are another plan."""
    scenario = scenario_of(tmp_path, PYTHON)
    edit = {"path": "left.py", "old": "    return eval(text)", "new": STARTS}
    plan = {"action": "source_edit", "edits": [edit]}
    declared = {**plan, "capabilities": ["process"]}
    (tmp_path / "script.json").write_text(json.dumps([plan, declared]))
    reported = scenario.fix(proof=True).json
    assert (reported["outcome"], reported["attempts"]) == ("verified", 2), reported
    assert reported["prior_attempts"][0]["failure_kind"] == "undeclared_capability"
    assert scenario.is_intact()


def test_the_same_edits_without_the_declaration_are_a_repetition(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, PYTHON)
    edit = {"path": "left.py", "old": "    return eval(text)", "new": STARTS}
    plan = {"action": "source_edit", "edits": [edit]}
    (tmp_path / "script.json").write_text(json.dumps([plan] * 12))
    reported = scenario.fix(proof=True).json
    assert reported["outcome"] == "escalated"
    assert reported["reason"] == "retry_refused"
    assert "repeated_patch" in reported["question"]


def test_a_plan_that_raises_a_version_of_ones_own_package_is_invalid(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, PYTHON | {"examples/requirements.txt": "left==1.0.0\n"})
    bump = {"action": "dependency_bump", "package": "left", "version": "2.0.0"}
    (tmp_path / "script.json").write_text(json.dumps([bump] * 12))
    reported = scenario.fix().json
    assert reported["outcome"] == "escalated"
    rejected = [one for one in scenario.events(reported["fix_id"]) if one["kind"] == "PlanRejected"]
    assert "This repository is the affected package itself" in json.dumps(rejected[0])


def test_another_package_of_the_advisory_that_stays_affected_is_no_fix(tmp_path: Path) -> None:
    """The source is fixed, and a dependency that the same advisory names is not."""
    scenario = scenario_of(tmp_path, PYTHON | {"tools/requirements.txt": "six==1.0.0\n"})
    record = json.loads((tmp_path / "advisory.json").read_text())
    other = json.loads(osv("six"))["affected"]
    (tmp_path / "advisory.json").write_text(
        json.dumps({**record, "affected": [*record["affected"], *other]})
    )
    scenario.answer(("left.py", "    return eval(text)", FIXED), "nothing else comes to mind")
    reported = scenario.fix().json
    assert reported["outcome"] == "escalated", reported
    (failed,) = reported["prior_attempts"]
    assert failed["failure_kind"] == "still_vulnerable"
    assert "six" in failed["prior_failure_summary"]


def test_a_reopened_question_is_not_asked_again_without_an_attempt(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, PYTHON | {"test_left.py": ASSERTS_THE_FLAW})
    scenario.answer(("left.py", "    return eval(text)", FIXED), "the test wants the flaw")
    fix_id = scenario.fix(proof=True).json["fix_id"]
    signed = ["--by", "Ada", "--because", "try again", "--state-dir", scenario.state]
    run("review", "reopen", fix_id, *signed)
    scenario.answer("still nothing")
    ended = run("resume", fix_id, "--state-dir", scenario.state, "--json")
    assert ended.code == exit_codes.ESCALATED, ended
    assert ended.json["reason"] == "retry_refused"
    assert scenario.is_intact()


def test_the_patch_that_is_asked_about_is_the_one_to_approve(tmp_path: Path) -> None:
    """Attempt 1 stands against a test; the later ones leave the flaw."""
    scenario = scenario_of(tmp_path, PYTHON | {"test_left.py": ASSERTS_THE_FLAW})
    wrong = [f"    return eval(text)  # {word}" for word in ("once", "twice", "again")]
    edits = [("left.py", "    return eval(text)", line) for line in (FIXED, *wrong)]
    scenario.answer(*edits)
    reported = scenario.fix(proof=True).json
    assert reported["reason"] == "tests_contradict_patch", reported
    assert "attempt 1" in reported["question"]
    shown = run("review", "show", reported["fix_id"], "--state-dir", scenario.state)
    assert "int(text)" in shown.out
    signed = ["--by", "Ada", "--because", "the test is wrong", "--state-dir", scenario.state]
    place = tmp_path / "approved.patch"
    run("review", "approve", reported["fix_id"], *signed, "--output", place)
    assert "int(text)" in place.read_text()
    assert "eval(text)  #" not in place.read_text()
    assert scenario.is_intact()


def test_whose_code_it_is_is_not_changed_in_mid_fix(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, PYTHON)
    scenario.answer(("left.py", "    return eval(text)", FIXED))
    stopped = scenario.fix("--max-tokens", "1").json
    signed = ["--by", "Ada", "--because", "go on", "--state-dir", scenario.state]
    run("review", "raise-budget", stopped["fix_id"], *signed, "--max-tokens", "1000000")
    refused = scenario.fix("--dependency", "--resume", stopped["fix_id"])
    assert refused.code == exit_codes.BAD_INPUT, refused
    assert "began as one of own code" in refused.json["error"]["problem"]


def test_whose_code_it_is_stays_decided_in_an_interrupted_fix(tmp_path: Path) -> None:
    """Stopped at its budget as own code by a person's word, it goes on as that without the option."""
    scenario = scenario_of(
        tmp_path, PYTHON | {"pyproject.toml": PYPROJECT.replace('"left"', '"fork"')}
    )
    plan = {"action": "source_edit"}
    plan["edits"] = [{"path": "left.py", "old": "    return eval(text)", "new": FIXED}]  # type: ignore[assignment]
    (tmp_path / "script.json").write_text(json.dumps([plan]))
    stopped = scenario.fix("--own-code", "--max-tokens", "1").json
    assert stopped["reason"] == "budget_exhausted", stopped
    signed = ["--by", "Ada", "--because", "go on", "--state-dir", scenario.state]
    run("review", "raise-budget", stopped["fix_id"], *signed, "--max-tokens", "1000000")
    ended = run("resume", stopped["fix_id"], "--state-dir", scenario.state, "--json")
    assert ended.code == exit_codes.PATCHED, ended
    assert scenario.is_intact()
