"""What a model or a package client says may hold a secret: no evidence does."""

from pathlib import Path

from fallback_audit.events import ModelAnswered
from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.outcome import (
    Applied,
    Left,
    RecipeResult,
    RecipeSelection,
    Selected,
    StepDeclined,
)
from fallback_tier.prompt.redact import without_secrets
from fallback_tier.repo import RepoContext
from tests.fakes.audit import MemoryEvidence
from tests.fakes.ecosystem import FakeEcosystem
from tests.fixtures.fallback_tier_callable import PLAN, FallbackTierCallable

#: Of a form that is always taken out.
SECRET = "ghp_" + "a1B2" * 9


class TalkingEcosystem(FakeEcosystem):
    """Its client quotes what nobody should keep."""

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        result = super().apply(selection, advisory, repo)
        declined = StepDeclined(step=LadderStep.LOCK_REFRESH, reason=f"npm said {SECRET}.")
        moves = tuple(move.model_copy(update={"declined": (declined,)}) for move in result.moves)
        return result.model_copy(update={"moves": moves, "notes": (f"It has {SECRET}.",)})


def test_a_plans_rationale_is_redacted(tmp_path: Path) -> None:
    evidence = MemoryEvidence()
    plan = {**PLAN, "rationale": f"as {SECRET} showed", "citations": ()}
    attempted = FallbackTierCallable(tmp_path, answers=[plan], evidence=evidence)()
    applied = attempted.application
    assert isinstance(applied, Applied)
    assert applied.plan is not None
    assert applied.plan.rationale == "as [REDACTED] showed"
    assert [it.answer_evidence for it in attempted.audit.of(ModelAnswered)] == [None]
    assert evidence.contents
    assert not [it for it in evidence.contents.values() if SECRET.encode() in it]


def test_a_recipes_account_is_redacted(tmp_path: Path) -> None:
    evidence = MemoryEvidence()
    tier = FallbackTierCallable(tmp_path, plugin=TalkingEcosystem(), evidence=evidence)
    applied = tier(selection=_selected()).application
    assert isinstance(applied, Applied)
    assert applied.remediation is not None
    assert applied.remediation.notes == ("It has [REDACTED].",)
    assert len(evidence.contents) == 3  # the patch, the account, the application
    assert not [it for it in evidence.contents.values() if SECRET.encode() in it]


def test_only_sentences_are_changed() -> None:
    left = Left(package=SECRET, reason=RefusalReason.OWN_CODE, sentence=f"See {SECRET}.")
    safe = without_secrets(left)
    assert (safe.package, safe.sentence) == (SECRET, "See [REDACTED].")
    assert safe.reason is RefusalReason.OWN_CODE


def _selected() -> RecipeSelection:
    return Selected(recipe="direct-bump", parameters={"package": "vulnerable", "version": "1.0.1"})
