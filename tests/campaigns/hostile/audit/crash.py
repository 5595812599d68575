"""kill -9 at any moment: what was acknowledged is there, the chain is whole, the next append works."""

import os
import shutil
import time
from random import Random

from fallback_audit.errors import FallbackError
from tests.campaigns.hostile.audit.campaign import Ask, Tally
from tests.campaigns.hostile.audit.children import Child, kill_all
from tests.campaigns.hostile.audit.postgres import Killable, killable
from tests.campaigns.hostile.audit.promises import Promises
from tests.campaigns.hostile.audit.trail_folder import TrailFolder, records

#: Then a new store is begun, so that its making is interrupted too. Every cycle verifies the whole store:
#: at twice as many it spent half of its time on what the cycles before it had verified.
CYCLES_A_STORE = 10

#: How long a writer lives at most, from its first event or from its start: some tens of appends.
LIFE_S = 0.03

#: How many cycles do not wait for a first event: those kill while a store opens, or is made.
EARLY = 0.3

#: How many cycles kill the database server or a process of its, instead of the writers first.
SERVER = 0.1

WRITERS = (1, 1, 1, 2, 4)
BATCHES = (1, 1, 1, 2, 5)


def acknowledge(trail: TrailFolder, name: str, chance: Random, out: int) -> None:
    """Append for ever, one by one and in batches; say what was acknowledged, and its leaf."""
    try:
        _acknowledge(trail, name, chance, out)
    except FallbackError as error:  # its server was killed; a store in a file has no such excuse
        os.write(out, f"refused {error.code} {error.problem}".replace("\n", " ").encode() + b"\n")


def _acknowledge(trail: TrailFolder, name: str, chance: Random, out: int) -> None:
    events = records(name)
    store, evidence = trail.store(), trail.evidence()
    while True:
        if chance.random() < 0.1:
            digest = evidence.put(f"{name} {chance.random()}\n".encode() * 100)
            os.write(out, f"evidence {digest}\n".encode())
        batch = [next(events) for _ in range(chance.choice(BATCHES))]
        stored = store.append_all(batch) if len(batch) > 1 else (store.append(*batch[0]),)
        os.write(out, "".join(f"event {event.seq} {event.leaf}\n" for event in stored).encode())


def cycle(
    trail: TrailFolder, promises: Promises, name: str, chance: Random, server: Killable | None
) -> str:
    """Start writers, kill them, or what they write to; says which sort of cycle it was."""
    number = chance.choice(WRITERS)
    seeds = [chance.random() for _ in range(number)]
    writers = [
        Child(lambda out, i=i: acknowledge(trail, f"{name}.{i}", Random(seeds[i]), out))  # type: ignore[misc]
        for i in range(number)
    ]
    if chance.random() >= EARLY:
        writers[0].wait_for_a_line()
    time.sleep(chance.random() * LIFE_S)
    victim = "the writers"
    if server is not None and (share := chance.random()) < SERVER:
        victim = "the server" if share < SERVER / 2 else "a server process"
        if victim == "the server":
            server.kill_server()
        else:
            server.kill_a_backend()
        time.sleep(LIFE_S)
    messages = kill_all(writers)
    if victim == "the server" and server is not None:
        server.start_again()
    elif server is not None:
        server.wait_until_it_answers()
    refused = [line for line in messages if line.startswith("refused")]
    if refused and victim == "the writers":
        raise AssertionError(f"a writer was refused: {refused[0]}")
    promises.take(messages)
    where = "at work" if messages else "while it opened"
    return f"{victim} killed, {where}, {'one writer' if number == 1 else 'several writers'}"


def crash(ask: Ask) -> Tally:
    """Cycles of one backend."""
    if ask.backend == "sqlite":
        return _crash(ask, None)
    with killable() as server:
        return _crash(ask, server)


class Life:
    """One store, and what its writers were promised."""

    def __init__(self, ask: Ask, number: int, server: Killable | None) -> None:
        self._server, self._schema = server, f"store_{number}"
        database = server.url(self._schema) if server else None
        self.trail = TrailFolder(ask.place / f"store-{number}", database=database)
        self.promises = Promises()

    def end(self, tally: Tally) -> None:
        """The next append works, after the last kill; then the store is gone."""
        self.promises.goes_on(self.trail)
        if (problem := self.promises.problem(self.trail)) is not None:
            raise AssertionError(problem)
        tally.counts["acknowledged events, none lost"] += len(self.promises.events)
        tally.counts["acknowledged evidence, none lost"] += len(self.promises.evidence)
        shutil.rmtree(self.trail.place)
        if self._server:
            self._server.forget(self._schema)


def _crash(ask: Ask, server: Killable | None) -> Tally:
    tally = Tally()
    life: Life | None = None
    for case in ask.cases:
        try:
            if life is None or tally.cases % CYCLES_A_STORE == 0:
                if life is not None:
                    life.end(tally)
                life = Life(ask, case, server)
            sort = cycle(life.trail, life.promises, f"w{case}", ask.chance(case), server)
            problem = life.promises.problem(life.trail)
        except Exception as error:
            raise ask.broken(case, f"{type(error).__name__}: {error}") from error
        if problem is not None:
            raise ask.broken(case, problem)
        tally.cases += 1
        tally.counts[sort] += 1
        ask.told(tally.cases, ask.count)
    if life is not None:
        life.end(tally)
    return tally
