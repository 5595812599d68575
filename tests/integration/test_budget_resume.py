"""A fix that stops at its budget goes on after a person raised it, and pays for nothing twice."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.errors import EncryptedEvidenceError, EvidenceError
from fallback_audit.events import AttemptFailed, BudgetRaised
from fallback_audit.evidence.checking import private_digests
from fallback_audit.evidence.store import ENCRYPTED
from fallback_audit.vocabulary import BudgetLimit, EscalationReason
from fallback_tier.advisory import parse_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.ending import ended
from fallback_tier.errors import (
    HeldError,
    InputError,
    RepositoryError,
    SettingMissingError,
    ToolMissingError,
)
from fallback_tier.fix.journal.holding import holding
from fallback_tier.fix.journal.review import raise_budget
from fallback_tier.fix.open_fix import OpenFix, run_fix
from fallback_tier.fix.parts import FixParts
from fallback_tier.fix.steps import FixProgress, StepKey
from fallback_tier.fix_result import Escalated, Verified
from fallback_tier.outcome import Selected
from fallback_tier.tier import FallbackTier
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.gates import RuleGate
from tests.fakes.repository import git
from tests.fixtures.fallback_tier_callable import ADVISORY, NO_RECIPE
from tests.integration.budget_scenario import FIX, STORY, BudgetScenario
from tests.kinds import OfKind


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[BudgetScenario]:
    (tmp_path / "repo").mkdir()
    made = BudgetScenario(tmp_path)
    yield made
    made.check()
    assert git(tmp_path / "repo", "status", "--porcelain") == ""
    made.audit.close()


def test_a_fix_that_stops_at_each_of_its_calls_ends_like_one_that_never_stopped(
    scenario: BudgetScenario, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("never-stopped")
    (other / "repo").mkdir()
    free = BudgetScenario(other)
    expected = free.run()
    free.audit.close()
    assert isinstance(expected, Verified)

    result, stops = scenario.run(tokens_per_fix=0), 0
    while isinstance(result, Escalated) and result.reason is EscalationReason.BUDGET_EXHAUSTED:
        stops += 1
        assert len(scenario.author.requests) == stops - 1
        scenario.raised(tokens_per_fix=int(scenario.least))
        result = scenario.resume(tokens_per_fix=0)
    assert stops == len(STORY)
    assert isinstance(result, Verified)
    assert result.application.diff == expected.application.diff
    assert result.prior_attempts == expected.prior_attempts
    assert result.usage == expected.usage
    assert result.unreported is None
    assert result.attempts == expected.attempts == 3
    # No call twice, and what was paid for is found again wherever it is needed.
    assert len(scenario.author.requests) == len(free.author.requests) == len(STORY)
    assert scenario.kinds.count("ModelCalled") == len(STORY)
    assert scenario.kinds.count("AnswerReused") == 2 * 1


def test_an_answer_that_an_earlier_release_encrypted_stops_its_resume(
    scenario: BudgetScenario,
) -> None:
    """It was paid for, and the release that encrypted it can still use it: nothing is asked again."""
    scenario.run(tokens_per_fix=0)
    scenario.raised(tokens_per_fix=int(scenario.least))
    scenario.resume(tokens_per_fix=0)
    assert scenario.kinds.count("ModelAnswered") == 1
    (digest,) = (digest for it in scenario.audit.events() for digest in private_digests(it.payload))
    scenario.evidence.path(digest).write_bytes(ENCRYPTED + b"of an earlier release")
    scenario.raised(tokens_per_fix=int(scenario.least))
    with pytest.raises(EncryptedEvidenceError) as caught:
        scenario.resume(tokens_per_fix=0)
    assert ended(caught.value, as_json=False) == exit_codes.ENVIRONMENT
    assert len(scenario.author.requests) == 1


def test_the_cost_of_a_fix_is_that_of_all_its_attempts(scenario: BudgetScenario) -> None:
    result = scenario.run()
    (author,) = result.usage
    assert author.calls == len(STORY)
    assert author.input_tokens == len(STORY) * 4_500
    assert author.cost_usd_estimate == "0.047500"


@pytest.mark.parametrize("limit", BudgetLimit)
def test_the_question_says_what_was_reached_and_how_to_go_on(
    scenario: BudgetScenario, limit: BudgetLimit
) -> None:
    result = scenario.run(**{limit.value: "0.000001" if "usd" in limit.value else 1})
    assert isinstance(result, Escalated)
    assert result.reason is EscalationReason.BUDGET_EXHAUSTED
    assert scenario.author.requests == ()
    for message in (
        scenario.reached.cap,
        FIX,
        "review raise-budget",
        f"fallback-tier resume {FIX}",
        scenario.least,
    ):
        assert message in result.question.replace(",", "")
    option = {
        BudgetLimit.USD_PER_FIX: "--max-usd ",
        BudgetLimit.USD_PER_DAY: "--max-usd-per-day ",
        BudgetLimit.TOKENS_PER_FIX: "--max-tokens ",
        BudgetLimit.TOKENS_PER_DAY: "--max-tokens-per-day ",
    }[limit]
    assert option + scenario.least in result.question
    assert scenario.kinds[-3:] == ["BudgetReached", "AttemptRefused", "FixEscalated"]


def test_after_a_cap_of_a_day_a_person_lets_it_go_on(scenario: BudgetScenario) -> None:
    scenario.run(tokens_per_day=1)
    scenario.raised()
    assert isinstance(scenario.resume(tokens_per_day=1), Escalated)
    scenario.raised()
    assert isinstance(scenario.resume(), Verified)


def test_resuming_without_a_sandbox_goes_on_record_once(scenario: BudgetScenario) -> None:
    scenario.run(tokens_per_fix=0)
    scenario.raised(tokens_per_fix=10**6)
    scenario.waiver = "a person said so"
    assert isinstance(scenario.resume(), Verified)
    assert scenario.kinds.count("SandboxDisabled") == 1


class TestRaising:
    @pytest.mark.parametrize(
        ("caps", "kind"),
        [
            ({}, "cap_not_given"),
            ({"tokens_per_fix": 1}, "cap_not_higher"),
            ({"tokens_per_fix": 0}, "cap_not_higher"),
            ({"usd_per_fix": "5"}, "cap_not_given"),
            ({"by": " ", "tokens_per_fix": 10**6}, "signature_empty"),
            ({"reason": "", "tokens_per_fix": 10**6}, "signature_empty"),
        ],
    )
    def test_what_raises_nothing_is_refused_and_not_recorded(
        self, scenario: BudgetScenario, caps: dict[str, Any], kind: str
    ) -> None:
        scenario.run(tokens_per_fix=1)
        before = scenario.kinds
        with pytest.raises(InputError, check=OfKind(kind)):
            scenario.raised(**caps)
        assert scenario.kinds == before

    def test_another_cap_may_be_raised_with_it_and_only_upwards(
        self, scenario: BudgetScenario
    ) -> None:
        scenario.run(tokens_per_fix=1)
        scenario.raised(tokens_per_fix=2, usd_per_fix="2")
        scenario.raised(tokens_per_fix=3)
        for caps in ({"tokens_per_fix": 3}, {"usd_per_fix": "2.00"}, {"usd_per_fix": "1"}):
            with pytest.raises(InputError, check=OfKind("cap_not_higher")):
                scenario.raised(**caps)

    def test_no_such_fix(self, scenario: BudgetScenario) -> None:
        scenario.run()
        with pytest.raises(InputError, check=OfKind("no_such_fix"), match="'fix-9'"):
            raise_budget(scenario.audit, "fix-9", BudgetRaised(by="a", reason="b"))

    def test_one_that_did_not_stop_at_its_budget(self, scenario: BudgetScenario) -> None:
        scenario.run()
        with pytest.raises(InputError, check=OfKind("not_at_budget"), match="FixVerified"):
            scenario.raised(tokens_per_fix=10**6)


class TestMissing:
    """What a resumed fix needs and is missing stops it, and never ends it."""

    def interrupted(self, scenario: BudgetScenario) -> None:
        """Its first attempt has proposed a patch, and the process is gone."""
        fix = OpenFix(scenario.parts(), scenario.advisory, scenario.repo, NO_RECIPE)
        fix.begin()
        fix.step(StepKey(1, "attempt"))
        fix.close()

    def without(self, whole: FixParts, **parts: Any) -> FixParts:
        tier = whole.tier
        found = {"retriever": None, "leaf": tier.parts.leaf, "plugins": {"PyPI": FakeEcosystem()}}
        kept = {"audit": whole.audit, "evidence": whole.evidence}
        return replace(whole, tier=FallbackTier(**{**found, **kept, **parts}))

    def test_a_model_that_only_a_later_attempt_needs(self, scenario: BudgetScenario) -> None:
        self.interrupted(scenario)
        parts = self.without(scenario.parts(), leaf=None)
        with pytest.raises(SettingMissingError, check=OfKind("no_model")) as stopped:
            run_fix(parts, scenario.advisory, scenario.repo, NO_RECIPE, scenario.recorded())
        assert "--model NAME" in stopped.value.next_step
        assert "GateJudged" in scenario.kinds, "the gates needed no model"
        assert not {"FixRefused", "FixEscalated"} & set(scenario.kinds)
        assert isinstance(scenario.resume(), Verified)

    def test_a_client_that_the_recipe_needs(self, scenario: BudgetScenario) -> None:
        class Missing(FakeEcosystem):
            def apply(self, *_: Any) -> Any:
                raise ToolMissingError("npm is not on PATH.", next_step="Install npm.")

        recipe = Selected(
            recipe="direct-bump", parameters={"package": "vulnerable", "version": "1"}
        )
        fix = OpenFix(scenario.parts(), scenario.advisory, scenario.repo, recipe)
        fix.begin()
        fix.close()
        parts = self.without(scenario.parts(), plugins={"PyPI": Missing()})
        with pytest.raises(ToolMissingError, match="npm"):
            run_fix(parts, scenario.advisory, scenario.repo, recipe, scenario.recorded())
        assert not {"AttemptRefused", "FixRefused", "FixEscalated"} & set(scenario.kinds)
        assert isinstance(scenario.resume(), Verified)

    def test_a_client_that_a_gate_needs(self, scenario: BudgetScenario) -> None:
        def judge(_: Any) -> bool:
            raise ToolMissingError("npm is not on PATH.", next_step="Install npm.")

        self.interrupted(scenario)
        parts = replace(scenario.parts(), gates=[RuleGate(judge)])
        with pytest.raises(ToolMissingError, match="npm"):
            run_fix(parts, scenario.advisory, scenario.repo, NO_RECIPE, scenario.recorded())
        assert "FixEscalated" not in scenario.kinds
        assert isinstance(scenario.resume(), Verified)


class TestReopening:
    def test_only_one_process_goes_on_with_it(self, scenario: BudgetScenario) -> None:
        with (
            holding(scenario.root, "../fix"),
            pytest.raises(HeldError),
            holding(scenario.root, "../fix"),
        ):
            pass
        with holding(scenario.root, "../fix"), holding(scenario.root, FIX):
            pass
        assert len(list((scenario.root / "held").iterdir())) == 0

    def test_nobody_raised_it(self, scenario: BudgetScenario) -> None:
        scenario.run(tokens_per_fix=1)
        with pytest.raises(InputError, check=OfKind("not_raised")) as caught:
            scenario.recorded()
        assert "review raise-budget fix-1" in caught.value.next_step

    def test_it_has_ended(self, scenario: BudgetScenario) -> None:
        ended = scenario.run()
        taken = scenario.recorded()
        assert taken.result == ended
        assert not taken.delivered

    def test_it_is_resumed_only_once(self, scenario: BudgetScenario) -> None:
        scenario.run(tokens_per_fix=1)
        scenario.raised(tokens_per_fix=10**6)
        ended = scenario.resume()
        assert scenario.recorded().result == ended

    def test_another_commit(self, scenario: BudgetScenario) -> None:
        scenario.run(tokens_per_fix=1)
        scenario.raised(tokens_per_fix=10**6)
        with pytest.raises(RepositoryError, check=OfKind("another_commit")):
            scenario.recorded(commit="f" * 40)

    def test_another_advisory(self, scenario: BudgetScenario) -> None:
        scenario.run(tokens_per_fix=1)
        scenario.raised(tokens_per_fix=10**6)
        other = parse_advisory(ADVISORY.replace(b"TEST-2026-1", b"TEST-2026-9"), "test")
        with pytest.raises(
            InputError, check=OfKind("another_advisory"), match=r"TEST-2026-1.*TEST-2026-9"
        ):
            scenario.recorded(advisory=other)

    def test_the_summary_of_a_failed_attempt_is_gone(self, scenario: BudgetScenario) -> None:
        scenario.run(tokens_per_fix=0)
        while "AttemptFailed" not in scenario.kinds:
            scenario.raised(tokens_per_fix=int(scenario.least))
            scenario.resume(tokens_per_fix=0)
        scenario.raised(tokens_per_fix=10**6)
        payloads = [stored.payload for stored in scenario.audit.events()]
        failed = next(event for event in payloads if isinstance(event, AttemptFailed))
        (kept,) = (scenario.root / "evidence").rglob(f"*{failed.summary_sha256[4:]}*")
        content = kept.read_bytes()
        kept.unlink()
        with pytest.raises(EvidenceError):
            scenario.recorded()
        scenario.evidence.put(content)


def test_a_tier_that_refuses_for_its_budget_without_saying_which_is_still_a_question() -> None:
    from fallback_audit.vocabulary import PromptShape, RefusalReason
    from fallback_tier.fix.decision import EndEscalated, decide
    from fallback_tier.outcome import Refused

    refused = Refused(
        attempt=1,
        prompt_shape=PromptShape.NONE,
        reason=RefusalReason.BUDGET_EXHAUSTED,
        sentence="Spent.",
    )
    decision = decide(FixProgress(application=refused), FIX)
    assert decision == EndEscalated(EscalationReason.BUDGET_EXHAUSTED, "Spent.")
