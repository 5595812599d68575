"""Runs one module of this folder as long-lived work: ``worker.py [--median] MODULE PLACE [OPTION …]``.

The module's ``prepare(place, *options)`` gives the work and, after it, the facts to report. This
script is started by path, in the environment under test: what it measures comes from there, never
from the checkout.
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

#: Units of work per round: their mean is the round's figure, so that a timer's grain can't matter; with
#: ``--median``, what the middle one of them took by the clock: for work that is more only now and then.
UNITS = 20

Work = tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]


def main() -> None:
    """Answer each line of standard input with one round's figures."""
    median = sys.argv[1] == "--median"
    module, place, *options = sys.argv[1 + median :]
    prepared: Work = import_module(module).prepare(Path(place), *options)
    work, facts = prepared
    work()
    for _ in sys.stdin:
        moments, cpu = [time.perf_counter()], time.process_time()
        for _ in range(UNITS):
            work()
            moments.append(time.perf_counter())
        cpu = time.process_time() - cpu
        times = [after - before for before, after in pairwise(moments)]
        answer = {
            "wall_s": statistics.median(times) if median else statistics.fmean(times),
            "cpu_s": cpu / UNITS,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            **facts(),
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
