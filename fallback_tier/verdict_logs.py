"""Limits on a verdict's log, and what is kept of a longer one."""

from collections.abc import Sequence

#: Most UTF-8 bytes: the longest log of one command, of bytes that are not text (``MAX_OUTPUT_BYTES``). The
#: audit trail takes a third more (``MAX_EVIDENCE_BYTES``); one verdict may be about many folders.
MAX_LOG_BYTES = 12 * 1024 * 1024

#: Of a log that is cut, a quarter is kept from its beginning, as of a command's. Failures come at the end.
_HEAD_SHARE = 4

#: More bytes than the line takes that replaces what is left out.
_LINE_BYTES = 64


def cut(log: str, most: int = MAX_LOG_BYTES) -> str:
    """Return a log in at most ``most`` bytes; if it has more, a line replaces its middle.

    Whole lines are left out, if it has any, so that no half of a secret stays that is not recognised as
    one.
    """
    encoded = log.encode("utf-8", "replace")
    if len(encoded) <= most:
        return log
    room = max(0, most - _LINE_BYTES)
    head = encoded[: room // _HEAD_SHARE]
    tail = encoded[len(encoded) - (room - len(head)) :]
    head = head[: head.rfind(b"\n") + 1] or head
    tail = tail[tail.find(b"\n") + 1 :]
    dropped = len(encoded) - len(head) - len(tail)
    parts = (part.decode("utf-8", "ignore") for part in (head.removesuffix(b"\n"), tail))
    return f"\n[... {dropped} bytes left out ...]\n".join(parts)


def joined(logs: Sequence[str], most: int = MAX_LOG_BYTES) -> str:
    """Return logs one below the other, in at most ``most`` bytes: if they have more, each that is longer
    than its share is cut."""
    bytes_left, share = most, most
    for number, size in enumerate(sorted(len(log.encode("utf-8", "replace")) + 1 for log in logs)):
        share = bytes_left // (len(logs) - number)
        bytes_left -= min(size, share)
    return cut("\n".join(cut(log, share - 1) for log in logs), most)
