"""Events of a fix: its start, the gates' verdicts on its patches, failed attempts, its end."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fallback_audit.event_types import (
    Attempt,
    Badge,
    Declined,
    Digest,
    Event,
    Excepted,
    Excerpt,
    Prose,
    ProvedProject,
    Role,
    StartedOn,
    Structural,
    Tested,
    Unread,
)
from fallback_audit.events.attempt import TIER_OUTCOMES
from fallback_audit.metrics import NONE, Metric, Move
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

FIXES_STARTED = Metric(
    "counter",
    "fallback_tier_fixes_started_total",
    "Fixes that began.",
    ("ecosystem",),
    chosen=("ecosystem",),
)
FIXES_ENDED = Metric(
    "counter",
    "fallback_tier_fixes_ended_total",
    "Fixes that ended, and why.",
    ("outcome", "reason"),
)
ATTEMPT_FAILURES = Metric(
    "counter",
    "fallback_tier_attempt_failures_total",
    "Attempts that failed, and why.",
    ("failure_kind",),
)
GATE_VERDICTS = Metric(
    "counter",
    "fallback_tier_gate_verdicts_total",
    "Verdicts of gates.",
    ("gate", "status"),
    chosen=("gate",),
)
GATE_FAILURES = Metric(
    "counter",
    "fallback_tier_gate_failures_total",
    "Gates that failed a patch.",
    ("gate", "failure_kind"),
    chosen=("gate",),
)
#: Buckets up to an hour.
GATE_DURATION = Metric(
    "histogram",
    "fallback_tier_gate_duration_seconds",
    "What gates took.",
    ("gate",),
    chosen=("gate",),
    buckets=(0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
SANDBOX_DISABLED = Metric(
    "counter",
    "fallback_tier_sandbox_disabled_total",
    "Fixes whose gates ran without a sandbox.",
)

#: Texts on how far tests were judged. There is none for COMPARED, which is what is expected.
UNCOMPARED = {
    TestsLevel.RAN: "not compared with the base commit's",
    TestsLevel.NOT_JUDGED: "not judged",
}


class FixStarted(StartedOn, Event):
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
    version 15. ``paths``: folders that a person limited the fix to (ADR-0143). Since schema version 18.
    """

    kind: Literal["FixStarted"] = "FixStarted"
    advisory_id: Structural
    advisory_ids: tuple[Structural, ...] = ()
    repository: Prose
    base_commit: Structural
    ecosystem: Structural
    tool_version: Structural
    linked_transition: Structural | None = None
    gates: tuple[Structural, ...] = ()
    inputs_sha256: Digest | None = None
    affected_code: AffectedCode | None = None
    decided_by: DecidedBy | None = None
    own_packages: tuple[Structural, ...] = ()
    judges_again: Digest | None = None
    batch_sha256: Digest | None = None
    in_part: tuple[Structural, ...] = ()
    allowed_hosts: tuple[Prose, ...] = ()
    age_exceptions: tuple[Excepted, ...] = ()
    release_age_days: int | None = None
    paths: tuple[Prose, ...] = ()

    def in_words(self) -> str:
        return (
            f"fix started: {self.advisory_id} in {self.repository} at"
            f" {self.base_commit[:12]} ({self.ecosystem})"
            + self._linked()
            + self._whose()
            + self._part()
            + self._where()
            + self._ages()
        )

    def _linked(self) -> str:
        """Return the gate transition from which this one was reopened, and whether only gates run."""
        if self.judges_again is not None:
            return (
                f", the gates alone, on patch {self.judges_again[:12]} of {self.linked_transition}"
            )
        return f", reopened from {self.linked_transition}" if self.linked_transition else ""

    def _whose(self) -> str:
        """Return whose code is affected, if the trail says so, and how that was decided."""
        if self.affected_code is None:
            return ""
        what = f"own code ({', '.join(self.own_packages)})" if self.own_packages else "own code"
        code = what if self.affected_code is AffectedCode.OWN else "a dependency"
        return f"; affected is {code}, by {self.decided_by}"

    def _part(self) -> str:
        """Return the batch that it is a part of, and the advisories that it fixes only in part."""
        batch = f"; a part of batch {self.batch_sha256[:12]}" if self.batch_sha256 else ""
        return batch + (f"; in part only: {', '.join(self.in_part)}" if self.in_part else "")

    def _where(self) -> str:
        """Return the folders that it is limited to."""
        return f"; limited to {', '.join(self.paths)}" if self.paths else ""

    def _ages(self) -> str:
        """Return the required age of releases, and the exceptions that a person made."""
        days = self.release_age_days
        required = f"; releases at least {days} day(s) old" if days is not None else ""
        excepted = (
            f"{exception.package} ({exception.reason})" for exception in self.age_exceptions
        )
        return required + "".join(
            f"; excepted from rules on ages: {package}" for package in excepted
        )

    def moves(self) -> Iterator[Move]:
        yield Move(FIXES_STARTED, (self.ecosystem,))


