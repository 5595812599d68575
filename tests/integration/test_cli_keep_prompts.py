"""Raw prompts and answers on disk: none unless switched on or needed, and then for their owner alone."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.events import ModelAnswered, ModelCalled
from fallback_audit.evidence.checking import private_digests
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.stores.sqlite import open_readonly
from fallback_tier.cli import exit_codes
from fallback_tier.wiring import audit_db, evidence_dir
from tests.e2e.command import osv, repository, run

#: In a file that the model is shown, and that no patch changes.
#: One worker: both fixes are made once.
pytestmark = pytest.mark.xdist_group("keep-prompts")

PROMPTED = "the snippet that only a prompt quotes"
#: In an answer that was rejected, and so in no patch.
ANSWERED = "an answer that is no plan at all"
#: Of a form that is taken out of every prompt.
SECRET = "ghp_" + "a1B2" * 9

OWN_CODE = {
    "pyproject.toml": '[project]\nname = "left"\nversion = "1.0.0"\n',
    "left.py": "def pad(text):\n    return eval(text)\n",
    "names.py": f"# {PROMPTED}\nTOKEN = '{SECRET}'\n",
    "test_left.py": "import unittest\n\nimport left\n\n\n"
    "class LeftTest(unittest.TestCase):\n"
    "    def test_pad(self):\n        self.assertEqual(left.pad('1'), 1)\n",
}

PLAN = {
    "action": "source_edit",
    "edits": [{"path": "left.py", "old": "    return eval(text)", "new": "    return int(text)"}],
}


class Scenario:
    """A fix with a scripted model, and what it left on disk."""

    def __init__(self, place: Path, *options: str) -> None:
        self.state, self.keys = place / "state", place / "keys"
        repo = repository(place / "repo", OWN_CODE)
        advisory, answers = place / "advisory.json", place / "script.json"
        advisory.write_text(osv("left"))
        answers.write_text(json.dumps([{"answer": ANSWERED}, {"answer": PLAN}]))
        ended = run(
            *("fix", repo, "--advisory", advisory, "--dry-run", "--no-sandbox", "--json"),
            *("--script", answers, "--state-dir", self.state, "--keys", self.keys),
            *options,
        )
        assert ended.code == exit_codes.PATCHED, ended
        self.evidence = FileEvidenceStore(evidence_dir(self.state))
        with closing(open_readonly(audit_db(self.state))) as reader:
            self.events = [stored.payload for stored in reader.events()]

    @property
    def prompts(self) -> list[str | None]:
        return [e.prompt_evidence for e in self.events if isinstance(e, ModelCalled)]

    def on_disk(self, words: str) -> set[Path]:
        """The files that hold these words."""
        files = (path for path in self.state.rglob("*") if path.is_file())
        return {path for path in files if words.encode() in path.read_bytes()}

    @property
    def private(self) -> set[Path]:
        """The files that the record calls private."""
        return {self.evidence.path(it) for event in self.events for it in private_digests(event)}


@pytest.fixture(scope="module")
def off(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return Scenario(tmp_path_factory.mktemp("off"))


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return Scenario(tmp_path_factory.mktemp("on"), "--keep-prompts")


def test_prompts_and_answers_are_where_the_record_says(on: Scenario, off: Scenario) -> None:
    for scenario in (on, off):
        assert scenario.on_disk("return int(text)"), "the search finds the patch"
        assert scenario.on_disk(SECRET) == set()
        assert scenario.on_disk(ANSWERED)
        assert scenario.on_disk(ANSWERED) <= scenario.private
    assert off.on_disk(PROMPTED) == set()
    assert len(on.on_disk(PROMPTED)) == 2
    assert on.on_disk(PROMPTED) <= on.private


def test_they_are_for_their_owner_and_in_no_export(on: Scenario, tmp_path: Path) -> None:
    assert len(on.private) == 4
    assert {path.stat().st_mode & 0o777 for path in on.private} == {0o600}
    out = tmp_path / "all.jsonl"
    record = ("--state-dir", on.state, "--keys", on.keys)
    assert run("audit", "export", "--out", out, "--with-evidence", *record).code == exit_codes.OK
    held = {it["digest"] for it in map(json.loads, out.read_text().splitlines()) if "digest" in it}
    assert held
    assert not {on.evidence.path(digest) for digest in held} & on.private


def test_answers_are_kept_to_resume(off: Scenario) -> None:
    kept = [e.answer_evidence for e in off.events if isinstance(e, ModelAnswered)]
    assert len(kept) == 2
    assert ANSWERED.encode() in off.evidence.get(str(kept[0]))


def test_prompts_are_kept_when_switched_on(on: Scenario, off: Scenario) -> None:
    assert off.prompts == [None, None]
    called = [event for event in on.events if isinstance(event, ModelCalled)]
    assert on.prompts == [event.prompt_sha256 for event in called]
    first = on.evidence.get(called[0].prompt_sha256)
    assert PROMPTED.encode() in first
    assert SECRET.encode() not in first
    assert len(first) == called[0].prompt_bytes
    assert {on.evidence.path(str(digest)) for digest in on.prompts} <= on.private
