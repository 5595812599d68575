"""The capability gate on a real worktree, and how a plan declares."""

import json
import lzma
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from fallback_audit.vocabulary import Capability, FailureKind, GateStatus
from fallback_tier.answers.blocks import parse_plan, plan_schema
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.builtin.common import CapabilityGate
from fallback_tier.gates.capability import CapabilityUse, capability_uses, compare
from fallback_tier.outcome import FileChange, Plan, SourceEdit, plan_adapter
from fallback_tier.syntax import grammar_of
from tests.fakes.answering import AnsweringModel
from tests.fixtures.retry_case import SUMMARY, Simulator
from tests.integration.gate_setup import advisory, patched

DATA = Path(__file__).parents[5] / "shared/data/solved-examples.jsonl.xz"
FILES = {"src/app.py": "x = 1\n", "lib/a.js": "f()\n", "package.json": "{}\n", "run.rb": "f\n"}
EDIT = {"action": "source_edit", "edits": [{"path": "a.py", "old": "x", "new": "y"}]}


def judged(place: Path, changes: dict[str, str | None], plan: Plan | None = None) -> GateVerdict:
    with patched(place, FILES, changes, about=advisory()) as case:
        application = case.context.application.model_copy(update={"plan": plan})
        return CapabilityGate().judge(case.with_(application=application).context)


def declaring(*kinds: Capability) -> SourceEdit:
    return SourceEdit.model_validate({**EDIT, "capabilities": kinds})


def test_a_new_use_in_the_patched_tree_is_caught_unless_declared(tmp_path: Path) -> None:
    changes = {"src/app.py": "x = 1\nimport socket\n", "lib/a.js": "f(2)\n"}
    for name, plan in (
        ("none", None),
        ("nothing", declaring()),
        ("other", declaring(Capability.PROCESS)),
    ):
        verdict = judged(tmp_path / name, dict(changes), plan)
        assert verdict.failure_kind is FailureKind.UNDECLARED_CAPABILITY, name
        assert verdict.detail == "new network use of socket (src/app.py line 2)"
    verdict = judged(tmp_path / "declared", dict(changes), declaring(Capability.NETWORK))
    assert verdict.status is GateStatus.PASSED
    assert verdict.detail == "declared network use of socket (src/app.py line 2)"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"src/new.py": "import subprocess\n"}, GateStatus.FAILED),
        ({"lib/new.js": "f(require('child_process').exec)\n"}, GateStatus.FAILED),
        ({"src/new.py": "x = 2\n"}, GateStatus.PASSED),
        ({"src/app.py": None}, GateStatus.PASSED),
        ({"package.json": "{ }\n"}, GateStatus.PASSED),
        ({"run.rb": "g\n"}, GateStatus.SKIPPED),
    ],
    ids=[
        "new file",
        "in JavaScript",
        "new and harmless",
        "deleted",
        "manifest",
        "another language",
    ],
)
def test_files_that_come_and_go(
    tmp_path: Path, changes: dict[str, str | None], status: GateStatus
) -> None:
    assert judged(tmp_path, changes).status is status


def test_a_plan_declares_in_its_own_words() -> None:
    plan, problems = parse_plan(json.dumps({**EDIT, "capabilities": ["network", "process"]}))
    assert problems == ()
    assert plan == declaring(Capability.NETWORK, Capability.PROCESS)
    assert parse_plan(json.dumps(EDIT))[0] == declaring()
    plan, problems = parse_plan(json.dumps({**EDIT, "capabilities": ["files"]}))
    assert plan is None
    assert "capabilities" in problems[0]


def test_only_a_retry_that_was_told_sees_the_field() -> None:
    assert "apabilit" not in json.dumps(plan_schema())
    schema = plan_schema(declaring=True)
    assert "capabilities" in schema["$defs"]["SourceEdit"]["properties"]
    assert schema["$defs"]["Capability"]["enum"] == [
        "process",
        "network",
        "dynamic_code",
        "unknown",
    ]
    assert schema == plan_adapter.json_schema()
    assert "capabilities" not in plan_adapter.dump_python(declaring())


