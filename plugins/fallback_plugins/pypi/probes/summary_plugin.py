"""A plugin of pytest's that prints how many tests ended how, as pytest's own last line does.

Plugins that print another end (pytest-pretty, pytest-sugar), and ``-qq``, leave that line out. It runs in
the target's interpreter, where nothing of ours is importable. Once loaded it takes itself off the path:
a pytest that a test starts, in this process or another, prints as it always did.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

#: What pytest's own last line counts as tests, in its order.
_CATEGORIES = ("failed", "passed", "skipped", "xfailed", "xpassed", "error")

_OUT = os.dup(1)  # before pytest takes it from the tests
_MINE = os.getpid()
_FOLDER = str(Path(__file__).parent)
_PATH = os.environ.get("PYTHONPATH", "").split(os.pathsep)

sys.path[:] = [one for one in sys.path if one != _FOLDER]
os.environ["PYTHONPATH"] = os.pathsep.join(one for one in _PATH if one != _FOLDER)

_counts = dict.fromkeys(_CATEGORIES, 0)
_configs: list[Any] = []


def pytest_configure(config: Any) -> None:
    """Whom to ask for categories. A worker of pytest-xdist leaves counting to the process above it."""
    if not hasattr(config, "workerinput"):
        _configs.append(config)


def pytest_runtest_logreport(report: Any) -> None:
    """One phase of one test; of a worker's too."""
    for config in _configs:
        reported = config.hook.pytest_report_teststatus(report=report, config=config)
        # Without its terminal (``-p no:terminal``) pytest has no word for a test that passes or fails.
        ended = reported[0] if reported else report.outcome if report.when == "call" else ""
        if ended in _counts:
            _counts[ended] += 1


def pytest_collectreport(report: Any) -> None:
    """A file that can't be read in."""
    _counts["error"] += bool(report.failed)


def pytest_unconfigure() -> None:
    """Behind whatever else is printed. Where no test ended nothing is said, nor by a forked child."""
    message = ", ".join(f"{count} {category}" for category, count in _counts.items() if count)
    if message and _configs and os.getpid() == _MINE:
        sys.stdout.flush()
        os.write(_OUT, f"\n{message} in 0s\n".encode())
