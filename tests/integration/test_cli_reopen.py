"""From a question to its end by the commands that the question names: show, reopen, resume."""

import shlex
from pathlib import Path
from typing import Any

from fallback_tier.cli import exit_codes
from tests.e2e.command import run
from tests.integration.test_answer_sequences import MAKING
from tests.integration.test_cli_budget import PLAN, Scenario
from tests.integration.test_cli_proof import END, PROOF


def breaking(number: int) -> dict[str, object]:
    """A plan whose tests fail, each time in the same way."""
    new = f"    return 'never {number}'"
    return {**PLAN, "edits": [{"path": "left.py", "old": "    return eval(text)", "new": new}]}


def test_a_reopened_fix_starts_with_the_last_failure_and_ends_with_a_patch(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    scenario.answer(*map(breaking, range(4)))
    asked = scenario.fix()
    assert asked.code == exit_codes.ESCALATED, asked
    fix_id, question = asked.json["fix_id"], asked.json["question"]
    state = ("--state-dir", str(scenario.state))

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

    scenario.answer(PLAN)
    follows = shlex.split(reopened.out.partition("next: ")[2])[1:]
    ended = run(*follows, *state, "--json")
    assert ended.code == exit_codes.PATCHED, ended
    assert ended.json["outcome"] == "patched"
    assert len(ended.json["prior_attempts"]) == 1
    assert "return int(text)" in (scenario.repo / "left.py").read_text()

    log = run("audit", "log", *state, "--json").json["fixes"]
    assert [fix["outcome"] for fix in log] == [
        "reopened by Ada",
        "patched: tests pass, nothing shows the flaw gone",
    ]
    assert log[1]["linked_transition"] == log[0]["gate_transition_id"]
    assert {attempt["shape"] for attempt in log[1]["attempts"]} == {"fresh LLM run, no RAG"}
    verified = run("audit", "verify", *state)
    assert verified.code == exit_codes.OK, verified.out


#: Red until a file is there: a service that was down, as a gate sees it.
CONFIG = """\
[[tool.fallback-tier.gates]]
name = "service"
command = ["test", "-f", "{place}"]
compare_base = false
"""


def asked_for(shown: str, which: str) -> list[str]:
    """The command that `review show` names, filled in."""
    template = next(line for line in shown.splitlines() if which in line)
    words = shlex.split(template.strip().removeprefix("next: "))[1:]
    words[words.index("NAME")], words[words.index("TEXT")] = "Ada", "the service was down"
    return words


def events_of(scenario: Scenario, fix_id: str, transition: str) -> list[Any]:
    reported = run("audit", "show", fix_id, "--state-dir", scenario.state, "--json").json
    return [one for one in reported["events"] if one["scope"]["gate_transition_id"] == transition]


def test_after_a_false_red_the_gates_alone_are_run_again(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    place, config, proof = (tmp_path / name for name in ("service", "gates.toml", "proof.py"))
    config.write_text(CONFIG.format(place=place))
    proof.write_text(PROOF)
    scenario.answer(PLAN)
    judged = ["--config", config, "--proof", "python proof.py", "--proof-file", proof, *END]
    asked = scenario.fix(*judged)
    assert asked.code == exit_codes.ESCALATED, asked
    fix_id = asked.json["fix_id"]
    state = ("--state-dir", str(scenario.state))

    # Nothing that a model or a memory would need is there any more, nor what configured the gates.
    scenario.script.unlink()
    config.unlink()
    proof.unlink()
    shown = run("review", "show", fix_id, *state).out
    first = run(*asked_for(shown, "--gates-again"), *state, "--json").json
    still = run("resume", fix_id, *state, "--json")
    assert still.code == exit_codes.ESCALATED, still
    assert still.json["reason"] == "gates_failed_again"

    place.touch()
    shown = run("review", "show", fix_id, *state).out
    assert "it failed at service" in shown
    opened = run(*asked_for(shown, "--gates-again"), *state)
    ended = run(*shlex.split(opened.out.partition("next: ")[2])[1:], *state, "--json")
    assert ended.code == exit_codes.OK, ended
    reported = ended.json
    assert (reported["outcome"], reported["headline"]) == (
        "verified",
        "fixed; the proof passes, tests pass",
    )
    assert (reported["usage"], reported["prior_attempts"]) == ([], [])
    assert "return int(text)" in (scenario.repo / "left.py").read_text()

    for transition in (first["opens"], reported["gate_transition_id"]):
        kinds = {one["kind"] for one in events_of(scenario, fix_id, transition)}
        assert not MAKING & kinds
        assert {"FixStarted", "AttemptStarted", "PatchProposed", "GateJudged"} <= kinds
    log = run("audit", "log", *state, "--json").json["fixes"]
    patch = first["judges_again"][:12]
    assert [fix["outcome"] for fix in log] == [
        *[f"gates run again on patch {patch}, asked by Ada"] * 2,
        "verified",
    ]
    text = run("audit", "show", fix_id, *state).out
    assert "Attempt 1: no model call" in text
    assert "attempt 1: its patch alone is judged again, no tier is asked" in text
    assert f"patch {patch} by llm, made in {log[0]['gate_transition_id']}" in text
    verified = run("audit", "verify", *state)
    assert verified.code == exit_codes.OK, verified.out
