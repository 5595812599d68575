"""Up to where the record can be sealed: everything there is old, and no fix stands on both sides."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime

from fallback_audit.errors import AuditIntegrityError
from fallback_audit.frozen import Frozen
from fallback_audit.ports import MAINTENANCE, HeaderReader
from fallback_audit.stores.appending import timestamp

#: Fixes that a refusal names; there may be thousands.
MAX_NAMED = 5


class Held(Frozen):
    """A fix that keeps events from being sealed: not over, or with an event that is too young."""

    fix_id: str
    first_seq: int
    over: bool


class Choice(Frozen):
    """``last_seq``: seal up to here; equal to ``base``: nothing. ``old``: so far everything is old enough.

    ``held_by``: fixes that began up to ``old`` and did not end there, the first few.
    """

    base: int
    last_seq: int
    old: int
    held_by: tuple[Held, ...]


class _Span:
    """Where the events of a fix stand."""

    def __init__(self, first: int) -> None:
        self.first = self.last = first


def choose(store: HeaderReader, ended: Mapping[str, str], *, base: int, before: datetime) -> Choice:
    """The last event that can be sealed with all before it, of those behind ``base``."""
    limit = timestamp(before)
    old = tip = base
    young = False
    spans: dict[str, _Span] = {}
    for seq, fix_id, recorded_at in _headers(store, base):
        tip = seq
        young = young or recorded_at >= limit
        old = old if young else seq
        if fix_id != MAINTENANCE.fix_id and (not young or fix_id in spans):
            spans.setdefault(fix_id, _Span(seq)).last = seq
    # What is not over goes on behind the end.
    ends = {fix_id: span.last if fix_id in ended else tip + 1 for fix_id, span in spans.items()}
    best = reached = base
    for fix_id, span in spans.items():  # in the order of their first events
        if span.first > reached and reached <= old:
            best = max(best, min(old, span.first - 1))
        reached = max(reached, ends[fix_id])
    if reached <= old:
        best = old
    held = [
        Held(fix_id=fix_id, first_seq=span.first, over=fix_id in ended)
        for fix_id, span in spans.items()
        if ends[fix_id] > old
    ]
    return Choice(base=base, last_seq=best, old=old, held_by=tuple(held[:MAX_NAMED]))


def _headers(store: HeaderReader, base: int) -> Iterator[tuple[int, str, str]]:
    for row in store.headers(after=base):
        try:
            header = json.loads(row.header)
            reported = row.seq, str(header["fix_id"]), str(header["recorded_at"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise AuditIntegrityError(
                f"Nothing is sealed: the header of event {row.seq} is not one of ours.",
                next_step="Run `fallback-tier audit verify`; a record that is not whole is not sealed.",
                kind="bad_header",
            ) from error
        yield reported
