"""`fix --proof` and gates of one's own, as a user meets them: the command, real git, uv and bubblewrap."""

import json
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.evidence.store import get_document
from fallback_tier.cli import exit_codes
from fallback_tier.fix.journal.inputs import FixInputs
from fallback_tier.sandbox.runners import BubblewrapSandbox
from fallback_tier.wiring.trail import open_evidence
from tests.campaigns.own_code.author import InTurn, serving
from tests.e2e.command import Ended, osv, repository, run, snapshot
from tests.integration.gate_setup import needs_sandbox

pytestmark = pytest.mark.sandbox

OWN_CODE = {
    "pyproject.toml": '[project]\nname = "left"\nversion = "1.0.0"\n',
    "left.py": "def pad(text):\n    return eval(text)\n",
    "test_left.py": "import unittest\n\nimport left\n\n\nclass LeftTest(unittest.TestCase):\n"
    "    def test_pad(self):\n        self.assertEqual(left.pad('1'), 1)\n",
}
PROOF = """\
import left
try:
    left.pad("__import__('os').getpid()")
except Exception:
    print("nothing was run")
    raise SystemExit(0)
raise SystemExit("code from outside was run")
"""
END = ("--proof-end", "nothing was run")
RIGHT, WRONG = "    return int(text)", "    return eval(text, {})"


def plan(line: str) -> dict[str, Any]:
    edit = {"path": "left.py", "old": "    return eval(text)", "new": line}
    return {"action": "source_edit", "edits": [edit]}


class Scenario:
    """A repository, an advisory, a script, a proof, a state folder."""

    def __init__(self, place: Path, files: dict[str, str] | None = None) -> None:
        self.place = place
        self.repo = repository(place / "repo", OWN_CODE | (files or {}))
        self.advisory = place / "advisory.json"
        self.advisory.write_text(osv("left"))
        self.proof = place / "proof.py"
        self.proof.write_text(PROOF)
        self.answer(RIGHT)

    def answer(self, *lines: str) -> None:
        (self.place / "script.json").write_text(json.dumps([plan(line) for line in lines]))

    def fix(self, *options: str | Path, as_json: bool = True) -> Ended:
        return run(
            *["fix", self.repo, "--advisory", self.advisory],
            *["--state-dir", self.place / "state", "--script", self.place / "script.json"],
            *options,
            *(["--json"] if as_json else []),
        )

    def proved(self, *options: str | Path, as_json: bool = True) -> Ended:
        given = ["--proof", "python proof.py", "--proof-file", self.proof, *END]
        return self.fix(*given, *options, as_json=as_json)

    @property
    def fixes_on_record(self) -> list[Any]:
        if not (self.place / "state" / "audit.db").exists():
            return []
        reported = run("audit", "log", "--state-dir", self.place / "state", "--json").json
        found = reported["fixes"]
        assert isinstance(found, list)
        return found


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def test_a_proof_that_fails_before_and_passes_after(scenario: Scenario) -> None:
    reported = scenario.proved().json
    assert (reported["outcome"], reported["proof"]) == ("verified", "passed")
    assert [one["gate"] for one in reported["verdicts"]][-2:] == ["proof", "tests"]
    assert reported["headline"] == "fixed; the proof passes, tests pass"
    assert reported["proof_level"] == "proof_test"
    assert (scenario.repo / "left.py").read_text().endswith(f"{RIGHT}\n")
    assert not (scenario.repo / "proof.py").exists()
    assert "proof.py" not in reported["application"]["diff"]


def test_the_result_says_so_to_a_person(scenario: Scenario) -> None:
    with_one = scenario.proved("--dry-run", as_json=False)
    assert "the proof given fails at the base commit and passes with the patch" in with_one.out
    assert "must be judged by a reviewer" not in with_one.out
    assert "that it fails at the base commit" in with_one.err  # before anything was spent
    without = scenario.fix("--dry-run", as_json=False)
    assert "must be judged by a reviewer" in without.out
    assert scenario.fix("--dry-run").json["proof"] is None
    # On record, among what the fix began with, is which limits held.
    kept = (
        place.read_bytes() for place in (scenario.place / "state").rglob("*") if place.is_file()
    )
    message = f'"bounds":"{BubblewrapSandbox().bounds}"'
    assert any(message in text.decode(errors="replace").replace('": "', '":"') for text in kept)


def test_a_patch_that_leaves_the_flaw_is_tried_again(scenario: Scenario) -> None:
    scenario.answer(WRONG, RIGHT)
    reported = scenario.proved().json
    assert (reported["outcome"], reported["attempts"], reported["proof"]) == (
        "verified",
        2,
        "passed",
    )
    (failed,) = reported["prior_attempts"]
    assert failed["failing_gates"] == ["proof"]
    assert "code from outside was run" in failed["prior_failure_summary"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--proof", "true"], "passes already at the base commit"),
        (["--proof", "sleep 60", "--proof-timeout", "1"], "did not end within 1 s"),
        (["--proof", "no-such-program"], "there is no program 'no-such-program'"),
        (["--proof", "python absent.py"], "can't be started"),
        (["--proof", "'"], "not a command: no closing quotation"),
        (["--proof", "false", "--proof-file", "{proof}=left.py"], "in the way of a file"),
        (["--config", "absent.toml"], "absent.toml: No such file"),
    ],
)
def test_what_can_prove_nothing_is_told_before_anything_is_spent(
    scenario: Scenario, options: list[str], problem: str
) -> None:
    before = snapshot(scenario.repo)
    ended = scenario.fix(
        *(option.format(proof=scenario.proof) for option in options), as_json=False
    )
    assert ended.code == exit_codes.BAD_INPUT
    assert problem in ended.err
    assert "\n  next: " in ended.err
    assert snapshot(scenario.repo) == before
    assert scenario.fixes_on_record == []


