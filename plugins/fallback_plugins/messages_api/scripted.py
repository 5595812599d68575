"""A model that answers from a script: no model is asked. For tests, demos and dry runs.

It is labelled as what it is (provenance ``scripted``, model ``scripted``) in every record, and its
answers go through the same parsing as a model's.
"""

import json
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from fallback_audit.disk_errors import blamed
from fallback_audit.vocabulary import Provenance
from fallback_tier.errors import ConfigurationError, ModelError, first_fault
from fallback_tier.ports import ModelAnswer, ModelRequest, Usage

#: Answers that one script may hold; four attempts of three calls use twelve.
MAX_ANSWERS: Final = 1_000

_FIX_SCRIPT: Final = "Write a JSON list of answers: plan objects, or strings for raw text."


class ScriptedModel:
    """Implements LanguageModel. Answers are given in order, each once.

    An answer is a plan (its model, or the object as a dict) or raw text, as a model would send it. An
    object with just ``answer`` and ``usage`` is an answer and the tokens to report for it (otherwise none).
    """

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = tuple(_read(answer) for answer in answers)
        self._requests: list[ModelRequest] = []
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        """The model's name, ``scripted``."""
        return "scripted"

    @property
    def provenance(self) -> Provenance:
        """The provenance ``scripted``, never live."""
        return Provenance.SCRIPTED

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The requests so far, including one for which the script had no answer left."""
        return tuple(self._requests)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """Give the next answer, in one piece. Raises ModelError if no answer is left."""
        with self._lock:
            self._requests.append(request)
            number = len(self._requests)
        if number > len(self._answers):
            raise ModelError(
                f"The script has {len(self._answers)} answer(s), and this is request {number}.",
                next_step="Add an answer to the script, or use a model.",
                kind="script_over",
            )
        answer = self._answers[number - 1]
        yield answer.text
        return answer


def load_script(path: Path) -> ScriptedModel:
    """Return the model of a JSON file: a list of plan objects and raw texts. Raises ConfigurationError."""
    try:
        answers = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = f"can't be read: {error.strerror}"
        raise blamed(error, f"The script {path}", _unusable(path, why)) from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"is not JSON: {error}", kind="not_json") from error
    if not isinstance(answers, list) or not all(
        isinstance(answer, dict | str) for answer in answers
    ):
        raise _unusable(path, "is not a list of objects and strings", kind="not_a_list")
    if len(answers) > MAX_ANSWERS:
        raise _unusable(path, f"has more than {MAX_ANSWERS:,} answers")
    try:
        return ScriptedModel(answers)
    except ValidationError as error:
        raise ConfigurationError(
            f"The script {path} has an answer with no valid usage: {first_fault(error, 'usage')}.",
            next_step='Write {"answer": …, "usage": {"input_tokens": 1, "output_tokens": 1}}.',
            kind="bad_usage",
        ) from error


def _unusable(path: Path, why: str, *, kind: str = "") -> ConfigurationError:
    return ConfigurationError(f"The script {path} {why}.", next_step=_FIX_SCRIPT, kind=kind)


def _read(answer: Any) -> ModelAnswer:
    usage = Usage()
    if isinstance(answer, dict) and answer.keys() == {"answer", "usage"}:
        answer, usage = answer["answer"], Usage.model_validate(answer["usage"])
    if isinstance(answer, BaseModel):
        answer = answer.model_dump_json()
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    # A lone surrogate has no UTF-8: it can neither be hashed nor recorded.
    text = text.encode("utf-8", "replace").decode()
    return ModelAnswer(text=text, usage=usage, stop_reason="end_turn")
