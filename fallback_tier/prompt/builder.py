"""Building of the prompt for a model from an advisory, a repository and a history.

The template's ``system`` block is rendered with the form of the answer, a setting, and no other variable,
so that it is byte-identical across the fixes of an ecosystem (prompt cache); its ``user`` block has
everything that differs. Text from outside is inserted in a fence (``fence``), never bare.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import FailureKind, PromptShape
from fallback_tier.advisory import Advisory, fixed_versions
from fallback_tier.answers.block_form import SEARCH, write_edit
from fallback_tier.errors import ConfigurationError
from fallback_tier.limits import MAX_EXAMPLE_BYTES, MAX_EXAMPLES, MAX_FENCE_PREFIX_BYTES
from fallback_tier.outcome import AttemptSummary, SearchReplace
from fallback_tier.ports import EcosystemPlugin, Message, NonceSource
from fallback_tier.prompt import turns
from fallback_tier.prompt.context import Snippet, asked_for, select_snippets
from fallback_tier.prompt.fence import SourceKind, fence
from fallback_tier.prompt.render import render
from fallback_tier.prompt.turns import Conversation
from fallback_tier.repo import AnswerForm, RepoContext
from fallback_tier.retrieval import FewShot, edit_line, example_text

_FIX_TEMPLATE = "Correct skills/leaf-llm-instruction.md of this ecosystem's plugin."


class Prompt(Frozen):
    """What an author is asked first. ``sha256`` and ``byte_count`` are of ``system`` + ``user`` in UTF-8.

    Its examples are cited as E1, E2 … in their order; ``example_ids`` are those of the memory.
    ``advisory``, ``snippets``, ``examples``, ``failure_summary`` and ``proof_failure`` are fenced in it;
    the judge fences them again. ``more``: the conversation in which a model got more code
    (``with_more_code``), which is among ``snippets``.
    """

    system: str
    user: str
    nonce: str
    shape: PromptShape
    advisory: str
    snippets: tuple[Snippet, ...]
    examples: tuple[str, ...]
    failure_summary: str | None
    proof_failure: str | None = None
    example_ids: tuple[str, ...]
    answer_form: AnswerForm = AnswerForm.JSON
    sha256: str
    byte_count: int
    retry_advice: str | None = None
    more: Conversation | None = None

    @property
    def example_citations(self) -> frozenset[str]:
        """The ids by which a plan cites its examples."""
        return frozenset(f"E{number}" for number in range(1, len(self.examples) + 1))

    @property
    def opening(self) -> Conversation:
        """The first turn. It is marked for the cache, because every repeated request begins with it."""
        first = Message(role="user", content=self.user, cache=True)
        return self.more or Conversation(messages=(first,), nonces=(self.nonce,))


class PromptBuilder:
    """Renders prompts. ``secrets``: values of this process that no prompt may contain."""

    def __init__(self, nonces: NonceSource, secrets: frozenset[str] = frozenset()) -> None:
        self._nonces = nonces
        self._secrets = secrets

    def build(
        self,
        advisory: Advisory,
        repo: RepoContext,
        plugin: EcosystemPlugin,
        *,
        examples: Sequence[FewShot] = (),
        prior_attempts: Sequence[AttemptSummary] = (),
        own_code: bool = False,
    ) -> Prompt:
        """Build an attempt's prompt: a first one may have examples, a retry has the last failure.

        ``own_code``: there is no dependency to raise. Raises ConfigurationError for a retry with examples
        (ADR-0011), or a wrong template.
        """
        if prior_attempts and examples:
            raise ConfigurationError(
                "A retry's prompt was given solved examples.",
                next_step="A retry is a fresh context (ADR-0011): pass no examples.",
                kind="examples_on_retry",
            )
        return self._rendered(
            advisory,
            repo,
            plugin,
            examples=examples,
            prior_attempts=prior_attempts,
            own_code=own_code,
        )

    def _rendered(
        self,
        advisory: Advisory,
        repo: RepoContext,
        plugin: EcosystemPlugin,
        *,
        examples: Sequence[FewShot],
        prior_attempts: Sequence[AttemptSummary],
        own_code: bool,
    ) -> Prompt:
        """Render any combination, also one that ``build`` refuses but an evaluation compares."""
        examples = examples[:MAX_EXAMPLES]
        snippets = select_snippets(
            advisory,
            repo,
            plugin,
            prior_attempts=prior_attempts,
            secrets=self._secrets,
            own_code=own_code,
        )
        form = repo.settings.answer_form
        texts = tuple(example_shown(shot, form) for shot in examples)
        variables = self._variables(advisory, plugin.name, snippets, texts, prior_attempts)
        proof = (repo.proof_failure.text or None) if repo.proof_failure else None
        variables |= {"own_code": own_code, "answer_form": form.value}
        variables["proof_failure"] = proof and self._fence(
            proof, SourceKind.PROOF_FAILURE, variables["fence_code"]
        )
        template = plugin.instruction_template()
        system = render(template, "system", {"answer_form": form.value}, next_step=_FIX_TEMPLATE)
        user = render(template, "user", variables, next_step=_FIX_TEMPLATE)
        _check_shows_all(user, variables)
        check_contains(system, form, next_step=_FIX_TEMPLATE)
        whole = (system + user).encode()
        return Prompt(
            system=system,
            user=user,
            nonce=variables["fence_code"],
            shape=PromptShape.asked(retry=bool(prior_attempts)),
            advisory=advisory_text(advisory, plugin.name),
            snippets=snippets,
            examples=texts,
            failure_summary=prior_attempts[-1].prior_failure_summary if prior_attempts else None,
            proof_failure=proof,
            retry_advice=variables["retry_advice"],
            example_ids=tuple(shot.example.example_id for shot in examples),
            answer_form=form,
            sha256=hashlib.sha256(whole).hexdigest(),
            byte_count=len(whole),
        )

    def repair(
        self, prompt: Prompt, answer_text: str, problems: Sequence[str], *, strict: bool = False
    ) -> Conversation:
        """Return the conversation that asks again: the first turn, then the answer's problems and the
        answer.

        Both are fenced (problems quote the answer, and it may repeat injected text). ``strict``: the answer
        was requested under the strict instruction.
        """
        return self._again(turns.REPAIR, prompt, answer_text, problems, strict=strict)

    def regenerate(
        self, prompt: Prompt, answer_text: str, unsupported: Sequence[str]
    ) -> Conversation:
        """Return the conversation that asks again, strictly: the judge found unsupported claims."""
        return self._again(turns.DOUBT, prompt, answer_text, unsupported, strict=True)

    def with_more_code(
        self, prompt: Prompt, reason: str, repo: RepoContext, *, own_code: bool
    ) -> Prompt | None:
        """Return the prompt with the code that a model's ``reason`` for declining names (ADR-0044); None if
        no more code may be shown, or it was shown already."""
        if prompt.more is not None:
            return None
        settings = repo.settings
        space = settings.own_code_budget_bytes if own_code else settings.snippet_budget_bytes
        snippets = asked_for(reason, prompt.snippets, repo, space=space, secrets=self._secrets)
        if not snippets:
            return None
        nonce = self._nonces()
        shown = snippets_shown(snippets, partial(self._fence, nonce=nonce))
        request = turns.MORE.format(
            nonce=nonce,
            one=turns.ONE[prompt.answer_form],
            reason=self._fence(reason, SourceKind.PREVIOUS_ANSWER, nonce),
            snippets="\n\n".join(f"{fenced['id']}:\n{fenced['text']}" for fenced in shown),
        )
        more = prompt.opening.and_then(turns.DECLINED_TURN, request, nonce)
        return prompt.model_copy(update={"snippets": (*prompt.snippets, *snippets), "more": more})

    def _again(
        self,
        template: str,
        prompt: Prompt,
        answer_text: str,
        problems: Sequence[str],
        *,
        strict: bool,
    ) -> Conversation:
        nonce = self._nonces()
        listed = "\n".join(f"- {problem}" for problem in problems)
        again = template.format(
            nonce=nonce,
            one=turns.ONE[prompt.answer_form],
            problems=self._fence(listed, SourceKind.PREVIOUS_ANSWER, nonce),
            answer=self._fence(answer_text, SourceKind.PREVIOUS_ANSWER, nonce),
        )
        if strict:
            again += turns.STRICT_INSTRUCTION
        return prompt.opening.and_then(turns.REJECTED_TURN, again, nonce)

    def _variables(
        self,
        advisory: Advisory,
        ecosystem: str,
        snippets: Sequence[Snippet],
        examples: Sequence[str],
        prior_attempts: Sequence[AttemptSummary],
    ) -> dict[str, Any]:
        """Return the variables of the ``user`` block. One nonce serves a whole message: no author of its
        texts knows it."""
        nonce = self._nonces()
        last = prior_attempts[-1] if prior_attempts else None
        return {
            "fence_code": nonce,
            "advisory": self._fence(advisory_text(advisory, ecosystem), SourceKind.ADVISORY, nonce),
            "snippets": snippets_shown(snippets, partial(self._fence, nonce=nonce)),
            "examples": [
                {
                    "id": f"E{number}",
                    "text": self._fence(text, SourceKind.SOLVED_EXAMPLE, nonce),
                }
                for number, text in enumerate(examples, start=1)
            ],
            # Only numbers and a closed vocabulary: the rest of a summary is untrusted text.
            "prior_attempts": [
                {"attempt": prior.attempt, "failure_kind": prior.failure_kind.value}
                for prior in prior_attempts
            ],
            "retry_advice": None if last is None else retry_advice(last.failure_kind),
            "prior_failure_summary": None
            if last is None
            else self._fence(last.prior_failure_summary, SourceKind.PRIOR_ATTEMPT_SUMMARY, nonce),
        }

    def _fence(self, text: str, source_kind: SourceKind, nonce: str) -> str:
        return fence(text, source_kind=source_kind, nonce=nonce, secrets=self._secrets).text


def _check_shows_all(user: str, variables: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if the template drops a block: the model would not see it, unnoticed."""
    expected = {
        "advisory": [variables["advisory"]],
        "snippets": [snippet["text"] for snippet in variables["snippets"]],
        "examples": [example["text"] for example in variables["examples"]],
        "prior_failure_summary": [variables["prior_failure_summary"] or ""],
        "retry_advice": [variables["retry_advice"] or ""],
        "proof_failure": [variables["proof_failure"] or ""],
    }
    for name, texts in expected.items():
        if not all(text in user for text in texts):
            raise ConfigurationError(
                f"The prompt template leaves out `{name}`.",
                next_step=_FIX_TEMPLATE,
                kind="left_out",
            )


