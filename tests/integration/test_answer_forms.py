"""A fix by a model that answers in blocks ends as one by a model that answers in JSON, and is asked so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.outcome import SearchReplace, SourceEdit
from tests.e2e.command import Ended, osv, repository, run
from tests.fakes.messages_server import Server, answer, messages_server
from tests.fixtures.written_blocks import write_blocks

#: Code that small models lose in JSON: quotes of three kinds, and backslashes.
FLAW = 'import re\n\n\ndef pad(text):\n    """Digits: ``\\d``."""\n    return eval(text)\n'
FILES = {
    "pyproject.toml": '[project]\nname = "left"\nversion = "1.0.0"\n',
    "left.py": FLAW,
    "test_left.py": "import unittest\n\nimport left\n\n\nclass LeftTest(unittest.TestCase):\n"
    "    def test_pad(self):\n        self.assertEqual(left.pad('1'), 1)\n",
}
PLAN = SourceEdit(
    rationale="Only digits are read.",
    citations=("S1",),
    edits=(
        SearchReplace(
            path="left.py",
            old='    """Digits: ``\\d``."""\n    return eval(text)',
            new='    """Digits: ``\\d``."""\n    return int(re.sub(r"\\D", "", text))',
        ),
    ),
)
WRITTEN = {"json": PLAN.model_dump_json(), "blocks": write_blocks(PLAN)}


class Scenario:
    """A repository, an advisory, a server that answers what it is told to."""

    def __init__(self, place: Path, server: Server) -> None:
        self.place, self.server = place, server
        self.repo = repository(place / "repo", FILES)
        (place / "advisory.json").write_text(osv("left"))

    def fix(self, form: str, *answers: str) -> Ended:
        self.server.seen.clear()
        self.server.replies.clear()
        for text in answers:
            self.server.streams(answer(text))
        return run(
            *["fix", self.repo, "--advisory", self.place / "advisory.json", "--offline"],
            *["--state-dir", self.place / form, "--model", "m", "--base-url", self.server.url],
            *["--no-sandbox", "--dry-run", "--json", "--answer-form", form],
        )

    def asked(self) -> list[dict[str, Any]]:
        return [seen.body for seen in self.server.seen]

    def events(self, form: str, fix_id: str) -> list[dict[str, Any]]:
        shown = run("audit", "show", fix_id, "--state-dir", self.place / form, "--json").json[
            "events"
        ]
        assert isinstance(shown, list)
        return shown


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    with messages_server() as server:
        yield Scenario(tmp_path, server)


def test_either_form_ends_alike(scenario: Scenario) -> None:
    ends, keys = {}, set()
    for form, text in WRITTEN.items():
        ended = scenario.fix(form, text)
        assert ended.code == exit_codes.PATCHED, ended
        ends[form] = ended.json["application"]
        keys |= {
            event["payload"]["request_key"]
            for event in scenario.events(form, ended.json["fix_id"])
            if event["kind"] == "ModelCalled"
        }
        (body,) = scenario.asked()
        system = body["system"][0]["text"]
        assert ("<<<<<<< SEARCH" in system) == (form == "blocks")
        assert ("One JSON object" in system) == (form == "json")
    one, other = ends.values()
    assert one["plan"]["edits"][0]["new"] == PLAN.edits[0].new
    for key in ("outcome", "diff", "patch_sha256", "edit_digest", "citations", "plan"):
        assert one[key] == other[key], key
    assert len(keys) == 2, "an answer of another form is not found again"


def test_an_answer_of_the_other_form_is_asked_again(scenario: Scenario) -> None:
    ended = scenario.fix("blocks", WRITTEN["json"], WRITTEN["blocks"])
    assert ended.code == exit_codes.PATCHED, ended
    first, second = scenario.asked()
    assert first["system"] == second["system"]
    again = second["messages"][-1]["content"]
    assert "no line `action: …`" in json.dumps(again, ensure_ascii=False)
    assert "one plan in the form that was told" in json.dumps(again)


def test_self_rag_in_blocks_is_refused_by_name(scenario: Scenario) -> None:
    ended = run(
        *["fix", scenario.repo, "--advisory", scenario.place / "advisory.json", "--model", "m"],
        *["--state-dir", scenario.place / "state", "--base-url", scenario.server.url],
        *["--strategy", "self-rag", "--answer-form", "blocks"],
    )
    assert ended.code == exit_codes.BAD_INPUT
    assert "--strategy self-rag" in ended.problem
    assert "--answer-form blocks" in ended.problem
    assert scenario.asked() == []
