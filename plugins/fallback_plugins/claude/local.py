"""``--model local:FILE.gguf``: a model on this machine, served for the length of the run."""

import threading
from collections.abc import Generator
from pathlib import Path
from typing import Final

from fallback_audit.vocabulary import ModelFailureKind, Provenance
from fallback_plugins.claude.local_server import LocalServer, check_file, find_server
from fallback_plugins.claude.model import ClaudeModel
from fallback_tier.errors import ConfigurationError, ModelError, ToolError
from fallback_tier.ports import ModelAnswer, ModelRequest

#: Seconds that one answer may take: a small model on two busy cores.
TIMEOUT_S: Final = 1_800.0


class LocalModel:
    """Implements LanguageModel. The server is started by the first request: a fix that needs no model
    never waits for one. Raises ConfigurationError and ToolMissingError at once, before anything is spent.
    """

    def __init__(self, file: Path) -> None:
        check_file(file)
        find_server()
        self._file = file
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
        return (yield from self._ready().ask(request))

    def close(self) -> None:
        """End the server, where one was started. Idempotent."""
        with self._lock:
            if self._served is not None:
                self._served.close()
            if self._server is not None:
                self._server.close()
            self._server = self._served = None

    def _ready(self) -> ClaudeModel:
        with self._lock:
            if self._served is None:
                self._server = _started(self._file)
                self._served = ClaudeModel(
                    self.model, base_url=self._server.base_url, timeout_s=TIMEOUT_S
                )
            return self._served


def _started(file: Path) -> LocalServer:
    """Whatever keeps the server from starting by now, the model gives no answer: ModelError."""
    try:
        return LocalServer(file)
    except (ConfigurationError, ToolError) as error:
        said, next_step = error.problem, error.next_step
    except OSError as error:
        said = f"llama-server can't be started: {error.strerror or error}."
        next_step = "Check the disk, the memory and the limits of this system, then try again."
    raise ModelError(said, next_step=next_step, failure=ModelFailureKind.UNREACHABLE)
