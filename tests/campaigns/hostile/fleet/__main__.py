"""Faults against a fleet.

``python -m tests.campaigns.hostile.fleet [--minutes N] [--only KIND …] [--report]``

Real workers, a process a fix, the real Temporal server, SQLite and PostgreSQL. Every round starts fixes of
all stories, disturbs them in one way, waits until all have ended, and reads the record: no fix lost, none
run to two ends, no event lost or doubled, no finished call paid twice, no delivery twice. Kinds of faults
take turns until the time is over; each is had once at least. ``--report`` keeps the figures after every
round, beside the page docs/evaluation/fleet-faults.md, and makes the page: runs of one build add up.
``--only KIND --seed N --round N`` has one round again, as nearly as a machine can.
"""

import argparse
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tests.campaigns.hostile.fleet.judging import Row
from tests.campaigns.hostile.fleet.keeping import DATA, PAGE, Run, build, keep
from tests.campaigns.hostile.fleet.kinds import KILLS
from tests.campaigns.hostile.fleet.machines import MACHINES
from tests.campaigns.hostile.fleet.world import Kind, Skipped, World, world

KINDS: tuple[Kind, ...] = (*KILLS, *MACHINES)


def campaign(
    run: Run, kinds: Sequence[Kind], minutes: float, first: int, kept: Callable[[], None]
) -> None:
    """Every kind once, then as many rounds as begin in time. ``kept`` is called after each."""
    until = time.monotonic() + minutes * 60
    with world() as shared:
        for turn in range(len(kinds) * 1_000_000):
            if turn >= len(kinds) and time.monotonic() > until:
                break
            kind, number = kinds[turn % len(kinds)], first + turn // len(kinds)
            if kind.__name__ in run.skipped:
                continue
            began = time.monotonic()
            _round(shared, run, kind, number)
            _tell(run, kind, number, time.monotonic() - began)
            kept()


def _round(shared: World, run: Run, kind: Kind, number: int) -> None:
    """Whatever breaks in it is on the table, and the next one goes on."""
    shared.chance = random.Random(f"{run.seed} {kind.__name__} {number}")
    row = run.rows.setdefault(kind.__name__, Row((kind.__doc__ or "").strip()))
    try:
        kind(shared, row)
    except Skipped as reason:
        run.skipped[kind.__name__] = str(reason)
    except Exception as error:  # noqa: BLE001 (told, and counted)
        traceback.print_exc()
        row.other += 1
        row.said.append(f"round {number} broke: {type(error).__name__}: {error}")
    run.loaded()


def _tell(run: Run, kind: Kind, number: int, took_s: float) -> None:
    row = run.rows[kind.__name__]
    state = run.skipped.get(kind.__name__) or ("ok" if row.ok else f"WRONG {row.said}")
    sys.stdout.write(
        f"{kind.__name__} {number}: {row.faults} faults, {row.fixes} fixes, {took_s:.0f} s, load "
        f"{run.load[1]:.0f}: {state}\n"
    )
    sys.stdout.flush()


def main() -> None:
    """The campaign."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    by_name = {kind.__name__: kind for kind in KINDS}
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=int, default=1, help="number of the first round")
    parser.add_argument("--only", choices=list(by_name), action="append")
    parser.add_argument("--report", action="store_true", help=f"keep the figures in {PAGE.name}")
    given = parser.parse_args()
    of_build = build()
    run = Run(seed=given.seed, began=datetime.now(UTC).isoformat(timespec="minutes"))

    def kept() -> None:
        if given.report and any(row.faults for row in run.rows.values()):
            keep(DATA, PAGE, of_build, run)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # networks and disks are taken apart

    kinds = [by_name[name] for name in given.only or by_name]
    campaign(run, kinds, given.minutes, given.round, kept)
    if not all(row.ok for row in run.rows.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
