"""Raw results of faithfulness: what each judge answered, kept beside the report that is made from them.

::

    raw/lexical.jsonl          one plan and context a line: each claim's share of words that were found
    raw/NAME/run.json          a model: its name, server, weights, when
    raw/NAME/answers.jsonl     one answer a line, as the server gave it; lines are only ever added
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import Field, ValidationError

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import Provenance
from fallback_eval.campaign import AppendedRows, RowError
from fallback_eval.retrieval.results import EvaluationError
from fallback_tier.errors import first_fault
from fallback_tier.ports import ModelAnswer

RAW: Final = "raw"
LEXICAL: Final = "lexical.jsonl"
RUN, ANSWERS = "run.json", "answers.jsonl"

#: A plan and how many of its examples the context had.
Asked = tuple[str, int]


class JudgeRun(Frozen):
    """Which model judged, behind what. ``weights``: name and SHA-256 as whoever ran it gave them."""

    model: str
    provenance: Provenance
    server: Mapping[str, str] = {}
    weights: str = "not given"
    started: str


class KeptAnswer(Frozen):
    """One answer of a model, or why there is none. ``prompt_sha256`` is of the whole prompt."""

    plan: str
    examples: Annotated[int, Field(ge=0)]
    prompt_sha256: Digest
    answer: ModelAnswer | None = None
    failure: str = ""
    duration_ms: int = 0

    @property
    def asked(self) -> Asked:
        """What it answers."""
        return self.plan, self.examples


class Overlap(Frozen):
    """Of each claim of a plan, C1 first: the share of its content words that the context has."""

    plan: str
    examples: Annotated[int, Field(ge=0)]
    prompt_sha256: Digest
    shares: tuple[float, ...]


_ANSWERS = AppendedRows(KeptAnswer, key=lambda answer: answer.asked)


@dataclass(frozen=True)
class RawResults:
    """All of a folder: the lexical judge's shares, each model's run with its answers."""

    overlaps: Mapping[Asked, Overlap]
    models: Mapping[str, tuple[JudgeRun, Mapping[Asked, KeptAnswer]]]


class AnswerFile:
    """The answers of one model, on disk. A run that was stopped goes on where it was."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, run: JudgeRun) -> dict[Asked, KeptAnswer]:
        """What was answered so far. Raises EvaluationError where that was by another model."""
        path = self._folder / RUN
        if path.exists():
            earlier = _read_run(path)
            same = (earlier.model, earlier.provenance, earlier.weights)
            if same != (run.model, run.provenance, run.weights):
                raise EvaluationError(
                    f"{str(self._folder)!r} has answers of {earlier.model} ({earlier.weights}), "
                    f"not of {run.model} ({run.weights}).",
                    next_step="Give this model another --judge-name, or remove that folder.",
                    kind="another_model",
                )
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_text(run.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return read_answers(self._folder / ANSWERS)

    def add(self, answer: KeptAnswer) -> None:
        """Durable when it returns: minutes of a slow model are not lost to a stop."""
        _ANSWERS.add(answer, self._folder / ANSWERS)


def load_raw(folder: Path) -> RawResults:
    """Raises EvaluationError where something is missing or not of the format."""
    raw = folder / RAW
    overlaps = _lines(raw / LEXICAL, Overlap)
    models = {
        path.parent.name: (_read_run(path), read_answers(path.parent / ANSWERS))
        for path in sorted(raw.glob(f"*/{RUN}"))
    }
    return RawResults({(one.plan, one.examples): one for one in overlaps}, models)


def save_overlaps(folder: Path, overlaps: Sequence[Overlap]) -> None:
    """The lexical judge's shares, whole."""
    raw = folder / RAW
    raw.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(one.model_dump(mode="json")) + "\n" for one in overlaps)
    (raw / LEXICAL).write_text(text, encoding="utf-8")


def read_answers(path: Path) -> dict[Asked, KeptAnswer]:
    """The last answer to each prompt. A line that a stop cut short is left out, at the end only."""
    try:
        return _ANSWERS.read(path)
    except RowError as error:
        raise _unreadable(path, error.fault) from error


def _read_run(path: Path) -> JudgeRun:
    try:
        return JudgeRun.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise _unreadable(path, error) from error


_T = TypeVar("_T", bound=Frozen)


def _lines(path: Path, model: type[_T]) -> list[_T]:
    try:
        return _parsed(path.read_text(encoding="utf-8"), path, model)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _parsed(text: str, path: Path, model: type[_T]) -> list[_T]:
    try:
        return [model.model_validate_json(line) for line in text.split("\n") if line.strip()]
    except ValidationError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> EvaluationError:
    why = first_fault(error, "a line") if isinstance(error, ValidationError) else str(error)
    return EvaluationError(
        f"{str(path)!r} is no raw result: {why}.",
        next_step="Run `fallback-tier eval faithfulness --data DIR` to make raw results.",
    )
