"""Trails of every earlier schema version stay readable, verifiable and printable for ever.

Before the number is raised, this module's tests with ``--keep-schema`` keep the trails of the current one.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import StoredRow, make_link, read_row
from fallback_audit.contract.maintenance import MAINTAINING
from fallback_audit.contract.table import link_violations
from fallback_audit.contract.trail import NOTES, link_of
from fallback_audit.events import (
    SCHEMA_VERSION,
    AttemptFailed,
    AttemptRefused,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    GroundingNotEvaluated,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    PatchDelivered,
    PatchProposed,
    RecipeEvaluated,
    RetrievalQueried,
    TransitionReopened,
)
from fallback_audit.evidence.checking import kept_digests
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import MAINTENANCE, Scope
from fallback_audit.showing.describe import sentence
from fallback_audit.showing.render import account_lines
from fallback_audit.verifying.verify import verify
from fallback_audit.verifying.walk import Walk
from fallback_audit.vocabulary import (
    AffectedCode,
    EscalationReason,
    GateStatus,
    LadderStep,
    ProofLevel,
    RefusalReason,
)
from tests.unit.audit.human_trails import VALID
from tests.unit.audit.trails import digest, trail_of

_SCOPE = ("fix_id", "gate_transition_id")

TRAILS = Path(__file__).parents[3] / "fixtures" / "trails"

#: Versions whose trails are kept.
KEPT = sorted(int(path.stem.removeprefix("schema-")) for path in TRAILS.glob("schema-*.jsonl"))


def current_trails() -> Iterator[str]:
    """Every valid trail that needs no other one, as the current version writes it: one line a row."""
    seq, leaf = 0, GENESIS
    for trail in VALID:
        if any(link_violations("fix-1", [link_of(trail_of(trail()))])):
            continue
        scope = Scope(fix_id=f"fix-{trail.__name__.replace('_', '-')}", gate_transition_id="g1")
        for event in trail():
            seq += 1
            at = f"2026-01-02T03:04:05.{seq:06}Z"
            link = make_link(scope, event, seq=seq, previous_leaf=leaf, recorded_at=at)
            leaf = link.event.leaf
            row = {
                "seq": seq,
                "header": link.header.decode(),
                "leaf": leaf,
                "payload": link.payload.decode(),
            }
            yield json.dumps(row) + "\n"


def test_every_version_before_the_current_one_is_kept(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("keep_schema"):
        kept = TRAILS / f"schema-{SCHEMA_VERSION}.jsonl"
        kept.write_text("".join(current_trails()), encoding="utf-8")
    assert set(KEPT) >= set(range(1, SCHEMA_VERSION)), "run this with --keep-schema before"


class Export:
    """A store's rows, as one file keeps them: one JSON object a row."""

    def __init__(self, path: Path) -> None:
        self._rows = [json.loads(line) for line in path.read_text().splitlines()]

    @contextmanager
    def snapshot(self) -> Iterator["Export"]:
        yield self

    def schema_problems(self) -> list[str]:
        return []

    def index_problems(self) -> list[str]:
        return []

    def segments(self) -> list[bytes]:
        return []

    def tombstones(self) -> None:
        return None

    def rows(self, after: int = 0) -> Iterator[StoredRow]:
        for row in self._rows[after:]:
            yield StoredRow(
                row["seq"], row["header"].encode(), row["leaf"], row["payload"].encode()
            )

    def rows_by_trail(self, fix_ids: frozenset[str] | None = None) -> Iterator[StoredRow]:
        def place(row: StoredRow) -> tuple[str, str, int]:
            fix_id, transition = map(json.loads(row.header or b"{}").get, _SCOPE)
            return fix_id, transition, row.seq

        asked = (row for row in self.rows() if fix_ids is None or place(row)[0] in fix_ids)
        return iter(sorted(asked, key=place))


@pytest.mark.parametrize("version", KEPT)
def test_an_old_trail_reads_and_verifies(version: int) -> None:
    export = Export(TRAILS / f"schema-{version}.jsonl")
    events = [read_row(row) for row in export.rows()]
    assert {event.schema_version for event in events} == {version}
    assert {"FixVerified", "RagSkippedOnRetry", "RecipeEvaluated"} <= {it.kind for it in events}
    assert all(sentence(event.payload) for event in events)
    report = verify(export, checkpoints=None)
    assert report.first_bad is None, report.first_bad
    assert report.events == len(events)


def test_what_version_2_added_is_absent_not_invented() -> None:
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-1.jsonl").rows()]
    assert {p.steps for p in payloads if isinstance(p, RecipeEvaluated)} == {()}
    assert {p.remediation_sha256 for p in payloads if isinstance(p, PatchProposed)} == {None}


