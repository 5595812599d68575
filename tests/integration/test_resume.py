"""Resuming a fix: what must be as it was, how each end is told, and a delivery that was cut short."""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.errors import EvidenceError
from fallback_audit.events import FixStarted, GateJudged, PatchProposed, TransitionReopened
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import parse_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.ending import ended
from fallback_tier.errors import (
    FallbackError,
    HeldError,
    InputError,
    RecipeError,
    RepositoryError,
)
from fallback_tier.fix.journal.holding import holding
from fallback_tier.gate_ports import GateContext, GateVerdict, passed
from fallback_tier.gates.builtin.proof_given import Proof
from fallback_tier.wiring import evidence_dir
from tests.fakes.crashing import Kill
from tests.fakes.gates import RuleGate, SkippedGate
from tests.fakes.repository import git
from tests.fixtures.fallback_tier_callable import ADVISORY
from tests.integration.crash_scenario import CrashScenario
from tests.kinds import OfKind


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CrashScenario:
    scenario = CrashScenario(tmp_path_factory.mktemp("whole") / "scenario")
    assert scenario.fix() == 0
    return scenario


@pytest.fixture
def killed(whole: CrashScenario, tmp_path: Path) -> CrashScenario:
    """Killed when the patch was on the working tree, and the record did not say so yet."""
    scenario = CrashScenario(tmp_path / "scenario", like=whole)
    assert scenario.fix(Kill(len(whole.events), before=True)) is None
    return scenario


@pytest.fixture
def early(whole: CrashScenario, tmp_path: Path) -> CrashScenario:
    """Killed in its first attempt."""
    scenario = CrashScenario(tmp_path / "early", like=whole)
    assert scenario.fix(Kill(4, before=False)) is None
    return scenario


def said(scenario: CrashScenario) -> Any:
    return json.loads((scenario.root / "said").read_text())


class TestDelivery:
    def test_what_had_arrived_is_put_on_record(self, killed: CrashScenario) -> None:
        there = git(killed.repo, "diff")
        assert "check(name)" in there
        assert killed.resume() == 0
        assert git(killed.repo, "diff") == there
        assert killed.kinds["PatchDelivered"] == 1
        assert killed.kinds["FixResumed"] == 0  # no gate, no model: only the delivery

    @pytest.mark.parametrize("half", [0, 30, None])
    def test_half_a_patch_is_put_back_and_put_on_again(
        self, killed: CrashScenario, half: int | None
    ) -> None:
        """git removes a file before it writes the new one, and may die anywhere between."""
        place = killed.repo / "app.py"
        content = place.read_bytes()
        if half is None:
            place.unlink()
        else:
            place.write_bytes(content[:half])
        assert killed.resume() == 0
        assert place.read_bytes() == content
        assert killed.kinds["PatchDelivered"] == 1

    def test_what_never_arrived_is_delivered(self, killed: CrashScenario) -> None:
        git(killed.repo, "checkout", "--", ".")
        assert killed.resume() == 0
        assert "check(name)" in (killed.repo / "app.py").read_text()

    @pytest.mark.parametrize("path", ["app.py", "deps.txt"])
    def test_a_persons_edit_is_left_alone(self, killed: CrashScenario, path: str) -> None:
        place = killed.repo / path
        place.write_text("mine\n" + place.read_text())
        before = git(killed.repo, "diff")
        with (
            pytest.raises(RepositoryError, check=OfKind("changed_meanwhile"), match=path),
            killed.services() as its,
        ):
            killed.go_on(its)
        assert git(killed.repo, "diff") == before
        assert killed.kinds["PatchDelivered"] == 0

    def test_another_commit_is_left_alone(self, killed: CrashScenario) -> None:
        git(killed.repo, "commit", "-qam", "mine")
        with (
            pytest.raises(RepositoryError, check=OfKind("another_commit")),
            killed.services() as its,
        ):
            killed.go_on(its)

    def test_it_is_delivered_once(self, killed: CrashScenario) -> None:
        assert killed.resume() == 0
        git(killed.repo, "checkout", "--", ".")  # a person thought better of it
        assert killed.resume() == 0
        assert said(killed)["delivered"]
        assert git(killed.repo, "status", "--porcelain") == ""
        assert killed.kinds["PatchDelivered"] == 1

    def test_a_dry_run_stays_one(self, whole: CrashScenario, tmp_path: Path) -> None:
        scenario = CrashScenario(tmp_path / "scenario", like=whole)
        assert scenario.fix(Kill(4, before=False), dry_run=True) is None
        assert scenario.resume() == 0
        assert not said(scenario)["delivered"]
        assert git(scenario.repo, "status", "--porcelain") == ""
        assert scenario.kinds["PatchDelivered"] == 0


