"""Our record format: one SolvedExample as JSON per line. Plain, gzip and xz files are read as streams."""

import gzip
import hashlib
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from fallback_audit.disk_errors import blamed
from fallback_audit.events import Digest
from fallback_tier.errors import InputError, first_fault
from fallback_tier.files.inputs import open_named
from fallback_tier.limits import MAX_FILE_BYTES
from fallback_tier.retrieval import SolvedExample

#: Bytes of one line, unpacked: no real record is larger, and a small archive can have an endless line.
MAX_LINE_BYTES = MAX_FILE_BYTES

#: Memory that xz may use to unpack a file: `xz -9` needs 65 MiB, and a header may ask for 4 GiB.
MAX_XZ_MEMORY_BYTES = 128 * 1024 * 1024

#: Stored records that a process keeps parsed and checked, about 25 KB each: a question reads a hundred,
#: mostly those of the question before.
_KEPT = 512

#: Characters of a summary. A commit's first line has 72 by custom; a longer text is not a summary, and
#: takes space from the edits.
MAX_SUMMARY_CHARS = 200

_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"


def load_jsonl(path: Path) -> tuple[SolvedExample, ...]:
    """Return the records of a file in our format, without empty lines. Raises InputError, naming file and
    line, if one can't be read, is larger than MAX_LINE_BYTES, or is not UTF-8 or not a record."""
    return tuple(parse_record(line, place) for place, line in lines(path))


def lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (place, line) of each non-empty line; the place names file and line. Raises InputError."""
    number = 0
    try:
        with open_named(path) as raw, _unpacked(raw) as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                place = f"{str(path)!r}, line {number}"
                if len(line) > MAX_LINE_BYTES:
                    raise InputError(
                        f"{place} is larger than {MAX_LINE_BYTES:,} bytes.",
                        next_step="Give one record a line.",
                        kind="line_too_large",
                    )
                if line.strip():
                    yield place, line
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        after = f" after line {number}" if number else ""
        unreadable = InputError(
            f"The examples {str(path)!r} can't be read{after}: {reason}.",
            next_step="Check the path, and that the file is whole.",
            kind="unreadable",
        )
        raise blamed(error, f"The examples {str(path)!r}{after}", unreadable) from error


def parse_record(line: bytes, place: str) -> SolvedExample:
    """Parse one line of our format. Raises InputError, naming the place and the field."""
    try:
        return SolvedExample.model_validate_json(line)
    except ValidationError as error:
        raise not_valid(place, "a solved example", error, kind="not_valid") from error


def not_valid(place: str, what: str, error: ValidationError, *, kind: str = "") -> InputError:
    """Return the error for a line, by its first fault."""
    return InputError(
        f"{place} is not {what}: {first_fault(error, 'the line')}.",
        next_step=f"Give one JSON object a line, with the fields of {what}.",
        kind=kind,
    )


def content_sha256(example: SolvedExample) -> Digest:
    """Return the record's digest without its id: the same fix under two ids is one example. An empty
    ``fix_summary`` is left out too, as before records had one."""
    excluded = {"example_id"} if example.fix_summary else {"example_id", "fix_summary"}
    record = example.model_dump(mode="json", exclude=excluded)
    return text_sha256(
        json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    )


def text_sha256(text: str) -> Digest:
    """Return the SHA-256 of a text's UTF-8."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def one_line(text: str) -> str:
    """Return a ``fix_summary``: the first non-empty line, at most MAX_SUMMARY_CHARS."""
    first = next(filter(None, map(str.strip, text.splitlines())), "")
    return first[:MAX_SUMMARY_CHARS].rstrip()


@lru_cache(_KEPT)
def as_ingested(record: str, digest: Digest) -> SolvedExample | None:
    """Parse a stored record; None if it does not have this digest."""
    try:
        example = SolvedExample.model_validate_json(record)
    except ValueError:
        return None
    return example if content_sha256(example) == digest else None


def _unpacked(raw: IO[bytes]) -> IO[bytes] | gzip.GzipFile | io.BufferedReader:
    """Return the unpacked stream, by its first bytes: a file's name may be wrong."""
    magic = raw.read(len(_XZ))
    raw.seek(0)
    if magic.startswith(_GZIP):
        return gzip.open(raw)
    return io.BufferedReader(_Xz(raw)) if magic == _XZ else raw


class _Xz(io.RawIOBase):
    """The streams of an xz file, as ``lzma.open`` reads them, within MAX_XZ_MEMORY_BYTES (``lzma.open`` has
    no such parameter)."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._stream = self._next_stream()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read as any raw stream does. Raises LZMAError if it is damaged or needs too much memory,
        EOFError if it is cut short."""
        content = rest = b""
        while not content:
            if self._stream.eof:
                rest = self._stream.unused_data or self._packed.read(io.DEFAULT_BUFFER_SIZE)
                rest = rest.lstrip(b"\0")  # padding between streams
                if not rest:
                    return 0
                self._stream = self._next_stream()
            elif self._stream.needs_input and not rest:
                rest = self._packed.read(io.DEFAULT_BUFFER_SIZE)
                if not rest:
                    raise EOFError("it ends in the middle of a stream")
            content, rest = self._stream.decompress(rest, len(buffer)), b""
        buffer[: len(content)] = content
        return len(content)

    @staticmethod
    def _next_stream() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY_BYTES)