def test_what_version_2_wrote_is_read_as_it_was() -> None:
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-2.jsonl").rows()]
    assert {p.steps for p in payloads if isinstance(p, RecipeEvaluated)} == {
        (),
        (LadderStep.LOCK_REFRESH, LadderStep.DIRECT_BUMP),
    }
    assert {p.remediation_sha256 for p in payloads if isinstance(p, PatchProposed)} == {
        None,
        digest("account 1"),
    }


def test_what_version_3_added_is_absent_not_invented(tmp_path: Path) -> None:
    """A retrieval of before has no account: readers say so, and verify asks for no evidence of it."""
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-2.jsonl").rows()]
    queries = [p for p in payloads if isinstance(p, RetrievalQueried)]
    assert [query.example_ids for query in queries] == [("e1", "e2"), ("e1",)]
    assert {query.account_sha256 for query in queries} == {None}
    assert [kept_digests(query) for query in queries] == [(), ()]
    evidence = FileEvidenceStore(tmp_path / "evidence")
    assert list(account_lines(queries[0], evidence)) == ["why: no account is on record"]


@pytest.mark.parametrize("version", range(1, 4))
def test_what_version_4_added_is_absent_not_invented(version: int) -> None:
    """A patch of before has no verdict and no flag; a call has no key, so nothing is found again."""
    payloads = [read_row(row).payload for row in Export(TRAILS / f"schema-{version}.jsonl").rows()]
    assert {
        (p.grounded, p.low_confidence, p.loose_edits)
        for p in payloads
        if isinstance(p, PatchProposed)
    } == {(None, False, ())}
    calls = [p for p in payloads if isinstance(p, ModelCalled)]
    answers = [p for p in payloads if isinstance(p, ModelAnswered)]
    assert calls
    assert answers
    assert {(p.request_key, p.reserved, p.candidate, p.strict) for p in calls} == {
        (None, None, None, False)
    }
    assert {kept_digests(p) for p in answers} == {()}
    assert {p.failure for p in payloads if isinstance(p, ModelFailed)} <= {None}
    assert {p.call for p in payloads if isinstance(p, GroundingNotEvaluated)} == {None}


def test_what_version_3_wrote_is_read_as_it_was() -> None:
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-3.jsonl").rows()]
    named = {p.example_ids: p.account_sha256 for p in payloads if isinstance(p, RetrievalQueried)}
    assert named == {ids: digest("account " + ",".join(ids)) for ids in [(), ("e1",), ("e1", "e2")]}
    assert {"ModelFailed", "ConsumerLeft", "FixEscalated"} <= {p.kind for p in payloads}


def test_what_version_4_wrote_is_read_as_it_was() -> None:
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-4.jsonl").rows()]
    assert {"AnswerReused", "BudgetRaised", "SegmentScored"} <= {p.kind for p in payloads}
    flagged = [p for p in payloads if isinstance(p, PatchProposed) and p.low_confidence]
    assert [(p.grounded, p.patch_sha256) for p in flagged] == [(False, digest("patch 1"))]
    assert {digest("whole answer author 1")} <= {d for p in payloads for d in kept_digests(p)}


@pytest.mark.parametrize("version", range(1, 5))
def test_what_version_5_added_is_absent_not_invented(version: int) -> None:
    """A fix of before names no gates, so none is missed; its verdicts name no flaky test."""
    payloads = [read_row(row).payload for row in Export(TRAILS / f"schema-{version}.jsonl").rows()]
    starts = [p for p in payloads if isinstance(p, FixStarted)]
    assert {(p.gates, p.inputs_sha256) for p in starts} == {((), None)}
    assert {p.application_sha256 for p in payloads if isinstance(p, PatchProposed)} == {None}
    verdicts = [p for p in payloads if isinstance(p, GateJudged)]
    assert {(p.flaky, p.proof_level) for p in verdicts} == {((), None)}


def test_what_version_5_wrote_is_read_as_it_was() -> None:
    events = [read_row(row) for row in Export(TRAILS / "schema-5.jsonl").rows()]
    payloads = [event.payload for event in events]
    assert {"FixResumed", "ReviewDecided", "TransitionReopened", "PatchDelivered"} <= {
        p.kind for p in payloads
    }
    starts = [p for p in payloads if isinstance(p, FixStarted)]
    assert {("applies", "tests", "proof"), ()} == {p.gates for p in starts}
    assert digest("inputs") in {p.inputs_sha256 for p in starts}
    flaky = [p for p in payloads if isinstance(p, GateJudged) and p.flaky]
    assert [(p.flaky, p.proof_level) for p in flaky] == [(("test_clock",), ProofLevel.SOURCE)]


@pytest.mark.parametrize("version", range(1, 6))
def test_what_version_6_added_is_absent_not_invented(version: int) -> None:
    """Nothing was redacted, flagged or sealed before there were words for it."""
    events = [read_row(row) for row in Export(TRAILS / f"schema-{version}.jsonl").rows()]
    assert not any(isinstance(event.payload, (*NOTES, *MAINTAINING)) for event in events)
    assert not any(event.redacted for event in events)
    assert MAINTENANCE not in {event.scope for event in events}