class TestAsItWas:
    """What was decided already was decided about this commit, this advisory and these gates."""

    @pytest.fixture
    def refused(self, early: CrashScenario) -> Callable[..., None]:
        def check(error: type[FallbackError], kind: str, value: str = "", **given: Any) -> None:
            before = early.events
            with (
                pytest.raises(error, check=OfKind(kind), match=value or None),
                early.services() as its,
            ):
                early.go_on(its, **given)
            assert early.events == before

        return check

    def test_another_commit(self, early: CrashScenario, refused: Callable[..., None]) -> None:
        (early.repo / "app.py").write_text("")
        git(early.repo, "commit", "-qam", "mine")
        refused(RepositoryError, "another_commit")

    def test_uncommitted_work(self, early: CrashScenario, refused: Callable[..., None]) -> None:
        (early.repo / "app.py").write_text("")
        refused(RepositoryError, "dirty", "app.py")

    def test_another_gate(self, early: CrashScenario, refused: Callable[..., None]) -> None:
        early.gates = (RuleGate(lambda _: True, name="other"),)
        refused(InputError, "other_gates", "'proof' .* 'other'")

    def test_gates_in_another_order(
        self, early: CrashScenario, refused: Callable[..., None]
    ) -> None:
        early.gates = (RuleGate(lambda _: True), RuleGate(lambda _: True, name="declared_set"))
        refused(InputError, "other_gates", "order")

    def test_a_gate_of_the_same_name_that_does_something_else(
        self, early: CrashScenario, refused: Callable[..., None]
    ) -> None:
        early.proof = Proof(("true",))
        refused(InputError, "other_configuration", "proof")

    def test_an_advisory_that_changed(self, refused: Callable[..., None]) -> None:
        changed = parse_advisory(ADVISORY.replace(b'"fixed": "1.0.1"', b'"fixed": "1.0.2"'), "test")
        refused(InputError, "advisory_changed", advisory=changed)

    def test_a_live_run_is_not_resumed(
        self, early: CrashScenario, refused: Callable[..., None]
    ) -> None:
        with holding(early.state, early.fix_id):
            refused(HeldError, "")

    @pytest.mark.parametrize("kind", [FixStarted, PatchProposed])
    def test_evidence_that_is_gone(self, whole: CrashScenario, tmp_path: Path, kind: Any) -> None:
        scenario = CrashScenario(tmp_path / "scenario", like=whole)
        assert scenario.fix(Kill(9, before=False)) is None
        event = next(event for event in scenario.events if isinstance(event, kind))
        digest = getattr(event, "inputs_sha256", None) or event.application_sha256
        (scenario.state / "evidence" / digest[:2] / digest[2:]).write_bytes(b"{}")
        with pytest.raises(EvidenceError, check=OfKind("altered")), scenario.services() as its:
            scenario.go_on(its)


class TestEnded:
    """How each end is told again, and with which exit code."""

    def test_refused(self, whole: CrashScenario, tmp_path: Path) -> None:
        scenario = CrashScenario(tmp_path / "scenario", like=whole)
        reason = RefusalReason.NO_FIXED_VERSION
        scenario.recipe_error = RecipeError(reason, "None is fixed.", next_step="Wait.")
        assert scenario.fix() == exit_codes.REFUSED
        first = scenario.ended(exit_codes.REFUSED)
        assert scenario.ended(scenario.resume()) == first
        assert first.document["reason"] == reason

    def test_escalated(self, whole: CrashScenario, tmp_path: Path) -> None:
        scenario = CrashScenario(tmp_path / "scenario", like=whole)
        scenario.gates = (SkippedGate(),)
        first = scenario.ended(scenario.fix())
        assert (first.code, first.document["reason"]) == (exit_codes.ESCALATED, "nothing_proved")
        assert scenario.ended(scenario.resume()) == first

    def test_escalated_after_a_failure(self, whole: CrashScenario, tmp_path: Path) -> None:
        """The last attempt's failure is on record, and the question that follows is not."""
        reported = CrashScenario(tmp_path / "told", like=whole)
        reported.gates = (RuleGate(lambda _: False),)
        first = reported.ended(reported.fix())
        assert first.document["reason"] == "retry_refused"
        scenario = CrashScenario(tmp_path / "scenario", like=whole)
        scenario.gates = reported.gates
        assert scenario.fix(Kill(len(reported.events), before=True)) is None
        assert scenario.ended(scenario.resume()) == first
        assert scenario.ended(scenario.resume()) == first


