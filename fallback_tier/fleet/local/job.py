"""What a worker of this machine is given on its standard input, and what it leaves: a word of where it is,
and the document of its fix if its owner keeps those.
"""

import os
from pathlib import Path

from pydantic import ValidationError

from fallback_tier.files.folders import writing_below
from fallback_tier.fleet.engine import EngineState, Phase
from fallback_tier.fleet.order import FixOrder
from fallback_tier.fleet.place import FleetSecrets, PipedJob, Place

#: A worker's last word is a few hundred bytes.
_MAX_WORD_BYTES = 65_536

#: What is kept free for it (bytes): a block of most file systems.
_ROOM_BYTES = 4_096


class Job(PipedJob):
    """One fix. ``lock``: the number of the inherited file that holds its lock."""

    order: FixOrder
    lock: int
    secrets: FleetSecrets


class Word(EngineState):
    """Where a worker is: ``active`` until it says how it ended. ``base_commit``: what it works on, known
    from when that is decided; ``outcome``: verified, patched, refused, unknown or escalated."""

    phase: Phase = Phase.ACTIVE
    base_commit: str | None = None
    outcome: str | None = None


def document_path(place: Place, fix_id: str) -> Path:
    """Where a worker leaves what ``fallback-tier fix --json`` would print."""
    return word_path(place, fix_id).with_suffix(".json")


def word_path(place: Place, fix_id: str) -> Path:
    """Where a worker leaves how it ended."""
    return place.home / "workers" / f"{fix_id}.end"


def keep_room(place: Place, fix_id: str) -> None:
    """For its worker's word, before there is a worker: one on a disk that has filled up since has to say
    so, or it would count as dead. Until then the word says nothing. Raises StateFolderError."""
    with writing_below(place.state_dir):
        word_path(place, fix_id).write_bytes(b" " * _ROOM_BYTES)


def leave_word(place: Place, fix_id: str, state: EngineState) -> None:
    """In the room that is kept for it, which takes no more of the disk. Half a word says nothing. Durable:
    the commit that it names is decided once. Raises OSError."""
    said = state.model_dump_json().encode()
    there = os.open(word_path(place, fix_id), os.O_WRONLY | os.O_CREAT, 0o666)
    with os.fdopen(there, "wb") as file:
        file.write(said.ljust(_ROOM_BYTES))
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def read_word(place: Place, fix_id: str) -> Word:
    """One that says nothing if the worker has not said anything."""
    try:
        with word_path(place, fix_id).open("rb") as file:
            return Word.model_validate_json(file.read(_MAX_WORD_BYTES))
    except (FileNotFoundError, ValidationError):
        return Word()
