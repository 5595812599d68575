"""``make hostile-audit``: the slow campaigns against the audit trail.

    python -m tests.campaigns.hostile.audit [--only NAME] [--count N] [--seed N] [--first N]
                                  [--minutes N] [--jobs N]
                                  [--backend sqlite|postgres] [--json FILE] [--report]

Each has a smaller version among the tests. The cases of one are shared among as many processes as there
are cores, and each campaign has its share of an hour (``catalogue``): one that its share ends says how far
it came. Where no case depends on what a disk does at last, files are in memory (``/dev/shm``).

Without ``--seed`` a fresh one is drawn; it is printed before anything runs. A failure names its seed and
its case: ``--seed S --first C --count 1`` repeats it (what depends on the moment of a kill, as nearly as a
machine can). ``--report`` without ``--only`` or ``--backend`` makes docs/evaluation/audit anew, from this
run alone.
"""

import argparse
import io
import os
import resource
import sys
import tempfile
import time
from contextlib import redirect_stderr
from math import inf
from pathlib import Path
from random import SystemRandom

from rich.console import Console
from rich.progress import Progress

from tests.campaigns.hostile.audit.apart import shared
from tests.campaigns.hostile.audit.campaign import Ask, Skipped, Tally
from tests.campaigns.hostile.audit.catalogue import CATALOGUE, Entry
from tests.campaigns.hostile.audit.report import Run, show, write_json, write_report
from tests.places import fast_place

console = Console()

#: Drawn seeds are below it: short enough to be typed again.
SEEDS = 1_000_000


def run(entry: Entry, given: argparse.Namespace) -> Run:
    """One campaign, with a bar."""
    count = given.count or entry.cases
    began, spent = time.monotonic(), _cpu_seconds()
    skipped, tally = None, Tally()
    folder = given.dir or (fast_place() if entry.in_memory else None)
    # No thread for the bar: campaigns fork.
    with (
        Progress(console=console, auto_refresh=False, transient=True) as progress,
        tempfile.TemporaryDirectory(prefix="hostile-audit-", dir=folder) as place,
    ):
        task = progress.add_task(f"{entry.name} ({entry.backend})", total=count)

        def reported(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, refresh=True)

        until = began + _minutes(entry, given) * 60
        ask = Ask(count, Path(place), given.seed, entry.backend, reported, given.first, until)
        try:
            with redirect_stderr(io.StringIO()):  # "made a key", thousands of times
                tally = shared(entry.campaign, ask, given.jobs)
        except Skipped as reason:
            skipped = str(reason)
    return Run(
        name=entry.name,
        backend=entry.backend,
        promise=entry.promise,
        seed=given.seed,
        first=given.first,
        asked=min(count, tally.possible or count),
        cases=tally.cases,
        counts=dict(tally.counts),
        notes=tally.notes,
        seconds=round(time.monotonic() - began, 1),
        cpu_ms_a_case=round(1000 * (_cpu_seconds() - spent) / tally.cases) if tally.cases else 0,
        skipped=skipped,
    )


def _minutes(entry: Entry, given: argparse.Namespace) -> float:
    """Whoever says how many cases, or how long, is given them; else a campaign has its share."""
    if given.minutes is not None:
        return float(given.minutes)
    return inf if given.count else entry.minutes


def _cpu_seconds() -> float:
    """Of this process and of all that it waited for, and they for theirs."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main() -> int:
    """Every campaign that was asked for, in order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=sorted({e.name for e in CATALOGUE}))
    parser.add_argument("--backend", choices=["sqlite", "postgres"])
    parser.add_argument("--count", type=int, help="cases (default: each campaign's own)")
    parser.add_argument(
        "--minutes",
        type=float,
        help="begin no further case after so long (default: each campaign's own; with --count, none)",
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--jobs", type=int, default=cores, help="processes that share the cases (default: cores)"
    )
    parser.add_argument("--seed", type=int, help="default: a fresh one, printed")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument(
        "--dir", type=Path, help="where the stores are made (default: memory, or TMPDIR)"
    )
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument(
        "--report", action="store_true", help="keep the figures in docs/evaluation/audit"
    )
    given = parser.parse_args()
    if given.seed is None:
        given.seed = SystemRandom().randrange(SEEDS)
    console.print(f"seed {given.seed}")
    chosen = [
        entry
        for entry in CATALOGUE
        if (not given.only or entry.name in given.only)
        and (not given.backend or entry.backend == given.backend)
    ]
    runs = []
    for entry in chosen:
        runs.append(run(entry, given))
        show(console, runs[-1:])
    if len(runs) > 1:
        show(console, runs)
    if given.json:
        write_json(given.json, runs)
    if given.report:
        write_report(runs, whole=len(chosen) == len(CATALOGUE))
    return 0


if __name__ == "__main__":
    sys.exit(main())
