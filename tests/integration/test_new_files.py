"""A plan that makes a file, from the model's answer to the hand-over: every judge sees it as new code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.errors import RepositoryError
from fallback_tier.handover.working_tree import complete, put_on_working_tree
from fallback_tier.outcome import FileChange, SearchReplace, SourceEdit
from fallback_tier.patch.diff import unified_diff
from fallback_tier.sandbox.clients import SubprocessClients
from tests.choice import a_choice
from tests.e2e.command import Ended, osv, repository, run
from tests.fakes.messages_server import Server, answer, messages_server
from tests.fakes.repository import git
from tests.fixtures.written_blocks import write_blocks
from tests.integration import gate_setup
from tests.integration import test_own_code as own_code

FLAW = "def pad(text):\n    return eval(text)\n"
FILES = {
    "pyproject.toml": '[project]\nname = "left"\nversion = "1.0.0"\n',
    "left/__init__.py": "from left.core import pad\n",
    "left/core.py": FLAW,
    "test_left.py": "import unittest\n\nimport left\n\n\nclass LeftTest(unittest.TestCase):\n"
    "    def test_pad(self):\n        self.assertEqual(left.pad('1'), 1)\n",
}
PROOF = """\
import left

try:
    left.pad("print(1)")
except ValueError:
    print("refused")
    raise SystemExit(0)