def test_what_version_6_wrote_is_read_as_it_was() -> None:
    """A FixVerified by passing tests alone meant that then, and breaks no rule now."""
    events = [read_row(row) for row in Export(TRAILS / "schema-6.jsonl").rows()]
    assert "EvidenceCollected" in {event.kind for event in events}
    passed = [
        event.payload.gates_passed for event in events if isinstance(event.payload, FixVerified)
    ]
    assert ("applies", "tests") in passed


@pytest.mark.parametrize("version", range(1, 7))
def test_what_version_7_added_is_absent_not_invented(version: int) -> None:
    """No fix of before says whose code was affected, and no verdict names the tests that it broke."""
    payloads = [read_row(row).payload for row in Export(TRAILS / f"schema-{version}.jsonl").rows()]
    starts = [p for p in payloads if isinstance(p, FixStarted)]
    assert {(p.affected_code, p.decided_by, p.own_packages) for p in starts} == {(None, None, ())}
    assert {p.broken for p in payloads if isinstance(p, GateJudged)} == {()}
    failures = [p for p in payloads if isinstance(p, AttemptFailed)]
    assert {p.contradicting_tests for p in failures} <= {()}
    assert not any(isinstance(p, FixPatched) for p in payloads)


def test_what_version_7_wrote_is_read_as_it_was() -> None:
    """Whose code it is, what tests stand against, what a person said."""
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-7.jsonl").rows()]
    assert {"FixPatched", "ReviewDecided", "TransitionReopened"} <= {p.kind for p in payloads}
    starts = [p for p in payloads if isinstance(p, FixStarted)]
    assert {AffectedCode.OWN, AffectedCode.DEPENDENCY, None} == {p.affected_code for p in starts}
    failures = [p for p in payloads if isinstance(p, AttemptFailed)]
    assert ("test_follows_links",) in {p.contradicting_tests for p in failures}


@pytest.mark.parametrize("version", range(1, 8))
def test_what_version_8_added_is_absent_not_invented(version: int) -> None:
    """Before, every gate transition was there to make a patch, and every patch was made where it stands."""
    payloads = [read_row(row).payload for row in Export(TRAILS / f"schema-{version}.jsonl").rows()]
    named = [p for p in payloads if isinstance(p, FixStarted | TransitionReopened)]
    assert {p.judges_again for p in named} == {None}
    assert {p.taken_from for p in payloads if isinstance(p, PatchProposed)} == {None}
    ends = [p.reason for p in payloads if isinstance(p, FixEscalated)]
    assert EscalationReason.GATES_FAILED_AGAIN not in ends


@pytest.mark.parametrize("version", range(1, 11))
def test_what_version_11_added_is_absent_not_invented(version: int) -> None:
    """Before, a part of a run over several advisories did not say so, and none fixed one in part."""
    payloads = [read_row(row).payload for row in Export(TRAILS / f"schema-{version}.jsonl").rows()]
    starts = [p for p in payloads if isinstance(p, FixStarted)]
    assert {(p.batch_sha256, p.in_part) for p in starts} == {(None, ())}


@pytest.mark.parametrize("version", range(1, 12))
def test_what_version_12_added_is_absent_not_invented(version: int) -> None:
    """Before, a gate passed, failed or was skipped; nobody was asked about one that could not decide."""
    payloads = [read_row(row).payload for row in Export(TRAILS / f"schema-{version}.jsonl").rows()]
    verdicts = {p.status for p in payloads if isinstance(p, GateJudged)}
    assert verdicts <= {GateStatus.PASSED, GateStatus.FAILED, GateStatus.SKIPPED}
    ends = [p.reason for p in payloads if isinstance(p, FixEscalated)]
    assert EscalationReason.GATES_UNDECIDED not in ends


def test_what_version_11_wrote_is_read_as_it_was() -> None:
    """Parts of a batch, one of which fixes an advisory in part."""
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-11.jsonl").rows()]
    starts = [p for p in payloads if isinstance(p, FixStarted) and p.batch_sha256]
    assert {(p.batch_sha256, p.in_part) for p in starts} == {
        (digest("batch"), ()),
        (digest("batch"), ("A",)),
    }
    ends = [p.reason for p in payloads if isinstance(p, FixRefused)]
    assert RefusalReason.FAILS_TOGETHER in ends


def test_what_version_13_added_is_absent_not_invented() -> None:
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-12.jsonl").rows()]
    assert {p.allowed_hosts for p in payloads if isinstance(p, FixStarted)} == {()}
    judged = [p for p in payloads if isinstance(p, GateJudged)]
    assert {p.refused_hosts for p in judged} == {()}
    assert GateStatus.UNDECIDED in {p.status for p in judged}


