"""What a user does to a record, step by step: the material of failing disks and lost power."""

import os
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from fallback_audit.errors import FallbackError
from fallback_audit.ports import AuditStore, Record
from tests.campaigns.hostile.audit import maintenance
from tests.campaigns.hostile.audit.trail_folder import TrailFolder, records

#: Says a line: what was acknowledged, or what was refused.
Say = Callable[[str], None]


class Workload(NamedTuple):
    """``ready`` makes the record as the work finds it; ``steps`` are tried one after another, though
    one before has failed: a process lives on after an error."""

    name: str
    ready: Callable[[TrailFolder], None]
    work: Callable[[TrailFolder, Say], None]


def _nothing(trail: TrailFolder) -> None:
    trail.place.mkdir(parents=True)


def _some_fixes(trail: TrailFolder) -> None:
    """Twenty events, checkpointed at the end."""
    events = records("before")
    with closing(trail.store()) as store:
        for _ in range(20):
            store.append(*next(events))
    trail.evidence().put(b"before")


def attempt(say: Say, step: Callable[[], object]) -> bool:
    """Any error of ours is an answer; another one is a fault."""
    try:
        step()
    except FallbackError as error:
        say(f"refused {error.code} {error.problem}".replace("\n", " "))
        return False
    return True


def append_some(trail: TrailFolder, say: Say) -> None:
    """Open, append one by one and at once, to the end of a fix and beyond; close."""
    opened = []
    for _ in range(2):  # whoever could not open it tries again
        if attempt(say, lambda: opened.append(trail.store())):
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


def _evidence(trail: TrailFolder, say: Say) -> None:
    """Small, several sectors large, known already."""
    evidence = trail.evidence()

    def put(content: bytes) -> None:
        say(f"evidence {evidence.put(content)}")

    attempt(say, lambda: put(b"small"))
    attempt(say, lambda: put(b"large\n" * 4_000))
    attempt(say, lambda: put(b"small"))


def _kept(trail: TrailFolder) -> None:
    """One segment sealed, one fix redacted, and fixes behind them to be kept."""
    maintenance.fixes(trail, "a")
    maintenance.redact(trail, "a")
    maintenance.seal(trail)
    maintenance.copy_segments(trail)
    maintenance.fixes(trail, "b", "c")


def _redact(trail: TrailFolder, say: Say) -> None:
    """Twice: whoever was refused tries again."""
    for _ in range(2):
        if attempt(say, lambda: maintenance.redact(trail, "b")):
            break
    else:
        return
    if attempt(say, lambda: maintenance.redact(trail, "c")):
        say(f"gone {maintenance.WORDS}")


def _seal(trail: TrailFolder, say: Say) -> None:
    attempt(say, lambda: maintenance.seal(trail))
    attempt(say, lambda: maintenance.retire(trail, 1))


def _rotate(trail: TrailFolder, say: Say) -> None:
    attempt(say, lambda: maintenance.rotate_key(trail))
    attempt(say, lambda: maintenance.end_rotation(trail))


def _export(trail: TrailFolder, say: Say) -> None:
    attempt(say, lambda: maintenance.export(trail))


WORKLOADS = (
    Workload("a new store", _nothing, append_some),
    Workload("append", _some_fixes, append_some),
    Workload("evidence", _some_fixes, _evidence),
    Workload("redact", _kept, _redact),
    Workload("seal and retire", _kept, _seal),
    Workload("exchange the key", _kept, _rotate),
    Workload("export", _kept, _export),
)
