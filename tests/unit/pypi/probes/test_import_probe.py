"""The probe that runs inside a sandbox, as it is run there: a real Python, one process a module."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

SOURCE = files("fallback_plugins.pypi.probes").joinpath("import_probe.py").read_text("utf-8")


def probe(
    place: Path, limit_s: str, /, all_s: str = "600", **modules: str
) -> tuple[int, list[str]]:
    for name, text in modules.items():
        (place / f"{name}.py").write_text(text)
    command = [sys.executable, "-c", SOURCE, limit_s, all_s, *modules]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120)
    messages = [
        line for line in done.stdout.splitlines() if line.startswith(("cannot import", "no time"))
    ]
    return done.returncode, messages


def test_modules_that_import_say_nothing(tmp_path: Path) -> None:
    assert probe(tmp_path, "60", one="import json\n", two="import one\n") == (0, [])


def test_each_module_is_judged_by_itself(tmp_path: Path) -> None:
    reported = probe(
        tmp_path,
        "60",
        ends="import os\nos._exit(3)\n",
        crashes="import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
        exits="raise SystemExit(0)\n",
        needs="import nowhere_at_all\n",
        good="import sys\nsys.modules.pop('ends', None)\n",
    )
    assert reported == (
        1,
        [
            "cannot import ends: it ends the interpreter, with exit code 3",
            "cannot import crashes: it ends the interpreter, by signal 11",
            "cannot import exits: SystemExit: 0",
            "cannot import needs: ModuleNotFoundError: No module named 'nowhere_at_all'",
        ],
    )


def test_what_an_error_says_is_told_on_one_line_whatever_it_is(tmp_path: Path) -> None:
    unspeakable = "class Odd(Exception):\n    def __str__(self):\n        raise self\nraise Odd\n"
    reported = probe(
        tmp_path,
        "60",
        lines="raise ImportError('needs:\\n  left\\n  right')\n",
        silent="raise ValueError\n",
        unspeakable=unspeakable,
        long="raise ImportError('é' * 10_000)\n",
        half="raise ImportError('\\udcff')\n",
    )
    assert reported[1][:3] == [
        "cannot import lines: ImportError: needs: left right",
        "cannot import silent: ValueError",
        "cannot import unspeakable: Odd",
    ]
    assert reported[1][3].startswith("cannot import long: ImportError: éééé")
    assert len(reported[1][3]) < 4_096
    assert reported[1][4] == "cannot import half: ImportError: ?"


def test_a_module_that_hangs_is_ended_and_the_next_one_is_still_asked(tmp_path: Path) -> None:
    reported = probe(
        tmp_path, "3", hangs="import time\ntime.sleep(600)\n", needs="import nowhere\n"
    )
    assert reported == (
        1,
        [
            "cannot import hangs: it did not end within 3 s",
            "cannot import needs: ModuleNotFoundError: No module named 'nowhere'",
        ],
    )


def test_what_there_is_no_time_for_is_named_and_is_no_failure(tmp_path: Path) -> None:
    hangs = "import time\ntime.sleep(600)\n"
    reported = probe(tmp_path, "30", "3", good="", hangs=hangs, needs="import nowhere\n")
    assert reported == (0, ["no time left for hangs, needs"])