@pytest.mark.parametrize("version", range(1, 14))
def test_what_version_14_added_is_absent_not_invented(version: int) -> None:
    """Before, no fix ended as unknown, and no refusal listed what was not read."""
    payloads = [read_row(row).payload for row in Export(TRAILS / f"schema-{version}.jsonl").rows()]
    ends = [p for p in payloads if isinstance(p, FixRefused | AttemptRefused)]
    assert {p.unread for p in ends} <= {()}
    assert RefusalReason.UNKNOWN not in {p.reason for p in ends}


@pytest.mark.parametrize("version", range(1, 15))
def test_what_version_15_added_is_absent_not_invented(version: int) -> None:
    """Before, no rule on the age of releases kept a fix out, and no person made exceptions."""
    payloads = [read_row(row).payload for row in Export(TRAILS / f"schema-{version}.jsonl").rows()]
    starts = [p for p in payloads if isinstance(p, FixStarted)]
    assert {(p.age_exceptions, p.release_age_days) for p in starts} <= {((), None)}
    ends = [p for p in payloads if isinstance(p, FixRefused | AttemptRefused)]
    assert RefusalReason.RELEASE_TOO_NEW not in {p.reason for p in ends}


def test_what_version_14_wrote_is_read_as_it_was() -> None:
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-14.jsonl").rows()]
    ends = [p for p in payloads if isinstance(p, FixRefused | AttemptRefused)]
    assert RefusalReason.UNKNOWN in {p.reason for p in ends}
    assert any(p.unread for p in ends)


@pytest.mark.parametrize("version", range(1, 16))
def test_what_version_16_added_is_absent_not_invented(version: int) -> None:
    """No verdict of before tells how far tests were judged, and none gets a level now."""
    for row in Export(TRAILS / f"schema-{version}.jsonl").rows():
        payload = read_row(row).payload
        if isinstance(payload, GateJudged):
            assert (payload.tests_level, payload.tests) == (None, ())
            assert not {"tests_level", "tests"} & payload.model_dump(mode="json").keys()


@pytest.mark.parametrize("version", range(1, 17))
def test_what_version_17_added_is_absent_not_invented(version: int) -> None:
    """Before, no person could end a fix that had not ended."""
    kinds = {read_row(row).kind for row in Export(TRAILS / f"schema-{version}.jsonl").rows()}
    assert "FixAbandoned" not in kinds


@pytest.mark.parametrize("version", range(1, 19))
def test_what_version_19_added_is_absent_not_invented(version: int) -> None:
    """Before, no exit code and no excerpt of a test run was kept."""
    for row in Export(TRAILS / f"schema-{version}.jsonl").rows():
        payload = read_row(row).payload
        if isinstance(payload, GateJudged):
            assert {(one.exit_code, one.output) for one in payload.tests} <= {(None, "")}


@pytest.mark.parametrize("version", range(1, 20))
def test_what_version_20_added_is_absent_not_invented(version: int) -> None:
    """Before, no delivery said what another part of its run had left."""
    for row in Export(TRAILS / f"schema-{version}.jsonl").rows():
        payload = read_row(row).payload
        if isinstance(payload, PatchDelivered):
            assert payload.in_part == ()
            assert "in_part" not in payload.model_dump(mode="json")


def test_what_version_15_wrote_is_read_as_it_was() -> None:
    payloads = [read_row(row).payload for row in Export(TRAILS / "schema-15.jsonl").rows()]
    starts = [p for p in payloads if isinstance(p, FixStarted)]
    assert any(p.age_exceptions and p.release_age_days == 7 for p in starts)


def test_what_version_10_wrote_is_read_as_it_was() -> None:
    kinds = {read_row(row).kind for row in Export(TRAILS / "schema-10.jsonl").rows()}
    assert {"RecipeCandidateFailed", "RecordBegunAgain"} <= kinds


@pytest.mark.parametrize("version", KEPT)
def test_an_old_trail_is_judged_by_the_block(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(self: Walk, row: StoredRow) -> None:
        raise AssertionError(f"row {row.seq} by itself")

    monkeypatch.setattr(Walk, "_judge", judge)
    assert verify(Export(TRAILS / f"schema-{version}.jsonl"), checkpoints=None).first_bad is None


@pytest.mark.parametrize("version", KEPT)
def test_a_changed_byte_of_an_old_trail_is_still_found(version: int) -> None:
    export = Export(TRAILS / f"schema-{version}.jsonl")
    export._rows[3]["payload"] = export._rows[3]["payload"].replace("}", " }", 1)
    report = verify(export, checkpoints=None)
    assert report.first_bad is not None
    assert report.first_bad.seq == export._rows[3]["seq"]
