"""``review`` as a person uses it: read a question in a minute, answer it, take the patch."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.events import ReviewDecided
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.verifying.verify import verify
from fallback_audit.vocabulary import EscalationReason
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.fix.journal.holding import holding
from fallback_tier.wiring import audit_db, evidence_dir
from tests.browser.hostile import hostile_advisory
from tests.e2e.command import Ended, repository
from tests.service.portal import ADVISORY
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import FIX, Record, diff

VECTOR = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
HOSTILE = "\x1b[2Jgone \u202eevil [bold red]markup[/]"
WHO = ("--by", "Ada", "--because", "read it")


class Scenario:
    """A state folder with fixes on record, and the command in this process."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.state = root / "state"
        self._capsys = capsys
        self._store = SqliteAuditStore(audit_db(self.state))
        self.record = Record(self._store, FileEvidenceStore(evidence_dir(self.state)))

    def review(self, verb: str, *arguments: str | Path) -> Ended:
        code = main(["review", verb, *map(str, arguments), "--state-dir", str(self.state)])
        out, err = self._capsys.readouterr()
        return Ended(code, out, err)

    def answers(self) -> list[ReviewDecided]:
        events = (stored.payload for stored in self._store.events())
        return [event for event in events if isinstance(event, ReviewDecided)]

    def close(self) -> None:
        report = verify(self._store, checkpoints=None, evidence=self.record.evidence)
        self._store.close()
        assert not report.contract_violations


@pytest.fixture
def scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scenario]:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "state").mkdir()
    with closing(Scenario(tmp_path, capsys)) as scenario:
        yield scenario


def test_nobody_is_asked_anything(scenario: Scenario) -> None:
    assert scenario.review("list").out == "No fix waits for a person.\n"
    assert scenario.review("list", "--json").json == {"questions": []}


def test_a_minute_of_triage(scenario: Scenario) -> None:
    scenario.record.write(t.cap_reached())
    (row,) = scenario.review("list").out.splitlines()
    assert row.startswith(f"{FIX}  GHSA-xxxx-yyyy-zzzz  shop  retry_cap_reached  4 attempt(s)")
    shown = scenario.review("show", FIX)
    assert shown.code == exit_codes.OK
    lines = shown.out.splitlines()
    assert lines[:2] == [f"retry_cap_reached  {FIX}  GHSA-xxxx-yyyy-zzzz  shop", "  What now?"]
    assert lines[2:6] == [
        "1  llm, initial LLM run: failed: tests_failed, at gate tests, 1,000 tokens, about $0.01",
        "   no examples",
        "2  llm, fresh LLM run, no RAG: failed: tests_failed, at gate tests, 1,000 tokens, about $0.01",
        "   in place of examples, the last failure: gate tests failed (and 2 more lines)",
    ]
    start = lines.index("last failure (attempt 4):")
    assert lines[start + 1 : start + 4] == [
        "  │ gate tests failed",
        "  │ expected 1, got 5",
        "  │ in test_app.py",
    ]
    assert "  │ +safe(4)" in lines
    assert [line.split("fallback-tier ")[-1].split(" --")[0] for line in lines[-4:]] == [
        f"review approve {FIX}",
        f"review reject {FIX}",
        f"review reopen {FIX}",
        f"review reopen {FIX}",
    ]
    assert lines[-1].endswith(f"--gates-again --state-dir {scenario.state}")


def test_a_question_says_what_the_vulnerability_is(scenario: Scenario) -> None:
    Record(scenario.record.audit, scenario.record.evidence, advisory=ADVISORY).write(
        t.cap_reached()
    )
    lines = scenario.review("show", FIX).out.splitlines()
    assert lines[1:6] == [
        "  GHSA-xxxx-yyyy-zzzz: shop evaluates the text of a setting",
        f"    severity: critical 9.8 ({VECTOR}); weakness: CWE-95 eval injection",
        "    affected: shop (PyPI) < 1.2.4 or ≥ 2.0.0, < 2.0.3; fixed in 1.2.4, 2.0.3",
        "    see: https://example.org/advisories/GHSA-xxxx-yyyy-zzzz",
        "  What now?",
    ]
    (found,) = scenario.review("show", FIX, "--json").json["vulnerabilities"]
    assert found["severity"]["level"] == "critical"
    assert found["affected"][0]["fixed"] == ["1.2.4", "2.0.3"]


