"""Support of a plan, judged by a model, preferably another one than the author's (ADR-0022).

If the judge is off, unreachable, over budget or unreadable, the plan is *not evaluated*: that is recorded,
and never turned into a verdict.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from fallback_audit.events import MAX_EXCERPT_CHARS, GroundingJudged, GroundingNotEvaluated
from fallback_audit.frozen import Frozen
from fallback_audit.ports import EvidenceStore
from fallback_audit.vocabulary import CallType
from fallback_tier.answers.reading import read_one
from fallback_tier.attempt.task import Draft, TierEvent
from fallback_tier.budget.meter import OverBudget
from fallback_tier.errors import ModelError
from fallback_tier.grounding.support import (
    Claim,
    Judgement,
    Verdicts,
    claims_of,
    has_cut_claims,
    read_verdicts,
    verdicts_adapter,
)
from fallback_tier.llm.calling import CallRequest, ModelAttempt
from fallback_tier.outcome import Plan, Refuse
from fallback_tier.ports import LanguageModel, Message, ModelAnswer, ModelRequest, NonceSource
from fallback_tier.prompt.context import Snippet
from fallback_tier.prompt.fence import Fenced, SourceKind, fence
from fallback_tier.prompt.redact import excerpt, redact_secrets
from fallback_tier.prompt.render import render_own

#: Output tokens of a grade: an id, true or false, a reason of ten words, and three times as much for a
#: wordy one.
TOKENS_PER_CLAIM: Final = 80

#: The object around the grades, and the code fence that models often add.
TOKENS_AROUND: Final = 60

_TEMPLATE: Final = "grounding-judge.md"


class JudgeContext(Frozen):
    """What the author of a plan was shown, unfenced. Nothing else supports a claim."""

    advisory: str
    snippets: tuple[Snippet, ...] = ()
    #: In the order of [E1], [E2] …
    examples: tuple[str, ...] = ()
    failure_summary: str | None = None
    proof_failure: str | None = None


def judge_request(
    context: JudgeContext,
    plan: Plan,
    claims: Sequence[Claim],
    *,
    nonces: NonceSource,
    max_output_tokens: int,
    secrets: frozenset[str] = frozenset(),
) -> ModelRequest | str:
    """Return the request, or why this plan can't be judged (it doesn't fit its fence: a grade of a cut
    claim would be invented).

    ``max_output_tokens`` is a ceiling. Raises ConfigurationError for a wrong template or nonce.
    """
    if not claims:
        return "The plan makes no claim, so there is nothing to judge."
    if has_cut_claims(plan):
        return "The plan's rationale is longer than what a judge is shown of it, claim by claim."
    nonce = nonces()

    def fenced(text: str, kind: SourceKind) -> Fenced:
        return fence(text, source_kind=kind, nonce=nonce, secrets=secrets)

    fenced_claims = fenced(
        "\n".join(f"{claim.id}: {claim.text}" for claim in claims), SourceKind.PLAN
    )
    edits = fenced(_edits_text(plan), SourceKind.PLAN)
    if fenced_claims.cut or edits.cut:
        cut_part = "claims are" if fenced_claims.cut else "edits are"
        max_bytes = SourceKind.PLAN.max_bytes
        return f"The plan's {cut_part} longer than the {max_bytes:,} bytes that a judge is shown whole."
    summary, proof = context.failure_summary, context.proof_failure
    user = render_own(
        _TEMPLATE,
        "user",
        {
            "fence_code": nonce,
            "advisory": fenced(context.advisory, SourceKind.ADVISORY).text,
            "snippets": [
                fenced(f"[{snippet.id}] {snippet.shown}", SourceKind.REPOSITORY_SNIPPET).text
                for snippet in context.snippets
            ],
            "examples": [
                fenced(f"[E{number}] {text}", SourceKind.SOLVED_EXAMPLE).text
                for number, text in enumerate(context.examples, 1)
            ],
            "proof_failure": proof and fenced(proof, SourceKind.PROOF_FAILURE).text,
            "failure_summary": summary and fenced(summary, SourceKind.PRIOR_ATTEMPT_SUMMARY).text,
            "edits": edits.text if _edits_text(plan) else None,
            "claims": fenced_claims.text,
            "ids": ", ".join(claim.id for claim in claims),
        },
    )
    return ModelRequest(
        call_type=CallType.JUDGE,
        system=render_own(_TEMPLATE, "system", {}),
        messages=(Message(role="user", content=user),),
        max_output_tokens=min(max_output_tokens, output_tokens(len(claims))),
        answer_schema=_schema(),
        nonces=(nonce,),
    )


def output_tokens(claims: int) -> int:
    """Return the output tokens that an answer over so many claims may need."""
    return TOKENS_AROUND + TOKENS_PER_CLAIM * claims


def _edits_text(plan: Plan) -> str:
    edits = () if isinstance(plan, Refuse) else plan.edits
    return "\n".join(
        f"Edit {number} makes the new file {edit.path}:\n{edit.new}"
        if edit.makes_file
        else f"Edit {number} in {edit.path}\nreplaces:\n{edit.old}\nby:\n{edit.new}"
        for number, edit in enumerate(edits, 1)
    )


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    return Verdicts.model_json_schema()


@dataclass(frozen=True)
class PlanJudge:
    """Grades every claim of a plan against the author's context."""

    model: LanguageModel
    nonces: NonceSource
    evidence: EvidenceStore
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def judge(
        self, plan: Plan, draft: Draft, attempt: ModelAttempt
    ) -> Generator[TierEvent, None, Judgement | None]:
        """Return the judgement after recording it, or None after recording why there is none."""
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


#: A key that every judge's answer has, and few other objects in it.
_KEY = "claims"


def read_graded(answer: ModelAnswer) -> tuple[Verdicts | None, tuple[str, ...]]:
    """Return the grades in an answer, or its problems. Never raises. ``read_verdicts`` checks that each
    claim is graded once."""
    return read_one(answer, _KEY, verdicts_adapter)
