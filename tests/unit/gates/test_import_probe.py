"""The probe that runs inside a sandbox, as it is run there: a real Python, one process a module."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

SOURCE = files("fallback_plugins.pypi").joinpath("import_probe.py").read_text("utf-8")


def probe(place: Path, limit_s: str, **modules: str) -> tuple[int, list[str]]:
    for name, text in modules.items():
        (place / f"{name}.py").write_text(text)
    command = [sys.executable, "-c", SOURCE, limit_s, *modules]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120)
    said = [line for line in done.stdout.splitlines() if line.startswith("cannot import")]
    return done.returncode, said


def test_modules_that_import_say_nothing(tmp_path: Path) -> None:
    assert probe(tmp_path, "60", one="import json\n", two="import one\n") == (0, [])


def test_each_module_is_judged_by_itself(tmp_path: Path) -> None:
    told = probe(
        tmp_path,
        "60",
        ends="import os\nos._exit(0)\n",
        exits="raise SystemExit(0)\n",
        needs="import nowhere_at_all\n",
        broken="def f(:\n",
        good="import sys\nsys.modules.pop('ends', None)\n",
    )
    assert told == (
        1,
        [
            "cannot import ends: it ends the interpreter",
            "cannot import exits: SystemExit",
            "cannot import needs: ModuleNotFoundError of nowhere_at_all",
            "cannot import broken: SyntaxError",
        ],
    )


def test_a_module_that_hangs_is_ended_and_the_next_one_is_still_asked(tmp_path: Path) -> None:
    told = probe(tmp_path, "3", hangs="import time\ntime.sleep(600)\n", needs="import nowhere\n")
    assert told == (
        1,
        [
            "cannot import hangs: it did not end within 3 s",
            "cannot import needs: ModuleNotFoundError of nowhere",
        ],
    )