def test_an_exported_fix_says_what_the_vulnerability_is(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    Record(scenario.record.audit, scenario.record.evidence, advisory=ADVISORY).write(
        t.cap_reached()
    )
    state, out = ("--state-dir", str(scenario.state)), scenario.root / "fix.export"
    words = ["audit", "export", "--fix", FIX, "--out", str(out), *state]
    assert main(words) == exit_codes.OK
    assert "affected: shop (PyPI) < 1.2.4" in capsys.readouterr().out
    out.unlink()
    assert main([*words, "--json"]) == exit_codes.OK
    (found,) = json.loads(capsys.readouterr().out)["vulnerabilities"]
    assert found["summary"] == "shop evaluates the text of a setting"


def test_a_hostile_advisory_is_neutralised(scenario: Scenario) -> None:
    hostile = hostile_advisory((HOSTILE, "\x1b]8;;https://evil.example\x07a"))
    Record(scenario.record.audit, scenario.record.evidence, advisory=hostile).write(t.cap_reached())
    shown = scenario.review("show", FIX)
    assert shown.code == exit_codes.OK
    assert not {"\x1b", "\u202e", "\x07"} & set(shown.out)
    assert "[bold red]markup[/]" in shown.out


def test_evidence_is_named_by_files_that_are_there(scenario: Scenario) -> None:
    scenario.record.write(t.cap_reached())
    lines = scenario.review("show", FIX).out.splitlines()
    named = [line.split(": ", 1) for line in lines if f": {scenario.state}" in line]
    assert [what.strip() for what, _ in named[-3:]] == [
        "attempt 4, patch",
        "attempt 4, log of tests",
        "attempt 4, failure summary",
    ]
    assert Path(named[-3][1]).read_text() == diff(4)
    assert all(Path(where).is_file() for _, where in named)


def test_low_confidence_says_what_to_double_check(scenario: Scenario) -> None:
    scenario.record.write(
        [*m.doubted_twice()[:-4], t.escalated(1, EscalationReason.NOTHING_PROVED)]
    )
    text = scenario.review("show", FIX).out
    assert "low confidence: 1 of 2 claims unsupported; double-check:" in text
    assert "     - it says that 1.2.4 is fixed\n" in text
    assert "NOT grounded" in text


def test_an_approved_patch_is_what_git_applies(scenario: Scenario) -> None:
    scenario.record.write(t.cap_reached())
    repo = repository(scenario.root / "repo", {"app.py": "unsafe()\n"})
    given = scenario.review("approve", FIX, *WHO)
    assert given.code == exit_codes.OK
    assert given.out == diff(4)
    assert "approved, not proved" in given.err
    subprocess.run(["git", "apply"], cwd=repo, input=given.out, text=True, check=True)
    assert (repo / "app.py").read_text() == "safe(4)\n"
    (answer,) = scenario.answers()
    assert (answer.verdict, answer.by, answer.reason) == ("approved", "Ada", "read it")
    assert scenario.review("list").out == "No fix waits for a person.\n"
    assert "approved by Ada (not proved)" in scenario.review("list", "--all").out
    again = scenario.review("approve", FIX, *WHO)
    assert again.code == exit_codes.BAD_INPUT
    assert "was answered already: approved by Ada" in again.problem


def test_an_approved_patch_goes_to_a_file_and_to_machines(scenario: Scenario) -> None:
    scenario.record.write(t.cap_reached())
    file = scenario.root / "fix.patch"
    named = scenario.record.patch(2)[:12]
    given = scenario.review("approve", FIX, *WHO, "--patch", named, "--output", file, "--json").json
    assert file.read_text() == given["patch"] == diff(2)
    assert given["patch_sha256"] == scenario.record.patch(2)
    assert given["verdict"] == "approved"


def test_nothing_is_decided_where_the_patch_can_go_nowhere(scenario: Scenario) -> None:
    scenario.record.write(t.cap_reached())
    output = scenario.root / "none" / "fix.patch"
    ended = scenario.review("approve", FIX, *WHO, "--output", output, "--json")
    assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "no_parent")
    assert scenario.answers() == []


def test_a_rejected_fix_stays_rejected(scenario: Scenario) -> None:
    scenario.record.write(t.cap_reached())
    assert scenario.review("reject", FIX, *WHO, "--json").json["verdict"] == "rejected"
    assert "rejected by Ada" in scenario.review("show", FIX).out
    for verb in ("approve", "reject", "reopen"):
        ended = scenario.review(verb, FIX, *WHO)
        assert ended.code == exit_codes.BAD_INPUT
        assert "was answered already: rejected by Ada" in ended.problem
    assert len(scenario.answers()) == 1


def test_a_reopened_fix_names_its_new_transition_and_the_command(scenario: Scenario) -> None:
    scenario.record.write(t.cap_reached())
    out = scenario.review("reopen", FIX, *WHO).out
    opened, step = out.splitlines()
    assert opened.startswith(f"reopened  {FIX} as gate-")
    state = ["--state-dir", str(scenario.state)]
    assert shlex.split(step.partition("next: ")[2]) == ["fallback-tier", "resume", FIX, *state]
    assert "fallback-tier resume" in scenario.review("show", FIX).out.splitlines()[-1]
    assert "resume" in scenario.review("reopen", FIX, *WHO).next_step


def test_gates_are_run_again_on_the_patch_that_is_named(scenario: Scenario) -> None:
    scenario.record.write(t.cap_reached())
    named = scenario.record.patch(2)[:12]
    reported = scenario.review(
        "reopen", FIX, *WHO, "--gates-again", "--patch", named, "--json"
    ).json
    assert reported["judges_again"] == scenario.record.patch(2)
    assert (reported["kind"], reported["by"]) == ("TransitionReopened", "Ada")
    row = scenario.review("list", "--all").out
    assert f"gates run again on patch {named}, asked by Ada" in row
    assert "fallback-tier resume" in scenario.review("show", FIX).out.splitlines()[-1]


