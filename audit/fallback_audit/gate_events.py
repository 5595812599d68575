"""Events of the gate runner: a fix begins, gates judge, attempts fail, the fix ends.

Part of the vocabulary in ``fallback_audit.events``, which names them all.
"""

from typing import Annotated, Literal

from pydantic import Field

from fallback_audit.event_types import (
    Attempt,
    Declined,
    Digest,
    Excepted,
    Excerpt,
    Prose,
    ProvedProject,
    StartedOn,
    Tested,
    Unread,
)
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import (
    AffectedCode,
    DecidedBy,
    EscalationReason,
    FailureKind,
    GateStatus,
    LadderStep,
    ProofLevel,
    RefusalReason,
    TestsLevel,
    Tier,
)


class FixStarted(StartedOn):
    """A gate runner began with one advisory, or several (``advisory_ids``), for one repository.

    ``gates``: those that a patch of it will be put to, in order, ``applies`` first. ``inputs_sha256``:
    what a resumed run needs, as evidence. ``linked_transition``: the gate transition that a person
    reopened, whose last failure this one starts with. ``affected_code``: whose code the advisory is about
    here, ``decided_by`` whom, and which packages this repository is the source of (``own_packages``); None:
    before schema version 7. ``judges_again``: the patch on record that this one puts to its gates, and does
    nothing else (TransitionReopened). Since schema version 8. ``batch_sha256``: of what a run over several
    advisories began with, as evidence, where this is one of its parts; ``in_part``: those of
    ``advisory_ids`` of which something stays affected, as was planned (ADR-0051). Since schema version 11.
    ``allowed_hosts``: hosts that the package clients may ask, from the user's own configuration, from
    ``--allow-host`` and by default (ADR-0096). Since schema version 13. ``age_exceptions``: packages that a
    person exempted from rules on the age of releases for this fix, on the day of this event;
    ``release_age_days``: the age that ``--release-age`` requires of a release (ADR-0110). Since schema
    version 15.
    """

    kind: Literal["FixStarted"] = "FixStarted"
    advisory_id: str
    advisory_ids: tuple[str, ...] = ()
    repository: Prose
    base_commit: str
    ecosystem: str
    tool_version: str
    linked_transition: str | None = None
    gates: tuple[str, ...] = ()
    inputs_sha256: Digest | None = None
    affected_code: AffectedCode | None = None
    decided_by: DecidedBy | None = None
    own_packages: tuple[str, ...] = ()
    judges_again: Digest | None = None
    batch_sha256: Digest | None = None
    in_part: tuple[str, ...] = ()
    allowed_hosts: tuple[Prose, ...] = ()
    age_exceptions: tuple[Excepted, ...] = ()
    release_age_days: int | None = None


class SandboxDisabled(Frozen):
    """Gates ran without a sandbox because a person said so."""

    kind: Literal["SandboxDisabled"] = "SandboxDisabled"
    reason: Prose


class GateJudged(Frozen):
    """One gate's typed verdict on one attempt's patch. ``status`` "undecided": since schema version 12.

    ``flaky``: tests that failed here and that fail now and then at the base commit too. ``broken``: tests
    that pass there and failed here, where the runner names them. ``failing_before``: tests that fail
    here as they always do there, beside a pass. ``refused_hosts``: hosts that only the repository, or a
    package, names, and that no client asked since the gate before (ADR-0096). Since schema version 13.
    ``resolutions``: what was resolved for the fix since the gate before, as evidence: a resumed fix
    installs the same again (ADR-0102). ``projects``: what each project has of the advisory's packages,
    with a pass; the lowest of their levels is ``proof_level``. ``notes``: what a reader should know
    with the verdict. Since schema version 14. ``tests_level``: how far the gate judged the repository's own
    tests, and ``tests`` by which command, project by project: the lowest of their levels is
    ``tests_level``. Neither is written of other gates. Since schema version 16.
    """

    kind: Literal["GateJudged"] = "GateJudged"
    attempt: Attempt
    gate: str
    status: GateStatus
    failure_kind: FailureKind | None = None
    detail: Excerpt
    evidence_sha256: Digest | None = None
    duration_ms: int
    proof_level: ProofLevel | None = None
    flaky: tuple[Prose, ...] = ()
    broken: tuple[Prose, ...] = ()
    failing_before: tuple[Prose, ...] = ()
    refused_hosts: tuple[Prose, ...] = ()
    resolutions: tuple[Digest, ...] = ()
    projects: tuple[ProvedProject, ...] = ()
    notes: tuple[Prose, ...] = ()
    tests_level: TestsLevel | None = Field(default=None, exclude_if=lambda it: it is None)
    tests: tuple[Tested, ...] = Field(default=(), exclude_if=lambda it: not it)


