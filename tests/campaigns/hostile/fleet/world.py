"""What all rounds share: servers, the undisturbed stories, and how a round begins and ends."""

import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fallback_tier.engines.temporal.dev import DevServer, start_server
from tests.campaigns.hostile.fleet.judging import Row, judge, judge_record
from tests.engines.fleet import Fleet, fleet_on
from tests.engines.scenario import EngineScenario
from tests.ports import free_port
from tests.postgres.server import Restartable, restartable
from tests.waiting import becomes

#: A fix that is killed six times on a busy machine takes minutes.
_PATIENCE_S = 1_200.0

#: Of a log (characters).
_QUOTED = 2_000


class Skipped(Exception):  # noqa: N818 (no error)
    """This kind of fault can't be had here, and why."""


@dataclass
class World:
    """``chance``: of the round that is on; a new one for each, so that a round can be had again."""

    place: Path
    server: DevServer
    postgres: Restartable
    like: EngineScenario
    chance: random.Random

    def restart_server(self) -> None:
        """Temporal: kill -9, then the same file on the same port."""
        self.server.kill()
        self.server = start_server(self.place / "temporal", self.server.port)


Kind = Callable[[World, Row], None]


@contextmanager
def world() -> Iterator[World]:
    """Servers run, and the stories that nobody disturbs have been told."""
    with ExitStack() as opened:
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="fleet-faults-")))
        place.chmod(0o755)
        postgres = opened.enter_context(restartable())
        like = EngineScenario(place / "undisturbed")
        for story in ("short", "long", "asks"):
            like.by_the_loop(like.add(story, story))
        like.decide("asks")
        like.by_the_loop("asks")
        server = start_server(place / "temporal", free_port())
        made = World(place, server, postgres, like, random.Random(0))
        try:
            yield made
        finally:
            made.server.stop()


@dataclass(frozen=True)
class At:
    """Where a round's fleet is, if not the world's: Temporal's address, PostgreSQL's URL, its files."""

    address: str | None = None
    database: str | None = None
    root: Path | None = None


@contextmanager
def fleet_of(world: World, *, database: bool, at: At = At()) -> Iterator[Fleet]:
    """On queues, and in a schema, of its own."""
    queue = f"round-{uuid.uuid4().hex[:12]}"
    url = None
    if database:
        server = at.database or f"{world.postgres.server.url()}&"
        url = f"{server}schema={queue.replace('-', '_')}"
    root = (at.root or world.place) / queue
    with fleet_on(at.address or world.server.address, root, queue, database=url) as fleet:
        fleet.patience_s = _PATIENCE_S
        yield fleet


def finish(world: World, row: Row, fleet: Fleet, names: Sequence[str]) -> None:
    """Wait until all have ended, and judge. One that does not end is lost."""
    for name in names:
        try:
            fleet.reach("ended", [name])
            # The last kill of a backend may have come behind its end: the server is recovering.
            becomes(partial(fleet.scenario.kinds_so_far, name), f"the record of {name} is read")
        except (TimeoutError, AssertionError) as error:
            row.fixes += 1
            row.lost += 1
            row.said.append(
                f"{name}: {error} {fleet.scenario.kinds_so_far(name)} {_log(fleet, name)}"
            )
        else:
            judge(row, fleet.scenario, name, world.like)
    judge_record(row, fleet.scenario)


def _log(fleet: Fleet, name: str) -> str:
    """The end of what its processes wrote: the round's files are removed with it."""
    log = fleet.scenario.root / "logs" / name
    return log.read_text()[-_QUOTED:] if log.exists() else ""


def wait_for_events(fleet: Fleet, name: str, kind: str) -> None:
    """Until one of this kind is on record."""
    becomes(lambda: kind in fleet.scenario.kinds_so_far(name), f"{name} has {kind}")


def pause(world: World, least_s: float, most_s: float) -> None:
    """By chance."""
    time.sleep(world.chance.uniform(least_s, most_s))