def test_a_person_is_told_on_which_patch_the_gates_are_run(scenario: Scenario) -> None:
    scenario.record.write(t.cap_reached())
    first, step = scenario.review("reopen", FIX, *WHO, "--gates-again").out.splitlines()
    assert first.endswith(f", for the gates alone, on patch {scenario.record.patch(4)[:12]}")
    assert step.endswith(f"fallback-tier resume {FIX} --state-dir {scenario.state}")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--patch", "0" * 12), "--patch names the patch whose gates are to be run again"),
        (("--gates-again", "--patch", "0" * 12), "names no patch of fix"),
    ],
)
def test_without_a_patch_that_is_meant_nothing_is_reopened(
    scenario: Scenario, options: tuple[str, ...], problem: str
) -> None:
    scenario.record.write(t.cap_reached())
    ended = scenario.review("reopen", FIX, *WHO, *options)
    assert ended.code == exit_codes.BAD_INPUT
    assert problem in ended.problem
    assert "approve" in scenario.review("show", FIX).out  # nobody has answered


def test_a_fix_at_its_budget_is_neither_approved_nor_reopened(scenario: Scenario) -> None:
    scenario.record.write(m.stopped_at_budget())
    for verb in ("approve", "reopen"):
        ended = scenario.review(verb, FIX, *WHO)
        assert ended.code == exit_codes.BAD_INPUT
        assert f"review raise-budget {FIX}" in ended.next_step
        assert f"review reject {FIX}" in ended.next_step
    raised = scenario.review("raise-budget", FIX, *WHO, "--max-usd", "2")
    assert f"fallback-tier resume {FIX}" in raised.out


@pytest.mark.parametrize("verb", ["approve", "reject", "reopen", "raise-budget"])
def test_nothing_is_decided_while_the_fix_is_in_other_hands(scenario: Scenario, verb: str) -> None:
    scenario.record.write(t.cap_reached())
    with holding(scenario.state, FIX):
        ended = scenario.review(verb, FIX, *WHO, "--json")
    assert (ended.code, ended.json["error"]["code"]) == (exit_codes.BAD_INPUT, "held")
    assert scenario.answers() == []


@pytest.mark.parametrize("verb", ["list", "show", "approve", "reject", "reopen"])
def test_where_there_is_no_store_none_is_made(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "nowhere"
    who = WHO if verb in ("approve", "reject", "reopen") else ()
    fix = () if verb == "list" else (FIX,)
    code = main(["review", verb, *fix, *who, "--state-dir", str(state)])
    assert code == exit_codes.ENVIRONMENT
    assert not state.exists()
    assert "  next: " in capsys.readouterr().err


def test_what_others_said_is_neutralised(scenario: Scenario) -> None:
    patch = f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+{HOSTILE}\n"
    ended = t.cap_reached()[-1].model_copy(update={"question": HOSTILE})
    started = t.fix_started().model_copy(update={"repository": HOSTILE})
    hostile = Record(scenario.record.audit, scenario.record.evidence, diff=lambda _attempt: patch)
    hostile.write([started, *t.cap_reached()[1:-1], ended])
    for reported in (scenario.review("list"), scenario.review("show", FIX)):
        assert reported.code == exit_codes.OK
        assert not {"\x1b", "\u202e"} & set(reported.out)
        assert "[bold red]markup[/]" in reported.out
    reported_value = scenario.review("show", FIX, "--json").json
    assert reported_value["patch"] == patch
    assert json.dumps(reported_value["asks"]) == json.dumps(HOSTILE)
    answer = scenario.review("reject", FIX, "--by", HOSTILE, "--because", HOSTILE)
    assert answer.code == exit_codes.OK
    assert not {"\x1b", "\u202e"} & set(answer.out)


def test_a_terminal_is_told_nothing_that_it_could_act_on(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets every byte of an approved patch; a terminal gets what can be read."""
    patch = f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+\t{HOSTILE}\n"
    hostile = Record(scenario.record.audit, scenario.record.evidence, diff=lambda _attempt: patch)
    hostile.write(t.cap_reached())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    given = scenario.review("approve", FIX, *WHO)
    assert given.code == exit_codes.OK
    assert not {"\x1b", "\u202e"} & set(given.out)
    assert "+\t\\x1b[2Jgone \\u202eevil [bold red]markup[/]\n" in given.out


@pytest.mark.parametrize("option", ["--by", "--because", "FIX"])
def test_bytes_of_another_encoding_are_bad_input(scenario: Scenario, option: str) -> None:
    """As Python has them from a Latin-1 terminal; no record can hold them."""
    words = {"FIX": FIX, "--by": "Ada", "--because": "read it", option: "M\udcfcller"}
    with pytest.raises(SystemExit) as ended:
        scenario.review(
            "reject", words.pop("FIX"), *(part for item in words.items() for part in item)
        )
    assert ended.value.code == exit_codes.BAD_INPUT
    assert scenario.answers() == []
