"""From a question to its end by the commands that the question names: show, reopen, resume."""

import shlex
from pathlib import Path

from fallback_tier.cli import exit_codes
from tests.e2e.command import run
from tests.integration.test_cli_budget import PLAN, Desk


def breaking(number: int) -> dict[str, object]:
    """A plan whose tests fail, each time in the same way."""
    new = f"    return 'never {number}'"
    return {**PLAN, "edits": [{"path": "left.py", "old": "    return eval(text)", "new": new}]}


def test_a_reopened_fix_starts_with_the_last_failure_and_ends_with_a_patch(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.answer(*map(breaking, range(4)))
    asked = desk.fix()
    assert asked.code == exit_codes.ESCALATED, asked
    fix_id, question = asked.json["fix_id"], asked.json["question"]
    state = ("--state-dir", str(desk.state))

    named = question.split("`")[1]
    assert named == f"fallback-tier review show {fix_id}"
    shown = run(*shlex.split(named)[1:], *state)
    assert shown.code == exit_codes.OK
    assert (
        "in place of examples, the last failure: Attempt 1 (llm) failed at gate tests" in shown.out
    )

    template = next(line for line in shown.out.splitlines() if " review reopen " in line)
    reopen = shlex.split(template)[1:]
    reopen[reopen.index("NAME")], reopen[reopen.index("TEXT")] = "Ada", "try int()"
    reopened = run(*reopen, *state)
    assert reopened.code == exit_codes.OK, reopened

    desk.answer(PLAN)
    follows = shlex.split(reopened.out.partition("next: ")[2])[1:]
    ended = run(*follows, *state, "--json")
    assert ended.code == exit_codes.PATCHED, ended
    assert ended.json["outcome"] == "patched"
    assert len(ended.json["prior_attempts"]) == 1
    assert "return int(text)" in (desk.repo / "left.py").read_text()

    log = run("audit", "log", *state, "--json").json["fixes"]
    assert [fix["outcome"] for fix in log] == [
        "reopened by Ada",
        "patched: tests pass, nothing shows the flaw",
    ]
    assert log[1]["linked_transition"] == log[0]["gate_transition_id"]
    assert {attempt["shape"] for attempt in log[1]["attempts"]} == {"fresh LLM run, no RAG"}
    verified = run("audit", "verify", *state)
    assert verified.code == exit_codes.OK, verified.out