class SandboxDisabled(Event):
    """Gates ran without a sandbox because a person said so."""

    kind: Literal["SandboxDisabled"] = "SandboxDisabled"
    role = Role.RESUMING
    BADGE = Badge(tone="bad", style="bold red", warns=True)
    reason: Prose

    def in_words(self) -> str:
        return f"SANDBOX DISABLED: {self.reason}"

    def moves(self) -> Iterator[Move]:
        yield Move(SANDBOX_DISABLED)


class GateJudged(Event):
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
    ``tests_level``. Neither is written of other gates. Since schema version 16. Schema version 19 added
    fields of ``tests``.
    """

    kind: Literal["GateJudged"] = "GateJudged"
    attempt: Attempt
    gate: Structural
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

    def in_words(self) -> str:
        why = f" ({self.failure_kind})" if self.failure_kind else ""
        detail = "" if self.status == GateStatus.FAILED else f": {self.detail}"
        flaky = f" (flaky: {', '.join(self.flaky)})" if self.flaky else ""
        refused = f" (not asked: {', '.join(self.refused_hosts)})" if self.refused_hosts else ""
        level = UNCOMPARED.get(self.tests_level) if self.tests_level else None
        tests = f" (tests {level})" if level else ""
        return f"gate {self.gate} {self.status}{why}{tests}{flaky}{refused}{detail}"

    def excerpt(self) -> str | None:
        return self.detail if self.status == GateStatus.FAILED else None

    def moves(self) -> Iterator[Move]:
        yield Move(GATE_VERDICTS, (self.gate, self.status.value))
        yield Move(GATE_DURATION, (self.gate,), self.duration_ms / 1000, "observe")
        if self.status == GateStatus.FAILED:
            why = NONE if self.failure_kind is None else self.failure_kind.value
            yield Move(GATE_FAILURES, (self.gate, why))

    @property
    def badge(self) -> Badge:
        compared = self.tests_level in (None, TestsLevel.COMPARED)
        return {
            GateStatus.PASSED: Badge(style="green", routine=compared and not self.flaky),
            GateStatus.SKIPPED: Badge(style="yellow", routine=compared and not self.flaky),
            GateStatus.FAILED: Badge(tone="bad", style="red"),
            GateStatus.UNDECIDED: Badge(tone="warn", style="yellow"),
        }[self.status]


class RecipeCandidateFailed(Event):
    """Gates refused the patch of a recipe on a first attempt, and the recipe has another candidate: the
    attempt begins again with that one, as a first attempt still (ADR-0048). Since schema version 10.

    ``candidate``: which one failed, 1 first. ``left_out``: the steps that the next one does without.
    """

    kind: Literal["RecipeCandidateFailed"] = "RecipeCandidateFailed"
    since = 10
    BADGE = Badge(style="yellow")
    attempt: Attempt
    candidate: Annotated[int, Field(ge=1)]
    failure_kind: FailureKind
    failing_gates: tuple[Structural, ...]
    patch_sha256: Digest
    left_out: Annotated[tuple[LadderStep, ...], Field(min_length=1)]

    def in_words(self) -> str:
        gates = ", ".join(self.failing_gates)
        without = " and ".join(step.label for step in self.left_out)
        return (
            f"candidate {self.candidate} failed: {self.failure_kind} at {gates}; the recipe tries"
            f" another, without {without}"
        )


class AttemptFailed(Event):
    """An attempt did not prove itself; its distilled summary is the next attempt's context.

    ``contradicting_tests``: tests of the base commit that this patch broke, although nothing showed that
    the flaw is still there: they may assert the flaw itself.
    """

    kind: Literal["AttemptFailed"] = "AttemptFailed"
    BADGE = Badge(tone="bad", style="red")
    attempt: Attempt
    tier: Tier | None
    failure_kind: FailureKind
    failing_gates: tuple[Structural, ...]
    failure_signature: Digest
    edit_digest: Digest | None
    summary_sha256: Digest
    summary_excerpt: Excerpt
    contradicting_tests: tuple[Prose, ...] = ()

    def in_words(self) -> str:
        gates = ", ".join(self.failing_gates) or "no gate"
        return f"attempt {self.attempt} failed: {self.failure_kind} at {gates}"

    def excerpt(self) -> str | None:
        return self.summary_excerpt

    def moves(self) -> Iterator[Move]:
        yield Move(ATTEMPT_FAILURES, (self.failure_kind.value,))
        if self.tier is not None:
            yield Move(TIER_OUTCOMES, (self.tier.value, "failed"))


class _PatchAccepted(Event):
    """The fields that both ends with a patch share."""

    role = Role.END
    attempt: Attempt
    tier: Tier
    patch_sha256: Digest
    proof_level: ProofLevel
    gates_passed: tuple[Structural, ...]
    gates_skipped: tuple[Structural, ...] = ()

    def _ended(self, outcome: str) -> Iterator[Move]:
        yield Move(FIXES_ENDED, (outcome, NONE))
        yield Move(TIER_OUTCOMES, (self.tier.value, outcome))


class FixVerified(_PatchAccepted):
    """Terminal: every gate that ran passed on this patch, and one of them saw the flaw gone.

    Before schema version 7 the base commit's passing tests were enough.
    """

    kind: Literal["FixVerified"] = "FixVerified"
    BADGE = Badge(tone="good", style="bold green")

    def in_words(self) -> str:
        return f"FIXED; {self.proof_level.label}: passed {', '.join(self.gates_passed)}"

    def moves(self) -> Iterator[Move]:
        yield from self._ended("verified")


class FixPatched(_PatchAccepted):
    """Terminal: every gate that ran passed on this patch, the base commit's tests among them, and nothing
    shows the flaw gone. Since schema version 7."""

    kind: Literal["FixPatched"] = "FixPatched"
    since = 7
    BADGE = Badge(tone="good", style="bold yellow")

    def in_words(self) -> str:
        passed = ", ".join(self.gates_passed)
        return f"PATCHED; {ProofLevel.TESTS_ONLY.label}: passed {passed}"

    def moves(self) -> Iterator[Move]:
        yield from self._ended("patched")


class FixRefused(Event):
    """Terminal: no patch is possible, and why.

    ``unread``: sources that were not read, if that is the reason. Since schema version 14. ``declined``:
    steps that did not work, and what blocked each; not written if empty. Since schema version 15.
    """

    kind: Literal["FixRefused"] = "FixRefused"
    role = Role.END
    BADGE = Badge(tone="bad", style="bold yellow")
    attempt: Attempt
    reason: RefusalReason
    sentence: Prose
    unread: tuple[Unread, ...] = ()
    declined: tuple[Declined, ...] = Field(default=(), exclude_if=lambda it: not it)

    def in_words(self) -> str:
        if self.reason is RefusalReason.FAILS_TOGETHER:
            return f"TAKEN APART: {self.sentence}"
        return f"REFUSED ({self.reason}): {self.sentence}"

    @property
    def badge(self) -> Badge:
        together = self.reason is RefusalReason.FAILS_TOGETHER
        return Badge(style="yellow") if together else self.BADGE

    def moves(self) -> Iterator[Move]:
        outcome = "unknown" if self.reason is RefusalReason.UNKNOWN else "refused"
        yield Move(FIXES_ENDED, (outcome, self.reason.value))


class FixEscalated(Event):
    """Terminal for this gate transition: a typed question to a person, with the evidence.

    For a used-up budget it is terminal until BudgetRaised.
    """

    kind: Literal["FixEscalated"] = "FixEscalated"
    role = Role.END
    BADGE = Badge(tone="warn", style="bold yellow", warns=True)
    attempt: Attempt
    reason: EscalationReason
    question: Prose
    evidence_sha256: tuple[Digest, ...] = ()

    def in_words(self) -> str:
        return f"ESCALATED ({self.reason})"

    def excerpt(self) -> str | None:
        return self.question

    def moves(self) -> Iterator[Move]:
        yield Move(FIXES_ENDED, ("escalated", self.reason.value))