raise SystemExit(1)
"""

MADE = SearchReplace(
    path="left/digits.py", old="", new="def only_digits(text):\n    return int(text)"
)
USED = SearchReplace(
    path="left/core.py",
    old="def pad(text):\n    return eval(text)",
    new="from left.digits import only_digits\n\n\ndef pad(text):\n    return only_digits(text)",
)


def planned(*edits: SearchReplace) -> SourceEdit:
    return SourceEdit(rationale="Only digits are read.", citations=("S1",), edits=edits)


PLAN = planned(MADE, USED)
#: It breaks the repository's own test, by a mistake that a retry may correct.
BROKEN = planned(MADE.model_copy(update={"new": MADE.new + " + None"}), USED)


class Scenario:
    """A repository that is the affected package, its advisory, a server that answers what it is told to."""

    def __init__(self, place: Path, server: Server) -> None:
        self.place, self.server = place, server
        self.repo = repository(place / "repo", FILES)
        git(self.repo, "config", "user.name", "A Person")
        git(self.repo, "config", "user.email", "person@example.invalid")
        (place / "advisory.json").write_text(osv("left"))
        (place / "proof.py").write_text(PROOF)

    def fix(
        self, *plans: SourceEdit | str, options: tuple[str, ...] = (), form: str = "json"
    ) -> Ended:
        self.server.seen.clear()
        self.server.replies.clear()
        for plan in plans:
            text = plan if isinstance(plan, str) else plan.model_dump_json()
            self.server.streams(answer(text))
        return run(
            *["fix", self.repo, "--advisory", self.place / "advisory.json", "--offline"],
            *["--state-dir", self.place / f"state-{form}", "--model", "m"],
            *["--base-url", self.server.url, "--proof", "python proof.py"],
            *["--proof-end", "refused"],
            *["--proof-file", self.place / "proof.py", "--no-sandbox", "--answer-form", form],
            *options,
        )

    def events(self, fix_id: str, form: str = "json") -> list[dict[str, Any]]:
        state = self.place / f"state-{form}"
        shown = run("audit", "show", fix_id, "--state-dir", state, "--json").json["events"]
        assert isinstance(shown, list)
        return shown

    def status(self) -> str:
        return git(self.repo, "status", "--porcelain", "--untracked-files=all")


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    with messages_server() as server:
        yield Scenario(tmp_path, server)


def test_in_either_form_it_is_proved_and_its_patch_is_taken_by_git(scenario: Scenario) -> None:
    texts = {"json": PLAN.model_dump_json(), "blocks": write_blocks(PLAN)}
    found = {}
    for form, text in texts.items():
        ended = scenario.fix(text, options=("--dry-run", "--json"), form=form)
        assert ended.code == exit_codes.OK, ended
        found[form] = ended.json["application"]
        verdicts = {
            event["payload"]["gate"]: event["payload"]["status"]
            for event in scenario.events(ended.json["fix_id"], form)
            if event["kind"] == "GateJudged"
        }
        for gate in (
            "applies",
            "declared_set",
            "policy",
            "capability",
            "imports",
            "proof",
            "tests",
        ):
            assert verdicts[gate] == "passed", verdicts
    for key in ("diff", "patch_sha256", "edit_digest", "files"):
        assert found["json"][key] == found["blocks"][key], key
    assert scenario.status() == ""
    patch = scenario.place / "exported.patch"
    patch.write_text(found["json"]["diff"])
    git(scenario.repo, "apply", "--index", str(patch))
    assert git(scenario.repo, "status", "--porcelain") == "M  left/core.py\nA  left/digits.py\n"
    assert (scenario.repo / "left/digits.py").read_text() == MADE.new + "\n"
    assert git(scenario.repo, "ls-files", "--stage", "left/digits.py").startswith("100644 ")


def test_it_is_put_on_the_working_tree_and_called_new(scenario: Scenario) -> None:
    report = scenario.place / "report"
    ended = scenario.fix(PLAN, options=("--report", str(report)))
    assert ended.code == exit_codes.OK, ended
    assert "not committed: left/core.py, left/digits.py (new)\n" in ended.out
    assert scenario.status() == " M left/core.py\n?? left/digits.py\n"
    body = (report / "pull-request.md").read_text()
    assert "Files changed: `left/core.py`, `left/digits.py` (new)." in body


def test_it_is_part_of_the_commit(scenario: Scenario) -> None:
    ended = scenario.fix(PLAN, options=("--commit", "mine"))
    assert ended.code == exit_codes.OK, ended
    assert scenario.status() == ""
    assert git(scenario.repo, "diff", "--name-status", "HEAD", "mine") == (
        "M\tleft/core.py\nA\tleft/digits.py\n"
    )


def test_the_same_file_again_is_the_same_patch_again(scenario: Scenario) -> None:
    """A fresh context that makes what failed before, typed in another way, is asked for something else."""
    first, second = BROKEN.edits
    typed = first.model_copy(update={"new": first.new.replace("    ", "  ") + "\n\n"})
    ended = scenario.fix(BROKEN, planned(second, typed), PLAN, options=("--dry-run", "--json"))
    assert ended.code == exit_codes.OK, ended
    events = scenario.events(ended.json["fix_id"])
    (again,) = [event["payload"] for event in events if event["kind"] == "RepeatedPatchRejected"]
    assert again["repeats_attempt"] == 1
    retry = json.dumps(scenario.server.seen[1].body)
    assert "left/digits.py (a new file)" in retry
    assert "+ def only_digits(text):" in retry


def test_a_fix_goes_on_where_a_new_file_had_failed(scenario: Scenario) -> None:
    """The second attempt stops at a cap; resumed, it goes on with what the first one learned."""
    ended = scenario.fix(BROKEN, options=("--dry-run", "--json", "--max-tokens", "1"))
    events = scenario.events(ended.json["fix_id"])
    (wanted,) = [event["payload"]["wanted"] for event in events if event["kind"] == "BudgetReached"]
    cap = str(int(wanted) + 100)  # of a retry's prompt, the failure's summary alone has more
    ended = scenario.fix(BROKEN, options=("--dry-run", "--json", "--max-tokens", cap))
    fix = ended.json["fix_id"]
    assert [event["kind"] for event in scenario.events(fix)].count("AttemptFailed") == 1
    raised = run(
        *["review", "raise-budget", fix, "--by", "Ada", "--because", "worth it"],
        *["--max-tokens", "900000", "--state-dir", scenario.place / "state-json"],
    )
    assert raised.code == exit_codes.OK, raised
    ended = scenario.fix(BROKEN, PLAN, options=("--json", "--resume", fix))
    assert ended.code == exit_codes.OK, ended
    kinds = [event["kind"] for event in scenario.events(fix)]
    assert kinds.count("RepeatedPatchRejected") == 1
    assert scenario.status() == " M left/core.py\n?? left/digits.py\n"


@pytest.mark.parametrize(
    ("path", "why"),
    a_choice(
        [
            ("left/conftest.py", "it is a test or test configuration"),
            ("sitecustomize.py", "by itself"),
            ("left/sub/__init__.py", "by itself"),
            ("json.py", "no product source file"),
            ("left/json.py", "own library"),
            ("left/Core.py", "is there"),
            ("left/../x.py", "component"),
            ("left/core.py", "exists: copy into `old`"),
            ("left/found.py", "that git does not track"),
        ],
        step=2,
    ),
)
def test_what_may_not_be_made_is_asked_again_and_never_handed_on(
    scenario: Scenario, path: str, why: str
) -> None:
    (scenario.repo / "left" / "found.py").write_text("a person's\n")
    bad = planned(MADE.model_copy(update={"path": path}), USED)
    refusal = '{"action": "refuse", "reason": "no other way"}'
    ended = scenario.fix(bad, refusal, options=("--dry-run", "--json"))
    assert ended.code not in {exit_codes.OK, exit_codes.PATCHED}, ended
    events = scenario.events(ended.json["fix_id"])
    (rejected,) = [event["payload"] for event in events if event["kind"] == "PlanRejected"]
    assert why in rejected["problems"][0]
    assert not any(event["kind"] == "PatchProposed" for event in events)
    message = json.dumps(scenario.server.seen[1].body["messages"][-1], ensure_ascii=False)
    assert why in message.replace("\\\\", "\\")
    assert (scenario.repo / "left" / "found.py").read_text() == "a person's\n"


def test_new_reach_in_a_new_file_must_be_declared(scenario: Scenario) -> None:
    with_capability = MADE.model_copy(update={"new": "import socket\n\n\n" + MADE.new})
    refusal = '{"action": "refuse", "reason": "no other way"}'
    ended = scenario.fix(planned(with_capability, USED), refusal, options=("--dry-run", "--json"))
    assert ended.code != exit_codes.OK
    (failed,) = [
        event["payload"]
        for event in scenario.events(ended.json["fix_id"])
        if event["kind"] == "GateJudged" and event["payload"]["status"] == "failed"
    ]
    assert failed["gate"] == "capability"
    assert "new network use of socket (left/digits.py line 1)" in failed["detail"]


def test_a_secret_in_a_new_file_is_not_told(scenario: Scenario) -> None:
    key = "ghp_" + "A1b2" * 9
    hidden = MADE.model_copy(update={"new": f'KEY = "{key}"\n\n\n{MADE.new} + None'})
    refusal = '{"action": "refuse", "reason": "no other way"}'
    ended = scenario.fix(planned(hidden, USED), refusal, options=("--json",))
    assert ended.code != exit_codes.OK
    assert len(scenario.server.seen) == 2
    assert key not in json.dumps(scenario.server.seen[1].body)
    assert key not in json.dumps(scenario.events(ended.json["fix_id"]))


def test_only_own_code_is_told_that_a_file_can_be_made(scenario: Scenario) -> None:
    refusal = '{"action": "refuse", "reason": "no"}'
    reported = re.compile(r"an edit with its path, an empty `old`")
    scenario.fix(refusal, options=("--dry-run", "--json"))
    assert reported.search(json.dumps(scenario.server.seen[0].body["messages"]))
    assert not reported.search(json.dumps(scenario.server.seen[0].body["system"]))


@pytest.mark.sandbox
def test_in_the_sandbox_a_new_file_is_found_by_what_is_there(tmp_path: Path) -> None:
    gate_setup.needs_sandbox()
    manifest = {"name": "left", "version": "1.0.0", "scripts": {"test": "node test.js"}}
    scenario = own_code.Scenario(
        tmp_path, own_code.NPM | {"package.json": json.dumps(manifest)}, "npm"
    )
    made = SearchReplace(path="digits.js", old="", new="module.exports = text => Number(text)")
    wrong = made.model_copy(update={"new": "module.exports = text => String(text)"})
    used = SearchReplace(
        path="index.js",
        old="module.exports = text => eval(text)",
        new="module.exports = require('./digits.js')",
    )
    script = [planned(one, used).model_dump(mode="json") for one in (wrong, made)]
    for plan in script:
        plan["citations"] = []
    (tmp_path / "script.json").write_text(json.dumps(script))
    ended = scenario.fix()
    assert ended.code == exit_codes.PATCHED, ended
    assert ended.json["attempts"] == 2, "without the right file the tests fail"
    assert git(scenario.repo, "status", "--porcelain") == " M index.js\n?? digits.js\n"
    assert scenario.is_intact()


# --- Delivered, or interrupted --------------------------------------------------------------------


def _applied(place: Path) -> tuple[Any, Any]:
    changes = [
        FileChange(path="left/core.py", before=FLAW, after="x = 1\n"),
        FileChange(path="left/digits.py", before=None, after="y = 1\n"),
    ]
    repo = gate_setup.repository(place, FILES)
    return gate_setup.applied(unified_diff(changes), tuple(c.path for c in changes)), repo


def test_a_file_that_came_in_the_way_is_a_persons_and_stays(tmp_path: Path) -> None:
    """git refuses the patch then, and putting the tree back must not remove what was there."""
    application, repo = _applied(tmp_path)
    (tmp_path / "left/digits.py").write_text("a person's\n")
    for act in (put_on_working_tree, complete):
        with pytest.raises(RepositoryError):
            act(application, repo, SubprocessClients())
    assert (tmp_path / "left/digits.py").read_text() == "a person's\n"
    assert git(tmp_path, "status", "--porcelain") == "?? left/digits.py\n"


@pytest.mark.parametrize("outcome", ["nothing", "the new file", "half the new file", "the edit"])
def test_a_delivery_that_was_cut_short_is_completed(tmp_path: Path, outcome: str) -> None:
    application, repo = _applied(tmp_path)
    if outcome in {"the new file", "half the new file"}:
        text = "y = 1\n" if outcome == "the new file" else "y ="
        (tmp_path / "left/digits.py").write_text(text)
    if outcome == "the edit":
        (tmp_path / "left/core.py").write_text("x = 1\n")
    for _ in range(2):
        complete(application, repo, SubprocessClients())
        assert (tmp_path / "left/core.py").read_text() == "x = 1\n"
        assert (tmp_path / "left/digits.py").read_text() == "y = 1\n"
