"""Goal 12: what a sandbox costs before its command begins."""

import shutil
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.bench.measure import Worker
from tests.campaigns.bench.row import Bench, Figure, Pair, Row

_WORKER = Path(__file__).with_name("worker.py")

#: As the goals have them: milliseconds of a median start, and parts of firejail's.
START_MS = 30.0
FIREJAIL_RATIO = 0.5

#: Pairs of twenty starts each; firejail takes ten times as long as we do.
_FIREJAIL_PAIRS = 3


@contextmanager
def start(bench: Bench) -> Iterator[Pair]:
    """Ours with everything, against bubblewrap with nothing; and against firejail where it is."""

    def work(label: str, side: str) -> Worker:
        return Worker(
            label, [bench.python, _WORKER, "work_sandbox", bench.place, side], bench.place
        )

    with work("hardened", "ours") as ours, work("bwrap --unshare-all", "bare") as bare:
        ratios: list[float] = []

        def check() -> None:
            if shutil.which("firejail") is not None:
                with work("firejail", "firejail") as firejail:
                    for _ in range(_FIREJAIL_PAIRS):
                        ratios.append(ours.measure().wall_s / firejail.measure().wall_s)

        def figures() -> Sequence[Figure]:
            found = [Figure("start, p50", ours.facts["start_p50_ms"], START_MS, " ms")]
            if ratios:
                found.append(Figure("of firejail", statistics.median(ratios), FIREJAIL_RATIO))
            return found

        yield Pair(
            ours,
            bare,
            check=check,
            facts=lambda: {
                "ours": ours.facts,
                "theirs": bare.facts,
                "firejail": "measured" if ratios else "not installed",
            },
            figures=figures,
        )


ROWS = (Row("sandbox-start", "A sandbox's start", "12", 3.0, 15, start),)
