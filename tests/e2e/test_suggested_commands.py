"""Commands that the program suggests, pasted as they are into a shell in another folder."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.cli import exit_codes
from fallback_tier.service.roles import Role
from fallback_tier.service.settings import ServiceSettings
from fallback_tier.wiring import audit_db
from tests.e2e.command import Ended, run
from tests.e2e.shell import command_for_shells
from tests.integration.test_cli_budget import PLAN, Scenario
from tests.service.portal import text_of, visit
from tests.service.scenario import service_scenario
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import Record
from tests.waiting import PATIENCE_S

#: Names that a shell would read otherwise, were they not quoted.
STATE, KEYS, CHECKPOINTS = "it's the $STATE", "my keys; true", "check points"


class Shell:
    """A shell with the program on its path, in a folder of its own; no variable of ours is set."""

    def __init__(self, root: Path, program: Path) -> None:
        self.cwd = root / "elsewhere"
        self.cwd.mkdir()
        ours = {name for name in os.environ if name.startswith(("FALLBACK_TIER_", "XDG_"))}
        self.environ = {name: value for name, value in os.environ.items() if name not in ours}
        self.environ |= {"PATH": f"{program}:{os.environ['PATH']}", "HOME": str(root / "home")}
        self.environ["COLUMNS"] = "500"

    def paste(self, words: str) -> Ended:
        done = subprocess.run(
            ["bash", "-c", words],
            cwd=self.cwd,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with command_for_shells(tmp_path / "bin") as program:
        yield Shell(tmp_path, program)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    made = Scenario(tmp_path)
    made.state = tmp_path / STATE
    return made


def fix(scenario: Scenario, *options: str | Path) -> Ended:
    """With every location that it can be given, relative to where it runs."""
    root = scenario.state.parent
    words = ("fix", scenario.repo, "--advisory", scenario.advisory, "--script", scenario.script)
    places = ("--state-dir", STATE, "--keys", KEYS, "--checkpoints", CHECKPOINTS)
    return run(*words, "--no-sandbox", *places, *options, cwd=root, env={"COLUMNS": "500"})


def commands(text: str) -> list[str]:
    """Those between backticks, and those that stand behind a word, each to its end."""
    quoted = re.findall(r"`(fallback-tier [^`\n]+)`", text)
    return quoted + re.findall(r"(?:next: |record: |^ {6})(fallback-tier .+)$", text, re.MULTILINE)


def test_from_a_question_to_a_patch_by_what_each_command_suggests(
    scenario: Scenario, shell: Shell
) -> None:
    scenario.answer()
    asked = fix(scenario)
    assert asked.code == exit_codes.ESCALATED, asked
    show, record = commands(asked.out)
    assert "fix started" in shell.paste(record).out
    shown = shell.paste(show)
    assert shown.code == exit_codes.OK, shown
    _, reject, reopen = commands(shown.out)
    assert " review reject " in reject
    reopened = shell.paste(reopen)
    assert reopened.code == exit_codes.OK, reopened
    (resume,) = commands(reopened.out)
    script = scenario.script.rename(scenario.script.with_name("moved.json"))
    stopped = shell.paste(resume)
    assert stopped.code == exit_codes.ENVIRONMENT, stopped
    (again,) = commands(stopped.err)
    script.rename(scenario.script)
    scenario.answer(PLAN)
    ended = shell.paste(again)
    assert ended.code == exit_codes.PATCHED, ended
    assert shell.paste(commands(ended.out)[-1]).code == exit_codes.OK
    late = shell.paste(reject)
    assert late.code == exit_codes.BAD_INPUT
    assert shell.paste(commands(late.err)[0]).code == exit_codes.OK


def test_from_a_budget_to_a_patch_by_what_each_command_suggests(
    scenario: Scenario, shell: Shell
) -> None:
    scenario.answer(PLAN)
    stopped = fix(scenario, "--max-tokens", "1")
    assert stopped.code == exit_codes.ESCALATED, stopped
    raising, resuming, record = commands(stopped.out)
    too_soon = shell.paste(resuming)
    assert too_soon.code == exit_codes.BAD_INPUT
    assert commands(too_soon.err) == [raising, resuming]
    raised = shell.paste(raising.replace("--max-tokens ", "--max-tokens 1000"))
    assert raised.code == exit_codes.OK, raised
    assert commands(raised.out) == [resuming]
    ended = shell.paste(resuming)
    assert ended.code == exit_codes.PATCHED, ended
    assert commands(ended.out) == [record]


def test_machines_read_the_same_commands(scenario: Scenario, shell: Shell) -> None:
    scenario.answer()
    asked = fix(scenario, "--json").json
    shown = shell.paste(f"{asked['next_steps'][0]} --json").json
    assert [step.split()[2] for step in shown["next_steps"]] == ["reject", "reopen"]
    assert shell.paste(shown["next_steps"][0]).code == exit_codes.OK
    wrong = shell.paste(f"{shown['next_steps'][1]} --json")
    assert wrong.code == exit_codes.BAD_INPUT
    (show,) = commands(wrong.json["error"]["next_step"])
    assert shell.paste(show).code == exit_codes.OK


def test_a_service_suggests_commands_for_its_own_record(tmp_path: Path, shell: Shell) -> None:
    table = {"record": {"keys": tmp_path / KEYS, "checkpoints": tmp_path / CHECKPOINTS}}
    settings = ServiceSettings.model_validate(table)
    (place := tmp_path / STATE).mkdir()
    with service_scenario(place, settings) as opened:
        state = opened.service.state_dir
        with closing(SqliteAuditStore(audit_db(state))) as store:
            record = Record(store, opened.service.record.evidence)
            record.write(t.cap_reached(), Scope(fix_id="fix-1", gate_transition_id="g"))
            record.write(t.model_unavailable(), Scope(fix_id="fix-2", gate_transition_id="g"))
        steps = opened.client(Role.READ).get("/v1/reviews/fix-2").json()["next_steps"]
        assert [step.split()[2] for step in steps] == ["reject", "reopen"]
        assert shell.paste(steps[1]).code == exit_codes.OK
        operator = visit(opened, Role.READ, Role.DECIDE)
        answer = operator.decide("fix-1", "reopen")
        message = text_of(operator.client.get(answer.headers["location"]).text)
        (resume,) = re.findall(
            r"To go on with it: (fallback-tier resume fix-1 .*?check points')", message
        )
        stranger = opened.client().get("/v1/reviews")
        assert stranger.status_code == 401
        assert str(state) not in stranger.text, "no path for who has not signed in"
    stopped = shell.paste(f"{resume} --json")
    assert stopped.kind == "older_version", "the record was found"
