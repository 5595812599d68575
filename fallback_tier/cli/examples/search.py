"""``fallback-tier examples search``: show which examples would be found, and why."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from fallback_plugins.solved_examples.index.embedding import load_embedder
from fallback_plugins.solved_examples.interfaces import Question
from fallback_plugins.solved_examples.question import flaw_text, question_of
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.selection import account, evidence, select
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_tier.advisory import load_advisory
from fallback_tier.cli.examples.records import open_store
from fallback_tier.cli.results import print_plain
from fallback_tier.retrieval import RetrievalAccount


class ExamplesFound(RetrievalAccount):
    """What ``examples search --json`` prints. ``evidence``: in a sentence, what was found and by what."""

    evidence: str


def search(arguments: argparse.Namespace) -> int:
    """Without a repository: identical code is not looked for. Raises InputError for a bad advisory."""
    settings = RetrievalSettings().with_routing_floor(arguments.routing_floor)
    index = SolvedExampleIndex(open_store(arguments), embedder=load_embedder(), settings=settings)
    ranking = index.search(_question(arguments))
    answer = account(select((), ranking, settings), ranking, settings)
    message = " ".join(filter(None, [ranking.degraded, evidence((), ranking, settings)]))
    document = ExamplesFound(**dict(answer), evidence=message)
    return print_plain(arguments, document, _lines(answer, message))


def _question(arguments: argparse.Namespace) -> Question:
    if arguments.advisory is not None:
        return question_of(load_advisory(Path(arguments.advisory)))
    packages = _one(arguments.package)
    return Question(
        text=flaw_text(arguments.text, packages),
        ecosystems=_one(arguments.ecosystem),
        packages=packages,
        cwe=_one(arguments.cwe),
        language=arguments.language or "",
    )


def _one(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)


def _lines(answer: RetrievalAccount, message: str) -> Iterator[str]:
    yield message
    if not answer.returned:
        yield "nothing is good enough"
    for place, name in enumerate(answer.returned, start=1):
        yield f"{place}. {name}  {_scores(answer.scores[name])}"
    for dropped in answer.dropped:
        yield f"-  {dropped.example_id}: {dropped.reason}  {_scores(dropped.scores)}"


def _scores(scores: Mapping[str, float]) -> str:
    return " ".join(f"{name} {score:.3f}" for name, score in scores.items())
