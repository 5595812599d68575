"""How soon a person's decision wakes the fix that waits.

``python -m tests.campaigns.hostile.fleet.waking``

Where all is well: a real Temporal server, one worker, fixes that wait, one decision after the other.
Counted from the decision's event in the record to the workflow's own event that asks for the fix to be
opened again, and to the event by which its new process has it in hand. ``--json FILE`` keeps the figures.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fallback_audit.contract.guard import TAKES_IN_HAND
from fallback_audit.events import TransitionReopened
from fallback_tier.engines.temporal.connecting import connect
from fallback_tier.engines.temporal.dev import dev_server
from fallback_tier.engines.temporal.messages import OPEN
from tests.engines.fleet import Fleet, fleet_on
from tests.ports import free_port
from tests.postgres.server import running


@dataclass(frozen=True)
class Woken:
    """Seconds from a decision until the workflow went on, and until a process had the fix in hand."""

    workflow_s: float
    process_s: float
    load: float


@contextmanager
def _fleet(folder: Path, *, database: bool) -> Iterator[Fleet]:
    with ExitStack() as stack:
        server = stack.enter_context(dev_server(folder / "temporal", free_port()))
        url = None
        if database:
            url = f"{stack.enter_context(running()).url()}&schema=waking"
        yield stack.enter_context(
            fleet_on(server.address, folder / "fleet", "waking", database=url)
        )


def measure(folder: Path, count: int, *, database: bool) -> list[Woken]:
    """One decision after the other, each when the fix before it has ended."""
    with _fleet(folder, database=database) as fleet:
        fleet.patience_s = 1_200.0
        fleet.worker()
        names = [fleet.scenario.add("asks") for _ in range(count)]
        fleet.start(*names)
        fleet.reach("waiting", names)
        found = []
        for name in names:
            load = os.getloadavg()[0]
            fleet.scenario.decide(name)
            fleet.reach("ended", [name])
            found.append(_woken(fleet, name, load))
            sys.stdout.write(
                f"{found[-1].workflow_s:.2f} s, {found[-1].process_s:.2f} s, load {load:.0f}\n"
            )
            sys.stdout.flush()
        return found


def _woken(fleet: Fleet, name: str, load: float) -> Woken:
    with fleet.scenario.reading() as audit:
        stored = list(audit.events(name))
    (decided,) = (
        _time(one.recorded_at) for one in stored if isinstance(one.payload, TransitionReopened)
    )
    in_hand = [_time(one.recorded_at) for one in stored if isinstance(one.payload, TAKES_IN_HAND)]
    opened = asyncio.run(_opened(fleet, name))
    return Woken(
        min(time for time in opened if time > decided) - decided,
        min(time for time in in_hand if time > decided) - decided,
        load,
    )


async def _opened(fleet: Fleet, name: str) -> list[float]:
    """When the workflow asked for the fix to be opened."""
    handle = (await connect(fleet.cluster)).get_workflow_handle(name)
    return [
        event.event_time.ToDatetime(UTC).timestamp()
        async for event in handle.fetch_history_events()
        if event.activity_task_scheduled_event_attributes.activity_type.name == OPEN
    ]


def _time(recorded_at: str) -> float:
    return datetime.fromisoformat(recorded_at).timestamp()


def summary(found: list[Woken]) -> dict[str, object]:
    """As it is kept."""
    workflow, process = ([one.workflow_s for one in found], [one.process_s for one in found])
    return {
        "decisions": len(found),
        "workflow_s": {"median": statistics.median(workflow), "largest": max(workflow)},
        "process_s": {"median": statistics.median(process), "largest": max(process)},
        "load": [min(one.load for one in found), max(one.load for one in found)],
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    """For the record in SQLite, and in PostgreSQL."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server and the worker end, too
    figures: dict[str, object] = {}
    for store in ("sqlite", "postgres"):
        if given.only in (None, store):
            with tempfile.TemporaryDirectory(prefix="fleet-waking-") as place:
                Path(place).chmod(0o755)
                found = measure(Path(place), given.count, database=store == "postgres")
                figures[store] = summary(found)
                sys.stdout.write(json.dumps(figures[store]) + "\n")
                if given.json:
                    given.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
