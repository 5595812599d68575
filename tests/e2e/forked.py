"""The command line in a fork of a process that has imported it: what a test asks costs no second import.

One server a test process, single-threaded, so that it may fork. Each command runs in a child of its own:
its environment, its folder, its standard streams, its exit code; nothing that it does to the interpreter
outlives it. What a *start* is like (imports, the console script, the wheel) is tested on real processes:
``test_cli_startup``, ``test_wheel``, ``tests/e2e``.

What a command imported, the server imports for those that follow (``_SHARED``): of a fix that asks a
model, three quarters were importing ``anthropic``.

Protocol: a JSON line to the server's standard input, a JSON line with the exit code back; the streams are
files that the request names, and beside them a child leaves the names of what it imported.
"""

import atexit
import gc
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from tests.database_files import watch
from tests.warming import warm

#: Above a command's own limit: for the server's imports, and its waiting for a processor.
_STARTING_S = 60.0

#: What nearly every command imports, sooner or later: half of a ``fix`` in the fork was importing.
_PRELOADED = (
    "fallback_tier.cli.main",
    "fallback_tier.cli.fix.command",
    "fallback_tier.cli.audit.trails",
    "fallback_tier.cli.fix.resume",
    "fallback_tier.cli.review",
    "fallback_tier.advisory.npm_ranges",
    "fallback_tier.advisory.reports",
    "fallback_tier.fix.open_fix",
    "fallback_tier.sandbox.runners",
    "fallback_tier.prompt.builder",
    "fallback_tier.prompt.turns",
    "fallback_tier.fix.parts",
    "fallback_plugins.npm.plugin",
    "fallback_plugins.pypi.plugin",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "platformdirs.unix",
    "re2",
    "rich._emoji_codes",
    "sqlite_utils",
    "rich.console",
    "jinja2",
)

#: Packages that the server imports once a command has: ours, and what starts no thread when it is imported
#: (a fork has one alone) and reads nothing then that a request may set.
_SHARED = frozenset(
    {
        *("fallback_audit", "fallback_plugins", "fallback_tier"),
        *(
            "anthropic",
            "anyio",
            "cryptography",
            "genai_prices",
            "httpcore2",
            "httpx2",
            "idna",
            "tomlkit",
        ),
        *("tree_sitter", "tree_sitter_javascript", "tree_sitter_python", "tree_sitter_typescript"),
    }
)

#: Of ours, what brings packages along that start threads.
_APART = "fallback_plugins.solved_examples"

#: Where a child leaves the names, beside its streams.
_IMPORTED = "imported"


def run_forked(
    arguments: list[str], *, cwd: Path | None, env: Mapping[str, str], stdin: str, timeout_s: float
) -> tuple[int, str, str]:
    """Exit code, standard output, standard error. Raises TimeoutExpired."""
    with tempfile.TemporaryDirectory(prefix="forked-") as folder:
        streams = [Path(folder) / name for name in ("in", "out", "err")]
        streams[0].write_text(stdin)
        request = {
            "arguments": arguments,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(env),
            "streams": [str(path) for path in streams],
            "timeout_s": timeout_s,
        }
        server = _server()
        server.stdin.write(json.dumps(request) + "\n")  # type: ignore[union-attr]
        server.stdin.flush()  # type: ignore[union-attr]
        if not select.select([server.stdout], [], [], timeout_s + _STARTING_S)[0]:
            server.kill()
            _server.cache_clear()  # the next command has a new one
            raise TimeoutError(f"The server of forks hangs: it says nothing of {arguments}.")
        answer = json.loads(server.stdout.readline())  # type: ignore[union-attr]
        if answer["code"] is None:
            raise subprocess.TimeoutExpired(arguments, timeout_s)
        return answer["code"], streams[1].read_text(), streams[2].read_text()


@cache
def _server() -> "subprocess.Popen[str]":
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.forked"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_stop, server)
    return server


def _stop(server: "subprocess.Popen[str]") -> None:
    for pipe in (server.stdin, server.stdout):
        if pipe is not None:
            pipe.close()
    server.wait(10)


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Until nobody asks any more."""
    for module in _PRELOADED:
        import_module(module)
    warm()
    gc.freeze()  # or each child's first collection copies all that was imported
    while line := requests.readline():
        request = json.loads(line)
        child = os.fork()
        if not child:
            _become(request)
        code = _wait(child, request["timeout_s"])
        _learn(Path(request["streams"][0]).with_name(_IMPORTED))
        answers.write(json.dumps({"code": code}) + "\n")
        answers.flush()


def _learn(imported: Path) -> None:
    """Import what a command has: absent where it was killed, or ended itself."""
    if not imported.exists():
        return
    if names := imported.read_text().split():
        for name in names:
            with suppress(ImportError):  # it was none that a file stands for
                import_module(name)
        warm()
        gc.freeze()


def _to_share(before: set[str]) -> list[str]:
    """Of what was imported since, what the server may import."""
    return sorted(
        name
        for name in sys.modules.keys() - before
        if name.partition(".")[0] in _SHARED and not name.startswith(_APART)
    )


def _become(request: dict[str, Any]) -> None:
    """The child: never returns."""
    code = 70
    before = set(sys.modules)
    try:
        os.setsid()  # a command may signal its own group
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        for number, path in enumerate(request["streams"]):
            os.dup2(os.open(path, os.O_RDONLY if not number else os.O_WRONLY | os.O_CREAT), number)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, closefd=False)  # noqa: SIM115 (a descriptor)
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        watch()
        sys.argv = ["fallback-tier", *request["arguments"]]
        code = import_module("fallback_tier.cli.main").main(request["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:  # noqa: BLE001 (as the interpreter would: a traceback and 1)
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with suppress(OSError):  # a command may have closed its limits, or its disk is full
            Path(request["streams"][0]).with_name(_IMPORTED).write_text(
                "\n".join(_to_share(before))
            )
        os._exit(code)


def _wait(child: int, timeout_s: float) -> int | None:
    """The exit code (negative: a signal's number), None where it had to be killed."""
    import signal
    import threading

    late = threading.Event()

    def kill() -> None:
        late.set()
        os.kill(child, signal.SIGKILL)  # it has no group of its own before its first line
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)

    timer = threading.Timer(timeout_s, kill)
    timer.daemon = True
    timer.start()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    timer.join()
    return None if late.is_set() else os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
