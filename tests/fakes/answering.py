"""A model whose answers depend on what it is asked, not on when: for calls that run in parallel."""

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from fallback_audit.vocabulary import Provenance
from fallback_tier.ports import ModelAnswer, ModelRequest, Usage

#: Text, a whole answer, or what to raise.
Said = str | ModelAnswer | Exception


@dataclass
class AnsweringModel:
    """Implements LanguageModel. ``answer`` is called in the thread of the call."""

    answer: Callable[[ModelRequest], Said]
    model: str = "answering"
    provenance: Provenance = Provenance.SCRIPTED
    requests: list[ModelRequest] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        with self._lock:
            self.requests.append(request)
        reported = self.answer(request)
        if isinstance(reported, Exception):
            raise reported
        if isinstance(reported, str):
            reported = ModelAnswer(
                text=reported, usage=Usage(input_tokens=10, output_tokens=5), stop_reason="end_turn"
            )
        yield reported.text
        return reported

    def close(self) -> None:
        pass
