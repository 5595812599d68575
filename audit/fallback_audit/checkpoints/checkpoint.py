"""Checkpoints: signed statements of a log's size and Merkle root (C2SP tlog-checkpoint).

Our extension lines follow the root::

    tip <hex>                     the chain's leaf at that size: a writer compares one row, not all
    previous <size> <sha256>      the checkpoint before this one and its text's digest (none in the first),
                                  so that one removed between two others is noticed
    found <first> <last>          new events that this signer did not write itself, one line per span: it
                                  signs that they are there, and does not vouch for them (ADR-0059)

They are signed with the rest. Readers that know only the specification ignore them.
"""

import base64
import hashlib
import re
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fallback_audit.checkpoints.merkle import HASH_BYTES
from fallback_audit.checkpoints.note import (
    Signer,
    Verifier,
    decode_base64,
    open_note,
    sign_note,
)
from fallback_audit.errors import AuditIntegrityError

_SIZE = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)
_TIP = re.compile(r"tip ([0-9a-f]{64})", re.ASCII)
_PREVIOUS = re.compile(r"previous ([1-9][0-9]{0,15}) ([0-9a-f]{64})", re.ASCII)
_FOUND = re.compile(r"found ([1-9][0-9]{0,15}) ([1-9][0-9]{0,15})", re.ASCII)


class Previous(NamedTuple):
    """The checkpoint before: its size, and the SHA-256 of its text.

    The digest does not cover the signatures: one may be added later (a rotation, a witness).
    """

    size: int
    sha256: str


class Span(NamedTuple):
    """Consecutive events: the first and the last."""

    first: int
    last: int


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint. ``root``: the RFC 6962 root of the first ``size`` entries of the log ``origin``."""

    origin: str
    size: int
    root: bytes
    tip: str | None = None
    previous: Previous | None = None
    found: tuple[Span, ...] = ()

    def is_new_in(self, seq: int) -> bool:
        """Return whether it covers this event and the checkpoint before it, if any, does not."""
        return (self.previous.size if self.previous else 0) < seq <= self.size

    def text(self) -> str:
        """Return the text that is signed."""
        lines = [self.origin, str(self.size), base64.b64encode(self.root).decode()]
        if self.tip is not None:
            lines.append(f"tip {self.tip}")
        if self.previous is not None:
            lines.append(f"previous {self.previous.size} {self.previous.sha256}")
        lines += [f"found {span.first} {span.last}" for span in self.found]
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """Parse ``text``, ignoring unknown extension lines. Raises AuditIntegrityError."""
        lines = text.removesuffix("\n").split("\n")
        if len(lines) < 3 or not all(lines) or not _SIZE.fullmatch(lines[1]):
            raise _bad_checkpoint("its text is not origin, size and root", kind="malformed")
        try:
            root = decode_base64(lines[2])
        except ValueError:
            root = b""
        if len(root) != HASH_BYTES:
            raise _bad_checkpoint("its root is no SHA-256 hash", kind="malformed")
        tips = [match[1] for line in lines[3:] if (match := _TIP.fullmatch(line))]
        previous_lines = [
            match.groups() for line in lines[3:] if (match := _PREVIOUS.fullmatch(line))
        ]
        if len(tips) > 1 or len(previous_lines) > 1:
            raise _bad_checkpoint(
                "it names two tips, or two checkpoints before it", kind="malformed"
            )
        previous = (
            Previous(int(previous_lines[0][0]), previous_lines[0][1]) if previous_lines else None
        )
        size, tip = int(lines[1]), tips[0] if tips else None
        found = tuple(
            Span(int(match[1]), int(match[2]))
            for line in lines[3:]
            if (match := _FOUND.fullmatch(line))
        )
        if not all(span.first <= span.last <= size for span in found):
            raise _bad_checkpoint(
                "the events that it says were found are none that it covers",
                kind="found_events_not_covered",
            )
        return cls(lines[0], size, root, tip, previous, found)


class SignedCheckpoint(NamedTuple):
    """A checkpoint, its file's bytes, and which trusted keys signed it."""

    checkpoint: Checkpoint
    note: bytes
    signed_by: tuple[Verifier, ...]

    @property
    def named(self) -> Previous:
        """Return the size and digest by which the next checkpoint names this one."""
        return named_by(self.checkpoint.size, self.note)


def named_by(size: int, note: bytes) -> Previous:
    """Return how a checkpoint names the one before it, of ``size`` and with the file content ``note``."""
    text = note.rpartition(b"\n\n")[0] + b"\n"
    return Previous(size, hashlib.sha256(text).hexdigest())


def sign_checkpoint(checkpoint: Checkpoint, signers: Sequence[Signer]) -> SignedCheckpoint:
    """Sign a checkpoint."""
    note = sign_note(checkpoint.text(), signers)
    return SignedCheckpoint(checkpoint, note, tuple(signer.verifier for signer in signers))


def open_checkpoint(note: bytes, verifiers: Collection[Verifier]) -> SignedCheckpoint:
    """Check a checkpoint. Raises AuditIntegrityError: altered, malformed, or not signed by a trusted key.

    One of the trusted keys that signed it must have the log's name: a key that is trusted for another log
    proves nothing about this one.
    """
    opened = open_note(note, verifiers)
    checkpoint = Checkpoint.parse(opened.text)
    if all(verifier.name != checkpoint.origin for verifier in opened.signed_by):
        raise _bad_checkpoint(
            f"no key of the log {checkpoint.origin} signed it", kind="no_key_of_the_log"
        )
    return SignedCheckpoint(checkpoint, note, opened.signed_by)


def _bad_checkpoint(reason: str, *, kind: str = "") -> AuditIntegrityError:
    """Return the error for a checkpoint that can't be trusted."""
    return AuditIntegrityError(
        f"A checkpoint can't be trusted: {reason}.",
        next_step="Keep it for analysis; check that --keys names the keys of this deployment.",
        kind=kind,
    )


class Written:
    """Numbers of the events that became durable through one guard, including flags and events of
    maintenance. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Span] = []

    def add(self, seq: int) -> None:
        """Note that event ``seq`` was written here."""
        with self._lock:
            last = self._spans[-1] if self._spans else None
            if last is not None and last.last + 1 == seq:
                self._spans[-1] = Span(last.first, seq)
            else:
                self._spans.append(Span(seq, seq))

    def spans(self) -> tuple[Span, ...]:
        """Return the numbers that are not forgotten, as ascending spans."""
        with self._lock:
            return tuple(self._spans)

    def forget(self, covered: int) -> None:
        """Forget the spans that a checkpoint of size ``covered`` covers."""
        with self._lock:
            self._spans = [span for span in self._spans if span.last > covered]


def others(wrote: Sequence[Span], *, after: int, upto: int) -> tuple[Span, ...]:
    """Return the events after ``after``, up to ``upto``, that are in none of ``wrote`` (ascending)."""
    spans = []
    for span in (*wrote, Span(upto + 1, upto + 1)):
        if span.first > after + 1:
            spans.append(Span(after + 1, min(span.first - 1, upto)))
        after = max(after, span.last)
        if after >= upto:
            break
    return tuple(spans)
