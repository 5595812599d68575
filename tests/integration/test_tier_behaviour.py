"""The behaviour suite: what every runtime of an attempt must do (ADR-0005, -0011, -0014)."""

import hashlib
import json
from pathlib import Path

import pytest

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import PatchProposed, RecipeEvaluated
from fallback_audit.vocabulary import (
    FailureKind,
    LadderStep,
    PromptShape,
    ProofLevel,
    Provenance,
    RefusalReason,
    Tier,
)
from fallback_tier.advisory import Advisory
from fallback_tier.errors import AttemptHistoryError, ConfigurationError, RecipeError
from fallback_tier.limits import MAX_AUTHOR_CALLS, MAX_FAILURE_SUMMARY_BYTES, MAX_RETRIES
from fallback_tier.outcome import (
    Applied,
    Left,
    NotApplicable,
    RecipeResult,
    Refused,
    SearchReplace,
    Selected,
)
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import RagDegraded, RagHit, RagMiss, SolvedExample
from tests.fakes.audit import MemoryAudit
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.memory import FixedRetriever, UntouchableRetriever
from tests.fixtures.examples import WRITTEN, shown
from tests.fixtures.fallback_tier_callable import (
    FILES,
    OTHER_PLAN,
    PLAN,
    Attempted,
    FallbackTierCallable,
    Runtime,
    failed,
)
from tests.kinds import OfKind

BUMP = Selected(recipe="direct-bump", parameters={"package": "vulnerable", "version": "1.0.1"})

EXAMPLE = SolvedExample(
    example_id="example-7",
    advisory_id="TEST-2025-9",
    advisory_text="EXAMPLE-MARKER joins a user-supplied name without checking it",
    ecosystem="PyPI",
    package="vulnerable",
    edits=(SearchReplace(path="app.py", old="'data/' + name", new="'data/' + safe(name)"),),
    file_sha256={"app.py": hashlib.sha256(FILES["app.py"].encode()).hexdigest()},
    provenance=WRITTEN,
    licence="Apache-2.0",
)
SIMILAR = EXAMPLE.model_copy(update={"package": "another", "example_id": "example-8"})


@pytest.fixture
def call(runtime: Runtime, tmp_path: Path) -> FallbackTierCallable:
    return FallbackTierCallable(tmp_path, runtime=runtime)


def hit(*examples: SolvedExample) -> FixedRetriever:
    return FixedRetriever(RagHit(examples=tuple(map(shown, examples)), evidence="fixed"))


# --- The initial chain: each tier may end it ------------------------------------------------------


def test_recipe_ends_the_chain(call: FallbackTierCallable) -> None:
    call.retriever = UntouchableRetriever()  # type: ignore[assignment]
    done = call(selection=BUMP)
    assert isinstance(done.application, Applied)
    assert done.application.tier is Tier.RECIPE
    assert done.application.proof_level is ProofLevel.PINS
    assert done.application.prompt_shape is PromptShape.NONE
    assert "+vulnerable 1.0.1" in done.application.diff
    assert done.audit.kinds == ["AttemptStarted", "RecipeEvaluated", "PatchProposed"]
    assert not done.author.requests


def test_a_recipes_account_is_evidence_that_its_event_names(call: FallbackTierCallable) -> None:
    """The steps on record, the moves in the result, the whole account under the event's digest."""
    done = call(selection=BUMP)
    assert isinstance(done.application, Applied)
    assert done.application.remediation is not None
    (move,) = done.application.remediation.moves
    assert (move.package, move.before, move.after) == ("vulnerable", ("1.0.0",), "1.0.1")
    evaluated, proposed = (event.payload for event in list(done.audit.events())[1:3])
    assert isinstance(evaluated, RecipeEvaluated)
    assert evaluated.steps == (LadderStep.DIRECT_BUMP,)
    assert isinstance(proposed, PatchProposed)
    digest = proposed.remediation_sha256
    assert digest is not None
    assert digest == done.application.remediation.evidence_sha256
    account = json.loads(call.evidence.get(digest))
    assert account["moves"][0]["step"] == "direct_bump"
    assert "changes" not in account  # the patch has them


