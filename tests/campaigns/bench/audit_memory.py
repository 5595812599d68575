"""Is the memory of ``audit verify`` flat? Stores of 100 thousand, 1 million and 10 million events.

``make bench-audit-memory`` calls it: too large for every run. Each store is made and verified by
processes of their own, whose peak memory the operating system tells; then it is deleted.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.bench.measure import Command

_SCRIPT = Path(__file__).with_name("audit_store.py")

EVENTS = (100_000, 1_000_000, 10_000_000)

#: Seconds that making or verifying a store may take: an hour for ten million events, and as much again.
TIMEOUT_S = 7200.0


def main(argv: Sequence[str] | None = None) -> int:
    """Raises BenchError where a store can't be made, or does not verify."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.bench.audit_memory", description=__doc__
    )
    parser.add_argument("--events", type=int, nargs="+", default=EVENTS, metavar="COUNT")
    parser.add_argument("--place", type=Path, help="folder for the stores (800 bytes an event)")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    options = parser.parse_args(argv)
    for events in options.events:
        with tempfile.TemporaryDirectory(prefix="bench-audit-", dir=options.place) as folder:
            place = Path(folder)
            command = [options.python, _SCRIPT]
            Command([*command, "make", place, str(events)], place).run(TIMEOUT_S)
            done = Command([*command, "verify", place], place).run(TIMEOUT_S)
            size = (place / "audit.db").stat().st_size
        sys.stdout.write(
            f"{events:>12,} events, {size / 2**20:>9,.1f} MiB: verified in {done.wall_s:>8,.1f} s"
            f" ({done.cpu_s / events * 1e6:.1f} us of processor an event),"
            f" peak memory {done.peak_bytes / 2**20:.1f} MiB\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