@pytest.mark.parametrize(
    ("kind", "sees"),
    [(FailureKind.UNDECLARED_CAPABILITY, True), (FailureKind.TESTS_FAILED, False)],
)
def test_the_request_of_such_a_retry_allows_the_field(
    tmp_path: Path, kind: FailureKind, sees: bool
) -> None:
    """A server that enforces the schema would refuse what the gate asked for."""
    failed = SUMMARY.model_copy(update={"failure_kind": kind})
    author = AnsweringModel(lambda _: '{"action": "refuse", "reason": "no"}')
    Simulator(tmp_path, prior_attempts=(failed,)).run(author)
    assert author.requests[0].answer_schema == plan_schema(declaring=sees)


# --- Real fixes ------------------------------------------------------------------------------------

#: What a fragment of a file may have imported above it.
HEADS = {
    "python": "import os, subprocess, socket, pickle, yaml, marshal, importlib, ctypes, requests\n",
    "javascript": "".join(
        f"const {name} = require('{name}')\n"
        for name in ("child_process", "http", "https", "net", "vm")
    ),
}


def newly_used(diff: str) -> tuple[bool, Counter[CapabilityUse]]:
    """Is there code that is read in a diff, and what does its new side use more often than the old?"""
    counts: dict[str, Counter[CapabilityUse]] = {"-": Counter(), "+": Counter()}
    is_read = False
    for block in ("\n" + diff).split("\ndiff --git ")[1:]:
        grammar = grammar_of(block.partition("\n")[0].partition(" b/")[2])
        _, _, body = block.partition("\n@@")
        if not grammar or not body:
            continue
        is_read = True
        head = HEADS["python" if grammar == "python" else "javascript"]
        for mark, found in counts.items():
            side = [line[1:] for line in body.split("\n") if line[:1] in {" ", mark}]
            reported = capability_uses(head + "\n".join(side), grammar)
            found.update(
                {
                    use: n
                    for use, n in reported.counts.items()
                    if use.capability is not Capability.UNKNOWN
                }
                if reported
                else {}
            )
    return is_read, counts["+"] - counts["-"]


def test_few_real_fixes_reach_for_something_new() -> None:
    """Of all 641 fixes with code that is read, 24 (3.7 %) would have to declare a listed kind, and by
    reading most of them do reach for it: an address is looked up, a shell gives way to ``execFile``.
    Here a sixth. What is unknown needs whole files and their project: ``make eval-capability``.
    """
    if not DATA.exists():
        pytest.skip("../shared/data is not here")
    with lzma.open(DATA, "rt", encoding="utf-8") as lines:
        found = [newly_used(json.loads(line)["diff"]) for line in islice(lines, 0, None, 6)]
    read = [new for is_read, new in found if is_read]
    assert len(read) > 100
    assert 0 < sum(map(bool, read)) / len(read) < 0.08


@pytest.mark.parametrize(
    ("path", "before", "after", "passes"),
    [
        ("a.js", "const { exec } = require('child_process');\nexec('ls ' + x);\n",
         "const { execFile } = require('child_process');\nexecFile('ls', [x]);\n", True),
        ("a.py", "import os\nos.popen('ls ' + x)\n",
         "import subprocess\nsubprocess.run(['ls', x])\n", True),
        ("a.py", "import os\nos.popen('ls ' + x)\n",
         "import subprocess\nsubprocess.run(['ls', x])\nsubprocess.call(x)\n", False),
        ("a.py", "eval(x)\n", "import os\nos.system(x)\n", False),
        ("a.js", "const { exec } = require('child_process');\nexec('ls ' + x);\n",
         "const { exec, spawn } = require('child_process');\nexec('ls');\nspawn(x);\n", False),
    ],
)  # fmt: skip
def test_a_call_in_anothers_place_is_no_new_reach(
    path: str, before: str, after: str, passes: bool
) -> None:
    verdict = compare([FileChange(path=path, before=before, after=after)], frozenset(), gate="c")
    assert (verdict.status is GateStatus.PASSED) is passes
    assert ("in another's place: process use of" in verdict.detail) is passes
