"""Imports modules one by one and says which can't be imported. Its text is run by a target's Python.

Each in a process of its own: a module that ends the interpreter, or hangs, decides only about itself.
Usage: ``python -c TEXT SECONDS MODULE...``; exit code 1 where a module can't be imported.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback


def main(limit_s: float, names: list[str]) -> int:
    """0 where every module can be imported."""
    failed = 0
    for name in names:
        said = _import(name, limit_s)
        if said is not None:
            failed += 1
            print(f"cannot import {name}: {said}", flush=True)  # noqa: T201 (this is its answer)
    return 1 if failed else 0


def _import(name: str, limit_s: float) -> str | None:
    """What went wrong, in a word; None where nothing did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _in_child(name, writing)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], limit_s)
    said = os.read(reading, 200).decode("utf-8", "replace") if ready else ""
    os.close(reading)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not ready:
        return f"it did not end within {limit_s:.0f} s"
    return None if said == "ok" else said or "it ends the interpreter"


def _in_child(name: str, writing: int) -> None:
    said = "ok"
    try:
        __import__(name)
    except BaseException as error:  # noqa: BLE001 (a module may raise anything, SystemExit too)
        traceback.print_exc()
        said = type(error).__name__
        if isinstance(error, ModuleNotFoundError):
            said += f" of {error.name}"  # the module itself, or one that it needs
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(writing, said.encode())
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
