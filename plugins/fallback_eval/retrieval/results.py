"""Raw results of a run: what every variant answered, kept beside the report that is made from them.

::

    run.json         what ran: split, corpus, model, variants with their settings
    rankings.jsonl   one answer a line: deterministic, the same run writes the same bytes
    latencies.jsonl  one variant a line: of the machine that ran it
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from pydantic import JsonValue, ValidationError

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_eval.retrieval.golden import Split
from fallback_tier.errors import FallbackError, first_fault
from fallback_tier.files.whole import write_whole

#: Places of a ranking that are kept: as far as the quality-against-k curve goes.
DEPTH = 10
RUN, RANKINGS, LATENCIES = "run.json", "rankings.jsonl", "latencies.jsonl"

#: The variant that is what the code does without being told otherwise.
DEFAULT = "default"


class EvaluationError(FallbackError):
    """An evaluation can't be run, read, or believed."""

    code: ClassVar[str] = "evaluation"


class VariantFacts(Frozen):
    """What a variant is. ``component``: what it switches against the default, one word or two."""

    name: str
    component: str
    summary: str
    settings: Mapping[str, JsonValue]


class NotRun(Frozen):
    """A variant that this machine can't run, and why."""

    name: str
    component: str
    reason: str


class CutUnits(Frozen):
    """How many structural units of the corpus a splitter cut through.

    ``kinds``: kind → those cut, all, and those cut that are larger than a chunk may be.
    """

    splitter: str
    kinds: Mapping[str, tuple[int, int, int]]


class Run(Frozen):
    """What ran, on what."""

    format: Literal[1] = 1
    split: Split
    queries_sha256: Digest
    corpus_sha256: Digest
    #: Ids of the corpus, sorted; rankings.jsonl names them by their place here.
    corpus: tuple[str, ...]
    #: Name → value: model, digest, dimension, chunker version.
    parts: Mapping[str, str]
    variants: tuple[VariantFacts, ...]
    not_run: tuple[NotRun, ...] = ()
    units: tuple[CutUnits, ...] = ()
    notes: tuple[str, ...] = ()


class Answer(Frozen):
    """What one variant answered to one query: at most DEPTH ids, best first, with their scores.

    ``routing``: the score that decides between an answer and a miss, also where no floor was applied.
    ``bounds``: the scores that the chunk floor is on, where there are such.
    """

    variant: str
    query: str
    verdict: Literal["hit", "degraded", "miss"] = "hit"
    routing: float
    ids: tuple[str, ...]
    scores: tuple[float, ...]
    bounds: tuple[float, ...] = ()


class _Kept(Frozen):
    """An answer as a line: names would make it twice as long."""

    variant: str
    query: str
    verdict: Literal["hit", "degraded", "miss"] = "hit"
    routing: float
    ids: tuple[int, ...]
    scores: tuple[float, ...]
    bounds: tuple[float, ...] = ()


class Latency(Frozen):
    """Milliseconds of one variant. ``medians``: of each query's repeats, in the order of the queries.

    ``noise``: median over the queries of (slowest - fastest) / median among the repeats.
    """

    variant: str
    repeats: int
    medians: tuple[float, ...]
    noise: float


@dataclass(frozen=True)
class Results:
    """A run with its answers (variant → query → answer) and latencies (variant → latency)."""

    run: Run
    answers: Mapping[str, Mapping[str, Answer]]
    latencies: Mapping[str, Latency]

    def save(self, folder: Path) -> None:
        """Write the three files, each wholly or not at all. KeyError: an id that isn't of the corpus."""
        folder.mkdir(parents=True, exist_ok=True)
        places = {name: place for place, name in enumerate(self.run.corpus)}
        kept = (_kept(answer, places) for one in self.answers.values() for answer in one.values())
        write_whole(folder / RANKINGS, ("".join(map(_line, kept))).encode())
        write_whole(folder / LATENCIES, ("".join(map(_line, self.latencies.values()))).encode())
        write_whole(folder / RUN, (self.run.model_dump_json(indent=1) + "\n").encode())


def load_results(folder: Path) -> Results:
    """What ``save`` wrote. Raises EvaluationError: missing, or not of the format."""
    run = _parsed(_read(folder / RUN), folder / RUN, Run)
    answers: dict[str, dict[str, Answer]] = {variant.name: {} for variant in run.variants}
    for row in _rows(folder / RANKINGS, _Kept):
        answers.setdefault(row.variant, {})[row.query] = _answer(row, run, folder)
    latencies = {one.variant: one for one in _rows(folder / LATENCIES, Latency)}
    _ensure_whole(folder, run, answers)
    return Results(run, answers, latencies)


def results_of(run: Run, answers: Iterable[Answer], latencies: Iterable[Latency]) -> Results:
    """Put a run together."""
    found: dict[str, dict[str, Answer]] = {variant.name: {} for variant in run.variants}
    for answer in answers:
        found[answer.variant][answer.query] = answer
    return Results(run, found, {one.variant: one for one in latencies})


def _kept(answer: Answer, places: Mapping[str, int]) -> _Kept:
    fields = answer.model_dump(exclude={"ids"})
    return _Kept(ids=tuple(places[name] for name in answer.ids), **fields)


def _answer(row: _Kept, run: Run, folder: Path) -> Answer:
    if not all(0 <= place < len(run.corpus) for place in row.ids):
        raise _not_whole(
            folder,
            "an answer names an example that the corpus does not have",
            kind="unknown_example",
        )
    names = tuple(run.corpus[place] for place in row.ids)
    return Answer(ids=names, **row.model_dump(exclude={"ids"}))


def _not_whole(folder: Path, why: str, *, kind: str = "") -> EvaluationError:
    return EvaluationError(
        f"The raw results in {str(folder)!r} are not whole: {why}.",
        next_step="Run `fallback-tier eval retrieval` again.",
        kind=kind,
    )


def _ensure_whole(folder: Path, run: Run, answers: Mapping[str, Mapping[str, Answer]]) -> None:
    """Each variant answered the same queries: a paired test needs that."""
    declared = {variant.name for variant in run.variants}
    asked = {frozenset(one) for one in answers.values()}
    if set(answers) != declared or len(asked) > 1 or frozenset() in asked:
        raise _not_whole(
            folder, "variants and queries differ between their files", kind="files_differ"
        )


def _line(row: Frozen) -> str:
    return (
        json.dumps(row.model_dump(mode="json", exclude_defaults=True), separators=(",", ":")) + "\n"
    )


_T = TypeVar("_T", bound=Frozen)


def _rows(path: Path, model: type[_T]) -> Sequence[_T]:
    lines = _read(path).splitlines()
    return [_parsed(line, f"{path}, line {at}", model) for at, line in enumerate(lines, 1)]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(
            f"There are no raw results at {str(path)!r}: {getattr(error, 'strerror', error)}.",
            next_step="Run `fallback-tier eval retrieval` with --data first.",
            kind="no_results",
        ) from error


def _parsed(text: str, place: Path | str, model: type[_T]) -> _T:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise EvaluationError(
            f"{place} is not a raw result: {first_fault(error, 'the text')}.",
            next_step="Run `fallback-tier eval retrieval` again.",
            kind="malformed",
        ) from error
