"""Ask judges about every plan of the golden set: a model, and the words of the claim itself."""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from fallback_eval.faithfulness.data import Case
from fallback_eval.faithfulness.results import (
    AnswerFile,
    Asked,
    JudgeRun,
    KeptAnswer,
    Overlap,
)
from fallback_eval.retrieval.results import EvaluationError
from fallback_tier.errors import ModelError
from fallback_tier.limits import MAX_EXAMPLES
from fallback_tier.llm.judging import judge_request, output_tokens
from fallback_tier.patch.diff import patch_digest
from fallback_tier.ports import LanguageModel, ModelAnswer, ModelRequest

#: How many examples the context of a plan of the curve has, one judgement each.
CURVE: Final = (0, 1, 2, MAX_EXAMPLES)

#: Claims of one plan are judged in one call, as in the product; this much room is never the limit.
_MAX_OUTPUT_TOKENS: Final = output_tokens(16)

#: A server that fails so often in a row is down: better stop, and go on when it is back.
_MAX_FAILURES: Final = 3

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]+|\d+(?:\.\d+)*")

#: Words that every text has: articles, auxiliaries, prepositions, and what plans say of themselves.
_EMPTY: Final = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "do", "does", "for"}
    | {"from", "has", "have", "if", "in", "into", "is", "it", "its", "may", "no", "not", "of", "on"}
    | {"only", "or", "so", "that", "the", "their", "them", "there", "they", "this", "to", "was"}
    | {"were", "what", "when", "where", "which", "who", "whose", "will", "with", "without"}
    | {"advisory", "call", "clears", "code", "edit", "raising", "replaces", "shown", "snippet"}
)

#: (done, total) after each answer.
Progress = Callable[[int, int], None]


def askings(cases: Sequence[Case]) -> Iterator[tuple[Case, int]]:
    """Every plan with its whole context first: a run that is stopped has the main figures. Then those of
    the curve with fewer examples, fewest first: a server that caches prefixes reads a context once."""
    yield from ((case, len(case.context.examples)) for case in cases)
    for case in cases:
        if case.ref.curve:
            yield from ((case, count) for count in CURVE if count < len(case.context.examples))


def request_for(case: Case, examples: int) -> ModelRequest:
    """What the product would ask. The nonce is fixed for a plan: the same run asks the same.

    Raises EvaluationError for a plan that can't be judged.
    """
    nonce = hashlib.sha256(f"faithfulness {case.ref.plan}".encode()).hexdigest()[:32]
    request = judge_request(
        case.context_with(examples),
        case.plan,
        case.claims,
        nonces=lambda: nonce,
        max_output_tokens=_MAX_OUTPUT_TOKENS,
    )
    if isinstance(request, str):
        raise EvaluationError(
            f"{case.ref.plan} can't be judged: {request}", next_step="Shorten the plan."
        )
    return request


def judge_by_model(
    cases: Sequence[Case],
    model: LanguageModel,
    run: JudgeRun,
    answers: AnswerFile,
    progress: Progress,
) -> None:
    """Ask what was not answered yet; each answer is kept before the next is asked.

    Raises EvaluationError where the folder has another model's answers, ModelError where the server
    fails several times in a row (what was answered is kept).
    """
    kept = answers.open(run)
    wanted = [(case, count, request_for(case, count)) for case, count in askings(cases)]
    failures = 0
    for done, (case, count, request) in enumerate(wanted, start=1):
        digest = patch_digest(request.text)
        earlier = kept.get((case.ref.plan, count))
        if earlier is None or earlier.answer is None or earlier.prompt_sha256 != digest:
            failures = _keep(answers, model, request, (case.ref.plan, count), failures)
        progress(done, len(wanted))


def _keep(
    answers: AnswerFile, model: LanguageModel, request: ModelRequest, asked: Asked, failures: int
) -> int:
    """Ask, keep, and say how many failures in a row there are now."""
    plan, examples = asked
    started = time.monotonic_ns()
    answer: ModelAnswer | None = None
    failure = ""
    try:
        answer = _ask(model, request)
    except ModelError as error:
        failures += 1
        if failures >= _MAX_FAILURES:
            raise
        failure = str(error)
    else:
        failures = 0
    answers.add(
        KeptAnswer(
            plan=plan,
            examples=examples,
            prompt_sha256=patch_digest(request.text),
            answer=answer,
            failure=failure,
            duration_ms=(time.monotonic_ns() - started) // 1_000_000,
        )
    )
    return failures


def _ask(model: LanguageModel, request: ModelRequest) -> ModelAnswer:
    with closing(model.ask(request)) as words:
        while True:
            try:
                next(words)
            except StopIteration as end:
                answer: ModelAnswer = end.value
                return answer


def judge_by_words(cases: Sequence[Case]) -> list[Overlap]:
    """The share of each claim's content words that advisory, snippets and examples have."""
    found: list[Overlap] = []
    for case, count in askings(cases):
        context = case.context_with(count)
        snippets = (f"{snippet.path} {snippet.text}" for snippet in context.snippets)
        have = _words("\n".join((context.advisory, *snippets, *context.examples)))
        found.append(
            Overlap(
                plan=case.ref.plan,
                examples=count,
                prompt_sha256=patch_digest(request_for(case, count).text),
                shares=tuple(_share(claim.text, have) for claim in case.claims),
            )
        )
    return found


def _share(claim: str, have: frozenset[str]) -> float:
    words = _words(claim)
    return round(len(words & have) / len(words), 4) if words else 0.0


def _words(text: str) -> frozenset[str]:
    """Words that carry meaning, in lower case, a plural's s left out."""
    found = (word.lower() for word in _WORD.findall(text))
    return frozenset(word.removesuffix("s") for word in found if word not in _EMPTY)
