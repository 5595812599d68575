"""A scripted model: answers from a list, for tests and for seeing the tool run without a model.

It ships in the package and says what it is: provenance ``scripted``, model name ``scripted``. What
it answers goes through the same parser as a real model's text.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fallback_audit.vocabulary import Provenance
from fallback_plugins.claude.parse import parse_plan
from fallback_tier.errors import ConfigurationError, ModelError
from fallback_tier.ports import PlanAnswer, PlanRequest, Usage

MODEL = "scripted"


class ScriptedAuthor:
    """Implements PlanAuthor. Each answer is a plan (as JSON data) or raw text."""

    model = MODEL
    provenance = Provenance.SCRIPTED

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = list(answers)
        self.requests: list[PlanRequest] = []

    def draft(self, request: PlanRequest) -> PlanAnswer:
        """The next answer. Raises ModelError where the script has no more."""
        self.requests.append(request)
        if len(self.requests) > len(self._answers):
            raise ModelError(
                f"The script has {len(self._answers)} answer(s), and call {len(self.requests)} asks "
                "for another.",
                next_step="Add an answer to the script.",
            )
        answer = self._answers[len(self.requests) - 1]
        text = answer if isinstance(answer, str) else json.dumps(answer)
        plan, problems = parse_plan(text)
        return PlanAnswer(
            text=text, plan=plan, problems=problems, usage=Usage(), stop_reason="end_turn"
        )


def load_script(path: Path) -> ScriptedAuthor:
    """A script file: a JSON list of answers. Raises ConfigurationError naming the file."""
    try:
        answers = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The script {path} can't be read: {error}.",
            next_step="Give a JSON file with a list of answers.",
        ) from error
    if not isinstance(answers, list):
        raise ConfigurationError(
            f"The script {path} is not a list.", next_step="Give a JSON list of answers."
        )
    return ScriptedAuthor(answers)
