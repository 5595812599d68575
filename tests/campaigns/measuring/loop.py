"""The options that every measure has, and its loop: run, keep each row as it ends, tell."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Protocol, TypeVar

from fallback_eval.campaign import Half
from tests.campaigns.measuring.tool import SCRIPT

#: Free disk without which no case begins: on a full disk it would fail for the machine, not for the tool.
LEAST_FREE_BYTES = 4 * 1024**3


def check_disk() -> None:
    """Raise SystemExit if the disk of temporary files has too little room for another case."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < LEAST_FREE_BYTES:
        raise SystemExit(
            f"{free / 1024**3:.1f} GiB are free for temporary files; a case needs "
            f"{LEAST_FREE_BYTES / 1024**3:.0f}. Free room, and run this again: it resumes."
        )


class Named(Protocol):
    """A case."""

    @property
    def name(self) -> str: ...


_Case = TypeVar("_Case", bound=Named)
_Row = TypeVar("_Row")


def options(prog: str, described: str | None, folder: Path) -> argparse.ArgumentParser:
    """``--only``, ``--again``, ``--jobs``, ``--json``, ``--check``, ``--folder``."""
    parser = argparse.ArgumentParser(prog=prog, description=described)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a case")
    parser.add_argument("--again", action="store_true", help="run also what has a row already")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases side by side")
    parser.add_argument("--json", action="store_true", help="one JSON object a case")
    parser.add_argument("--check", action="store_true", help="run nothing: does all fit together?")
    parser.add_argument("--folder", type=Path, default=folder, help="results and report")
    return parser


def tool_options(prog: str, described: str | None, folder: Path) -> argparse.ArgumentParser:
    """Those of a measure of the whole tool, over repositories in two halves."""
    parser = options(prog, described, folder)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the data sets")
    parser.add_argument(
        "--clones", type=Path, metavar="DIR", help="bare clones, OWNER+NAME.git each"
    )
    parser.add_argument("--half", choices=[*map(str, Half)], default=str(Half.SEEN))
    parser.add_argument("--look-at-what-was-set-aside", action="store_true", help="mean it")
    parser.add_argument("--command", type=Path, default=SCRIPT, help="another fallback-tier")
    parser.add_argument("--label", default="now", help="of the rows that this run makes")
    return parser


def measure(
    cases: Sequence[_Case],
    run: Callable[[_Case], _Row],
    keep: Callable[[_Row, str], None],
    *,
    jobs: int,
) -> None:
    """Run each case; ``keep`` gets its row as it ends, and which of how many it is.

    A case that raises (its repository, a client, the harness) has no row; it is named on standard error.
    """
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run, case): case for case in cases}
        for done, future in enumerate(as_completed(running), start=1):
            if error := future.exception():
                print(f"{running[future].name}: {error!r}", file=sys.stderr, flush=True)
                continue
            keep(future.result(), f"{done}/{len(cases)}")


def tell_of(found: Sequence[str]) -> int:
    """What a check found, a line each; the exit code."""
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0
