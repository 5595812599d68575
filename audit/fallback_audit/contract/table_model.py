"""The trace contract on model traffic: calls, support, budgets. A part of ``contract.table``."""

from fallback_audit.contract import rules_budget as budget
from fallback_audit.contract import rules_grounding as grounding
from fallback_audit.contract import rules_model as model
from fallback_audit.contract.rule import Added, Altered, Removed, Rule
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    BudgetRaised,
    BudgetReached,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixVerified,
    GateJudged,
    GroundingJudged,
    GroundingNotEvaluated,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    MoreCodeShown,
    PatchProposed,
    PlanRejected,
)

MODEL_RULES: tuple[Rule, ...] = (
    # --- Model calls ---
    Rule(
        "calls-are-answered",
        "Each model call has exactly one answer or failure, unless it was interrupted.",
        "DESIGN §6",
        model.calls_are_answered,
        breaches=(
            Removed(ModelAnswered),
            Removed(ModelFailed),
            Added(ModelAnswered),
        ),
        sees=None,
        local=True,
    ),
    Rule(
        "rejections-act",
        "A rejected answer is asked for again, refused, or replaced by a flagged earlier one.",
        "DESIGN §6",
        model.rejections_act,
        breaches=(
            Removed(AttemptRefused),
            Removed(LowConfidenceFlagged),
        ),
        sees=frozenset(
            {
                PatchProposed,
                GateJudged,
                AttemptFailed,
                FixVerified,
                FixPatched,
                FixRefused,
                FixEscalated,
            }
        ),
        local=True,
    ),
    Rule(
        "reasks-have-reasons",
        "The author is asked again after a rejected or doubted answer, a failed call, or for want of code.",
        "DESIGN §2",
        model.reasks_have_reasons,
        breaches=(
            Removed(PlanRejected),
            Removed(GroundingJudged),
            Removed(MoreCodeShown),
        ),
        sees=frozenset({ModelCalled, AnswerReused}),
        local=True,
    ),
    Rule(
        "more-code-was-asked-for",
        "More code is shown once an attempt, on the author's last answer; a patch needs another one.",
        "ADR-0044",
        model.more_code_was_asked_for,
        breaches=(
            Added(MoreCodeShown),
            Altered(MoreCodeShown, "call"),
        ),
        sees=frozenset({MoreCodeShown, PatchProposed}),
        local=True,
    ),
    Rule(
        "author-calls-bounded",
        "An attempt has at most three author calls; all of a self-RAG search count as one.",
        "ADR-0014",
        model.author_calls_bounded,
        breaches=(Added(ModelCalled),),
        sees=frozenset({ModelCalled, AnswerReused}),
        local=True,
    ),
    Rule(
        "answers-reused-were-paid",
        "A reused answer was paid for before this attempt was interrupted, and is used once.",
        "DESIGN §6",
        model.answers_reused_were_paid,
        breaches=(
            Added(AnswerReused),
            Altered(AnswerReused, "answer_sha256"),
        ),
        sees=frozenset({AnswerReused}),
    ),
    Rule(
        "no-finished-call-paid-twice",
        "An attempt that is taken up again asks for nothing that it has an answer to.",
        "DESIGN §6",
        model.no_finished_call_paid_twice,
        breaches=(Added(ModelCalled),),
        sees=frozenset({ModelCalled, AttemptStarted}),
    ),
    # --- Support ---
    Rule(
        "grounding-is-recorded",
        "A model's patch has the verdict on its answer, or the reason why there is none.",
        "DESIGN §6",
        grounding.grounding_is_recorded,
        breaches=(
            Removed(GroundingJudged),
            Removed(GroundingNotEvaluated),
            Altered(PatchProposed, "grounded"),
        ),
        sees=frozenset({PatchProposed, GroundingJudged, GroundingNotEvaluated}),
        local=True,
    ),
    Rule(
        "grounding-acts",
        "An unsupported plan is written anew with the strict instruction, flagged, or refused.",
        "DESIGN §6",
        grounding.grounding_acts,
        breaches=(
            Removed(LowConfidenceFlagged),
            Altered(GroundingJudged, "supported"),
        ),
        sees=frozenset(
            {
                PatchProposed,
                GateJudged,
                AttemptFailed,
                ModelCalled,
                AnswerReused,
                FixVerified,
                FixPatched,
                FixRefused,
                FixEscalated,
            }
        ),
        local=True,
    ),
    Rule(
        "low-confidence-has-grounds",
        "A patch is flagged exactly where unsupported plans are on record, and counts them.",
        "DESIGN §6",
        grounding.low_confidence_has_grounds,
        breaches=(
            Removed(GroundingJudged),
            Added(LowConfidenceFlagged),
            Altered(PatchProposed, "low_confidence"),
            Altered(LowConfidenceFlagged, "attempts"),
        ),
        sees=frozenset({LowConfidenceFlagged, ModelCalled, PatchProposed}),
        local=True,
    ),
    Rule(
        "strict-only-after-doubt",
        "The strict instruction stands only in the one regeneration of an unsupported plan.",
        "DESIGN §6",
        grounding.strict_only_after_doubt,
        breaches=(
            Removed(GroundingJudged),
            Altered(ModelCalled, "strict"),
            Altered(AnswerReused, "strict"),
        ),
        sees=frozenset({ModelCalled, AnswerReused}),
        local=True,
    ),
    # --- Budgets ---
    Rule(
        "budget-acts",
        "After BudgetReached nothing is sent or proposed, and the attempt is refused for it.",
        "DESIGN §6",
        budget.budget_acts,
        breaches=(
            Added(ModelCalled),
            Added(PatchProposed),
            Altered(AttemptRefused, "reason"),
        ),
        sees=frozenset({ModelCalled, PatchProposed, BudgetReached, AttemptRefused}),
        local=True,
    ),
    Rule(
        "budget-stops-are-real",
        "A refusal or escalation for a budget has its BudgetReached, and no other reason.",
        "DESIGN §6",
        budget.budget_stops_are_real,
        breaches=(
            Removed(BudgetReached),
            Altered(FixEscalated, "reason"),
        ),
        sees=frozenset({AttemptRefused, FixEscalated}),
        local=True,
    ),
    Rule(
        "budget-raises-are-signed",
        "BudgetRaised has a name and a reason, and stands where a budget stopped the fix.",
        "DESIGN §7",
        budget.budget_raises_are_signed,
        breaches=(
            Added(BudgetRaised),
            Altered(BudgetRaised, "by"),
            Altered(BudgetRaised, "reason"),
        ),
        sees=frozenset({BudgetRaised}),
    ),
    Rule(
        "budget-raises-reopen",
        "After BudgetRaised the stopped attempt is taken up again, or the fix ends.",
        "DESIGN §6",
        budget.budget_raises_reopen,
        breaches=(
            Removed(AttemptStarted),
            Added(ModelCalled),
        ),
        sees=None,
        local=True,
    ),
)
