"""Questions of fixes to people, and the answers: the same code and events as ``fallback-tier review``.

An answer is recorded in the name of the signed-in caller, never in another's.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from fallback_audit.event_types import Digest
from fallback_audit.events import MAX_WORDS_CHARS, AttemptStarted, BudgetRaised, FixStarted
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditStore
from fallback_tier.errors import InputError
from fallback_tier.fix.journal import review
from fallback_tier.fix.journal.history import read_history
from fallback_tier.fix.journal.holding import holding
from fallback_tier.fix.journal.questions import Question, Questions, Review
from fallback_tier.fix.journal.questions import review as read_review
from fallback_tier.fix.journal.review import raise_budget
from fallback_tier.repo import new_id
from fallback_tier.service.operations.record import TrailAndEvidence
from fallback_tier.service.refusals import ConflictError, NotFoundError
from fallback_tier.service.roles import Caller
from fallback_tier.wiring.trail import open_trail

#: A fix on record has at least one of these events.
_FIRST = frozenset({FixStarted.__name__, AttemptStarted.__name__})


class Verdict(StrEnum):
    """What a person can decide."""

    APPROVE = "approve"
    REJECT = "reject"
    REOPEN = "reopen"
    GATES_AGAIN = "gates_again"
    RAISE_BUDGET = "raise_budget"


class Decision(Frozen):
    """A person's answer. ``patch``: the beginning of a digest (default: the patch asked about).

    ``usd_per_fix``, ``tokens_per_fix``: the new cap, for ``raise_budget`` alone.
    """

    # Built at once: FastAPI silences pydantic's warnings about its fields only while it reads a route.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=False)

    verdict: Verdict
    because: Annotated[str, Field(min_length=1, max_length=MAX_WORDS_CHARS)]
    patch: Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")] | None = None
    usd_per_fix: Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?$")] | None = None
    tokens_per_fix: Annotated[int, Field(gt=0, lt=2**53)] | None = None


class Decided(Frozen):
    """What went on record. ``patch``: the text, where one was approved; ``goes_on``: the fix can be
    resumed now."""

    fix_id: str
    verdict: Verdict
    by: str
    because: str
    patch_sha256: Digest | None = None
    patch: str | None = None
    opens: str | None = None
    goes_on: bool = False


@dataclass(frozen=True)
class Reviews:
    """The questions of one audit trail."""

    record: TrailAndEvidence
    _questions: Questions = field(default_factory=Questions)

    def questions(self, *, answered: bool = False) -> list[Question]:
        """Return open questions, the newest first; ``answered``: all questions."""
        with self.record.reading() as reader:  # the lock also protects the cache in ``_questions``
            return self._questions.read(reader, answered=answered)

    def show(self, fix_id: str) -> Review:
        """Return one question, with what is needed to answer it. Raises NotFoundError; InputError if
        the fix asks nothing.
        """
        self._check_there(fix_id)
        with self.record.reading() as reader:
            question = read_review(reader, self.record.evidence, fix_id)
        steps = tuple(map(self.record.command, question.next_steps))
        return question.model_copy(update={"next_steps": steps})

    def decide(self, caller: Caller, fix_id: str, decision: Decision) -> Decided:
        """Record an answer.

        Raises ConflictError if another answer is on record or being recorded; InputError if nothing is
        asked, or this can't be the answer; EvidenceError if the patch was deleted.
        """
        signature = review.Signature(by=caller.name, because=decision.because)
        self._check_there(fix_id)
        with self._deciding(fix_id) as audit:
            self._check_first(audit, fix_id)
            facts = self._recorded(audit, fix_id, signature, decision)
        return Decided(
            fix_id=fix_id,
            verdict=decision.verdict,
            by=caller.name,
            because=decision.because,
            **facts,
        )

    def abandon(self, caller: Caller, fix_id: str, because: str) -> None:
        """Record that a person abandons an interrupted fix.

        Raises ConflictError if a process works on it; InputError if it has ended, waits for an answer, or
        there is no reason; NotFoundError.
        """
        signature = review.Signature(by=caller.name, because=because)
        self._check_there(fix_id)
        with self._deciding(fix_id) as audit:
            review.abandon(audit, self.record.state_dir, fix_id, signature)

    def _recorded(
        self, audit: AuditStore, fix_id: str, signature: review.Signature, decision: Decision
    ) -> dict[str, Any]:
        evidence = self.record.evidence
        match decision.verdict:
            case Verdict.APPROVE:
                approval = review.approve(audit, evidence, fix_id, signature, patch=decision.patch)
                text = approval.patch.decode("utf-8", "replace")
                return {"patch_sha256": approval.decision.patch_sha256, "patch": text}
            case Verdict.REJECT:
                review.reject(audit, fix_id, signature)
                return {}
            case Verdict.REOPEN:
                event = review.reopen(audit, fix_id, signature, opens=new_id("gate"))
                return {"opens": event.opens, "goes_on": True}
            case Verdict.GATES_AGAIN:
                opens, patch = new_id("gate"), decision.patch
                event = review.run_gates_again(
                    audit, evidence, fix_id, signature, opens=opens, patch=patch
                )
                return {"opens": opens, "patch_sha256": event.judges_again, "goes_on": True}
            case Verdict.RAISE_BUDGET:
                raised = BudgetRaised(
                    by=signature.by,
                    reason=signature.because,
                    usd_per_fix=decision.usd_per_fix,
                    tokens_per_fix=decision.tokens_per_fix,
                )
                raise_budget(audit, fix_id, raised)
                return {"goes_on": True}

    def _check_there(self, fix_id: str) -> None:
        with self.record.reading() as reader:
            if any(reader.events(fix_id, kinds=_FIRST)):
                return
        raise NotFoundError(
            f"There is no fix {fix_id[:100]!r} on record.",
            next_step="GET /v1/reviews lists questions.",
            kind="no_such_fix",
        )

    def _check_first(self, audit: AuditStore, fix_id: str) -> None:
        """Raise ConflictError if there is an answer on record; its message has that answer."""
        answer = review.answer_to(read_history(audit, fix_id).current)
        if answer is not None:
            raise ConflictError(
                f"Fix {fix_id} was answered already: {' '.join(answer.split())}.",
                next_step=f"GET /v1/reviews/{fix_id} shows the answer in its place.",
                kind="answered",
            )

    @contextmanager
    def _deciding(self, fix_id: str) -> Iterator[AuditStore]:
        """Yield the store, with the fix locked as a run locks it, so that the decision precedes its
        next event.
        """
        state, settings = self.record.state_dir, self.record.settings
        with ExitStack() as stack:
            try:
                stack.enter_context(holding(state, fix_id))
            except InputError as error:
                raise ConflictError(
                    f"Fix {fix_id} is being worked on, or decided about, just now.",
                    next_step=f"GET /v1/reviews/{fix_id} shows what is on record; then decide.",
                    kind="in_use",
                ) from error
            yield stack.enter_context(closing(open_trail(state, settings)))
