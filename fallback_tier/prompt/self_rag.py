"""Requests of self-RAG: the next segment of a plan, a critique of one, and whether examples are needed.

All requests of an attempt begin alike (advisory, snippets, the last failure), in a separate turn that is
marked for the cache; what differs comes last: the plan so far, then one example. ``system`` blocks have no
variable. All text that others wrote, including the plan, is fenced.
"""

from functools import cache, partial
from typing import Any, Final

from pydantic import TypeAdapter

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import CallType
from fallback_tier.answers.critique import critique_adapter, retrieve_adapter, segment_adapter
from fallback_tier.ports import Message, ModelRequest, NonceSource
from fallback_tier.prompt.builder import Prompt, snippets_shown
from fallback_tier.prompt.fence import SourceKind, fence
from fallback_tier.prompt.render import render_own

#: A critique is one short object; as much again is for a wordy reason.
MAX_CRITIQUE_TOKENS: Final = 256

#: The assistant's turn between the common part and the rest: chat templates require turns to alternate, and
#: a cache holds whole turns.
READ_TURN: Final = "(I have read this. How far has the plan come?)"


class Situation(Frozen):
    """The common beginning of an attempt's requests, rendered once."""

    text: str
    nonce: str


class SelfRagPrompts:
    """Renders the requests. ``secrets``: values of this process that no prompt may contain."""

    def __init__(self, nonces: NonceSource, secrets: frozenset[str] = frozenset()) -> None:
        self._nonces = nonces
        self._secrets = secrets

    def situation(self, prompt: Prompt, *, own_code: bool) -> Situation:
        """Render the ordinary prompt's advisory, snippets and failure summary. Like all methods here,
        raises ConfigurationError for a wrong template or nonce."""
        nonce = self._nonces()
        summary, proof = prompt.failure_summary, prompt.proof_failure
        variables = {
            "fence_code": nonce,
            "advisory": self._fence(prompt.advisory, SourceKind.ADVISORY, nonce),
            "snippets": snippets_shown(prompt.snippets, partial(self._fence, nonce=nonce)),
            "proof_failure": proof and self._fence(proof, SourceKind.PROOF_FAILURE, nonce),
            "prior_failure_summary": summary
            and self._fence(summary, SourceKind.PRIOR_ATTEMPT_SUMMARY, nonce),
            "retry_advice": prompt.retry_advice,
            "own_code": own_code,
        }
        return Situation(text=_render("context", "user", variables), nonce=nonce)

    def segment(
        self, situation: Situation, *, plan: str, example: str, max_output_tokens: int
    ) -> ModelRequest:
        """Return the request for the segment after ``plan`` (empty: none yet), from ``example``
        (or none)."""
        return self._request(
            "segment",
            CallType.AUTHOR,
            situation,
            {"plan": (plan, SourceKind.PLAN), "example": (example, SourceKind.SOLVED_EXAMPLE)},
            max_output_tokens=max_output_tokens,
        )

    def critique(
        self, situation: Situation, *, plan: str, segment: str, example: str
    ) -> ModelRequest:
        """Return the request for a critique of ``segment``, after ``plan``, from ``example`` (both may be
        "")."""
        return self._request(
            "critique",
            CallType.CRITIQUE,
            situation,
            {
                "plan": (plan, SourceKind.PLAN),
                "segment": (segment, SourceKind.PLAN),
                "example": (example, SourceKind.SOLVED_EXAMPLE),
            },
        )

    def retrieve(self, situation: Situation, *, plan: str, going_on: bool) -> ModelRequest:
        """Return the request whether the next segment needs examples. ``going_on``: the previous
        had some."""
        return self._request(
            "retrieve",
            CallType.CRITIQUE,
            situation,
            {"plan": (plan, SourceKind.PLAN)},
            going_on=going_on,
        )

    def _request(
        self,
        template: str,
        call_type: CallType,
        situation: Situation,
        texts: dict[str, tuple[str, SourceKind]],
        *,
        max_output_tokens: int = MAX_CRITIQUE_TOKENS,
        **flags: bool,
    ) -> ModelRequest:
        """Return a request. Its last turn has a new nonce: the plan's author knows that of the
        first turn."""
        nonce = self._nonces()
        fenced = {
            name: self._fence(text, kind, nonce) if text else None
            for name, (text, kind) in texts.items()
        }
        last = _render(template, "user", {"fence_code": nonce, **fenced, **flags})
        return ModelRequest(
            call_type=call_type,
            system=_render(template, "system", {}),
            messages=(
                Message(role="user", content=situation.text, cache=True),
                Message(role="assistant", content=READ_TURN),
                Message(role="user", content=last),
            ),
            max_output_tokens=max_output_tokens,
            answer_schema=_schema(template),
            nonces=(situation.nonce, nonce),
        )

    def _fence(self, text: str, source_kind: SourceKind, nonce: str) -> str:
        return fence(text, source_kind=source_kind, nonce=nonce, secrets=self._secrets).text


def _render(template: str, block: str, variables: dict[str, Any]) -> str:
    return render_own(f"self-rag-{template}.md", block, variables)


@cache
def _schema(template: str) -> dict[str, Any]:
    """Return the schema of an answer, made once: it takes longer than the rest of a request together."""
    adapters: dict[str, TypeAdapter[Any]] = {
        "segment": segment_adapter,
        "critique": critique_adapter,
        "retrieve": retrieve_adapter,
    }
    return adapters[template].json_schema()
