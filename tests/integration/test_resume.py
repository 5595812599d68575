"""Resuming a fix: what must be as it was, how each end is told, and a delivery that was cut short."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.errors import EvidenceError
from fallback_audit.events import FixStarted, PatchProposed, TransitionReopened
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import parse_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.errors import InputError, RecipeError, RepositoryError
from fallback_tier.gates.builtin.proof_given import Proof
from fallback_tier.gates.journal.holding import holding
from tests.fakes.crashing import Kill
from tests.fakes.gates import RuleGate, SkippedGate
from tests.fakes.repository import git
from tests.fixtures.fallback_tier_callable import ADVISORY
from tests.integration.crash_house import CrashHouse


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CrashHouse:
    house = CrashHouse(tmp_path_factory.mktemp("whole") / "house")
    assert house.fix() == 0
    return house


@pytest.fixture
def killed(whole: CrashHouse, tmp_path: Path) -> CrashHouse:
    """Killed when the patch was on the working tree, and the record did not say so yet."""
    house = CrashHouse(tmp_path / "house", like=whole)
    assert house.fix(Kill(len(whole.events), before=True)) is None
    return house


@pytest.fixture
def early(whole: CrashHouse, tmp_path: Path) -> CrashHouse:
    """Killed in its first attempt."""
    house = CrashHouse(tmp_path / "early", like=whole)
    assert house.fix(Kill(4, before=False)) is None
    return house


def said(house: CrashHouse) -> Any:
    return json.loads((house.root / "said").read_text())


class TestDelivery:
    def test_what_had_arrived_is_put_on_record(self, killed: CrashHouse) -> None:
        there = git(killed.repo, "diff")
        assert "check(name)" in there
        assert killed.resume() == 0
        assert git(killed.repo, "diff") == there
        assert killed.kinds["PatchDelivered"] == 1
        assert killed.kinds["FixResumed"] == 0  # no gate, no model: only the delivery

    @pytest.mark.parametrize("half", [0, 30, None])
    def test_half_a_patch_is_put_back_and_put_on_again(
        self, killed: CrashHouse, half: int | None
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

    def test_what_never_arrived_is_delivered(self, killed: CrashHouse) -> None:
        git(killed.repo, "checkout", "--", ".")
        assert killed.resume() == 0
        assert "check(name)" in (killed.repo / "app.py").read_text()

    @pytest.mark.parametrize("path", ["app.py", "deps.txt"])
    def test_a_persons_edit_is_left_alone(self, killed: CrashHouse, path: str) -> None:
        place = killed.repo / path
        place.write_text("mine\n" + place.read_text())
        before = git(killed.repo, "diff")
        with (
            pytest.raises(RepositoryError, match=f"or {path} was changed"),
            killed.services() as its,
        ):
            killed.go_on(its)
        assert git(killed.repo, "diff") == before
        assert killed.kinds["PatchDelivered"] == 0

    def test_another_commit_is_left_alone(self, killed: CrashHouse) -> None:
        git(killed.repo, "commit", "-qam", "mine")
        with pytest.raises(RepositoryError, match="began at commit"), killed.services() as its:
            killed.go_on(its)

    def test_it_is_delivered_once(self, killed: CrashHouse) -> None:
        assert killed.resume() == 0
        git(killed.repo, "checkout", "--", ".")  # a person thought better of it
        assert killed.resume() == 0
        assert said(killed)["delivered"]
        assert git(killed.repo, "status", "--porcelain") == ""
        assert killed.kinds["PatchDelivered"] == 1

    def test_a_dry_run_stays_one(self, whole: CrashHouse, tmp_path: Path) -> None:
        house = CrashHouse(tmp_path / "house", like=whole)
        assert house.fix(Kill(4, before=False), dry_run=True) is None
        assert house.resume() == 0
        assert not said(house)["delivered"]
        assert git(house.repo, "status", "--porcelain") == ""
        assert house.kinds["PatchDelivered"] == 0


class TestAsItWas:
    """What was decided already was decided about this commit, this advisory and these gates."""

    @pytest.fixture
    def refused(self, early: CrashHouse) -> Callable[..., None]:
        def check(error: type[Exception], words: str, **given: Any) -> None:
            before = early.events
            with pytest.raises(error, match=words), early.services() as its:
                early.go_on(its, **given)
            assert early.events == before

        return check

    def test_another_commit(self, early: CrashHouse, refused: Callable[..., None]) -> None:
        (early.repo / "app.py").write_text("")
        git(early.repo, "commit", "-qam", "mine")
        refused(RepositoryError, "began at commit")

    def test_uncommitted_work(self, early: CrashHouse, refused: Callable[..., None]) -> None:
        (early.repo / "app.py").write_text("")
        refused(RepositoryError, "uncommitted changes: app.py")

    def test_another_gate(self, early: CrashHouse, refused: Callable[..., None]) -> None:
        early.gates = (RuleGate(lambda _: True, name="other"),)
        refused(InputError, "other gates: 'proof' is gone, 'other' is new")

    def test_gates_in_another_order(self, early: CrashHouse, refused: Callable[..., None]) -> None:
        early.gates = (RuleGate(lambda _: True), RuleGate(lambda _: True, name="declared_set"))
        refused(InputError, "order differs")

    def test_a_gate_of_the_same_name_that_does_something_else(
        self, early: CrashHouse, refused: Callable[..., None]
    ) -> None:
        early.proof = Proof(("true",))
        refused(InputError, "another configuration of its proof")

    def test_an_advisory_that_changed(self, refused: Callable[..., None]) -> None:
        changed = parse_advisory(ADVISORY.replace(b'"fixed": "1.0.1"', b'"fixed": "1.0.2"'), "test")
        refused(InputError, "has changed since", advisory=changed)

    def test_a_live_run_is_not_resumed(
        self, early: CrashHouse, refused: Callable[..., None]
    ) -> None:
        with holding(early.state, early.fix_id):
            refused(InputError, "in use by another process")

    @pytest.mark.parametrize("kind", [FixStarted, PatchProposed])
    def test_evidence_that_is_gone(self, whole: CrashHouse, tmp_path: Path, kind: Any) -> None:
        house = CrashHouse(tmp_path / "house", like=whole)
        assert house.fix(Kill(9, before=False)) is None
        event = next(event for event in house.events if isinstance(event, kind))
        digest = getattr(event, "inputs_sha256", None) or event.application_sha256
        (house.state / "evidence" / digest[:2] / digest[2:]).write_bytes(b"{}")
        with pytest.raises(EvidenceError, match="altered"), house.services() as its:
            house.go_on(its)


class TestEnded:
    """How each end is told again, and with which exit code."""

    def test_refused(self, whole: CrashHouse, tmp_path: Path) -> None:
        house = CrashHouse(tmp_path / "house", like=whole)
        reason = RefusalReason.NO_FIXED_VERSION
        house.recipe_error = RecipeError(reason, "None is fixed.", next_step="Wait.")
        assert house.fix() == exit_codes.REFUSED
        first = house.ended(exit_codes.REFUSED)
        assert house.ended(house.resume()) == first
        assert first.document["reason"] == reason

    def test_escalated(self, whole: CrashHouse, tmp_path: Path) -> None:
        house = CrashHouse(tmp_path / "house", like=whole)
        house.gates = (SkippedGate(),)
        first = house.ended(house.fix())
        assert (first.code, first.document["reason"]) == (exit_codes.ESCALATED, "nothing_proved")
        assert house.ended(house.resume()) == first

    def test_escalated_after_a_failure(self, whole: CrashHouse, tmp_path: Path) -> None:
        """The last attempt's failure is on record, and the question that follows is not."""
        reported = CrashHouse(tmp_path / "told", like=whole)
        reported.gates = (RuleGate(lambda _: False),)
        first = reported.ended(reported.fix())
        assert first.document["reason"] == "retry_cap_reached"
        house = CrashHouse(tmp_path / "house", like=whole)
        house.gates = reported.gates
        assert house.fix(Kill(len(reported.events), before=True)) is None
        assert house.ended(house.resume()) == first
        assert house.ended(house.resume()) == first