_UNDONE = "That change was undone: the files are as the snippets show them."
_NOT_MADE = "No patch came of that answer: the files are as the snippets show them."
_BROKE = (
    "Find what in that change caused this failure, and plan one that closes the flaw without it."
)
_TOO_LITTLE = (
    "The flaw is still there: that change does too little, or it is not where the flaw is. Plan the whole "
    "fix: what of that change is right, and what was missing."
)
_CORRECTED = "Plan the fix, with what was wrong corrected."

_BY_KIND = {
    FailureKind.PROOF_FAILED: _TOO_LITTLE,
    FailureKind.STILL_VULNERABLE: _TOO_LITTLE,
    FailureKind.PLAN_INVALID: _CORRECTED,
    FailureKind.PATCH_DOES_NOT_APPLY: _CORRECTED,
    FailureKind.REPEATED_PATCH: (
        "Those edits were tried before and failed. Plan a fix that works in another way."
    ),
    FailureKind.UNDECLARED_CAPABILITY: (
        "Plan a fix that does not reach for what is named there, or declare it as it is said there."
    ),
}


_NO_PATCH = {
    FailureKind.PLAN_INVALID,
    FailureKind.PATCH_DOES_NOT_APPLY,
    FailureKind.REPEATED_PATCH,
}


def retry_advice(kind: FailureKind) -> str:
    """Return the next step after a failure of this kind, in a few sentences of our own text."""
    begin = _NOT_MADE if kind in _NO_PATCH else _UNDONE
    return f"{begin} {_BY_KIND.get(kind, _BROKE)}"