def test_a_partial_bundle_is_no_patch(call: FallbackTierCallable) -> None:
    """What of a bundle is left would be handed out as fixed."""

    class Halfway(FakeEcosystem):
        def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
            left = Left(
                package="other", reason=RefusalReason.BLOCKED_BY_CONSTRAINT, sentence="top pins it."
            )
            return super().apply(selection, advisory, repo).model_copy(update={"left": (left,)})

    call.plugin = Halfway()
    call.with_model = False
    done = call(selection=BUMP)
    assert isinstance(done.application, Refused)
    assert "PatchProposed" not in done.audit.kinds
    evaluated = next(e.payload for e in done.audit.events() if e.kind == "RecipeEvaluated")
    assert isinstance(evaluated, RecipeEvaluated)
    assert not evaluated.selected
    assert evaluated.reason == "top pins it."


def test_replay_ends_the_chain(call: FallbackTierCallable) -> None:
    call.retriever = hit(SIMILAR, EXAMPLE)
    done = call()
    assert isinstance(done.application, Applied)
    assert done.application.tier is Tier.RAG
    assert done.application.used_few_shot_ref == ("example-7",)
    assert done.audit.kinds == [
        "AttemptStarted",
        "RecipeEvaluated",
        "RetrievalQueried",
        "ExampleReplayed",
        "PatchProposed",
    ]
    assert not done.author.requests


def test_replay_needs_identity_not_similarity(call: FallbackTierCallable) -> None:
    """Same package, same edits, but the file has other content: the example only informs the prompt."""
    call.retriever = hit(EXAMPLE)
    call.files["app.py"] += "# changed since\n"
    call.answers = [PLAN]
    done = call()
    assert isinstance(done.application, Applied)
    assert done.application.tier is Tier.LLM
    assert "EXAMPLE-MARKER" in done.prompts[0]


def test_llm_ends_the_chain(call: FallbackTierCallable) -> None:
    call.retriever = hit(SIMILAR)
    call.answers = [PLAN]
    done = call()
    assert isinstance(done.application, Applied)
    assert done.application.tier is Tier.LLM
    assert done.application.prompt_shape is PromptShape.INITIAL
    assert done.application.grounded is None
    assert done.application.faithfulness_score is None
    assert done.application.used_few_shot_ref == ("example-8",)
    assert "+    return open('data/' + name.replace('..', '')).read()" in done.application.diff
    assert done.audit.kinds == [
        "AttemptStarted",
        "RecipeEvaluated",
        "RetrievalQueried",
        "ModelCalled",
        "ModelAnswered",
        "GroundingNotEvaluated",
        "PatchProposed",
    ]
    assert done.audit.payloads[3].provenance is Provenance.SCRIPTED  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "answer", [RagMiss(evidence="nothing"), RagDegraded(examples=(), evidence="store unreadable")]
)
def test_without_examples_the_prompt_has_none(
    call: FallbackTierCallable, answer: RagMiss | RagDegraded
) -> None:
    call.retriever = FixedRetriever(answer)
    call.answers = [PLAN]
    done = call()
    assert isinstance(done.application, Applied)
    assert done.application.used_few_shot_ref == ()
    assert "EXAMPLE-MARKER" not in done.prompts[0]


def test_at_most_four_examples(call: FallbackTierCallable) -> None:
    many = tuple(SIMILAR.model_copy(update={"example_id": f"e{n}"}) for n in range(9))
    call.retriever = hit(*many)
    call.answers = [PLAN]
    done = call()
    assert isinstance(done.application, Applied)
    assert done.application.used_few_shot_ref == ("e0", "e1", "e2", "e3")


def test_a_failing_recipe_hands_over_to_the_model(call: FallbackTierCallable) -> None:
    error = RecipeError(RefusalReason.RESOLVER_FAILED, "npm said no.", next_step="Ask npm.")
    call.plugin = FakeEcosystem(recipe_error=error)
    call.answers = [PLAN]
    done = call(selection=BUMP)
    assert isinstance(done.application, Applied)
    assert done.application.tier is Tier.LLM


@pytest.mark.parametrize("reason", [reason for reason in RefusalReason if reason.ends_chain])
def test_a_final_no_ends_the_chain(call: FallbackTierCallable, reason: RefusalReason) -> None:
    call.answers = [PLAN]
    done = call(selection=NotApplicable(reason=reason, sentence="No."))
    assert isinstance(done.application, Refused)
    assert done.application.reason is reason
    assert not done.author.requests


def test_without_a_model_the_recipe_says_why(call: FallbackTierCallable) -> None:
    call.with_model = False
    done = call()
    assert isinstance(done.application, Refused)
    assert done.application.reason is RefusalReason.OWN_CODE
    assert "--model" in done.application.sentence


