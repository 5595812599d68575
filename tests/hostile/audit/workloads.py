"""What a user does to a record, step by step: the material of failing disks and lost power."""

import os
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from fallback_audit.errors import FallbackError
from fallback_audit.ports import AuditStore, Record
from tests.hostile.audit import maintenance
from tests.hostile.audit.house import House, records

#: Says a line: what was acknowledged, or what was refused.
Say = Callable[[str], None]


class Workload(NamedTuple):
    """``ready`` makes the record as the work finds it; ``steps`` are tried one after another, though
    one before has failed: a process lives on after an error."""

    name: str
    ready: Callable[[House], None]
    work: Callable[[House, Say], None]


def _nothing(house: House) -> None:
    house.place.mkdir(parents=True)


def _some_fixes(house: House) -> None:
    """Twenty events, checkpointed at the end."""
    events = records("before")
    with closing(house.store()) as store:
        for _ in range(20):
            store.append(*next(events))
    house.evidence().put(b"before")


def attempt(say: Say, step: Callable[[], object]) -> bool:
    """Any error of ours is an answer; another one is a fault."""
    try:
        step()
    except FallbackError as error:
        say(f"refused {error.code} {error.problem}".replace("\n", " "))
        return False
    return True


def append_some(house: House, say: Say) -> None:
    """Open, append one by one and at once, to the end of a fix and beyond; close."""
    opened = []
    for _ in range(2):  # whoever could not open it tries again
        if attempt(say, lambda: opened.append(house.store())):
            break
    if not opened:
        return
    store = opened[0]
    for number, lengths in enumerate(
        ((1, 1, 4), (1, 9), (1, 1))
    ):  # a fix that is refused stops there
        events = records(f"at-{os.getpid()}-{number}")
        for length in lengths:
            batch = [next(events) for _ in range(length)]
            if not attempt(say, lambda batch=batch: _told(store, batch, say)):  # type: ignore[misc]
                break
    attempt(say, store.close)


def _told(store: AuditStore, batch: list[Record], say: Say) -> None:
    stored = store.append_all(batch) if len(batch) > 1 else (store.append(*batch[0]),)
    for event in stored:
        say(f"event {event.seq} {event.leaf}")


def _evidence(house: House, say: Say) -> None:
    """Small, several sectors large, known already, private."""
    evidence = house.evidence()

    def put(content: bytes, *, private: bool = False) -> None:
        say(f"evidence {evidence.put(content, private=private)}")

    attempt(say, lambda: put(b"small"))
    attempt(say, lambda: put(b"large\n" * 4_000))
    attempt(say, lambda: put(b"small"))
    attempt(say, lambda: put(b"a prompt", private=True))


def _kept(house: House) -> None:
    """One segment sealed, one fix redacted, and fixes behind them to be kept."""
    maintenance.fixes(house, "a")
    maintenance.redact(house, "a")
    maintenance.seal(house)
    maintenance.copy_segments(house)
    maintenance.fixes(house, "b", "c")


def _redact(house: House, say: Say) -> None:
    """Twice: whoever was refused tries again."""
    for _ in range(2):
        if attempt(say, lambda: maintenance.redact(house, "b")):
            break
    else:
        return
    if attempt(say, lambda: maintenance.redact(house, "c")):
        say(f"gone {maintenance.WORDS}")


def _seal(house: House, say: Say) -> None:
    attempt(say, lambda: maintenance.seal(house))
    attempt(say, lambda: maintenance.retire(house, 1))


def _rotate(house: House, say: Say) -> None:
    attempt(say, lambda: maintenance.rotate_key(house))
    attempt(say, lambda: maintenance.end_rotation(house))


def _export(house: House, say: Say) -> None:
    attempt(say, lambda: maintenance.export(house))


WORKLOADS = (
    Workload("a new store", _nothing, append_some),
    Workload("append", _some_fixes, append_some),
    Workload("evidence", _some_fixes, _evidence),
    Workload("redact", _kept, _redact),
    Workload("seal and retire", _kept, _seal),
    Workload("exchange the key", _kept, _rotate),
    Workload("export", _kept, _export),
)
