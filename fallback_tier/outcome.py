"""Input and results of one attempt: selections, plans, summaries, applications."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fallback_audit.event_types import Blocker as Blocker
from fallback_audit.event_types import StepDeclined as StepDeclined
from fallback_audit.event_types import UnreadItem as UnreadItem
from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import (
    CallType,
    Capability,
    FailureKind,
    LadderStep,
    PromptShape,
    ProofLevel,
    RefusalReason,
    Tier,
)
from fallback_tier.errors import RecipeError, RepositoryError, StoppedError
from fallback_tier.limits import MAX_AUTHOR_CALLS

#: Validators of unions are built when they are first used, as those of models are.
_DEFERRED = ConfigDict(defer_build=True)

#: The kind of what is left of a project that a person excluded (``Settings.paths``).
OUTSIDE = "outside_paths"

#: The kind of what is left because clients were stopped (``StoppedError``): not all of its steps were
#: tried. No other error has it.
NOT_RESOLVED = "clients_stopped"

RelativePath = Annotated[str, Field(min_length=1, max_length=4096)]


# --- What the recipe plugins say ------------------------------------------------------------------


class Selected(Frozen):
    """A deterministic fix applies; ``parameters`` are the recipe's own (package, version …).

    ``left_out``: steps that are not to be used, since gates refused a candidate that used them.
    """

    outcome: Literal["selected"] = "selected"
    recipe: str
    parameters: dict[str, str] = Field(default_factory=dict)
    left_out: tuple[LadderStep, ...] = ()


class NotApplicable(Frozen):
    """No deterministic fix applies. If no other tier can help, ``reason`` is that of the final refusal.

    ``unread``: the sources that were not read, if the reason is UNKNOWN. ``declined``: the steps that did
    not work, each with what blocked it; one without a step if none began.
    """

    outcome: Literal["not_applicable"] = "not_applicable"
    reason: RefusalReason
    sentence: str
    unread: tuple[UnreadItem, ...] = ()
    declined: tuple[StepDeclined, ...] = ()

    @classmethod
    def of(cls, error: RecipeError | RepositoryError) -> "NotApplicable":
        """Return the selection of a recipe that raised this error."""
        if isinstance(error, RepositoryError):
            return cls(reason=RefusalReason.RECIPE_UNSUPPORTED, sentence=str(error))
        declined = declined_by(error)
        return cls(reason=error.reason, sentence=str(error), unread=error.unread, declined=declined)


def not_resolved(error: StoppedError) -> RecipeError:
    """Return the refusal for what was not resolved to the end."""
    return RecipeError(
        RefusalReason.RESOLVER_FAILED, error.problem, next_step=error.next_step, kind=NOT_RESOLVED
    )


def declined_by(error: RecipeError) -> tuple[StepDeclined, ...]:
    """Return the steps that an error lists; if it has none, the error's own blockers, without a step."""
    whole = StepDeclined(step=None, reason=error.problem, blockers=error.blockers)
    return error.declined or ((whole,) if error.blockers else ())


RecipeSelection = Annotated[Selected | NotApplicable, Field(discriminator="outcome")]


class FileChange(Frozen):
    """One text file before and after (None: absent). Line ends are kept as found."""

    path: RelativePath
    before: str | None
    after: str | None


class Move(Frozen):
    """One package brought from affected versions to a safe one, in one manifest or lock.

    ``after`` None: the fix takes the package out of the tree. ``raised`` names what was changed to get
    there where that is another package (a parent bump). ``declined``: the cheaper steps, in order.
    ``range_admits``: what is declared admits affected and safe versions, and no lock chooses one.
    """

    package: str
    manifest: RelativePath
    step: LadderStep
    before: tuple[str, ...]
    after: str | None
    raised: tuple[str, ...] = ()
    declined: tuple[StepDeclined, ...] = ()
    #: Not written if false.
    range_admits: bool = Field(default=False, exclude_if=lambda it: not it)


