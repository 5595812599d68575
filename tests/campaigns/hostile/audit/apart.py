"""A campaign in processes of its own: several share its cases, so that every core of a machine has some.

Each is a fresh interpreter, which says in lines of JSON how far it is and what it found. Who takes which
case depends on nothing but the case's number: see ``Ask.mine``.

Each leads a group, and its environment has a mark that all inherit whom it starts: at the end, whatever
that was, nobody is left of either. A process whose parent is gone ends with its group by itself.
"""

import io
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.campaigns.hostile.audit.campaign import (
    Ask,
    BrokenRecordError,
    Campaign,
    Skipped,
    Tally,
    Told,
)
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[4]

#: A process that says nothing for so long hangs. One case takes seconds at most; a start, a minute.
SILENCE_S = 600.0

#: The variable with the mark of a campaign's processes.
MARK = "CAMPAIGN_OF"

#: Looks for whoever is left: one that starts another while it is ended is found at the next.
_LOOKS = 20

#: How JSON writes "no limit of time", which it has no number for.
_NEVER = 1e12


def shared(campaign: Campaign, ask: Ask, workers: int) -> Tally:
    """All cases of ``ask``, done by so many processes; by this one where one is enough."""
    if workers == 1:
        return campaign(ask)
    asks = [
        replace(ask, place=ask.place / str(number), worker=number, workers=workers)
        for number in range(workers)
    ]
    for one in asks:
        one.place.mkdir()
    return together(campaign, asks, {})


def together(campaign: Campaign, asks: Sequence[Ask], environment: dict[str, str]) -> Tally:
    """A process for each of ``asks``, with this in its environment besides; what they did, in one.

    Raises Skipped, BrokenRecordError as the first of them did, and TimeoutError for one that hangs.
    """
    mark = secrets.token_hex(16)
    processes = [_started(campaign, ask, {**environment, MARK: mark}) for ask in asks]
    try:
        return _heard(processes, asks[0].told)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _end_marked(mark)
        for process in processes:
            process.communicate(timeout=PATIENCE_S)


def _end_marked(mark: str) -> None:
    """End all with this mark: also who made a group of its own, or whose parent is gone."""
    for _ in range(_LOOKS):
        if not (left := _marked(mark)):
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # gone meanwhile, or another's
            if f"{MARK}={mark}".encode() in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
    return found


def _started(campaign: Campaign, ask: Ask, more: dict[str, str]) -> "subprocess.Popen[bytes]":
    given = {key: value for key, value in asdict(replace(ask, told=print)).items() if key != "told"}
    given["place"], given["until"] = str(ask.place), min(ask.until, _NEVER)
    spec = sys.modules[campaign.__module__].__spec__  # its own name, where it is run as __main__
    module = spec.name if spec else campaign.__module__
    return subprocess.Popen(
        [sys.executable, "-m", __name__, module, campaign.__name__, json.dumps(given)],
        stdin=subprocess.PIPE,  # its end is ours
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **more},
        start_new_session=True,
    )


def _heard(processes: Sequence["subprocess.Popen[bytes]"], reported: Told) -> Tally:
    done: Counter[int] = Counter()
    tallies: list[Tally] = []
    for number, reported_value in _lines(processes):
        if "done" in reported_value:
            done[number] = reported_value["done"]
            reported(done.total(), reported_value["total"])
        elif "skipped" in reported_value:
            raise Skipped(reported_value["skipped"])
        elif "broken" in reported_value:
            raise BrokenRecordError(reported_value["broken"])
        else:
            tallies.append(Tally(**{**reported_value, "counts": Counter(reported_value["counts"])}))
    if len(tallies) < len(processes):
        raise BrokenRecordError("a process of the campaign ended, and said nothing")
    return Tally(
        cases=sum(tally.cases for tally in tallies),
        counts=sum((tally.counts for tally in tallies), Counter[str]()),
        notes=list(dict.fromkeys(note for tally in tallies for note in tally.notes)),
        possible=max((tally.possible for tally in tallies if tally.possible), default=None),
    )


def _lines(
    processes: Sequence["subprocess.Popen[bytes]"],
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Whoever said it, and what, until all have ended. Raises TimeoutError."""
    with selectors.DefaultSelector() as selector:
        for number, process in enumerate(processes):
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ, (number, bytearray()))
        while selector.get_map():
            ready = selector.select(SILENCE_S)
            if not ready:
                raise TimeoutError(f"the campaign has said nothing for {SILENCE_S:.0f} s")
            for key, _ in ready:
                number, begun = key.data
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    selector.unregister(key.fileobj)
                *whole, begun[:] = (bytes(begun) + piece).split(b"\n")
                for line in whole:
                    yield number, json.loads(line)


def _end_with_the_parent() -> None:
    """Nobody writes here: it can be read once the other end is gone, however that ended."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def main(module: str, name: str, given: str) -> None:
    """The other end of ``together``."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    # What a campaign prints by itself is no line of ours, nor may whom it starts keep our end open.
    with os.fdopen(os.dup(1), "w") as out, Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        sys.stdout = io.StringIO()

        def say(**reported: object) -> None:
            out.write(json.dumps(reported) + "\n")
            out.flush()

        ask = Ask(**{**json.loads(given), "told": lambda done, total: say(done=done, total=total)})
        ask.place = Path(ask.place)
        campaign: Callable[[Ask], Tally] = getattr(import_module(module), name)
        try:
            with redirect_stderr(io.StringIO()):  # "made a key", thousands of times
                tally = campaign(ask)
        except Skipped as reason:
            say(skipped=str(reason))
        except BrokenRecordError as broken:
            say(broken=str(broken))
        else:
            say(**vars(tally))


if __name__ == "__main__":
    main(*sys.argv[1:])