class RecipeCandidateFailed(Frozen):
    """Gates refused the patch of a recipe on a first attempt, and the recipe has another candidate: the
    attempt begins again with that one, as a first attempt still (ADR-0048). Since schema version 10.

    ``candidate``: which one failed, 1 first. ``left_out``: the steps that the next one does without.
    """

    kind: Literal["RecipeCandidateFailed"] = "RecipeCandidateFailed"
    attempt: Attempt
    candidate: Annotated[int, Field(ge=1)]
    failure_kind: FailureKind
    failing_gates: tuple[str, ...]
    patch_sha256: Digest
    left_out: Annotated[tuple[LadderStep, ...], Field(min_length=1)]


class AttemptFailed(Frozen):
    """An attempt did not prove itself; its distilled summary is the next attempt's context.

    ``contradicting_tests``: tests of the base commit that this patch broke, although nothing showed that
    the flaw is still there: they may assert the flaw itself.
    """

    kind: Literal["AttemptFailed"] = "AttemptFailed"
    attempt: Attempt
    tier: Tier | None
    failure_kind: FailureKind
    failing_gates: tuple[str, ...]
    failure_signature: Digest
    edit_digest: Digest | None
    summary_sha256: Digest
    summary_excerpt: Excerpt
    contradicting_tests: tuple[Prose, ...] = ()


class _PatchAccepted(Frozen):
    """What both ends with a patch tell of it."""

    attempt: Attempt
    tier: Tier
    patch_sha256: Digest
    proof_level: ProofLevel
    gates_passed: tuple[str, ...]
    gates_skipped: tuple[str, ...] = ()


class FixVerified(_PatchAccepted):
    """Terminal: every gate that ran passed on this patch, and one of them saw the flaw gone.

    Before schema version 7 the base commit's passing tests were enough.
    """

    kind: Literal["FixVerified"] = "FixVerified"


class FixPatched(_PatchAccepted):
    """Terminal: every gate that ran passed on this patch, the base commit's tests among them, and nothing
    shows the flaw gone. Since schema version 7."""

    kind: Literal["FixPatched"] = "FixPatched"


class FixRefused(Frozen):
    """Terminal: no patch is possible, and why.

    ``unread``: sources that were not read, if that is the reason. Since schema version 14. ``declined``:
    steps that did not work, and what blocked each; not written if empty. Since schema version 15.
    """

    kind: Literal["FixRefused"] = "FixRefused"
    attempt: Attempt
    reason: RefusalReason
    sentence: Prose
    unread: tuple[Unread, ...] = ()
    declined: tuple[Declined, ...] = Field(default=(), exclude_if=lambda it: not it)


class FixEscalated(Frozen):
    """Terminal for this gate transition: a typed question to a person, with the evidence.

    For a used-up budget it is terminal until BudgetRaised.
    """

    kind: Literal["FixEscalated"] = "FixEscalated"
    attempt: Attempt
    reason: EscalationReason
    question: Prose
    evidence_sha256: tuple[Digest, ...] = ()
