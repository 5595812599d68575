"""Support of a plan, asked of a judge: a model, best another one than the author's (ADR-0022).

Off, unreachable, over budget or unreadable: the plan is *not evaluated*, which is on record and is
never turned into a verdict.
"""

from collections.abc import Generator
from dataclasses import dataclass, field

from fallback_audit.events import MAX_EXCERPT_CHARS, GroundingJudged, GroundingNotEvaluated
from fallback_audit.ports import EvidenceStore
from fallback_tier.answers.verdicts import read_graded
from fallback_tier.attempt.task import Draft, TierEvent
from fallback_tier.budget.meter import OverBudget
from fallback_tier.errors import ModelError
from fallback_tier.grounding.support import Claim, Judgement, claims_of, read_verdicts
from fallback_tier.llm.calling import CallRequest, ModelAttempt
from fallback_tier.outcome import Plan
from fallback_tier.ports import LanguageModel, ModelAnswer, NonceSource
from fallback_tier.prompt.judge import JudgeContext, judge_request
from fallback_tier.prompt.redact import excerpt, redact_secrets


@dataclass(frozen=True)
class PlanJudge:
    """Grades every claim of a plan against what the author was shown."""

    model: LanguageModel
    nonces: NonceSource
    evidence: EvidenceStore
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def judge(
        self, plan: Plan, draft: Draft, attempt: ModelAttempt
    ) -> Generator[TierEvent, None, Judgement | None]:
        """The judgement, on record; None where there is none, and the record says why."""
        claims = claims_of(plan)
        verdict = yield from self._ask(plan, claims, draft, attempt)
        if isinstance(verdict, str):
            reason = excerpt(verdict, MAX_EXCERPT_CHARS)
            yield attempt.record(
                GroundingNotEvaluated(attempt=attempt.task.number, call=draft.call, reason=reason)
            )
            return None
        yield attempt.record(
            GroundingJudged(
                attempt=attempt.task.number,
                call=draft.call,
                supported=verdict.supported,
                faithfulness_score=verdict.faithfulness_score,
                claims=len(verdict.claims),
                unsupported=tuple(
                    excerpt(claim, MAX_EXCERPT_CHARS) for claim in verdict.unsupported
                ),
                judge_model=self.model.model,
                judgement_sha256=self.evidence.put(
                    redact_secrets(verdict.model_dump_json())[0].encode("utf-8", "replace")
                ),
            )
        )
        return verdict

    def _ask(
        self, plan: Plan, claims: tuple[Claim, ...], draft: Draft, attempt: ModelAttempt
    ) -> Generator[TierEvent, None, Judgement | str]:
        prompt = attempt.prompt
        context = JudgeContext(
            advisory=prompt.advisory,
            snippets=prompt.snippets,
            examples=draft.example_texts,
            failure_summary=prompt.failure_summary,
            proof_failure=prompt.proof_failure,
        )
        request = judge_request(
            context,
            plan,
            claims,
            nonces=self.nonces,
            max_output_tokens=attempt.task.repo.settings.max_output_tokens,
            secrets=self.secrets,
        )
        if isinstance(request, str):
            return request
        try:
            answered = yield from attempt.caller.ask(
                self.model, CallRequest(request, draft.example_ids)
            )
        except ModelError as error:
            return f"the judge gave no answer: {error}"
        except OverBudget as error:
            return f"the budget has no room for the judge: {error}"
        return _read(answered.answer, claims)


def _read(answer: ModelAnswer, claims: tuple[Claim, ...]) -> Judgement | str:
    verdicts, problems = read_graded(answer)
    if verdicts is None:
        return f"the judge's answer can't be read: {' '.join(problems)}"
    return read_verdicts(verdicts.claims, claims)
