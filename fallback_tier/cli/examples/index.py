"""``fallback-tier examples index``, ``manifest``, ``validate`` and ``search``: the index of the memory."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.index.drift import Drift
from fallback_plugins.solved_examples.index.drift import validate as find_drift
from fallback_plugins.solved_examples.index.embedding import load_embedder, missing_packages
from fallback_plugins.solved_examples.interfaces import Question
from fallback_plugins.solved_examples.question import flaw_text, question_of
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.selection import account, evidence, select
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import Manifest
from fallback_tier.advisory import load_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.examples.records import open_store
from fallback_tier.cli.progress import Shown, counting_bar
from fallback_tier.cli.results import print_plain
from fallback_tier.retrieval import RetrievalAccount


class ManifestShown(Manifest):
    """What ``examples manifest --json`` prints."""

    manifest_sha256: str


class DriftFound(Frozen):
    """What ``examples validate --json`` prints; empty: store, manifest and model agree."""

    drift: tuple[Drift, ...]


class EmbeddingBuilt(Frozen):
    """How many chunks were embedded now, and before; ``dead_rows``: those whose chunk is gone."""

    embedded: int
    already: int
    dead_rows: int
    seconds: float


class IndexBuilt(Frozen):
    """What ``examples index --json`` prints. ``cut``: records that were cut again; ``embedding`` None: the
    extra is not installed."""

    cut: int
    embedding: EmbeddingBuilt | None


def manifest(arguments: argparse.Namespace) -> int:
    """Print the manifest, as the last change left it."""
    current = open_store(arguments).manifest()
    document = ManifestShown(**dict(current), manifest_sha256=current.sha256).model_dump(
        mode="json"
    )
    embedding = document["embedding"] or {"embedding": "none: words alone are searched"}
    shown = {name: value for name, value in document.items() if name != "embedding"} | embedding
    lines = (f"{name:16} {value}" for name, value in shown.items())
    return print_plain(arguments, document, lines)


def validate(arguments: argparse.Namespace) -> int:
    """Print every difference, one per line. Return ENVIRONMENT if there is one."""
    drift = find_drift(open_store(arguments), load_embedder())
    document = DriftFound(drift=drift)
    lines = [f"{item.kind}: {item.sentence}" for item in drift]
    print_plain(arguments, document, lines or ["no drift"])
    return exit_codes.ENVIRONMENT if drift else exit_codes.OK


def index(arguments: argparse.Namespace) -> int:
    """Cut and embed what is new. Without the extra only the cutting is done, and the output says so."""
    store = open_store(arguments)
    embedder = load_embedder(many=True)
    with _Bar() as bar:
        cut = store.rechunk(bar.stage("cutting"))
        built = None
        if embedder is not None:
            from fallback_plugins.solved_examples.index.indexing import build_index

            built = build_index(
                store, embedder, progress=bar.stage("embedding"), rebuild=arguments.rebuild
            )
        else:
            from fallback_plugins.solved_examples.index.word_index import build_words

            build_words(store)
    lines = [f"{cut} records cut again"] if cut else []
    if built is None:
        missing = ", ".join(missing_packages())
        lines.append(
            "words alone are searched: the extra `embeddings` is not installed "
            f"(missing: {missing})"
        )
    else:
        lines.append(
            f"{built.embedded} chunks embedded in {built.seconds:.1f} s, {built.already} were before"
        )
    embedding = EmbeddingBuilt(**asdict(built)) if built else None
    return print_plain(arguments, IndexBuilt(cut=cut, embedding=embedding), lines)


class _Bar(Shown):
    """Progress of a long command, on a terminal. Use as a context manager."""

    def __init__(self) -> None:
        self._progress = counting_bar()
        super().__init__(self._progress)

    def stage(self, name: str) -> Callable[[int, int], None]:
        task = self._progress.add_task(name, total=None, visible=False)

        def show(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total, visible=total > 0)

        return show


class ExamplesFound(RetrievalAccount):
    """What ``examples search --json`` prints. ``evidence``: in a sentence, what was found and by what."""

    evidence: str


def search(arguments: argparse.Namespace) -> int:
    """Print which examples would be found. Without a repository, identical code is not searched. Raises
    InputError for a bad advisory."""
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
    for rank, name in enumerate(answer.returned, start=1):
        yield f"{rank}. {name}  {_scores(answer.scores[name])}"
    for dropped in answer.dropped:
        yield f"-  {dropped.example_id}: {dropped.reason}  {_scores(dropped.scores)}"


def _scores(scores: Mapping[str, float]) -> str:
    return " ".join(f"{name} {score:.3f}" for name, score in scores.items())
