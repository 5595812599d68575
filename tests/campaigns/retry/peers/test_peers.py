"""Whole cases with a server of ours in place of a model, and a program of ours in place of a peer."""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_eval.retrieval.results import EvaluationError
from fallback_eval.retry import study
from fallback_eval.retry.calls import Calls
from fallback_eval.retry.policies import Policy
from fallback_eval.retry.study import CALLS_NAME
from fallback_eval.retry.tasks import load_tasks
from tests.campaigns.retry.__main__ import FOLDER as STUDY
from tests.campaigns.retry.__main__ import TASKS
from tests.campaigns.retry.peers import programs
from tests.campaigns.retry.peers.__main__ import CAMPAIGN, FOLDER, ROWS, missing_answers
from tests.campaigns.retry.peers.cases import (
    BLOCK,
    PeerCase,
    Row,
    Setup,
    load_cases,
    run_case,
    short_folder,
)
from tests.campaigns.retry.peers.judging import FIXED, NO_CHANGE, Workplace, workplace
from tests.campaigns.retry.peers.model import Budget, CaseModel, StoppedError
from tests.campaigns.retry.peers.programs import Environments, Peer

sandboxed = pytest.mark.sandbox

(TASK,) = load_tasks(TASKS, ["upload_path"])
(JAVASCRIPT,) = load_tasks(TASKS, ["merge_deep"])
RIGHT = TASK.with_edits(TASK.reference)
ALMOST = TASK.with_edits(next(one for one in TASK.wrong if one.caught_by == "hidden").edits)
MISLED = TASK.with_edits(next(one for one in TASK.wrong if one.follows_decoy).edits)
NOT_INSTALLED = Environments(Path("not-installed"))


