"""What keepers take away, by command: redacted, sealed, retired, collected; and it all still verifies."""

import json
import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.events import AuditEvent, FixVerified, GateJudged, PatchProposed
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Record, Scope
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.sources import LogCheckpoints
from fallback_audit.verifying.verify import verify
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.wiring import audit_db, evidence_dir
from tests.unit.audit import trails

WHO = ("--by", "Ada Keeper", "--because", "a request")
NOW = datetime.now(UTC)
LENGTH = len(trails.recipe_verified())
WORDS = "Wilhelmina Quackenbush"


class Scenario:
    """A state folder with fixes of several ages, keys beside it, and the command in this process."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.state, self.keys = root / "state", root / "keys"
        self.evidence = FileEvidenceStore(evidence_dir(self.state))
        self._capsys = capsys

    def fix(self, fix_id: str, days: int, log: str, *, ends: bool = True) -> str:
        """A fix that was recorded so many days ago, whose gates all said ``log``."""
        moment = NOW - timedelta(days=days)
        digest, patch = (self.put(text, moment) for text in (log, f"patch of {fix_id}"))
        events: list[AuditEvent] = []
        for event in trails.recipe_verified():
            known: dict[str, str] = {}
            if isinstance(event, GateJudged):
                known = {"evidence_sha256": digest, "detail": log}
            elif isinstance(event, PatchProposed | FixVerified):
                known = {"patch_sha256": patch}
            events.append(event.model_copy(update=known))
        scope = Scope(fix_id=fix_id, gate_transition_id=f"{fix_id}-1")
        store = SqliteAuditStore(
            audit_db(self.state),
            clock=lambda: moment,
            verifiers=Keyring.load(self.keys).verifiers(),
        )
        with closing(store):
            store.append_all([Record(scope, event) for event in (events if ends else events[:-1])])
        return digest

    def put(self, text: str, moment: datetime) -> str:
        digest = self.evidence.put(text.encode())
        os.utime(self.evidence.path(digest), (moment.timestamp(), moment.timestamp()))
        return digest

    def run(self, *words: str, code: int = exit_codes.OK) -> str:
        reported = main(["audit", *words, "--state-dir", str(self.state), "--keys", str(self.keys)])
        out, err = self._capsys.readouterr()
        assert reported == code, out + err
        return str(out + err)

    def json(self, *words: str, code: int = exit_codes.OK) -> Any:
        return json.loads(self.run(*words, "--json", code=code).splitlines()[0])

    def verified(self) -> VerificationReport:
        keyring = Keyring.load(self.keys)
        log = CheckpointLog(self.state / "checkpoints")
        with closing(open_readonly(audit_db(self.state), verifiers=keyring.verifiers())) as store:
            report = verify(
                store,
                checkpoints=LogCheckpoints(log, keyring),
                evidence=self.evidence,
                sealed=self.state / "segments",
            )
        assert report.ok, report
        assert report.uncovered_events == 0
        return report

    def every_byte(self) -> bytes:
        files = [path for path in self.state.rglob("*") if path.is_file()]
        return b"\0".join(path.read_bytes() for path in files)


@pytest.fixture
def scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Scenario:
    monkeypatch.setenv("COLUMNS", "200")
    return Scenario(tmp_path, capsys)


def test_words_are_taken_out_everywhere(scenario: Scenario) -> None:
    scenario.fix("a", 3, WORDS)
    assert WORDS.encode() in scenario.every_byte()
    message = scenario.run("redact", str(LENGTH - 1), "--field", "detail", "--with-evidence", *WHO)
    assert "taken out   detail" in message
    assert "deleted     evidence" in message
    for seq in range(1, LENGTH + 1):
        with closing(
            open_readonly(audit_db(scenario.state), verifiers=desk_keys(scenario))
        ) as store:
            stored = next(store.events(after=seq - 1))
        if isinstance(stored.payload, GateJudged) and not stored.redacted:
            assert scenario.json("redact", str(seq), *WHO)["fields"] == ["detail"]
    assert WORDS.encode() not in scenario.every_byte()
    scenario.verified()
    assert "[redacted]" in scenario.run("show", "a")
    again = scenario.json("redact", str(LENGTH - 1), *WHO)
    assert again["finished"]
    assert "no event 999" in scenario.run("redact", "999", *WHO, code=exit_codes.BAD_INPUT)


def desk_keys(scenario: Scenario) -> tuple[Any, ...]:
    return Keyring.load(scenario.keys).verifiers()


def test_old_events_are_sealed_and_their_segment_retired(scenario: Scenario) -> None:
    digests = [scenario.fix(name, days, name) for name, days in (("a", 60), ("b", 40), ("c", 3))]
    before = str((NOW - timedelta(days=50)).date())
    foreseen = scenario.json("seal", "--before", before, "--dry-run", *WHO)
    assert (foreseen["sealed"], foreseen["choice"]["last_seq"]) == (None, LENGTH)
    sealed = scenario.json("seal", "--before", before, *WHO)["sealed"]
    assert (sealed["number"], sealed["last_seq"]) == (1, LENGTH)
    scenario.verified()
    assert "FIXED; versions proved" in scenario.run("show", "a")
    assert [fix["fix_id"] for fix in scenario.json("log")["fixes"]][:3] == ["a", "b", "c"]
    message = scenario.run("seal", "--before", str((NOW - timedelta(days=10)).date()), *WHO)
    assert "segment 2" in message
    scenario.verified()
    assert "nothing can be sealed" in scenario.run("seal", "--before", before, *WHO)
    assert scenario.json("evidence", "gc", "--older-than", "365", *WHO)["orphans"] == 0
    assert scenario.json("retire", "1", *WHO)["number"] == 1
    scenario.verified()
    assert "There is no fix 'a'" in scenario.run("show", "a", code=exit_codes.BAD_INPUT)
    assert scenario.json("verify")["ok"]
    assert scenario.json("evidence", "gc", "--older-than", "365", *WHO)["orphans"] == 2
    assert [scenario.evidence.find(one) is None for one in digests] == [True, False, False]
    scenario.verified()


@pytest.mark.parametrize(
    "words", [("seal", "--before", "2026-01-01"), ("evidence", "gc", "--older-than", "30")]
)
def test_a_dry_run_signs_nothing_and_writes_nothing(
    scenario: Scenario, words: tuple[str, ...]
) -> None:
    """Not even where nothing was ever signed: no key is made, no checkpoint, no folder."""
    scenario.fix("a", 60, "a")
    before = audit_db(scenario.state).read_bytes()
    scenario.run(*words, "--dry-run", *WHO)
    assert audit_db(scenario.state).read_bytes() == before
    assert not [path for path in (scenario.keys, scenario.state / "checkpoints") if path.exists()]


def test_what_holds_sealing_back_is_said(scenario: Scenario) -> None:
    scenario.fix("a", 60, "a", ends=False)
    before = str((NOW - timedelta(days=10)).date())
    message = scenario.run("seal", "--before", before, *WHO)
    assert "a, from event 1: it has not ended" in message
    # Two days on: this run may go past a midnight.
    tomorrow = str((NOW + timedelta(days=2)).date())
    refused = scenario.json("seal", "--before", tomorrow, *WHO, code=exit_codes.BAD_INPUT)
    assert refused["error"]["kind"] == "too_recent"


def test_evidence_is_collected_on_record(scenario: Scenario) -> None:
    old, young = scenario.fix("a", 60, "old log"), scenario.fix("b", 3, "young log")
    assert scenario.json("evidence", "check")["ok"]
    gc = ("evidence", "gc", "--older-than", "30")
    assert "would go: 2 of ended fixes" in scenario.run(*gc, "--dry-run", *WHO)
    assert scenario.evidence.find(old)
    done = scenario.json(*gc, *WHO)
    assert (done["expired"], len(done["seqs"])) == (2, 1)
    assert scenario.evidence.find(old) is None
    assert "removed   2: their retention was over" in scenario.run("evidence", "check")
    scenario.verified()
    scenario.evidence.path(young).unlink()
    assert "is missing" in scenario.run("evidence", "check", code=exit_codes.TRAIL_BROKEN)
    assert "Nothing says what may be deleted" in scenario.run(
        "evidence", "gc", *WHO, code=exit_codes.BAD_INPUT
    )


def test_no_record_is_made_by_looking_for_one(scenario: Scenario) -> None:
    for words in (("redact", "1"), ("seal", "--before", "2026-01-01"), ("retire", "1")):
        assert "there is no such file" in scenario.run(*words, *WHO, code=exit_codes.ENVIRONMENT)
    assert not scenario.state.joinpath("audit.db").exists()


def test_the_log_lists_fixes_and_nothing_else(scenario: Scenario) -> None:
    scenario.fix("a", 40, "old")
    scenario.fix("b", 3, "young")
    scenario.run("seal", "--before", str((NOW - timedelta(days=30)).date()), *WHO)
    assert [fix["fix_id"] for fix in scenario.json("log")["fixes"]] == ["a", "b"]
    assert "in its segment's file" in scenario.run(
        "export", "--fix", "a", code=exit_codes.BAD_INPUT
    )


def test_a_decision_has_a_name_and_a_reason(scenario: Scenario) -> None:
    scenario.fix("a", 3, WORDS)
    before = scenario.every_byte()
    message = scenario.run("redact", "1", "--by", " ", "--because", "x", code=exit_codes.BAD_INPUT)
    assert "--by is empty" in message
    assert scenario.every_byte() == before
