"""Our record format: one SolvedExample in JSON a line."""

import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from fallback_audit.events import Digest
from fallback_tier.errors import InputError
from fallback_tier.limits import MAX_FILE_BYTES
from fallback_tier.ports import SolvedExample


def load_jsonl(path: Path) -> tuple[SolvedExample, ...]:
    """The records of a file; empty lines are skipped.

    Raises InputError, naming the file and the line: unreadable, larger than MAX_FILE_BYTES, not
    UTF-8, not a record.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"The examples {str(path)!r} can't be read: {error.strerror}.",
            next_step="Check the path.",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError(
            f"The examples {str(path)!r} are larger than {MAX_FILE_BYTES:,} bytes.",
            next_step="Split the file and ingest the parts.",
        )
    return tuple(
        _record(line, f"{str(path)!r}, line {number}")
        for number, line in enumerate(data.split(b"\n"), start=1)
        if line.strip()
    )


def content_sha256(example: SolvedExample) -> Digest:
    """Digest of what the record says, without its id: the same fix under two ids is one example."""
    record = example.model_dump(mode="json", exclude={"example_id"})
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def _record(line: bytes, place: str) -> SolvedExample:
    try:
        return SolvedExample.model_validate_json(line)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the line"
        raise InputError(
            f"{place} is not a solved example: {where}: {fault['msg']}.",
            next_step="Give one JSON object a line, with the fields of SolvedExample.",
        ) from error
