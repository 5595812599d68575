"""``--model local:FILE.gguf``: a model on this machine, served for the length of the run."""

import threading
from collections.abc import Generator
from functools import cached_property
from pathlib import Path
from typing import Final

from fallback_audit.vocabulary import ModelFailureKind, Provenance
from fallback_plugins.messages_api.grammar import grammar_of
from fallback_plugins.messages_api.local_server import LocalServer, check_file, find_server
from fallback_plugins.messages_api.model import ClaudeModel
from fallback_tier.errors import ConfigurationError, ModelError, ToolError
from fallback_tier.ports import ModelAnswer, ModelRequest

#: Seconds that one answer may take: a small model on two busy cores.
TIMEOUT_S: Final = 1_800.0

#: What models that think first begin with; it stands in their template, and as a token of its own.
_THINKING: Final = b"<think>"

#: A GGUF file begins with its template and its vocabulary: 250,000 tokens are some 12 MB.
_HEAD_BYTES: Final = 32 * 1024 * 1024


class LocalModel:
    """Implements LanguageModel. The server is started by the first request: a fix that needs no model
    never waits for one. Raises ConfigurationError and ToolMissingError at once, before anything is spent.

    ``holds_to_schema``: the server is started with the request's schema as a grammar, which holds each of
    its answers to it, and started anew for a request with another one: for whoever asks one after the other
    and seldom for something else. Not for a model that thinks first.
    """

    def __init__(self, file: Path, *, holds_to_schema: bool = False) -> None:
        check_file(file)
        find_server()
        self._file = file
        self._holds_to_schema = holds_to_schema
        self._grammar: str | None = None
        self._lock = threading.Lock()
        self._server: LocalServer | None = None
        self._served: ClaudeModel | None = None

    @property
    def model(self) -> str:
        """The file's name without its ending."""
        return self._file.stem

    @property
    def provenance(self) -> Provenance:
        """Live: it is asked now."""
        return Provenance.LIVE

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """As LanguageModel. Raises ModelError where the server doesn't start."""
        return (yield from self._ready(request).ask(request))

    def close(self) -> None:
        """End the server, where one was started. Idempotent."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._served is not None:
            self._served.close()
        if self._server is not None:
            self._server.close()
        self._server = self._served = None

    def _ready(self, request: ModelRequest) -> ClaudeModel:
        grammar = self._grammar_for(request)
        with self._lock:
            if grammar != self._grammar:
                self._end()
            if self._served is None:
                self._server, self._grammar = _started(self._file, grammar), grammar
                self._served = ClaudeModel(
                    self.model, base_url=self._server.base_url, timeout_s=TIMEOUT_S
                )
            return self._served

    def _grammar_for(self, request: ModelRequest) -> str | None:
        """None also for a model that thinks first: a grammar would leave no room for it."""
        if not self._holds_to_schema or self._is_thinking:
            return None
        if request.answer_schema is None:
            return request.answer_grammar
        return grammar_of(request.answer_schema)

    @cached_property
    def _is_thinking(self) -> bool:
        """Does the model's head (template and vocabulary) have the mark of thinking?"""
        try:
            with self._file.open("rb") as model:
                return _THINKING in model.read(_HEAD_BYTES)
        except OSError:
            return False  # what can't be read doesn't start either, and that says why


def _started(file: Path, grammar: str | None) -> LocalServer:
    """Whatever keeps the server from starting by now, the model gives no answer: ModelError."""
    try:
        return LocalServer(file, grammar=grammar)
    except (ConfigurationError, ToolError) as error:
        message, next_step, kind = error.problem, error.next_step, error.kind
    except OSError as error:
        message = f"llama-server can't be started: {error.strerror or error}."
        next_step = "Check the disk, the memory and the limits of this system, then try again."
        kind = ""
    raise ModelError(message, next_step=next_step, failure=ModelFailureKind.UNREACHABLE, kind=kind)
