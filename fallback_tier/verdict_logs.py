"""How much log a verdict may have: what is kept of logs that have more."""

from collections.abc import Sequence

#: UTF-8 bytes: the longest log of one command, of bytes that are no text (``MAX_OUTPUT_BYTES``). The record
#: takes a third more (``MAX_EVIDENCE_BYTES``), and one verdict may be about many project folders.
MAX_LOG_BYTES = 12 * 1024 * 1024

#: Of a log that is cut, the part kept from its beginning, as of a command's. Failures are told at the end.
_HEAD_SHARE = 4

#: More than the line takes that stands for what is left out.
_LINE_BYTES = 64


def cut(log: str, most: int = MAX_LOG_BYTES) -> str:
    """A log in at most so many bytes: without its middle, for which a line stands, where it has more.

    Whole lines are left out, where it has any, so that no half of a secret stays that is not known for one.
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
    kept = (part.decode("utf-8", "ignore") for part in (head.removesuffix(b"\n"), tail))
    return f"\n[... {dropped} bytes left out ...]\n".join(kept)


def joined(logs: Sequence[str], most: int = MAX_LOG_BYTES) -> str:
    """Logs one below the other, in at most so many bytes: where they have more, each is cut that is longer
    than its share."""
    left, share = most, most
    for number, size in enumerate(sorted(len(log.encode("utf-8", "replace")) + 1 for log in logs)):
        share = left // (len(logs) - number)
        left -= min(size, share)
    return cut("\n".join(cut(log, share - 1) for log in logs), most)