#: Fixed versions listed per package, lowest first: release lines beyond these are rarely maintained.
MAX_FIXED_VERSIONS = 20


def advisory_text(advisory: Advisory, ecosystem: str) -> str:
    """Return an advisory as a prompt shows it: structured fields first, then its text."""
    lines = [f"id: {', '.join((advisory.id, *advisory.aliases))}"]
    for package in advisory.packages(ecosystem):
        fixed = fixed_versions(advisory, ecosystem, package)[:MAX_FIXED_VERSIONS]
        lines.append(f"package: {package}; fixed in: {', '.join(fixed) or 'no version named'}")
    if advisory.cwe:
        lines.append(f"weakness: {', '.join(advisory.cwe)}")
    return "\n".join((*lines, "", advisory.text))


def snippets_shown(
    snippets: Sequence[Snippet], fenced: Callable[[str, SourceKind], str]
) -> list[dict[str, str]]:
    """Return the snippets for a template: each one's id, and its text in a fence."""
    kind = SourceKind.REPOSITORY_SNIPPET
    return [{"id": snippet.id, "text": fenced(snippet.shown, kind)} for snippet in snippets]


def example_shown(shot: FewShot, form: AnswerForm) -> str:
    """Return an example, with its edits in the requested form of the answer; in JSON if blocks, whose lines
    each get a prefix, would be cut by the fence."""
    if form is AnswerForm.BLOCKS:
        text = example_text(shot.example, shot.text, shot.edits, _block)
        lines = text.count("\n") + 1
        if len(text.encode()) + lines * MAX_FENCE_PREFIX_BYTES <= MAX_EXAMPLE_BYTES:
            return text
    return example_text(shot.example, shot.text, shot.edits, edit_line)


def _block(edit: SearchReplace) -> str:
    try:
        return write_edit(edit)
    except ValueError:
        return edit_line(edit)  # code that contains a marker: still an example, in another form


def check_contains(system: str, form: AnswerForm, *, next_step: str) -> None:
    """Raise ConfigurationError if a template only describes JSON: answers in blocks would be rejected."""
    if form is AnswerForm.BLOCKS and SEARCH not in system:
        raise ConfigurationError(
            f"The prompt template does not say how to answer in {form.value}: it has no `{SEARCH}`.",
            next_step=f"{next_step} Or use --answer-form {AnswerForm.JSON.value}.",
            kind="not_shown",
        )