def test_a_patch_that_changes_nothing_is_refused(call: FallbackTierCallable) -> None:
    call.files["deps.txt"] = "vulnerable 1.0.1\n"
    done = call(selection=BUMP)
    assert isinstance(done.application, Refused)
    assert done.application.reason is RefusalReason.NOTHING_CHANGED


# --- Retry as fresh context (ADR-0011) ------------------------------------------------------------


def test_a_retry_touches_neither_retriever_nor_recipe(call: FallbackTierCallable) -> None:
    call.retriever = UntouchableRetriever()  # type: ignore[assignment]
    call.answers = [PLAN]
    done = call(selection=BUMP, prior_attempts=[failed(1)])
    assert isinstance(done.application, Applied)
    assert done.application.tier is Tier.LLM
    assert done.application.prompt_shape is PromptShape.RETRY
    assert done.application.attempt == 2
    assert done.audit.kinds == [
        "AttemptStarted",
        "RagSkippedOnRetry",
        "ModelCalled",
        "ModelAnswered",
        "GroundingNotEvaluated",
        "PatchProposed",
    ]


def test_the_untouchable_retriever_does_fail(call: FallbackTierCallable) -> None:
    """The alarm works: on a first attempt the same retriever fails the test."""
    call.retriever = UntouchableRetriever()  # type: ignore[assignment]
    with pytest.raises(AssertionError, match="touched"):
        call()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_skip_is_recorded_with_its_facts(call: FallbackTierCallable, count: int) -> None:
    prior = [failed(n + 1, f"summary {n + 1}") for n in range(count)]
    prior[-1] = failed(count, "LAST", failure_kind=FailureKind.BUILD_FAILED)
    call.answers = [PLAN]
    done = call(prior_attempts=prior)
    skipped = [event for event in done.audit.payloads if event.kind == "RagSkippedOnRetry"]
    assert len(skipped) == 1
    assert skipped[0].attempt_count == len(prior)
    assert skipped[0].last_failure_kind is FailureKind.BUILD_FAILED
    assert skipped[0].summary_sha256 == hashlib.sha256(b"LAST").hexdigest()
    assert "LAST" in done.prompts[0]
    assert "summary 1" not in done.prompts[0]


def test_no_request_is_sent_when_the_skip_is_not_durable(call: FallbackTierCallable) -> None:
    call.audit = MemoryAudit(fail_on="RagSkippedOnRetry")
    call.answers = [PLAN]
    sent: list[Attempted] = []
    with pytest.raises(AuditStoreError):
        sent.append(call(prior_attempts=[failed(1)]))
    assert sent == []
    assert "ModelCalled" not in call.audit.kinds


@pytest.mark.parametrize(
    "kind", ["AttemptStarted", "RecipeEvaluated", "RetrievalQueried", "ModelCalled"]
)
def test_no_event_no_act(call: FallbackTierCallable, kind: str) -> None:
    """Whatever can't be recorded does not happen, and neither does what would have followed."""
    call.audit = MemoryAudit(fail_on=kind)
    call.answers = [PLAN]
    with pytest.raises(AuditStoreError):
        call()
    assert kind not in call.audit.kinds
    assert "ModelAnswered" not in call.audit.kinds


def test_the_fourth_retry_is_refused_before_anything_is_spent(call: FallbackTierCallable) -> None:
    call.answers = [PLAN]
    done = call(prior_attempts=[failed(n) for n in range(1, MAX_RETRIES + 2)])
    assert isinstance(done.application, Refused)
    assert done.application.reason is RefusalReason.RETRY_CAP_REACHED
    assert done.application.usage == ()
    assert done.audit.kinds == ["AttemptRefused"]
    assert not done.author.requests


def test_the_third_retry_is_allowed(call: FallbackTierCallable) -> None:
    call.answers = [PLAN]
    done = call(prior_attempts=[failed(n) for n in range(1, MAX_RETRIES + 1)])
    assert isinstance(done.application, Applied)
    assert done.application.attempt == MAX_RETRIES + 1


@pytest.mark.parametrize("numbers", [[2, 1], [1, 1], [1, 3, 2]])
def test_attempt_numbers_must_increase(call: FallbackTierCallable, numbers: list[int]) -> None:
    with pytest.raises(AttemptHistoryError, check=OfKind("not_increasing")):
        call(prior_attempts=[failed(n) for n in numbers])
    assert call.audit.kinds == []


def test_gaps_in_attempt_numbers_are_fine_and_the_last_is_used(call: FallbackTierCallable) -> None:
    call.answers = [PLAN]
    done = call(prior_attempts=[failed(2), failed(7)])
    assert done.application.attempt == 8