class Script:
    """An upstream that answers in order, and remembers what it was asked."""

    def __init__(self, *answers: str, status: int = 200) -> None:
        self.answers = list(answers)
        self.status = status
        self.bodies: list[Mapping[str, Any]] = []

    def __call__(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        self.bodies.append(body)
        if self.status != 200:
            return self.status, {"error": {"type": "exceed_context_size_error"}}
        text = self.answers.pop(0)
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        return 200, {"choices": [choice], "usage": usage}


def file_answer(code: str) -> str:
    return f"Here it is:\n```python\n{code}```\n"


def bare(folder: Path, *answers: str) -> Row:
    script = Script(*answers) if answers else None
    setup = Setup("scripted", Calls(folder / CALLS_NAME), NOT_INSTALLED, script)
    return run_case(PeerCase(TASK, Peer.BARE, 0), setup)


def model(tmp_path: Path, script: Script, budget: Budget | None = None) -> CaseModel:
    return CaseModel("scripted", Calls(tmp_path / CALLS_NAME), script, 1, budget or Budget())


def ask(one: CaseModel, text: str = "question") -> str:
    return one.answer([{"role": "user", "content": text}]).text


# --- the model of a case --------------------------------------------------------------------------


def test_sampling_is_the_studys_and_an_equal_request_gets_another_seed(tmp_path: Path) -> None:
    script = Script("first", "second")
    one = model(tmp_path, script)
    assert [ask(one), ask(one)] == ["first", "second"]
    first, second = script.bodies
    assert (first["temperature"], first["top_p"], first["top_k"]) == (0.4, 0.95, 40)
    assert first["max_tokens"] == 320
    assert first["seed"] != second["seed"]


def test_a_kept_answer_needs_no_server(tmp_path: Path) -> None:
    assert ask(model(tmp_path, Script("kept"))) == "kept"
    assert ask(model(tmp_path, Script())) == "kept"


@pytest.mark.parametrize(
    ("budget", "why"), [(Budget(calls=1), "calls"), (Budget(tokens=110), "tokens")]
)
def test_budget_ends_the_answers(budget: Budget, why: str, tmp_path: Path) -> None:
    one = model(tmp_path, Script("one", "two"), budget)
    ask(one)
    with pytest.raises(StoppedError, match=why):
        ask(one)
    assert (one.stopped, len(one.used)) == (why, 1)


def test_a_prompt_that_is_too_long_ends_the_answers(tmp_path: Path) -> None:
    one = model(tmp_path, Script(status=400))
    with pytest.raises(StoppedError, match="context"):
        ask(one)


# --- cases and judging ----------------------------------------------------------------------------


def test_blocks_of_drawn_tasks_peer_by_peer() -> None:
    cases = load_cases(TASKS)
    assert len(cases) == 3 * len(load_tasks(TASKS))
    assert [case.peer for case in cases[: 3 * BLOCK]] == [
        peer for peer in Peer for _ in range(BLOCK)
    ]
    assert {case.task.name for case in cases[:BLOCK]} == {
        case.task.name for case in cases[BLOCK : 2 * BLOCK]
    }
    assert [case.number for case in cases[:BLOCK]] == list(range(BLOCK))


@sandboxed
def test_bare_prompt_is_judged_by_tests_proof_and_hidden_checks(tmp_path: Path) -> None:
    right = bare(tmp_path / "right", file_answer(RIGHT))
    assert (right.outcome, right.stricter, right.stopped) == (FIXED, True, "answered")
    assert (right.input_tokens, right.output_tokens, len(right.calls)) == (100, 10, 1)
    near = bare(tmp_path / "near", file_answer(ALMOST))
    assert (near.outcome, near.stricter) == (FIXED, False)
    wrong = bare(tmp_path / "wrong", file_answer(MISLED))
    assert (wrong.outcome, wrong.stricter) == ("proof_failed", None)


@sandboxed
def test_an_answer_without_a_block_changes_nothing(tmp_path: Path) -> None:
    row = bare(tmp_path, "I can't.")
    assert (row.outcome, row.stopped, row.patch) == (NO_CHANGE, "no code block", "")


@sandboxed
def test_without_a_server_there_is_no_row(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError):
        bare(tmp_path)


@sandboxed
def test_broken_base_tests_fail_whatever_the_tests_of_the_tree_say(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    with workplace(TASK, root) as place:
        tree = place.copy()
        (tree / TASK.path).write_text(
            "def place_for(folder, name):\n    raise ValueError(name)\n", encoding="utf-8"
        )
        (tree / "tests" / "test_base.py").write_text("", encoding="utf-8")
        (tree / ".gitattributes").write_text("* binary\n", encoding="utf-8")
        (tree / "note.txt").write_text("a note\n", encoding="utf-8")
        (tree / "link.py").symlink_to("/etc/hostname")
        patch = place.patch_of(tree)
        assert "test_base" not in patch
        assert ".gitattributes" not in patch
        assert "link.py" not in patch
        assert "+a note" in patch
        assert place.judge(patch).outcome == "tests_failed"


@sandboxed
def test_a_task_in_javascript_is_judged_too(tmp_path: Path) -> None:
    with workplace(JAVASCRIPT, tmp_path.resolve()) as place:
        assert place.proof_output()
        tree = place.copy()
        assert place.patch_of(tree) == ""
        (tree / "index.js").write_text(JAVASCRIPT.with_edits(JAVASCRIPT.reference))
        (place.root / "patch").rename(place.root / "first-patch")
        verdict = place.judge(place.patch_of(tree))
    assert (verdict.outcome, verdict.stricter) == (FIXED, True)


# --- a program as a peer --------------------------------------------------------------------------

#: Asks twice, writes the first answer, and tries to leave its sandbox.
_PROGRAM = """
import json, os, pathlib, socket, subprocess, sys, urllib.request
def ask(text):
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    url = os.environ["OPENAI_API_BASE"] + "/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
pathlib.Path(sys.argv[1]).write_text(ask("first"))
interfaces = [name for _, name in socket.if_nameindex()]
try:
    pathlib.Path(sys.argv[2]).write_text("outside")
    wrote = True
except OSError:
    wrote = False
tests = subprocess.run(sys.argv[3], shell=True).returncode
pathlib.Path("seen.json").write_text(json.dumps([interfaces, wrote, tests]))
ask("second")
"""


@pytest.fixture
def place() -> Iterator[Workplace]:
    with short_folder() as root, workplace(TASK, root) as opened:
        yield opened


@sandboxed
def test_a_program_has_the_model_and_its_copy_alone(place: Workplace, tmp_path: Path) -> None:
    tree, outside = place.copy(), tmp_path / "outside"
    outside.mkdir()
    words = [os.path.realpath(sys.executable), "-c", _PROGRAM]
    words += [TASK.path, str(outside / "file"), programs.test_command(TASK)]
    script = Script(RIGHT, "second")
    one = CaseModel("scripted", Calls(tmp_path / CALLS_NAME), script, 1)
    sandbox = place.parts.sandbox
    ended = programs.run_program(words, tree, one, sandbox, env={}, readable=[])
    assert ended == "exit 0", (tree.parent / "log").read_text()
    interfaces, wrote, tests = json.loads((tree / "seen.json").read_text())
    assert (interfaces, wrote, tests) == (["lo"], False, 0)
    assert not (outside / "file").exists()
    verdict = place.judge(place.patch_of(tree))
    assert (verdict.outcome, verdict.stricter, len(one.used)) == (FIXED, True, 2)


@sandboxed
def test_a_program_that_waits_after_its_budget_is_ended(place: Workplace, tmp_path: Path) -> None:
    waits = _PROGRAM.replace(
        'ask("second")', "try:\n    ask('x')\nexcept OSError:\n    import time\n    time.sleep(60)"
    )
    words = [os.path.realpath(sys.executable), "-c", waits, TASK.path, "/x", "true"]
    one = model(tmp_path, Script(MISLED), Budget(calls=1, seconds=30))
    tree = place.copy()
    ended = programs.run_program(words, tree, one, place.parts.sandbox, env={}, readable=[])
    assert ended == "calls"
    assert place.judge(place.patch_of(tree)).outcome == "proof_failed"


class SlowScript(Script):
    """Answers after the case's time."""

    def __call__(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        time.sleep(2.5)
        return super().__call__(body)


@sandboxed
def test_the_clock_ends_a_program_and_its_last_call_counts(
    place: Workplace, tmp_path: Path
) -> None:
    words = [os.path.realpath(sys.executable), "-c", _PROGRAM, TASK.path, "/x", "true"]
    one = model(tmp_path, SlowScript(RIGHT), Budget(seconds=1.5))
    tree = place.copy()
    ended = programs.run_program(words, tree, one, place.parts.sandbox, env={}, readable=[])
    assert (ended, len(one.used)) == ("time", 1)
    assert place.patch_of(tree) == ""


# --- rows and page --------------------------------------------------------------------------------


@sandboxed
def test_campaign_resumes_checks_and_judges_again(tmp_path: Path) -> None:
    bare(tmp_path, file_answer(RIGHT))
    words = ["--folder", str(tmp_path), "--model", "scripted", "--only", "upload_path.bare.1"]
    assert CAMPAIGN.main([*words, "--tasks", "62"]) == 0
    assert CAMPAIGN.main(["--folder", str(tmp_path), "--check"]) == 0
    (row,) = ROWS.read(tmp_path)
    assert "upload_path" not in ROWS.shown(tmp_path)
    assert "product, fresh-context against bare | 1 |" in ROWS.shown(tmp_path)
    ROWS.write([row.model_copy(update={"stricter": False})], tmp_path)
    assert CAMPAIGN.main(["--folder", str(tmp_path), "--check"]) == 1


def test_readme_and_adr_have_the_figures_of_the_committed_rows() -> None:
    rows, product = ROWS.read(FOLDER), [it for it in study.ROWS.read(STUDY) if it.seed == 1]
    tasks = {row.task for row in rows}

    def counts(found: Iterable[tuple[bool, bool]]) -> list[int]:
        fixed, stricter = zip(*found, strict=True)
        return [sum(fixed), sum(stricter)]

    def of(peer: Peer) -> list[int]:
        return counts((it.is_fixed, it.stricter is True) for it in rows if it.peer is peer)

    def ours(policy: Policy) -> list[study.Row]:
        return [it for it in product if it.task in tasks and it.policy is policy]

    fresh, without = ours(Policy.FRESH_CONTEXT), ours(Policy.FIRST_WITHOUT)
    retried = counts((it.fixed_at is not None, it.stricter is True) for it in fresh)
    first = counts((it.is_first_try, it.is_first_try and it.stricter is True) for it in fresh)
    bare, aider, mini = map(of, Peer)
    alone = counts((it.is_first_try, it.stricter is True) for it in without)
    invalid = sum(it.attempts[0].failure_kind == "plan_invalid" for it in without)
    root = STUDY.parents[2]
    readme, adr = (
        " ".join((root / path).read_text("utf-8").split())
        for path in ("README.md", "docs/adr/0011-rag-bypass-on-retry.md")
    )
    both = "{} ({})".format
    others = (
        f"one bare prompt fixed {both(*bare)}, aider {both(*aider)}, mini-swe-agent {both(*mini)}"
    )
    own = f"this tool with a misleading example {both(*retried)}."
    assert f"on {len(tasks)} programs (and with hidden checks): {others}, {own}" in readme
    both = "{} and {}".format
    for part in (
        f"on {len(tasks)} of the programs, one seed",
        f"whole new file {both(*bare)}, aider {both(*aider)}, mini-swe-agent {both(*mini)}",
        f"the product with a fresh context {both(*retried)}",
        f"which the example misleads, {both(*first)}",
        f"fixes {both(*alone)}, and {invalid} of its answers are no valid plan",
    ):
        assert part in adr


def test_committed_page_is_made_from_the_committed_rows() -> None:
    rows = ROWS.read(FOLDER)
    assert ROWS.faults(rows, ROWS.shown(FOLDER)) == []
    assert missing_answers(FOLDER) == []
