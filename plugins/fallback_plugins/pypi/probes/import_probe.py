"""Imports modules one by one and reports which can't be imported. A target's Python runs this text.

Each is imported in a separate process: a module that ends the interpreter, or hangs, affects only itself.
Usage: ``python -c TEXT SECONDS ALL_SECONDS MODULE...``: time limits for one module, and for all of them;
exit code 1 if a module can't be imported.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback

#: Bytes that a pipe writes in one piece (POSIX): a reader sees all of them or none.
_WHOLE = 4096

#: Results that can't be the name of an error's type.
_OK, _HANGS = "\0", "\0\0"


def main(limit_s: float, all_s: float, names: list[str]) -> int:
    """Return 0 if every module can be imported. Modules for which no time is left are reported."""
    failed, until = 0, time.monotonic() + all_s
    for index, name in enumerate(names):
        remaining_s = max(0.0, until - time.monotonic())
        message = _import(name, min(limit_s, remaining_s))
        if message == _HANGS and remaining_s < limit_s:
            _report(f"no time left for {', '.join(names[index:])}")
            break
        if message == _HANGS:
            message = f"it did not end within {limit_s:.0f} s"
        if message != _OK:
            failed += 1
            _report(f"cannot import {name}: {message}")
    return 1 if failed else 0


def _report(line: str) -> None:
    print(line, flush=True)  # noqa: T201 (this is its output)


def _import(name: str, limit_s: float) -> str:
    """Return what went wrong, on one line."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _in_child(name, writing)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], limit_s)
    message = os.read(reading, _WHOLE).decode("utf-8", "replace") if ready else _HANGS
    os.close(reading)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return message or _ended(status)


def _ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"it ends the interpreter, by signal {os.WTERMSIG(status)}"
    return f"it ends the interpreter, with exit code {os.WEXITSTATUS(status)}"


def _in_child(name: str, writing: int) -> None:
    message = _OK
    try:
        __import__(name)
    except BaseException as error:  # noqa: BLE001 (a module may raise anything, SystemExit too)
        traceback.print_exc()
        message = _in_words(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(writing, message.encode("utf-8", "replace")[:_WHOLE])
    os._exit(0)


def _in_words(error: BaseException) -> str:
    """Return the error's type and message, on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 (its message comes from a target's code)
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
