"""What goes through the LLM tier in one attempt: the question, and where its events and calls go."""

from dataclasses import dataclass

from fallback_tier.attempt.task import AttemptTask, Recorder
from fallback_tier.llm.calling import Caller
from fallback_tier.prompt.builder import Prompt


@dataclass(frozen=True)
class ModelAttempt:
    """One attempt with a model. Another prompt for it is another value (``dataclasses.replace``)."""

    task: AttemptTask
    prompt: Prompt
    record: Recorder
    caller: Caller
