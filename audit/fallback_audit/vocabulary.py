"""Closed vocabularies of events, defined in this lowest layer so that it imports no layer above."""

from collections.abc import Iterable
from enum import StrEnum


class Tier(StrEnum):
    """Which tier of the chain made a patch."""

    RECIPE = "recipe"
    RAG = "rag"
    LLM = "llm"


class PromptShape(StrEnum):
    """The two first-class prompt shapes; ``none`` where no model was asked."""

    INITIAL = "initial"
    RETRY = "retry"
    NONE = "none"

    @classmethod
    def asked(cls, *, retry: bool) -> "PromptShape":
        """Return an attempt's shape: a retry is a fresh context (ADR-0011)."""
        return cls.RETRY if retry else cls.INITIAL

    @property
    def label(self) -> str:
        """Return the text that every reader (log, show, export, portal) prints."""
        return {
            PromptShape.INITIAL: "initial LLM run",
            PromptShape.RETRY: "fresh LLM run, no RAG",
            PromptShape.NONE: "no model call",
        }[self]


class AffectedCode(StrEnum):
    """Whose code an advisory is about in this repository: decided once, before anything is tried."""

    #: The repository is the source of an affected package: a fix edits its own code.
    OWN = "own"
    #: An affected package is other people's: a fix raises its version.
    DEPENDENCY = "dependency"
    #: The repository has the package's name, but other facts about the two contradict that.
    UNCLEAR = "unclear"


class DecidedBy(StrEnum):
    """What told whose code is affected."""

    #: The names in the repository's own manifests, parsed.
    MANIFEST = "manifest"
    #: The names, and the registry's link to the package's source, compared with the repository's own.
    REGISTRY = "registry"
    #: A person (`--own-code`, `--dependency`).
    PERSON = "person"


class CallType(StrEnum):
    """What a model call was for; usage and cost are kept per call type."""

    AUTHOR = "author"
    JUDGE = "judge"
    CRITIQUE = "critique"
    REWRITE = "rewrite"


class ModelFailureKind(StrEnum):
    """Why a model call gave no answer: closed, so that a caller can act on it without reading prose."""

    OVERLOADED = "overloaded"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    #: The connection broke, or the server ended the stream, in the middle of an answer.
    BROKEN_STREAM = "broken_stream"
    CONTEXT_TOO_LONG = "context_too_long"
    UNAUTHORISED = "unauthorised"
    UNKNOWN_MODEL = "unknown_model"
    #: The server did not accept the request for another reason.
    REJECTED = "rejected"
    SERVER_ERROR = "server_error"
    #: A response with status 200 that is not a Messages API answer.
    NOT_AN_ANSWER = "not_an_answer"
    #: It was never sent: the budget had been used up meanwhile.
    WITHHELD = "withheld"

    @property
    def may_be_billed(self) -> bool:
        """Return whether it may be billed, with unknown usage: then the pre-charge is booked."""
        kind = ModelFailureKind
        return self in {kind.TIMEOUT, kind.BROKEN_STREAM, kind.NOT_AN_ANSWER}


class Retrieve(StrEnum):
    """Self-RAG's decision before a segment (Asai et al. 2023): fetch, do without, or go on with."""

    YES = "yes"
    NO = "no"
    CONTINUE = "continue"


class Support(StrEnum):
    """Self-RAG's ISSUP: how far the context carries a segment."""

    FULL = "full"
    PARTIAL = "partial"
    NONE = "none"


class BudgetLimit(StrEnum):
    """Which cap of a budget was reached."""

    USD_PER_FIX = "usd_per_fix"
    USD_PER_DAY = "usd_per_day"
    TOKENS_PER_FIX = "tokens_per_fix"
    TOKENS_PER_DAY = "tokens_per_day"


class Provenance(StrEnum):
    """Where a model's answer came from. A replay or a script is never called a live model."""

    LIVE = "live"
    REPLAYED = "replayed"
    SCRIPTED = "scripted"


class RetrievalVerdict(StrEnum):
    """Outcome of asking the solved-example memory."""

    HIT = "hit"
    DEGRADED = "degraded"
    MISS = "miss"


