"""A worker for a scenario: ``python -m tests.engines.worker ROOT ADDRESS QUEUE HOST [RECORD [BUILD]]``."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from fallback_audit.errors import AuditStoreError
from fallback_tier.engines.temporal.connecting import Cluster
from fallback_tier.engines.temporal.messages import Ticket
from fallback_tier.engines.temporal.session import FixProcess, start_process
from fallback_tier.engines.temporal.worker import WorkerSettings, run_worker
from fallback_tier.wiring.trail import ReadOnlyTrail
from tests.engines.forked_fix import start_fork
from tests.engines.scenario import EngineScenario
from tests.forks import is_fork

_COMMAND = (sys.executable, "-m", "tests.engines.fix_process")


async def work(scenario: EngineScenario, settings: WorkerSettings) -> None:
    scenario.make_record()

    async def launch(ticket: Ticket) -> FixProcess:
        (scenario.root / f"launched-by-{settings.host}").touch()
        log = scenario.root / "logs" / ticket.fix_id
        with scenario.orders(ticket.fix_id).open("a") as file:
            file.write(f"{ticket.order_sha256}\n")
        order = scenario.order(ticket.fix_id)
        if is_fork():
            return await start_fork(order, log)
        return await start_process(_COMMAND, order, log, Path.cwd())

    def may_go_on(fix_id: str) -> bool:
        """As a campaign's list would say; and who asked is written down."""
        with (scenario.root / "asked").open("a") as file:
            file.write(f"{fix_id}\n")
        return not (scenario.root / "paused").exists()

    def reading() -> AbstractContextManager[ReadOnlyTrail]:
        if (scenario.root / f"cut-off-{settings.host}").exists():
            (scenario.root / f"looked-{settings.host}").touch()
            raise AuditStoreError("no route to host", next_step="Look at the network.")
        return scenario.reading()

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await run_worker(
        settings,
        launch,
        reading,
        ended,
        ready=lambda: print("ready", flush=True),
        may_go_on=may_go_on,
    )


def main(arguments: Sequence[str]) -> int:
    """Work until SIGTERM; the exit code."""
    root, address, queue, host, *rest = arguments
    database = rest[0] if rest and rest[0] else None
    build = rest[1] if len(rest) > 1 else None
    cluster = Cluster(address=address, queue=queue)
    settings = WorkerSettings(cluster=cluster, fixes=2, host=host, build=build)
    machine = host if "apart" in host else None
    asyncio.run(work(EngineScenario(Path(root), database, machine), settings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