def test_a_script_that_does_not_say_its_end_proves_nothing(scenario: Scenario) -> None:
    given = ["--proof", "python proof.py", "--proof-file", scenario.proof, "--dry-run"]
    ended = scenario.fix(*given, as_json=False)
    assert ended.code == exit_codes.PATCHED
    assert "The proof will prove nothing" in ended.err
    assert "--proof-end" in ended.err


def test_a_file_of_the_proof_goes_where_it_is_told(scenario: Scenario) -> None:
    placed = [
        "--proof-file",
        f"{scenario.proof}=deep/er/x.py",
        "--proof",
        "python deep/er/x.py",
        *END,
    ]
    assert scenario.fix(*placed, "--dry-run").json["proof"] == "passed"


def test_the_first_prompt_shows_how_the_proof_fails(scenario: Scenario) -> None:
    """Also that of a fix which another process resumes: it is on record."""
    author = InTurn([json.dumps(plan(RIGHT))])
    with serving(author) as server:
        model = ("--model", "scripted", "--base-url", server.url, "--script", "")
        words = ("--proof", "python3 proof.py", *END, "--proof-file", f"{scenario.proof}=proof.py")
        ended = scenario.fix(*words, *model)
    assert ended.json["outcome"] == "verified", ended
    (prompt,) = server.prompts
    assert "# Proof\nA test of this vulnerability fails at the present commit" in prompt
    block = prompt.partition("# Proof\n")[2]
    assert "proof_failure>>>\n| " in block
    assert "| - code from outside was run" in block
    shown = run(
        "audit", "show", ended.json["fix_id"], "--state-dir", scenario.place / "state", "--json"
    )
    (started,) = (one for one in shown.json["events"] if one["kind"] == "FixStarted")
    evidence = open_evidence(scenario.place / "state")
    inputs = get_document(evidence, FixInputs, started["payload"]["inputs_sha256"])
    assert inputs.setup.proof_failure is not None
    assert "code from outside was run" in inputs.setup.proof_failure.text
    assert inputs.setup.proof_failure.files == ("left.py",)


def test_without_a_model_a_proof_is_not_run(tmp_path: Path) -> None:
    """What is missing is said at once: the proof would take its time, and no patch can be made."""
    scenario = Scenario(tmp_path)
    ran = tmp_path / "ran"
    words = ("--proof", f"touch {ran}", "--script", "")
    ended = scenario.fix(*words, as_json=False)
    assert ended.code == exit_codes.REFUSED, ended
    assert "--model, --base-url" in ended.out
    assert "checking that it fails" not in ended.err
    assert "proof" not in ended.err
    kept = tmp_path / "state" / "cache" / "proofs"
    assert not kept.exists()


def test_several_advisories_have_no_one_proof(scenario: Scenario) -> None:
    other = scenario.place / "other.json"
    other.write_text(osv("right", id="TEST-2026-2"))
    ended = scenario.proved("--advisory", other)
    assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "proof_of_several")
    assert scenario.fixes_on_record == []


# --- gates of one's own ---------------------------------------------------------------------------

NO_EVAL = """\
[[tool.fallback-tier.gates]]
name = "no-eval"
command = ["sh", "-c", "! grep -n eval left.py"]
compare_base = false
"""


def gates_of(reported: Any) -> dict[str, str]:
    return {verdict["gate"]: verdict["status"] for verdict in reported["verdicts"]}


@pytest.mark.parametrize("place", ["base", "config"])
def test_a_gate_of_ones_own_judges_too(tmp_path: Path, place: str) -> None:
    scenario = Scenario(tmp_path, {".fallback-tier.toml": NO_EVAL} if place == "base" else {})
    (tmp_path / "ours.toml").write_text(NO_EVAL)
    scenario.answer(WRONG, RIGHT)
    reported = scenario.fix(
        *(["--config", tmp_path / "ours.toml"] if place == "config" else [])
    ).json
    assert (reported["outcome"], reported["attempts"]) == ("patched", 2)
    assert gates_of(reported)["no-eval"] == "passed"
    (failed,) = reported["prior_attempts"]
    assert failed["failing_gates"] == ["no-eval"]
    assert "return eval(text, {})" in failed["prior_failure_summary"]


def test_our_configuration_counts_alone(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, {".fallback-tier.toml": NO_EVAL})
    (tmp_path / "none.toml").write_text("")
    reported = scenario.fix("--config", tmp_path / "none.toml").json
    assert "no-eval" not in gates_of(reported)


def test_an_uncommitted_gate_is_no_gate(scenario: Scenario) -> None:
    (scenario.repo / ".fallback-tier.toml").write_text(NO_EVAL)
    assert "no-eval" not in gates_of(scenario.fix("--dry-run").json)


def test_a_plan_that_drops_a_gate_is_refused(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, {".fallback-tier.toml": NO_EVAL})
    edit = {"path": ".fallback-tier.toml", "old": 'name = "no-eval"', "new": 'name = "other"'}
    weak = {"action": "source_edit", "edits": [*plan(WRONG)["edits"], edit]}
    (tmp_path / "script.json").write_text(json.dumps([weak] * 12))
    reported = scenario.fix().json
    assert reported["outcome"] != "verified"
    assert ".fallback-tier.toml" in json.dumps(reported)


def test_a_configuration_that_can_not_be_is_named_before_anything_is_spent(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, {".fallback-tier.toml": NO_EVAL + "shell = true\n"})
    ended = scenario.fix(as_json=False)
    assert ended.code == exit_codes.BAD_INPUT
    assert ".fallback-tier.toml of commit" in ended.problem
    assert "tool.fallback-tier.gates.0.shell" in ended.problem
    assert scenario.fixes_on_record == []
