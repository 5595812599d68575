"""The trace contract of model traffic: the part of ``fallback_audit.contract.table`` about the LLM leaf."""

from fallback_audit.contract import rules_budget as budget
from fallback_audit.contract import rules_grounding as grounding
from fallback_audit.contract import rules_model as model
from fallback_audit.contract import rules_selfrag as selfrag
from fallback_audit.contract.rule import Rule

MODEL_RULES: tuple[Rule, ...] = (
    # --- Model calls ---
    Rule(
        "calls-are-answered",
        "Each model call has exactly one answer or failure, unless it was interrupted.",
        "DESIGN §6",
        model.calls_are_answered,
    ),
    Rule(
        "rejections-act",
        "A rejected answer is asked for again, refused, or replaced by a flagged earlier one.",
        "DESIGN §6",
        model.rejections_act,
    ),
    Rule(
        "reasks-have-reasons",
        "The author is asked again only after a rejected or doubted answer or a failed call.",
        "DESIGN §2",
        model.reasks_have_reasons,
    ),
    Rule(
        "author-calls-bounded",
        "An attempt has at most three author calls; all of a self-RAG search count as one.",
        "ADR-0014",
        model.author_calls_bounded,
    ),
    Rule(
        "answers-reused-were-paid",
        "A reused answer was paid for before this attempt was interrupted, and is used once.",
        "DESIGN §6",
        model.answers_reused_were_paid,
    ),
    Rule(
        "no-finished-call-paid-twice",
        "An attempt that is taken up again asks for nothing that it has an answer to.",
        "DESIGN §6",
        model.no_finished_call_paid_twice,
    ),
    # --- Support ---
    Rule(
        "grounding-is-recorded",
        "A model's patch has the verdict on its answer, or the reason why there is none.",
        "DESIGN §6",
        grounding.grounding_is_recorded,
    ),
    Rule(
        "grounding-acts",
        "An unsupported plan is written anew with the strict instruction, flagged, or refused.",
        "DESIGN §6",
        grounding.grounding_acts,
    ),
    Rule(
        "low-confidence-has-grounds",
        "A patch is flagged exactly where unsupported plans are on record, and counts them.",
        "DESIGN §6",
        grounding.low_confidence_has_grounds,
    ),
    Rule(
        "strict-only-after-doubt",
        "The strict instruction stands only in the one regeneration of an unsupported plan.",
        "DESIGN §6",
        grounding.strict_only_after_doubt,
    ),
    # --- Budgets ---
    Rule(
        "budget-acts",
        "After BudgetReached nothing is sent or proposed, and the attempt is refused for it.",
        "DESIGN §6",
        budget.budget_acts,
    ),
    Rule(
        "budget-stops-are-real",
        "A refusal or escalation for a budget has its BudgetReached, and no other reason.",
        "DESIGN §6",
        budget.budget_stops_are_real,
    ),
    Rule(
        "budget-raises-are-signed",
        "BudgetRaised has a name and a reason, and stands where a budget stopped the fix.",
        "DESIGN §7",
        budget.budget_raises_are_signed,
    ),
    Rule(
        "budget-raises-reopen",
        "After BudgetRaised the stopped attempt is taken up again, or the fix ends.",
        "DESIGN §6",
        budget.budget_raises_reopen,
    ),
    # --- Self-RAG ---
    Rule(
        "retrieve-forced-on-retry",
        "On a retry each of self-RAG's decisions on retrieval is a forced no.",
        "ADR-0011",
        selfrag.retrieve_forced_on_retry,
    ),
    Rule(
        "retrieve-acts",
        "A candidate follows one decision on retrieval, and has no example where that is no.",
        "DESIGN §6",
        selfrag.retrieve_acts,
    ),
    Rule(
        "retrieve-yes-fetches",
        "Examples are fetched for a segment exactly where a path decided yes.",
        "DESIGN §6",
        selfrag.retrieve_yes_fetches,
    ),
    Rule(
        "candidates-come-first",
        "Self-RAG's candidates make the first draft of an attempt, and nothing after it.",
        "DESIGN §6",
        selfrag.candidates_come_first,
    ),
    Rule(
        "segments-are-scored",
        "Each answered candidate is scored once before the search goes on; a kept one has a score.",
        "DESIGN §6",
        selfrag.segments_are_scored,
    ),
)
