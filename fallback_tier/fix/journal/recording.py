"""Recording by the gate runner, and the results that follow: first the record, then the action."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from fallback_audit.event_types import JudgedTests
from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    AttemptFailed,
    AttemptStarted,
    AuditEvent,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixResumed,
    FixStarted,
    FixVerified,
    GateJudged,
    RecipeCandidateFailed,
    SandboxDisabled,
)
from fallback_audit.evidence.store import MAX_EVIDENCE_BYTES, put_document
from fallback_audit.ports import AuditReader, AuditStore, EvidenceStore, Scope
from fallback_audit.vocabulary import (
    TESTS_GATE,
    GateStatus,
    PromptShape,
    ProofLevel,
    TestsLevel,
)
from fallback_tier.advisory import Advisory
from fallback_tier.attempt.task import Recorder, TierEvent
from fallback_tier.budget.tally import spent
from fallback_tier.fix.decision import (
    EndDecision,
    EndEscalated,
    EndPatched,
    EndRefused,
    EndVerified,
)
from fallback_tier.fix.journal.inputs import FixInputs, RecordedResolution, Setup
from fallback_tier.fix.steps import FixProgress, RecordedPatch, StepKey
from fallback_tier.fix_result import (
    Escalated,
    FailedCandidate,
    FixResult,
    Patched,
    RefusedFix,
    Verified,
    shown_by,
)
from fallback_tier.gate_ports import APPLIES, GateVerdict
from fallback_tier.outcome import Applied, AttemptSummary, Selected, shared_fields
from fallback_tier.prompt.characters import drop_hidden
from fallback_tier.prompt.redact import REDACTED, excerpt, redact_secrets
from fallback_tier.repo import RepoContext
from fallback_tier.verdict_logs import cut

#: How many tests one verdict names: if there are more, it is not a matter of a test or two.
MAX_NAMED_TESTS = 100

#: The least length of a line that counts as part of a secret: a shorter one reveals nothing, and may be any
#: word.
_MIN_PART = 8

#: How many lines of an output are compared with texts that quote it. If more lines hold a secret, no text
#: that begins like one is quoted: a target controls how many there are.
MAX_SECRET_LINES = 1_000

#: How many projects one verdict names: a repository can have hundreds.
MAX_NAMED_PROJECTS = 100

Observer = Callable[[TierEvent | StepKey], None]

#: The events that end a fix.
End = FixVerified | FixPatched | FixRefused | FixEscalated


@dataclass(frozen=True)
class FixRecord:
    """Appends the events of one gate transition, and calls the observer after each."""

    audit: AuditStore
    evidence: EvidenceStore
    advisory: Advisory
    repo: RepoContext
    observe: Observer

    @cached_property
    def _append(self) -> Recorder:
        return Recorder(self.audit, self.repo)

    @property
    def scope(self) -> Scope:
        """The scope of all recorded events."""
        return self._append.scope

    def started(
        self,
        gates: Sequence[str],
        setup: Setup,
        *,
        tool_version: str,
        linked: str | None,
        recorded: RecordedPatch | None,
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        """Record that the fix began, with these gates after ``applies``. ``recorded``: only this patch is
        judged; ``allowed_hosts``: hosts that its clients may contact."""
        repo, advisory, affected = self.repo, self.advisory, self.repo.affected
        inputs = FixInputs(repository=repo.root, advisory=advisory, setup=setup)
        self._record(
            FixStarted(
                advisory_id=advisory.id,
                advisory_ids=advisory.ids,
                repository=repo.root.name,
                base_commit=repo.base_commit,
                ecosystem=", ".join(advisory.ecosystems),
                tool_version=tool_version,
                linked_transition=linked,
                gates=(APPLIES, *gates),
                inputs_sha256=put_document(self.evidence, inputs),
                affected_code=repo.affected_code,
                decided_by=affected.decided_by if affected else None,
                own_packages=tuple(package.name for package in affected.own) if affected else (),
                judges_again=recorded.proposal.patch_sha256 if recorded else None,
                batch_sha256=setup.batch_sha256,
                in_part=advisory.in_part,
                allowed_hosts=tuple(allowed_hosts),
                age_exceptions=repo.settings.age_exceptions,
                release_age_days=repo.settings.release_age_days,
                paths=repo.settings.paths,
            )
        )

    def resumed(self, after: str, tool_version: str) -> None:
        """Record that another process continues."""
        self._record(FixResumed(after=after, tool_version=tool_version))

    def unprotected(self, waiver: str) -> None:
        """Record that no sandbox is used, because a person waived it."""
        self._record(SandboxDisabled(reason=waiver))

    def resumed_for(self, recorded: RecordedPatch) -> Applied:
        """Record the stored patch as this transition's attempt; no tier runs."""
        self._record(
            AttemptStarted(
                attempt=recorded.application.attempt,
                advisory_id=self.advisory.id,
                prior_attempt_count=0,
                prompt_shape=PromptShape.NONE,
            )
        )
        self._record(recorded.proposal)
        return recorded.application

    def judged(
        self,
        verdict: GateVerdict,
        attempt: int,
        refused_hosts: Sequence[str] = (),
        resolutions: Sequence[RecordedResolution] = (),
    ) -> GateVerdict:
        """Record a verdict, and return it as recorded, so that a resume continues the same.

        ``refused_hosts``: hosts that clients were kept from contacting since the last gate;
        ``resolutions``: those made since then.
        """
        output = _Output(verdict.log)
        log = cut(output.safe, MAX_EVIDENCE_BYTES).encode("utf-8", "replace")
        recorded_verdict = verdict.model_copy(
            update={
                "detail": output.excerpt(verdict.detail),
                "broken": _some(verdict.broken),
                "failing_before": _some(verdict.failing_before),
                "projects": verdict.projects[:MAX_NAMED_PROJECTS],
                "notes": tuple(map(output.excerpt, verdict.notes[:MAX_NAMED_TESTS])),
                "kinds": frozenset(),
                "tests_level": _level_of(verdict),
                "tests": tuple(
                    _safe(tests, output) for tests in verdict.tests[:MAX_NAMED_PROJECTS]
                ),
                "log": log.decode(),
                "evidence_sha256": self.evidence.put(log) if log else None,
            }
        )
        self._record(
            GateJudged(
                **shared_fields(recorded_verdict, GateJudged),
                attempt=attempt,
                refused_hosts=tuple(refused_hosts),
                resolutions=tuple(
                    put_document(self.evidence, resolution) for resolution in resolutions
                ),
            )
        )
        return recorded_verdict

    def failed(self, summary: AttemptSummary, signature: str) -> None:
        """Record a failed attempt, with the summary for the next one."""
        text = summary.prior_failure_summary
        self._record(
            AttemptFailed(
                **shared_fields(summary, AttemptFailed),
                failure_signature=signature,
                summary_sha256=self.evidence.put(text.encode()),
                summary_excerpt=excerpt(text, MAX_EXCERPT_CHARS),
            )
        )

    def candidate_failed(
        self,
        application: Applied,
        summary: AttemptSummary,
        next_candidate: Selected,
        candidate: int,
    ) -> RecipeCandidateFailed:
        """Record that gates refused the recipe's ``candidate``; the next is tried as the same first
        attempt."""
        failed = RecipeCandidateFailed(
            attempt=summary.attempt,
            candidate=candidate,
            failure_kind=summary.failure_kind,
            failing_gates=summary.failing_gates,
            patch_sha256=application.patch_sha256,
            left_out=next_candidate.left_out,
        )
        self._record(failed)
        return failed

    def ended(self, decision: EndDecision, state: FixProgress) -> FixResult:
        """Record the end that was decided, and return its result."""
        end = self._end(decision, state)
        self._record(end)
        return result_of(end, state, self.audit, self.scope, self.advisory.id)

    def _end(self, decision: EndDecision, state: FixProgress) -> End:
        match decision:
            case EndVerified(application, passed, skipped) | EndPatched(
                application, passed, skipped
            ):
                common: dict[str, Any] = {
                    "attempt": state.attempt,
                    "tier": application.tier,
                    "patch_sha256": application.patch_sha256,
                    "gates_passed": passed,
                    "gates_skipped": skipped,
                }
                if isinstance(decision, EndPatched):
                    return FixPatched(proof_level=ProofLevel.TESTS_ONLY, **common)
                level = shown_by(state.verdicts) or application.proof_level
                return FixVerified(proof_level=level, **common)
            case EndRefused():
                return FixRefused(attempt=state.attempt, **vars(decision))
            case EndEscalated(why, question):
                put = self.evidence.put
                logs = (verdict.log for verdict in state.verdicts if verdict.log)
                return FixEscalated(
                    attempt=state.attempt,
                    reason=why,
                    question=question,
                    evidence_sha256=tuple(put(log.encode()) for log in logs),
                )

    def _record(self, event: AuditEvent) -> None:
        self._append(event)
        self.observe(event)


