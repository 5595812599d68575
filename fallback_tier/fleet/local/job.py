"""What a worker of the local engine is given on its standard input, and the word that it leaves."""

import json
import os
from pathlib import Path

from pydantic import ValidationError

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.engine import EngineState
from fallback_tier.fleet.order import FixOrder
from fallback_tier.fleet.place import FleetSecrets, Place
from fallback_tier.gates.trees.state_folder import writing_below
from fallback_tier.wiring import RecordSettings

#: A worker's last word is a few hundred bytes.
_MAX_WORD_BYTES = 65_536

#: What is kept free for it (bytes): a block of most file systems.
_ROOM_BYTES = 4_096


class Job(Frozen):
    """One fix. ``lock``: the number of the inherited file that holds its lock."""

    order: FixOrder
    place: Place
    lock: int
    secrets: FleetSecrets

    def to_pipe(self) -> bytes:
        """Its bytes, keys in them: they go through a pipe, and stand in no argument or file."""
        plain = self.model_dump(mode="json", exclude={"secrets"})
        revealed = {name: it.get_secret_value() for name, it in self.secrets if it is not None}
        return json.dumps(plain | {"secrets": revealed}).encode()

    def record(self) -> RecordSettings:
        """With the address that came apart from it."""
        return self.place.record.model_copy(update={"database": self.secrets.database})


#: How a fix of a campaign continues.
RESUME = "`fleet resume`"


def word_path(place: Place, fix_id: str) -> Path:
    """Where a worker leaves how it ended."""
    return place.home / "workers" / f"{fix_id}.end"


def keep_room(place: Place, fix_id: str) -> None:
    """For its worker's word, before there is a worker: one on a disk that has filled up since has to say
    so, or it would count as dead. Until then the word says nothing. Raises StateFolderError."""
    with writing_below(place.state_dir):
        word_path(place, fix_id).write_bytes(b" " * _ROOM_BYTES)


def leave_word(place: Place, fix_id: str, state: EngineState) -> None:
    """In the room that is kept for it, which takes no more of the disk. Half a word says nothing. Raises
    OSError."""
    said = state.model_dump_json().encode()
    there = os.open(word_path(place, fix_id), os.O_WRONLY | os.O_CREAT, 0o666)
    with os.fdopen(there, "wb") as file:
        file.write(said.ljust(_ROOM_BYTES))


def read_word(place: Place, fix_id: str) -> EngineState | None:
    """None: it has said nothing."""
    try:
        with word_path(place, fix_id).open("rb") as file:
            return EngineState.model_validate_json(file.read(_MAX_WORD_BYTES))
    except (FileNotFoundError, ValidationError):
        return None
