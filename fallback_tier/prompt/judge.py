"""What a judge is asked: is every claim of a plan supported by the context that its author had?

The template's ``system`` block has no variable (prompt cache); whatever was written by others, the
plan included, enters as a fence.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import CallType
from fallback_tier.grounding.support import Claim, Verdicts, has_cut_claims
from fallback_tier.outcome import Plan, Refuse
from fallback_tier.ports import Message, ModelRequest, NonceSource
from fallback_tier.prompt.context import Snippet
from fallback_tier.prompt.fence import Fenced, SourceKind, fence
from fallback_tier.prompt.render import render_own

#: Output tokens of a grade: an id, true or false, a reason of ten words, and three times as much for
#: a wordy one.
TOKENS_PER_CLAIM: Final = 80

#: The object around the grades, and the code fence that models like to put round it.
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
    """The request, or why this plan can't be judged (then support is not evaluated).

    A plan that doesn't fit its fence is not judged: a grade of a claim that was cut would be invented.
    ``max_output_tokens`` is a ceiling: few claims ask for less. Raises ConfigurationError for a wrong
    template or nonce.
    """
    if not claims:
        return "The plan makes no claim, so there is nothing to judge."
    if has_cut_claims(plan):
        return "The plan's rationale is longer than what a judge is shown of it, claim by claim."
    nonce = nonces()

    def fenced(text: str, kind: SourceKind) -> Fenced:
        return fence(text, source_kind=kind, nonce=nonce, secrets=secrets)

    listed = fenced("\n".join(f"{claim.id}: {claim.text}" for claim in claims), SourceKind.PLAN)
    edits = fenced(_edits_text(plan), SourceKind.PLAN)
    if listed.cut or edits.cut:
        what = "claims are" if listed.cut else "edits are"
        most = SourceKind.PLAN.max_bytes
        return f"The plan's {what} longer than the {most:,} bytes that a judge is shown whole."
    summary, proof = context.failure_summary, context.proof_failure
    user = render_own(
        _TEMPLATE,
        "user",
        {
            "fence_code": nonce,
            "advisory": fenced(context.advisory, SourceKind.ADVISORY).text,
            "snippets": [
                fenced(f"[{one.id}] {one.shown}", SourceKind.REPOSITORY_SNIPPET).text
                for one in context.snippets
            ],
            "examples": [
                fenced(f"[E{number}] {text}", SourceKind.SOLVED_EXAMPLE).text
                for number, text in enumerate(context.examples, 1)
            ],
            "proof_failure": proof and fenced(proof, SourceKind.PROOF_FAILURE).text,
            "failure_summary": summary and fenced(summary, SourceKind.PRIOR_ATTEMPT_SUMMARY).text,
            "edits": edits.text if _edits_text(plan) else None,
            "claims": listed.text,
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
    """What an answer over so many claims may take."""
    return TOKENS_AROUND + TOKENS_PER_CLAIM * claims


def _edits_text(plan: Plan) -> str:
    """Every edit whole: what a claim only quotes."""
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