def _level_of(verdict: GateVerdict) -> TestsLevel | None:
    """Return the level of the tests. A gate on tests that reports none has compared none."""
    if verdict.tests_level is not None or verdict.gate != TESTS_GATE:
        return verdict.tests_level
    ran = verdict.status is GateStatus.PASSED
    return TestsLevel.RAN if ran else TestsLevel.NOT_JUDGED


class _Output:
    """A gate's output, ``safe`` without secrets: a target's tests may print what must not be stored.

    A text that quotes a line of it may contain a part of a secret that only the whole output shows to be
    one.
    """

    def __init__(self, log: str) -> None:
        self.safe = redact_secrets(log)[0]
        self._shown = drop_hidden(self.safe)
        #: Lines that hold a secret, by their first characters.
        self._secret: dict[str, list[str]] = defaultdict(list)
        self._safe_lines: dict[str, str] = {}
        lines: list[str] = []
        if self.safe != log:
            safe_lines = set(map(_bare, self.safe.splitlines()))
            original_lines = dict.fromkeys(map(_bare, log.splitlines()))
            lines = [
                line for line in original_lines if line not in safe_lines and len(line) >= _MIN_PART
            ]
        for line in lines:
            self._secret[line[:_MIN_PART]].append(line)
        self._are_many = len(lines) > MAX_SECRET_LINES

    def has(self, line: str) -> bool:
        """Return whether the safe output has this line; a line that is missing is a part of a secret.
        Colours don't count: a gate removes them, and other sequences, when it quotes."""
        return drop_hidden(line) in self._shown

    def without_parts(self, text: str) -> str:
        """Return a text without secrets and without lines that are parts of one, quoted whole or cut."""
        text = redact_secrets(text)[0]
        bare = drop_hidden(text) if self._secret else ""
        windows = {bare[at : at + _MIN_PART] for at in range(len(bare))}
        begun = [start for start in self._secret if start in windows]
        if begun and self._are_many:
            return REDACTED
        for line in chain.from_iterable(self._secret[start] for start in begun):
            if line not in self._safe_lines:
                self._safe_lines[line] = redact_secrets(line)[0]
            text = bare = _without_part(bare, line, self._safe_lines[line])
        return text

    def excerpt(self, text: str) -> str:
        """Return as much of a text as an event has room for."""
        return excerpt(self.without_parts(text), MAX_EXCERPT_CHARS)