class Left(Frozen):
    """An affected package that no step could fix, and why."""

    package: str
    manifest: RelativePath | None = None
    advisory_ids: tuple[str, ...] = ()
    reason: RefusalReason
    sentence: str
    next_step: str = ""
    #: The sources that were not read, if the reason is UNKNOWN: then ``package`` may be affected.
    unread: tuple[UnreadItem, ...] = ()
    #: The kind of the error that caused it; not in documents.
    kind: str = Field(default="", exclude=True)

    def __eq__(self, other: object) -> bool:
        # Without ``kind``: an item that was read from a document is equal to the one that was written.
        return isinstance(other, Left) and self._stated() == other._stated()

    def __hash__(self) -> int:
        return hash(self._stated())

    def _stated(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in type(self).model_fields if name != "kind")

    @property
    def is_unknown(self) -> bool:
        """Whether it could not be found out if anything is affected."""
        return self.reason is RefusalReason.UNKNOWN

    @property
    def is_outside(self) -> bool:
        """Whether it is of a project that a person excluded (``Settings.paths``)."""
        return self.kind == OUTSIDE

    @property
    def is_not_resolved(self) -> bool:
        """Whether clients were stopped before all of its steps were tried: there may be one."""
        return self.kind == NOT_RESOLVED

    @property
    def why(self) -> NotApplicable:
        """The same reason as the selection of a recipe that leaves nothing."""
        return NotApplicable(
            reason=self.reason,
            sentence=self.sentence,
            unread=self.unread,
            declined=self.declined,
        )

    declined: tuple[StepDeclined, ...] = ()


class ChangedDeclaration(Frozen):
    """A line of a manifest that a fix changes or adds (``before`` is empty): what declares or overrides a
    package. ``line`` counts from 1, in the new file."""

    package: str
    file: RelativePath
    line: Annotated[int, Field(ge=1)]
    before: str
    after: str


class ClearedPath(Frozen):
    """One way from a root to an affected version, and how it went away.

    ``path`` begins with the root's name; every further part is ``name version``. ``outcome`` is a clause:
    "now ini 1.3.6", "no longer installed".
    """

    manifest: RelativePath
    advisory_ids: tuple[str, ...]
    path: tuple[str, ...]
    outcome: str