@dataclass
class Resolving:
    """Resolves something once per fix, of another name each time; ``place`` has the name."""

    place: Path
    name: str = "resolves"

    def judge(self, context: GateContext) -> GateVerdict:
        found = context.resolutions.setdefault("base", secrets.token_hex(4))
        self.place.write_text(found)
        return passed(self.name, f"resolved {found}")


@pytest.fixture
def stopped(whole: CrashScenario, tmp_path: Path) -> CrashScenario:
    """Killed once the gate that resolves was on record."""
    place = tmp_path / "resolved"
    again = RuleGate(lambda context: context.resolutions["base"] == place.read_text())
    first, scenario = (CrashScenario(tmp_path / name, like=whole) for name in ("a", "b"))
    first.gates = scenario.gates = (Resolving(place), again)
    assert first.fix() == exit_codes.OK
    gates = [getattr(it, "gate", "") for it in first.events]
    assert scenario.fix(Kill(gates.index("resolves") + 1, before=False)) is None
    (verdict,) = (it for it in scenario.events if getattr(it, "gate", "") == "resolves")
    assert isinstance(verdict, GateJudged)
    assert len(verdict.resolutions) == 1
    return scenario


def test_a_resumed_fix_has_what_it_resolved(stopped: CrashScenario) -> None:
    assert stopped.ended(stopped.resume()).code == exit_codes.OK
    assert sum(len(getattr(it, "resolutions", ())) for it in stopped.events) == 1


def test_a_resumed_fix_stops_without_the_evidence_of_what_it_resolved(
    stopped: CrashScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    (digest,) = (one for it in stopped.events for one in getattr(it, "resolutions", ()))
    FileEvidenceStore(evidence_dir(stopped.state)).path(digest).unlink()
    before = stopped.kinds
    with (
        pytest.raises(EvidenceError, match="recorded at gate 'resolves'") as caught,
        stopped.services() as its,
    ):
        stopped.go_on(its)
    assert stopped.kinds == before
    assert ended(caught.value, as_json=False) == exit_codes.ENVIRONMENT
    assert caught.value.next_step in capsys.readouterr().err


def test_a_reopened_fix_starts_anew_with_the_last_failure(
    whole: CrashScenario, tmp_path: Path
) -> None:
    scenario = CrashScenario(tmp_path / "scenario", like=whole)
    scenario.gates = (RuleGate(lambda _: False),)
    assert scenario.fix() == exit_codes.ESCALATED
    old = [event for event in scenario.events if event.kind == "AttemptFailed"]
    with scenario.services() as its:
        scope = next(its.audit.events()).scope
        its.audit.append(scope, TransitionReopened(by="Ada", reason="try", opens="gate-2"))
    scenario.gates = whole.gates
    assert scenario.resume() == 0
    with scenario.services() as its:
        opened = scope.model_copy(update={"gate_transition_id": "gate-2"})
        new = [stored.payload for stored in its.audit.events() if stored.scope == opened]
    start = next(event for event in new if isinstance(event, FixStarted))
    assert start.linked_transition == scope.gate_transition_id
    assert said(scenario)["gate_transition_id"] == "gate-2"
    assert [it["attempt"] for it in said(scenario)["prior_attempts"]] == [len(old)]
    assert "RagSkippedOnRetry" in [event.kind for event in new]
    scenario.check()


def test_killed_in_a_reopened_transition(whole: CrashScenario, tmp_path: Path) -> None:
    scenario = CrashScenario(tmp_path / "scenario", like=whole)
    scenario.gates = (RuleGate(lambda _: False),)
    scenario.fix()
    with scenario.services() as its:
        scope = next(its.audit.events()).scope
        its.audit.append(scope, TransitionReopened(by="Ada", reason="try", opens="gate-2"))
    scenario.gates = whole.gates
    assert scenario.resume(Kill(8, before=False)) is None
    assert scenario.resume() == 0
    assert len(said(scenario)["prior_attempts"]) == 1
    scenario.check()
