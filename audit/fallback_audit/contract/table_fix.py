"""The trace contract on gates, ends and answers of people. A part of ``contract.table``."""

from fallback_audit.contract import rules_ends as ends
from fallback_audit.contract import rules_fix as fix
from fallback_audit.contract import rules_human as human
from fallback_audit.contract.rule import Added, Altered, Removed, Rule
from fallback_audit.contract.table_again import GATES_AGAIN_MAKE_NOTHING
from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixResumed,
    FixStarted,
    FixVerified,
    GateJudged,
    PatchDelivered,
    PatchProposed,
    RecipeEvaluated,
    ReviewDecided,
    TransitionReopened,
)

FIX_AND_HUMAN_RULES: tuple[Rule, ...] = (
    # --- Gates ---
    Rule(
        "proposals-are-judged",
        "A proposed patch is judged by a gate, or a person is asked.",
        "DESIGN §7",
        fix.proposals_are_judged,
        breaches=(Removed(GateJudged),),
        sees=frozenset(
            {FixStarted, AttemptStarted, AttemptFailed, FixVerified, FixPatched, FixRefused}
        ),
        local=True,
    ),
    Rule(
        "gates-judge-proposals",
        "A gate judges a proposed patch once, with a failure kind exactly where it failed.",
        "DESIGN §7",
        fix.gates_judge_proposals,
        breaches=(
            Added(GateJudged),
            Altered(GateJudged, "failure_kind"),
        ),
        sees=frozenset({GateJudged}),
        local=True,
    ),
    Rule(
        "failed-gates-act",
        "A failed gate makes the attempt, or the recipe's candidate, fail.",
        "DESIGN §7",
        fix.failed_gates_act,
        breaches=(Removed(AttemptFailed),),
        sees=frozenset(
            {GateJudged, AttemptStarted, FixVerified, FixPatched, FixRefused, FixEscalated}
        ),
        local=True,
    ),
    Rule(
        "failures-have-grounds",
        "AttemptFailed names the gates that failed, or comes from a refusal of that kind.",
        "DESIGN §7",
        fix.failures_have_grounds,
        breaches=(
            Removed(GateJudged),
            Altered(AttemptFailed, "failing_gates"),
            Altered(AttemptFailed, "failure_kind"),
        ),
        sees=frozenset({AttemptFailed, GateJudged}),
        local=True,
    ),
    # --- The fix ---
    Rule(
        "failed-attempts-act",
        "A failed attempt leads to another attempt, or ends the fix without a patch.",
        "DESIGN §7",
        fix.failed_attempts_act,
        breaches=(
            Removed(AttemptStarted),
            Added(GateJudged),
        ),
        sees=None,
    ),
    Rule(
        "refusals-act",
        "A refused attempt fails where a fresh context may do better, else the fix ends.",
        "DESIGN §2",
        fix.refusals_act,
        breaches=(
            Removed(AttemptFailed),
            Altered(AttemptRefused, "reason"),
        ),
        sees=frozenset(
            {
                FixStarted,
                AttemptStarted,
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
        "retries-follow-failures",
        "A retry follows a failed attempt, or takes up an interrupted one.",
        "DESIGN §7",
        fix.retries_follow_failures,
        breaches=(Removed(AttemptFailed),),
        sees=frozenset({FixStarted, AttemptStarted}),
        local=True,
    ),
    Rule(
        "same-failure-stops",
        "After three identical failures no further attempt starts.",
        "DESIGN §7",
        fix.same_failure_stops,
        breaches=(Added(AttemptStarted),),
        sees=frozenset({AttemptStarted}),
    ),
    Rule(
        "same-failure-is-real",
        "An escalation for a repeated failure has three identical ones on record.",
        "DESIGN §7",
        fix.same_failure_is_real,
        breaches=(
            Altered(FixEscalated, "reason"),
            Altered(AttemptFailed, "failure_signature"),
        ),
        sees=frozenset({FixEscalated, AttemptFailed}),
    ),
    Rule(
        "fix-starts-first",
        "FixStarted stands once and first, and only a started fix ends.",
        "DESIGN §8",
        fix.fix_starts_first,
        breaches=(
            Removed(FixStarted),
            Added(FixStarted),
        ),
        sees=frozenset({FixStarted, FixVerified, FixPatched, FixRefused, FixEscalated}),
    ),
    Rule(
        "one-terminal-event",
        "A finished fix has exactly one of verified, patched, refused, escalated; only afterwords follow.",
        "DESIGN §8",
        fix.one_terminal_event,
        breaches=(
            Added(FixVerified),
            Added(FixPatched),
            Added(FixEscalated),
            Added(AttemptStarted),
        ),
        sees=None,
    ),
    Rule(
        "verified-is-proved",
        "FixVerified is about the proposed patch; every gate that ran passed, one that sees the flaw gone.",
        "DESIGN §7",
        ends.verified_is_proved,
        breaches=(
            Removed(GateJudged),
            Altered(FixVerified, "patch_sha256"),
            Altered(FixVerified, "gates_passed"),
            Altered(FixVerified, "proof_level"),
            Altered(FixStarted, "affected_code"),
        ),
        sees=frozenset({FixStarted, FixVerified, AttemptStarted, GateJudged}),
    ),
    Rule(
        "patched-is-tested",
        "FixPatched is about the proposed patch; every gate that ran passed, tests did, none saw more.",
        "ADR-0038",
        ends.patched_is_tested,
        breaches=(
            Removed(GateJudged),
            Altered(FixPatched, "patch_sha256"),
            Altered(FixPatched, "gates_passed"),
            Altered(FixPatched, "proof_level"),
        ),
        sees=frozenset({FixStarted, FixPatched, AttemptStarted, GateJudged}),
    ),
    Rule(
        "own-code-takes-no-recipe",
        "Where own code is affected no patch is a recipe's; where it is unclear whose, there is none.",
        "ADR-0037",
        ends.own_code_takes_no_recipe,
        breaches=(
            Altered(FixStarted, "affected_code"),
            Altered(RecipeEvaluated, "selected"),
            Altered(PatchProposed, "tier"),
        ),
        sees=frozenset({FixStarted, RecipeEvaluated, PatchProposed}),
    ),
    Rule(
        "contradictions-are-real",
        "A question about tests that contradict a patch follows an attempt that failed by tests.",
        "ADR-0038",
        ends.contradictions_are_real,
        breaches=(
            Removed(AttemptFailed),
            Altered(FixEscalated, "reason"),
            Altered(AttemptFailed, "failing_gates"),
        ),
        sees=frozenset({FixEscalated, AttemptFailed}),
    ),
    Rule(
        "verified-ran-its-gates",
        "A patch that ends a fix was judged by each gate that the fix set out with, in order, by no other.",
        "DESIGN §7",
        ends.verified_ran_its_gates,
        breaches=(
            Removed(GateJudged),
            Altered(FixStarted, "gates"),
        ),
        sees=frozenset({FixStarted, AttemptStarted, GateJudged, FixVerified, FixPatched}),
    ),
    # --- Interruptions and people ---
    Rule(
        "resumes-are-of-open-fixes",
        "FixResumed takes up a started fix that has not ended, after the event that it names.",
        "DESIGN §7",
        human.resumes_are_of_open_fixes,
        breaches=(
            Added(FixResumed),
            Altered(FixResumed, "after"),
        ),
        sees=frozenset({FixResumed}),
    ),
    Rule(
        "reviews-are-signed",
        "A decision or reopening has a name and a reason, and answers one escalation, once.",
        "DESIGN §7",
        human.reviews_are_signed,
        breaches=(
            Removed(FixEscalated),
            Altered(ReviewDecided, "by"),
            Altered(ReviewDecided, "reason"),
            Altered(TransitionReopened, "by"),
            Altered(TransitionReopened, "reason"),
        ),
        sees=frozenset({ReviewDecided, TransitionReopened}),
    ),
    Rule(
        "approvals-name-a-patch",
        "An approval names a patch that this gate transition proposed; a rejection names none.",
        "DESIGN §7",
        human.approvals_name_a_patch,
        breaches=(
            Altered(ReviewDecided, "patch_sha256"),
            Altered(ReviewDecided, "verdict"),
        ),
        sees=frozenset({ReviewDecided}),
    ),
    Rule(
        "reopens-carry-a-failure",
        "A gate transition is reopened for attempts only where a failed one is there to start with.",
        "ADR-0011",
        human.reopens_carry_a_failure,
        breaches=(
            Removed(AttemptFailed),
            Added(TransitionReopened),
        ),
        sees=frozenset({TransitionReopened}),
    ),
    GATES_AGAIN_MAKE_NOTHING,
    Rule(
        "deliveries-are-earned",
        "A patch is delivered only after it was verified, or patched with tests, or approved by a person.",
        "DESIGN §7",
        human.deliveries_are_earned,
        breaches=(
            Removed(ReviewDecided),
            Altered(PatchDelivered, "patch_sha256"),
        ),
        sees=frozenset({PatchDelivered}),
    ),
)
