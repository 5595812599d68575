"""The trace contract: what may stand in a trail, as a table of small rules.

Evidence without action is a violation that a command finds: each recorded verdict must be followed
by what it demands. A fix that has not ended is *open*, never wrong for what may still come.
"""

from collections.abc import Iterator, Sequence

from fallback_audit.contract import rules_attempt as attempt
from fallback_audit.contract import rules_fix as fix
from fallback_audit.contract import rules_human as human
from fallback_audit.contract.links import Link, transitions_are_opened
from fallback_audit.contract.rule import FixRule, Rule
from fallback_audit.contract.table_model import MODEL_RULES
from fallback_audit.contract.trail import Trail
from fallback_audit.frozen import Frozen


class Violation(Frozen):
    """One rule broken at one event."""

    rule: str
    seq: int
    fix_id: str
    gate_transition_id: str
    detail: str


#: Every rule has a mutant in the tests: a valid trail without the action, caught by that rule.
RULES: tuple[Rule, ...] = (
    # --- The retry, as fresh context ---
    Rule(
        "rag-skip-recorded",
        "A retry that asks a model has exactly one RagSkippedOnRetry, before the first request.",
        "ADR-0011",
        attempt.rag_skip_recorded,
    ),
    Rule(
        "retrieval-untouched-on-retry",
        "A retry has no retrieval, no replay and no recipe.",
        "ADR-0011",
        attempt.retrieval_untouched_on_retry,
    ),
    Rule(
        "skip-counts-priors",
        "RagSkippedOnRetry counts the prior attempts that the attempt started with.",
        "ADR-0011",
        attempt.skip_counts_priors,
    ),
    Rule(
        "retry-carries-last-failure",
        "In place of the examples stands the summary of the last failed attempt.",
        "ADR-0011",
        attempt.retry_carries_last_failure,
    ),
    Rule(
        "history-grows",
        "Each attempt has more prior attempts than the one before it; a linked transition has one.",
        "DESIGN §2",
        attempt.history_grows,
    ),
    Rule(
        "attempts-in-order",
        "Attempt numbers increase; only an interrupted attempt is taken up again.",
        "DESIGN §2",
        attempt.attempts_in_order,
    ),
    Rule(
        "retry-cap-holds",
        "A gate transition has one first attempt and at most three retries.",
        "ADR-0014",
        attempt.retry_cap_holds,
    ),
    Rule(
        "edits-are-new",
        "No normalised edit set is proposed twice in a gate transition.",
        "DESIGN §2",
        attempt.edits_are_new,
    ),
    # --- The chain of tiers ---
    Rule(
        "chain-ends-where-it-answers",
        "After a selected recipe or a replayed example no later tier is asked.",
        "ADR-0005",
        attempt.chain_ends_where_it_answers,
    ),
    Rule(
        "patches-have-a-source",
        "A patch comes from the tier that it names.",
        "ADR-0005",
        attempt.patches_have_a_source,
    ),
    Rule(
        "examples-come-from-retrieval",
        "A prompt has only examples that this attempt's retrieval returned, at most four.",
        "DESIGN §2",
        attempt.examples_come_from_retrieval,
    ),
    Rule(
        "retrieval-means-what-it-says",
        "A miss returned nothing, and only what this attempt's retrieval returned is replayed.",
        "ADR-0019",
        attempt.retrieval_means_what_it_says,
    ),
    Rule(
        "retrieval-acts",
        "Examples that retrieval returned are replayed, or stand in a prompt, unless self-RAG decides no.",
        "DESIGN §2",
        attempt.retrieval_acts,
    ),
    Rule(
        "prompt-shapes-agree",
        "The prompt shape on record is that of the attempt.",
        "DESIGN §8",
        attempt.prompt_shapes_agree,
    ),
    # --- Attempts ---
    Rule(
        "events-stand-in-their-attempt",
        "An event of an attempt stands between its AttemptStarted and the next.",
        "DESIGN §8",
        attempt.events_stand_in_their_attempt,
    ),
    Rule(
        "attempts-have-one-outcome",
        "An attempt ends in exactly one of PatchProposed, AttemptRefused, ConsumerLeft.",
        "DESIGN §2",
        attempt.attempts_have_one_outcome,
    ),
    # --- Gates ---
    Rule(
        "proposals-are-judged",
        "A proposed patch is judged by a gate, or a person is asked.",
        "DESIGN §7",
        fix.proposals_are_judged,
    ),
    Rule(
        "gates-judge-proposals",
        "A gate judges a proposed patch once, with a failure kind exactly where it failed.",
        "DESIGN §7",
        fix.gates_judge_proposals,
    ),
    Rule(
        "failed-gates-act",
        "A failed gate makes the attempt fail.",
        "DESIGN §7",
        fix.failed_gates_act,
    ),
    Rule(
        "failures-have-grounds",
        "AttemptFailed names the gates that failed, or comes from a refusal of that kind.",
        "DESIGN §7",
        fix.failures_have_grounds,
    ),
    # --- The fix ---
    Rule(
        "failed-attempts-act",
        "A failed attempt leads to another attempt, or ends the fix without a patch.",
        "DESIGN §7",
        fix.failed_attempts_act,
    ),
    Rule(
        "refusals-act",
        "A refused attempt fails where a fresh context may do better, else the fix ends.",
        "DESIGN §2",
        fix.refusals_act,
    ),
    Rule(
        "retries-follow-failures",
        "A retry follows a failed attempt, or takes up an interrupted one.",
        "DESIGN §7",
        fix.retries_follow_failures,
    ),
    Rule(
        "same-failure-stops",
        "After three identical failures no further attempt starts.",
        "DESIGN §7",
        fix.same_failure_stops,
    ),
    Rule(
        "same-failure-is-real",
        "An escalation for a repeated failure has three identical ones on record.",
        "DESIGN §7",
        fix.same_failure_is_real,
    ),
    Rule(
        "fix-starts-first",
        "FixStarted stands once and first, and only a started fix ends.",
        "DESIGN §8",
        fix.fix_starts_first,
    ),
    Rule(
        "one-terminal-event",
        "A finished fix has exactly one of verified, refused, escalated; only afterwords follow.",
        "DESIGN §8",
        fix.one_terminal_event,
    ),
    Rule(
        "verified-is-proved",
        "FixVerified is about the proposed patch, which every gate that ran has passed.",
        "DESIGN §7",
        fix.verified_is_proved,
    ),
    Rule(
        "verified-ran-its-gates",
        "A verified patch was judged by each gate that the fix set out with, in order, and no other.",
        "DESIGN §7",
        fix.verified_ran_its_gates,
    ),
    # --- Interruptions and people ---
    Rule(
        "resumes-are-of-open-fixes",
        "FixResumed takes up a started fix that has not ended, after the event that it names.",
        "DESIGN §7",
        human.resumes_are_of_open_fixes,
    ),
    Rule(
        "reviews-are-signed",
        "A decision or reopening has a name and a reason, and answers one escalation, once.",
        "DESIGN §7",
        human.reviews_are_signed,
    ),
    Rule(
        "approvals-name-a-patch",
        "An approval names a patch that this gate transition proposed; a rejection names none.",
        "DESIGN §7",
        human.approvals_name_a_patch,
    ),
    Rule(
        "reopens-carry-a-failure",
        "A gate transition is reopened only where a failed attempt is there to start with.",
        "ADR-0011",
        human.reopens_carry_a_failure,
    ),
    Rule(
        "deliveries-are-earned",
        "A patch is delivered only after it was verified, or approved by a person.",
        "DESIGN §7",
        human.deliveries_are_earned,
    ),
    *MODEL_RULES,
)


#: Rules over all gate transitions of a fix.
FIX_RULES: tuple[FixRule, ...] = (
    FixRule(
        "transitions-are-opened",
        "A further gate transition is opened by a person, once, and starts with the last failure.",
        "ADR-0014",
        transitions_are_opened,
    ),
)


def link_violations(fix_id: str, links: Sequence[Link]) -> Iterator[Violation]:
    """Everything that breaks a rule between the gate transitions of one fix."""
    for rule in FIX_RULES:
        for link, (seq, detail) in rule.check(links):
            yield Violation(
                rule=rule.id,
                seq=seq,
                fix_id=fix_id,
                gate_transition_id=link.transition,
                detail=detail,
            )


def violations(trail: Trail) -> Iterator[Violation]:
    """Everything in this trail that breaks a rule, rule by rule."""
    for rule in RULES:
        for seq, detail in rule.check(trail):
            yield Violation(
                rule=rule.id,
                seq=seq,
                fix_id=trail.scope.fix_id,
                gate_transition_id=trail.scope.gate_transition_id,
                detail=detail,
            )