def _bare(line: str) -> str:
    return drop_hidden(line).strip()


def _without_part(text: str, line: str, safe_line: str) -> str:
    """Return the text without a line that is a part of a secret. If the line shows a secret itself, remove
    only what a cut left of it.

    ``safe_line``: the line without secrets.
    """
    begins = 0 if safe_line == line else _common(safe_line, line)
    part = line[: begins + _MIN_PART]
    at = text.find(part)
    while at >= 0:
        end = at + _common(text[at:], line)
        text = f"{text[: at + begins]}{REDACTED}{text[end:]}"
        at = text.find(part, at + begins + len(REDACTED))
    return text


def _common(first: str, second: str) -> int:
    """Return how many characters both begin with."""
    shorter = min(len(first), len(second))
    return next((at for at in range(shorter) if first[at] != second[at]), shorter)


def _safe(tests: JudgedTests, output: _Output) -> JudgedTests:
    """Return the tests' record without secrets: a target controls its commands and their output."""
    names = ("project", "reason", "command", "source", "last_line")
    texts = {name: output.excerpt(getattr(tests, name)) for name in names}
    if output.safe and not output.has(redact_secrets(tests.last_line)[0]):
        texts["last_line"] = ""
    lines = redact_secrets(tests.output)[0].splitlines()
    shown = "\n".join(line for line in lines if output.has(line))
    return tests.model_copy(update={**texts, "output": excerpt(shown, MAX_EXCERPT_CHARS)})


def _some(names: Sequence[str]) -> tuple[str, ...]:
    """Return as many names of tests as an event has room for; a target controls them."""
    return tuple(excerpt(name, MAX_EXCERPT_CHARS) for name in names[:MAX_NAMED_TESTS])


def result_of(
    end: End, state: FixProgress, audit: AuditReader, scope: Scope, advisory_id: str
) -> FixResult:
    """Return the result for callers. ``state``: in which ``end`` was decided; its cost is recorded."""
    usage, unreported = spent(audit, scope)
    common = {
        "fix_id": scope.fix_id,
        "gate_transition_id": scope.gate_transition_id,
        "advisory_id": advisory_id,
        "attempts": end.attempt,
        "prior_attempts": state.prior_attempts,
        "failed_candidates": FailedCandidate.of(state.failed_candidates),
        "verdicts": state.verdicts,
        "usage": usage,
        "unreported": unreported,
    }
    match end:
        case FixVerified():
            return Verified.model_validate({**common, "application": state.application})
        case FixPatched():
            return Patched.model_validate({**common, "application": state.application})
        case FixRefused():
            refusal = end.model_dump(include={"reason", "sentence", "unread", "declined"})
            return RefusedFix.model_validate({**common, **refusal})
        case FixEscalated():
            question = {"reason": end.reason, "question": end.question}
            return Escalated.model_validate({**common, **question, "evidence": end.evidence_sha256})