class GateStatus(StrEnum):
    """A gate's verdict. ``skipped`` always carries its reason and never counts as a pass. ``undecided``,
    since schema version 12: it can't be held against the base commit, a person's question (ADR-0077)."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNDECIDED = "undecided"


class FailureKind(StrEnum):
    """Why an attempt failed: closed, so that a policy can be written over it."""

    PATCH_DOES_NOT_APPLY = "patch_does_not_apply"
    UNDECLARED_CHANGE = "undeclared_change"
    POLICY_VIOLATION = "policy_violation"
    RESOLUTION_FAILED = "resolution_failed"
    STILL_VULNERABLE = "still_vulnerable"
    BUILD_FAILED = "build_failed"
    TESTS_FAILED = "tests_failed"
    TESTS_MISSING = "tests_missing"
    PROOF_FAILED = "proof_failed"
    #: The user's own gate (``[tool.fallback-tier]``) failed.
    CUSTOM_GATE_FAILED = "custom_gate_failed"
    #: New process, network or dynamic-code calls that the plan did not declare.
    UNDECLARED_CAPABILITY = "undeclared_capability"
    GATE_TIMEOUT = "gate_timeout"
    PLAN_INVALID = "plan_invalid"
    REPEATED_PATCH = "repeated_patch"


class RefusalReason(StrEnum):
    """Why the tier handed out no patch. Each refusal also carries one sentence to act on."""

    NOT_AFFECTED = "not_affected"
    NO_FIXED_VERSION = "no_fixed_version"
    ECOSYSTEM_UNSUPPORTED = "ecosystem_unsupported"
    MANIFEST_MISSING = "manifest_missing"
    BLOCKED_BY_CONSTRAINT = "blocked_by_constraint"
    OWN_CODE = "own_code"
    WHOSE_CODE_UNCLEAR = "whose_code_unclear"
    RECIPE_UNSUPPORTED = "recipe_unsupported"
    RESOLVER_FAILED = "resolver_failed"
    TOOL_MISSING = "tool_missing"
    MODEL_NOT_CONFIGURED = "model_not_configured"
    MODEL_UNAVAILABLE = "model_unavailable"
    MODEL_REFUSED = "model_refused"
    CONTEXT_TOO_LONG = "context_too_long"
    BUDGET_EXHAUSTED = "budget_exhausted"
    PLAN_INVALID = "plan_invalid"
    REPEATED_PATCH = "repeated_patch"
    NOTHING_CHANGED = "nothing_changed"
    RETRY_CAP_REACHED = "retry_cap_reached"
    #: Gates refused one patch for several packages: they are proved in smaller parts.
    FAILS_TOGETHER = "fails_together"
    #: It is unknown whether the project is affected: a source that may have the package was not read, or a
    #: project was not resolved (ADR-0100). Since schema version 14.
    UNKNOWN = "unknown"
    #: A safe release exists, but an age rule (the project's, or ``--release-age``) does not admit it yet,
    #: or its date is unknown (ADR-0110). Since schema version 15.
    RELEASE_TOO_NEW = "release_too_new"
    #: The affected project is outside the folders that a person limited the fix to (``--path``, ADR-0143).
    #: Since schema version 18.
    OUTSIDE_PATHS = "outside_paths"

    @property
    def ends_chain(self) -> bool:
        """Return whether this refusal of a recipe is final: no example and no model could do better.

        A missing client is final: without it the gates could prove no other patch. *Unknown* is final: an
        example or a model would only guess, and no gate could check the patch. An age rule and the folders
        of a fix are final: a model may not overrule them.
        """
        return self in {
            RefusalReason.NOT_AFFECTED,
            RefusalReason.NO_FIXED_VERSION,
            RefusalReason.ECOSYSTEM_UNSUPPORTED,
            RefusalReason.MANIFEST_MISSING,
            RefusalReason.TOOL_MISSING,
            RefusalReason.WHOSE_CODE_UNCLEAR,
            RefusalReason.UNKNOWN,
            RefusalReason.RELEASE_TOO_NEW,
            RefusalReason.OUTSIDE_PATHS,
        }

    @property
    def is_attempt_failure(self) -> bool:
        """Return whether a fresh context may do better: the attempt failed, the fix has not."""
        return self in {RefusalReason.PLAN_INVALID, RefusalReason.REPEATED_PATCH}


class BlockerKind(StrEnum):
    """Causes that keep a step of the ladder, or a client, from working (ADR-0105)."""

    #: A package, a declaration or an override requires another version.
    CONFLICT = "conflict"
    #: The registry has no such package, or no release that is admitted.
    NOT_PUBLISHED = "not_published"
    #: The registry answered with an error, or could not be reached.
    REGISTRY = "registry"
    #: The release is younger than a rule of the project or of the user admits.
    AGE_RULE = "age_rule"
    #: The release is for other versions of Python or node.
    RUNTIME = "runtime"
    #: The package comes from a URL, a git repository, a path or an archive, which are not fetched.
    ADDRESS = "address"
    #: The release has no wheel, and wheels are not built.
    NOT_BUILT = "not_built"
    #: A file that could not be read.
    UNREADABLE = "unreadable"
    #: What the client resolved is not allowed as a fix.
    RESULT = "result"
    #: The client refused, for a reason that is only in its output.
    CLIENT = "client"


class Capability(StrEnum):
    """What new code reaches for, that a fix rarely needs: a plan must declare it."""

    PROCESS = "process"
    NETWORK = "network"
    DYNAMIC_CODE = "dynamic_code"
    #: The source and the project don't show what it does.
    UNKNOWN = "unknown"


class ReviewVerdict(StrEnum):
    """What a person decided about an escalated fix."""

    APPROVED = "approved"
    REJECTED = "rejected"


class DeliveryPlace(StrEnum):
    """Where a patch went."""

    WORKING_TREE = "working_tree"
    BRANCH = "branch"


class EscalationReason(StrEnum):
    """Why a person is asked."""

    RETRY_CAP_REACHED = "retry_cap_reached"
    SAME_FAILURE_REPEATED = "same_failure_repeated"
    GATE_INFRASTRUCTURE = "gate_infrastructure"
    MODEL_UNAVAILABLE = "model_unavailable"
    BUDGET_EXHAUSTED = "budget_exhausted"
    RETRY_REFUSED = "retry_refused"
    NOTHING_PROVED = "nothing_proved"
    #: The vulnerability is gone as far as checked, and tests of the base commit assert the old behaviour.
    TESTS_CONTRADICT_PATCH = "tests_contradict_patch"
    #: A person had the gates run again on a patch, and one failed again.
    GATES_FAILED_AGAIN = "gates_failed_again"
    GATES_UNDECIDED = "gates_undecided"


#: The gate that runs the base commit's tests, and the one that runs a test of the vulnerability.
TESTS_GATE, PROOF_GATE = "tests", "proof"

#: Before schema version 7 a pass of any of these ended a fix as verified.
PROVING_GATES = frozenset({"not_vulnerable", TESTS_GATE, PROOF_GATE})

#: Gates whose pass shows the vulnerability gone, by whose code has it (ADR-0038).
SHOWING_GATES = {
    AffectedCode.OWN: frozenset({PROOF_GATE}),
    AffectedCode.DEPENDENCY: frozenset({"not_vulnerable", PROOF_GATE}),
    AffectedCode.UNCLEAR: frozenset(),
}


class ProofLevel(StrEnum):
    """How much a fix was shown to hold."""

    #: A client resolved a tree, and no affected version is in it.
    RESOLVED_TREE = "resolved_tree"
    #: Only declared versions could be read, and none is affected.
    PINS = "pins"
    #: Source was edited, not checked yet. Before schema version 7 also: only tests passed.
    SOURCE = "source"
    #: A test of the vulnerability fails at the base commit and passes with the patch.
    PROOF_TEST = "proof_test"
    #: The base commit's tests pass; nothing shows the vulnerability gone.
    TESTS_ONLY = "tests_only"

    @property
    def label(self) -> str:
        """Return the text that all screens and reports use."""
        return _PROOF_LABELS[self]


_PROOF_LABELS = {
    ProofLevel.RESOLVED_TREE: "versions proved",
    ProofLevel.PINS: "only declared versions proved",
    ProofLevel.SOURCE: "source changed",
    ProofLevel.PROOF_TEST: "the proof passes",
    ProofLevel.TESTS_ONLY: "nothing shows the flaw gone",
}


class TestsLevel(StrEnum):
    """How far a project's own tests were judged."""

    #: Compared test by test with the base commit's.
    COMPARED = "compared"
    #: They ran with the patch, but could not be compared with the base commit's test by test.
    RAN = "ran"
    #: Nothing is known: there are none, they could not be run, or they had no result.
    NOT_JUDGED = "not_judged"

    @classmethod
    def weakest(cls, levels: Iterable["TestsLevel"]) -> "TestsLevel":
        """Return the weakest of these levels; NOT_JUDGED if there are none."""
        all_levels = [*levels]
        return max(all_levels, key=[*cls].index, default=cls.NOT_JUDGED)


class LadderStep(StrEnum):
    """The steps of the minimal-fix ladder (ADR-0016), cheapest first."""

    LOCK_REFRESH = "lock_refresh"
    DIRECT_BUMP = "direct_bump"
    PARENT_BUMP = "parent_bump"
    OVERRIDE = "override"
    LOCK_EDIT = "lock_edit"

    @property
    def label(self) -> str:
        """Return the text that every reader prints."""
        return {
            LadderStep.LOCK_REFRESH: "in-range lock refresh",
            LadderStep.DIRECT_BUMP: "direct bump",
            LadderStep.PARENT_BUMP: "parent bump",
            LadderStep.OVERRIDE: "override or constraint",
            LadderStep.LOCK_EDIT: "exact edit of a lock",
        }[self]
