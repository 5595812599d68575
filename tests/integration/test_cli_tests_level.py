"""How far a project's tests were judged, as a user meets it: headline, JSON, exit code, pull request, VEX,
record, and what is needed to judge them."""

import io
import json
import re
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from fallback_audit.vocabulary import EscalationReason
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.report import report_end
from fallback_tier.configured import of_file
from fallback_tier.fix_result import Escalated
from fallback_tier.gate_ports import undecided
from tests.e2e.command import run
from tests.fakes.repository import commit_all, git
from tests.integration.gate_setup import needs_sandbox
from tests.integration.test_cli_proof import Scenario

pytestmark = pytest.mark.sandbox

#: A suite that stops before any test, with the patch and without.
BROKEN = {"test_left.py": "raise RuntimeError('unable to open database file')\n"}


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def test_compared_tests_are_what_is_required(tmp_path: Path) -> None:
    ended = Scenario(tmp_path).proved("--require-tests")
    assert (ended.code, ended.json["tests_level"]) == (exit_codes.OK, Level.COMPARED), ended
    (tests,) = ended.json["tests"]
    assert (tests["project"], tests["reason"]) == (".", "")
    assert ended.json["headline"] == "fixed; the proof passes, tests pass"


def test_a_repository_without_tests_is_untested(tmp_path: Path) -> None:
    required, free = untested(tmp_path / "1"), untested(tmp_path / "2")
    ended = required.proved("--require-tests")
    assert ended.code == exit_codes.UNTESTED, ended
    assert ended.json["exit_code"] == exit_codes.UNTESTED
    assert (ended.json["outcome"], ended.json["tests_level"]) == ("verified", Level.NOT_JUDGED)
    assert git(required.repo, "diff", "--name-only").strip() == "left.py", (
        "delivered as without the option"
    )
    ended = free.proved("--dry-run")
    assert (ended.code, ended.json["tests_level"]) == (exit_codes.OK, Level.NOT_JUDGED)


def untested(place: Path) -> Scenario:
    scenario = Scenario(place)
    (scenario.repo / "test_left.py").unlink()
    commit_all(scenario.repo)
    return scenario


def test_what_is_needed_to_judge_them_is_told(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, BROKEN)
    ended = scenario.proved("--require-tests", "--report", tmp_path / "report", as_json=False)
    assert ended.code == exit_codes.UNTESTED, ended
    assert "fixed; the proof passes, tests could not be judged" in ended.out
    (tests,) = re.findall(r"^  (tests not judged: .*)$", ended.out, re.MULTILINE)
    assert "so this shows nothing" not in tests
    assert re.search(r"^    command: .*; exit code \d+$", ended.out, re.MULTILINE)
    assert re.search(r"^    output: .*unable to open database file$", ended.out, re.MULTILINE)
    assert "unable to open database file" in ended.out
    (log,) = re.findall(r"^    log: (.+)$", ended.out, re.MULTILINE)
    assert "unable to open database file" in Path(log).read_text()
    entry = ended.out[ended.out.index("      [[tool") :].splitlines()[:3]
    text = "\n".join(line.strip() for line in entry)
    (gate,) = tomllib.loads(text)["tool"]["fallback-tier"]["gates"]
    assert gate["command"][:2] == ["sh", "-c"]
    (tmp_path / "own.toml").write_text(text)
    assert [one.name for one in of_file(tmp_path / "own.toml").gates] == ["project-tests"]

    files = {path.name: path.read_text() for path in (tmp_path / "report").iterdir()}
    body = next(text for name, text in files.items() if name.endswith(".md"))
    assert "**The tests were not judged: merging this merges an untested change.**" in body
    assert text in body
    vex = [json.loads(text) for name, text in files.items() if "vex" in name]
    assert vex
    untested = "The project's tests were not judged: the change is untested."
    assert all(untested in json.dumps(one) for one in vex)

    state = tmp_path / "state"
    (fix,) = scenario.fixes_on_record
    shown = run("audit", "show", fix["fix_id"], "--state-dir", state).out
    assert "gate tests skipped (tests not judged): " in shown
    assert log in shown
    assert "output: " in shown
    assert f"audit show {fix['fix_id']}" in body
    assert "unable to open database file" in body


def test_a_question_names_the_tests_and_how_their_runs_ended(tmp_path: Path) -> None:
    note = "test_a fails in 2 of 3 runs with the patch, in 0 of 3 at the base commit"
    verdict = undecided("tests", "tests failed; but not so in another run with the patch: test_a")
    ended = Escalated(
        fix_id="fix-1",
        gate_transition_id="gate-1",
        advisory_id="A",
        attempts=1,
        verdicts=(verdict.model_copy(update={"notes": (note,)}),),
        reason=EscalationReason.GATES_UNDECIDED,
        question="Is it right?",
    )
    written = io.StringIO()
    report_end(ended, Console(file=written, width=200), tmp_path)
    assert f"  note: {note}\n" in written.getvalue()