def test_a_reopened_fix_starts_anew_with_the_last_failure(
    whole: CrashHouse, tmp_path: Path
) -> None:
    house = CrashHouse(tmp_path / "house", like=whole)
    house.gates = (RuleGate(lambda _: False),)
    assert house.fix() == exit_codes.ESCALATED
    old = [event for event in house.events if event.kind == "AttemptFailed"]
    with house.services() as its:
        scope = next(its.audit.events()).scope
        its.audit.append(scope, TransitionReopened(by="Ada", reason="try", opens="gate-2"))
    house.gates = whole.gates
    assert house.resume() == 0
    with house.services() as its:
        opened = scope.model_copy(update={"gate_transition_id": "gate-2"})
        new = [stored.payload for stored in its.audit.events() if stored.scope == opened]
    start = next(event for event in new if isinstance(event, FixStarted))
    assert start.linked_transition == scope.gate_transition_id
    assert said(house)["gate_transition_id"] == "gate-2"
    assert [it["attempt"] for it in said(house)["prior_attempts"]] == [len(old)]
    assert "RagSkippedOnRetry" in [event.kind for event in new]
    house.check()


def test_killed_in_a_reopened_transition(whole: CrashHouse, tmp_path: Path) -> None:
    house = CrashHouse(tmp_path / "house", like=whole)
    house.gates = (RuleGate(lambda _: False),)
    house.fix()
    with house.services() as its:
        scope = next(its.audit.events()).scope
        its.audit.append(scope, TransitionReopened(by="Ada", reason="try", opens="gate-2"))
    house.gates = whole.gates
    assert house.resume(Kill(8, before=False)) is None
    assert house.resume() == 0
    assert len(said(house)["prior_attempts"]) == 1
    house.check()