def test_a_summary_over_the_limit_is_a_typed_error(call: FallbackTierCallable) -> None:
    call.answers = [PLAN]
    call(prior_attempts=[failed(1, "é" * (MAX_FAILURE_SUMMARY_BYTES // 2))])
    with pytest.raises(
        AttemptHistoryError, check=OfKind("summary_too_large"), match=r"8,194 .* 8,192"
    ):
        call(prior_attempts=[failed(1, "é" * (MAX_FAILURE_SUMMARY_BYTES // 2 + 1))])


@pytest.mark.parametrize("kind", list(FailureKind))
def test_every_failure_kind_can_be_the_last(call: FallbackTierCallable, kind: FailureKind) -> None:
    call.answers = [PLAN]
    done = call(prior_attempts=[failed(1, failure_kind=kind)])
    skipped = next(e for e in done.audit.payloads if e.kind == "RagSkippedOnRetry")
    assert skipped.last_failure_kind is kind


def test_a_retry_without_a_model_is_refused(call: FallbackTierCallable) -> None:
    call.with_model = False
    done = call(prior_attempts=[failed(1)])
    assert isinstance(done.application, Refused)
    assert done.application.reason is RefusalReason.MODEL_NOT_CONFIGURED


# --- The call ceiling; every verdict on an answer acts --------------------------------------------

INVALID = {**PLAN, "edits": [{"path": "app.py", "old": "not in the file", "new": "x"}]}


@pytest.mark.parametrize(("cited", "calls"), [("E1", 1), ("E2", 2), (SIMILAR.example_id, 2)])
def test_examples_are_cited_by_their_number_in_the_prompt(
    call: FallbackTierCallable, cited: str, calls: int
) -> None:
    call.retriever = hit(SIMILAR)
    call.answers = [{**PLAN, "citations": [cited]}, PLAN]
    done = call()
    assert isinstance(done.application, Applied)
    assert len(done.prompts) == calls
    assert "E1:\n<<<UNTRUSTED" in done.prompts[0]


def test_an_invalid_plan_is_asked_again_with_what_was_wrong(call: FallbackTierCallable) -> None:
    call.answers = [INVALID, PLAN]
    done = call()
    assert isinstance(done.application, Applied)
    assert done.audit.kinds.count("PlanRejected") == 1
    assert len(done.prompts) == 2
    assert len(done.prompts[1]) > len(done.prompts[0])
    assert done.application.usage[0].calls == 2


@pytest.mark.parametrize("answer", [INVALID, "no json at all", '{"action": "format_disk"}'])
def test_an_invalid_plan_is_never_handed_on(call: FallbackTierCallable, answer: object) -> None:
    call.answers = [answer, INVALID, answer, PLAN] if answer != INVALID else [answer] * 3
    done = call()
    assert isinstance(done.application, Refused)
    assert done.application.reason is RefusalReason.PLAN_INVALID
    assert len(done.author.requests) == (MAX_AUTHOR_CALLS if answer != INVALID else 2)
    assert done.audit.kinds[-1] == "AttemptRefused"


def test_a_rejected_answer_that_comes_again_is_not_asked_for_a_third_time(
    call: FallbackTierCallable,
) -> None:
    reworded = {**INVALID, "rationale": "other words for the same plan"}
    call.answers = [INVALID, reworded, PLAN]
    done = call()
    assert isinstance(done.application, Refused)
    assert done.application.reason is RefusalReason.PLAN_INVALID
    assert "in 2 calls" in done.application.sentence
    assert len(done.author.requests) == 2


def test_a_failed_edit_set_is_never_handed_out_again(call: FallbackTierCallable) -> None:
    call.answers = [PLAN]
    first = call()
    assert isinstance(first.application, Applied)
    prior = [failed(1, edit_digest=first.application.edit_digest)]

    call.answers = [PLAN, OTHER_PLAN]
    second = call(prior_attempts=prior)
    assert isinstance(second.application, Applied)
    assert second.application.edit_digest != first.application.edit_digest
    assert second.audit.kinds.count("RepeatedPatchRejected") == 1

    call.answers = [PLAN] * MAX_AUTHOR_CALLS
    third = call(prior_attempts=prior)
    assert isinstance(third.application, Refused)
    assert third.application.reason is RefusalReason.REPEATED_PATCH
    assert len(third.author.requests) == 2


def test_a_reformatted_repeat_is_a_repeat(call: FallbackTierCallable) -> None:
    call.answers = [PLAN]
    first = call()
    assert isinstance(first.application, Applied)
    edit = PLAN["edits"][0]  # type: ignore[index]
    reformatted = {**PLAN, "edits": [{**edit, "new": edit["new"] + "  "}]}
    call.answers = [reformatted] * MAX_AUTHOR_CALLS
    again = call(prior_attempts=[failed(1, edit_digest=first.application.edit_digest)])
    assert isinstance(again.application, Refused)
    assert again.application.reason is RefusalReason.REPEATED_PATCH


def test_the_models_own_refusal_is_respected(call: FallbackTierCallable) -> None:
    call.answers = [{"action": "refuse", "reason": "the advisory names no code"}]
    done = call()
    assert isinstance(done.application, Refused)
    assert done.application.reason is RefusalReason.MODEL_REFUSED
    assert "names no code" in done.application.sentence
    assert len(done.author.requests) == 1


def test_no_answer_is_not_a_bad_answer(call: FallbackTierCallable) -> None:
    call.answers = []  # an exhausted script: the model can't be reached
    done = call()
    assert isinstance(done.application, Refused)
    assert done.application.reason is RefusalReason.MODEL_UNAVAILABLE
    assert done.audit.kinds[-2:] == ["ModelFailed", "AttemptRefused"]


def test_a_models_bump_takes_the_recipes_road(call: FallbackTierCallable) -> None:
    call.answers = [{"action": "dependency_bump", "package": "vulnerable", "version": "1.0.1"}]
    done = call()
    assert isinstance(done.application, Applied)
    assert done.application.tier is Tier.LLM
    assert "+vulnerable 1.0.1" in done.application.diff


def test_a_text_that_git_would_call_binary_is_invalid(call: FallbackTierCallable) -> None:
    edit = {"path": "app.py", "old": "import vulnerable", "new": "import vulnerable\0"}
    call.answers = [{**PLAN, "edits": [edit]}, PLAN]
    done = call()
    assert isinstance(done.application, Applied)
    assert done.audit.kinds.count("PlanRejected") == 1


# --- The edges ------------------------------------------------------------------------------------


def test_an_ecosystem_that_nobody_serves_is_bad_input(call: FallbackTierCallable) -> None:
    author = type(call().author)(())
    tier = call.build(author)
    advisory = call_advisory("crates.io")
    with pytest.raises(ConfigurationError, match=r"crates\.io"):
        tier.plugin_for(advisory)


def call_advisory(ecosystem: str):  # type: ignore[no-untyped-def]
    from fallback_tier.advisory import parse_advisory
    from tests.fixtures.fallback_tier_callable import ADVISORY

    return parse_advisory(ADVISORY.replace(b"PyPI", ecosystem.encode()), "test")


@pytest.mark.parametrize("seen", [1, 2, 3, 4])
def test_a_consumer_that_goes_away_leaves_evidence(tmp_path: Path, seen: int) -> None:
    from fallback_plugins.messages_api.scripted import ScriptedModel
    from fallback_tier.advisory import parse_advisory
    from tests.fakes.repository import context
    from tests.fixtures.fallback_tier_callable import ADVISORY, NO_RECIPE

    callable_ = FallbackTierCallable(tmp_path)
    tier = callable_.build(ScriptedModel((PLAN,)))
    stream = tier.stream(parse_advisory(ADVISORY, "test"), context(tmp_path, FILES), NO_RECIPE)
    for _ in range(seen):
        next(stream)
    stream.close()  # type: ignore[attr-defined]
    # A call that was announced, and then never sent, says so: nothing is booked for it.
    withheld = ["ModelFailed"] if callable_.audit.kinds[seen - 1] == "ModelCalled" else []
    assert callable_.audit.kinds[seen:] == [*withheld, "ConsumerLeft"]


def test_a_consumer_that_leaves_after_the_outcome_leaves_nothing_open(tmp_path: Path) -> None:
    from fallback_plugins.messages_api.scripted import ScriptedModel
    from fallback_tier.advisory import parse_advisory
    from tests.fakes.repository import context
    from tests.fixtures.fallback_tier_callable import ADVISORY

    callable_ = FallbackTierCallable(tmp_path)
    tier = callable_.build(ScriptedModel(()))
    stream = tier.stream(parse_advisory(ADVISORY, "test"), context(tmp_path, FILES), BUMP)
    kinds = [event.kind for event in [next(stream), next(stream), next(stream)]]
    assert kinds[-1] == "PatchProposed"
    stream.close()  # type: ignore[attr-defined]
    assert callable_.audit.kinds == kinds