class Outline(Frozen):
    """What the files alone tell: the steps that would be tried first. Nothing was resolved.

    ``notes``: what was not read, in sentences; ``unread``: what may hold the packages beside that, and was
    not read or resolved.
    """

    moves: tuple[Move, ...] = ()
    left: tuple[Left, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[UnreadItem, ...] = ()


class RecipeResult(Frozen):
    """What a recipe changed, how much that proves, and how each affected package went away.

    ``left`` is not empty only for a bundle of advisories: what of it could not be fixed. ``unread``: what
    may hold the packages and was not read; the notes have it in words. The trees are texts, one installed
    package a line; empty where only pins could be read.
    """

    changes: tuple[FileChange, ...]
    proof_level: ProofLevel
    moves: Annotated[tuple[Move, ...], Field(min_length=1)]
    declarations: tuple[ChangedDeclaration, ...] = ()
    cleared: tuple[ClearedPath, ...] = ()
    left: tuple[Left, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[UnreadItem, ...] = ()
    tree_before: str = ""
    tree_after: str = ""


class Remediation(Frozen):
    """The part of a recipe's result that a reader needs: all but files and trees (they are evidence)."""

    moves: tuple[Move, ...]
    declarations: tuple[ChangedDeclaration, ...] = ()
    cleared: tuple[ClearedPath, ...] = ()
    left: tuple[Left, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[UnreadItem, ...] = ()
    evidence_sha256: Digest


# --- Plans: the only thing a model may emit -------------------------------------------------------


class SearchReplace(Frozen):
    """Replace ``old``, found exactly once in ``path``, by ``new``. Never a diff the model typed.

    An empty ``old`` makes a file that does not exist: ``new`` is its whole text (ADR-0054). Only a
    ``SourceEdit`` may hold such an edit.
    """

    path: RelativePath
    old: str
    new: str

    @property
    def makes_file(self) -> bool:
        """Whether it makes a new file."""
        return not self.old


class _Plan(Frozen):
    rationale: str = ""
    citations: tuple[str, ...] = ()
    #: Capabilities that the edits newly use; requested of a retry whose attempt failed because it declared
    #: none. Not written if empty: a model is shown plans as they are written, and needn't think of it.
    capabilities: tuple[Capability, ...] = Field(default=(), exclude_if=lambda kinds: not kinds)


class DependencyBump(_Plan):
    """Raise a declared dependency to a fixed version; call sites may need edits with it."""

    action: Literal["dependency_bump"] = "dependency_bump"
    package: str
    version: str
    edits: tuple[SearchReplace, ...] = ()


class Override(_Plan):
    """Force a transitive dependency to a fixed version."""

    action: Literal["override"] = "override"
    package: str
    version: str
    edits: tuple[SearchReplace, ...] = ()


class SourceEdit(_Plan):
    """Edit the repository's own source."""

    action: Literal["source_edit"] = "source_edit"
    edits: Annotated[tuple[SearchReplace, ...], Field(min_length=1)]


class Refuse(_Plan):
    """The model declines, and says why."""

    action: Literal["refuse"] = "refuse"
    reason: str


Plan = Annotated[DependencyBump | Override | SourceEdit | Refuse, Field(discriminator="action")]
plan_adapter: TypeAdapter[Plan] = TypeAdapter(Plan, config=_DEFERRED)


# --- Attempts -------------------------------------------------------------------------------------


class AttemptSummary(Frozen):
    """A failed attempt, distilled, as the next attempt's fresh context.

    ``prior_failure_summary`` is bounded by MAX_FAILURE_SUMMARY_BYTES; the tier checks it (a typed
    AttemptHistoryError) so that foreign orchestrators get one clear sentence. ``used_few_shot_ref``
    never enters a retry prompt. ``contradicting_tests``: tests of the base commit that its patch broke,
    although nothing showed the flaw to be there still: they may assert the flaw itself.
    """

    attempt: Annotated[int, Field(ge=1)]
    tier: Tier | None = None
    edit_digest: Digest | None = None
    failing_gates: tuple[str, ...] = ()
    failure_kind: FailureKind
    prior_failure_summary: str
    evidence: tuple[Digest, ...] = ()
    used_few_shot_ref: tuple[str, ...] = ()
    contradicting_tests: tuple[str, ...] = ()


class CallUsage(Frozen):
    """Tokens and estimated dollars of one call type. The price table is dated; cost None: unknown model."""

    call_type: CallType
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd_estimate: str | None = None


class LowConfidence(Frozen):
    """Handed on although unsupported. ``attempts``: generations that a judge has seen.

    ``double_check``: one sentence a claim that the context does not support, for a reviewer.
    """

    reason: str
    attempts: Annotated[int, Field(ge=1, le=MAX_AUTHOR_CALLS)]
    double_check: tuple[str, ...] = ()


class _Application(Frozen):
    attempt: int
    prompt_shape: PromptShape
    usage: tuple[CallUsage, ...] = ()


class OwnTests(Frozen):
    """A command by which a project tests itself: a line for a shell in the project's folder, and what names
    it, for people."""

    project: str
    command: str
    source: str


class Applied(_Application):
    """A patch to be proved. ``grounded`` and ``faithfulness_score``: None means not evaluated."""

    outcome: Literal["applied"] = "applied"
    tier: Tier
    diff: str
    patch_sha256: Digest
    edit_digest: Digest
    files: tuple[str, ...]
    proof_level: ProofLevel
    plan: Plan | None = None
    remediation: Remediation | None = None
    citations: tuple[str, ...] = ()
    grounded: bool | None = None
    faithfulness_score: float | None = None
    low_confidence: LowConfidence | None = None
    #: Edits that matched only when white space was left out of the comparison (``path: edit n``).
    loose_edits: tuple[str, ...] = ()
    #: How it came about, if a reader should know: a search that was cut short, in sentences.
    notes: tuple[str, ...] = ()
    used_few_shot_ref: tuple[str, ...] = ()


class Refused(_Application):
    """No patch, from a closed set of reasons, with one sentence a person can act on.

    ``unread``: the sources that were not read, if the reason is UNKNOWN. ``declined``: as NotApplicable's.
    """

    outcome: Literal["refused"] = "refused"
    reason: RefusalReason
    sentence: str
    unread: tuple[UnreadItem, ...] = ()
    declined: tuple[StepDeclined, ...] = ()


#: The result of one attempt, by any tier: the name is the callable's contract.
RecipeApplication = Annotated[Applied | Refused, Field(discriminator="outcome")]


def shared_fields(record: BaseModel, model: type[BaseModel]) -> dict[str, Any]:
    """Return the values of a record's fields that another model has, too: most events repeat a result's."""
    names = type(record).model_fields.keys() & model.model_fields.keys()
    return {name: getattr(record, name) for name in names}


#: The heading in a failure summary between what failed and what the patch tried.
TRIED_HEADING = "What the patch tried:"


def next_attempt(prior_attempts: Sequence[AttemptSummary]) -> int:
    """Return the number of the attempt after these: 1, or one more than the last one's."""
    return prior_attempts[-1].attempt + 1 if prior_attempts else 1
