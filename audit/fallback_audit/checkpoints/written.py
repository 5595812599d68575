"""Which events this process wrote itself: what it signs beyond them, it only found."""

import threading
from collections.abc import Sequence

from fallback_audit.checkpoints.checkpoint import Span


class Written:
    """Numbers of the events that became durable through one guard, a keeper's and a flag among them.
    Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Span] = []

    def add(self, seq: int) -> None:
        """Event ``seq`` is ours."""
        with self._lock:
            last = self._spans[-1] if self._spans else None
            if last is not None and last.last + 1 == seq:
                self._spans[-1] = Span(last.first, seq)
            else:
                self._spans.append(Span(seq, seq))

    def spans(self) -> tuple[Span, ...]:
        """All of them that are not forgotten, ascending."""
        with self._lock:
            return tuple(self._spans)

    def forget(self, covered: int) -> None:
        """A checkpoint covers these: nobody asks about them any more."""
        with self._lock:
            self._spans = [span for span in self._spans if span.last > covered]


def others(wrote: Sequence[Span], *, after: int, upto: int) -> tuple[Span, ...]:
    """The events behind ``after``, to ``upto``, that are in none of ``wrote`` (ascending)."""
    found = []
    for span in (*wrote, Span(upto + 1, upto + 1)):
        if span.first > after + 1:
            found.append(Span(after + 1, min(span.first - 1, upto)))
        after = max(after, span.last)
        if after >= upto:
            break
    return tuple(found)
