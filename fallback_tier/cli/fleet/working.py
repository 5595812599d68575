"""``worker`` and ``fleet dev``: a worker that takes fixes on Temporal, and a server to try it."""

import argparse
import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path

from pydantic import SecretStr

from fallback_tier.cli import exit_codes
from fallback_tier.cli.fleet.commands import store_url
from fallback_tier.cli.options import JUDGE_KEY, OTHER_KEY, PROVIDER_KEY, record, state_dir
from fallback_tier.cli.output import say
from fallback_tier.errors import ConfigurationError, ToolMissingError

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from fallback_tier.engines.temporal.activities import Launch
    from fallback_tier.engines.temporal.connecting import Cluster
    from fallback_tier.engines.temporal.messages import Ticket
    from fallback_tier.engines.temporal.reconciling import OpenRecord
    from fallback_tier.engines.temporal.session import FixProcess
    from fallback_tier.fleet.fix_order import Place
    from fallback_tier.wiring.trail import ReadOnlyTrail

#: Seconds that a fix waits for a checkout at most. Its workflow has the campaign's limit on a fix's time.
_FIX_S = 86_400.0

#: Seconds between two checks whether the server is alive.
_LOOK_S = 0.5


def run(arguments: argparse.Namespace) -> int:
    """Work until a signal ends it."""
    check_extra()
    if arguments.fixes < 1:
        raise ConfigurationError(
            f"--fixes {arguments.fixes}: a worker takes at least one.",
            next_step="Give how many fixes this machine may run at once.",
        )
    from fallback_tier.engines.temporal.worker import worker_name

    with worker_name(state_dir(arguments), arguments.host) as name, suppress(KeyboardInterrupt):
        asyncio.run(_work(arguments, name))
    return exit_codes.OK


def check_extra() -> None:
    """Raise ToolMissingError if the SDK is not installed."""
    try:
        import_module("temporalio")
    except ModuleNotFoundError as error:
        raise ToolMissingError(
            "A worker needs temporalio, which is not installed.",
            next_step="pip install 'fallback-tier[temporal]'",
        ) from error


async def _work(arguments: argparse.Namespace, name: str) -> None:
    from fallback_tier.engines.temporal.worker import WorkerSettings, run_worker
    from fallback_tier.fleet.fix_order import Place
    from fallback_tier.wiring.trail import open_trail

    settings = WorkerSettings(
        cluster=_cluster(arguments), fixes=arguments.fixes, host=name, build=arguments.build
    )
    place = Place(state_dir=state_dir(arguments), record=record(arguments), fix_s=_FIX_S)
    url = store_url(arguments)
    open_trail(place.state_dir, place.record).close()  # made once, before several processes try
    description = f"{settings.cluster.address}, up to {settings.fixes} fixes at once"
    await run_worker(
        settings,
        _launching(place, url),
        _reading(place),
        _signalled(),
        ready=lambda: say(f"working: {description}, as {settings.own_queue}"),
        may_go_on=_claims(place, url),
        notify=say,
    )


def _cluster(arguments: argparse.Namespace) -> "Cluster":
    from fallback_tier.engines.temporal.connecting import Cluster

    return Cluster(
        address=arguments.temporal,
        namespace=arguments.namespace,
        ca=_path(arguments.tls_ca),
        cert=_path(arguments.tls_cert),
        key=_path(arguments.tls_key),
    )


def _launching(place: "Place", url: str | None) -> "Launch":
    from fallback_tier.engines.temporal.fix_process import Job, WorkerKeys
    from fallback_tier.engines.temporal.session import start_process
    from fallback_tier.workers.problem import MAX_FIX_S
    from fallback_tier.workers.processes import guarded

    keys = WorkerKeys(
        provider=_secret(os.environ.get(PROVIDER_KEY)),
        other=_secret(os.environ.get(OTHER_KEY)),
        judge=_secret(os.environ.get(JUDGE_KEY)),
        database=place.record.database,
        store=_secret(url),
    )

    async def launch(ticket: "Ticket") -> "FixProcess":
        command = guarded("fallback_tier.engines.temporal.fix_process", MAX_FIX_S)
        log = place.home / "workers" / f"{ticket.fix_id}.log"
        job = Job(fix_id=ticket.fix_id, order_sha256=ticket.order_sha256, place=place, secrets=keys)
        return await start_process(command, job.to_pipe(), log, place.state_dir)

    return launch


def _reading(place: "Place") -> "OpenRecord":
    from fallback_tier.wiring.trail import read_trail

    @contextmanager
    def reading() -> "Iterator[ReadOnlyTrail]":
        with closing(read_trail(place.state_dir, place.record)) as reader:
            yield reader

    return reading


def _claims(place: "Place", url: str | None) -> Callable[[str], bool]:
    from fallback_tier.fleet.campaign_control import is_claimed
    from fallback_tier.fleet.store.store import open_store

    def may_go_on(fix_id: str) -> bool:
        with open_store(place.state_dir, url) as store:
            return is_claimed(store, fix_id)

    return may_go_on


def _signalled() -> asyncio.Event:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    return ended


def dev(arguments: argparse.Namespace) -> int:
    """Run ``fleet dev``: a private Temporal server, until a signal ends it."""
    from fallback_tier.engines.temporal.dev import dev_server

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with dev_server(state_dir(arguments) / "fleet" / "temporal", arguments.port) as server:
        say(f"Temporal at {server.address}: `fallback-tier worker --temporal {server.address}`")
        while not ended.wait(_LOOK_S) and server.process.poll() is None:
            pass
    return exit_codes.OK if ended.is_set() else exit_codes.ENVIRONMENT


def _path(path: str | None) -> Path | None:
    return None if path is None else Path(path)


def _secret(value: str | None) -> SecretStr | None:
    return SecretStr(value) if value else None
