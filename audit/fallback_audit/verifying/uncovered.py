"""Events that no checkpoint covers yet: whose they are, and which ends are among them."""

import json
from collections.abc import Iterable
from itertools import islice

from fallback_audit.chain import StoredRow
from fallback_audit.events import CLOSING_KINDS
from fallback_audit.verifying.report import MAX_LISTED, UncoveredFix

#: Rows looked at to say whose they are: far more than any policy leaves uncovered. All are counted.
MAX_TAIL_ROWS = 10_000


def uncovered_fixes(rows: Iterable[StoredRow]) -> tuple[UncoveredFix, ...]:
    """The fixes of these rows, in the order of their first events; at most MAX_LISTED."""
    found: dict[str, UncoveredFix] = {}
    for row in islice(rows, MAX_TAIL_ROWS):
        try:
            header = json.loads(row.header or b"")
            fix_id, ended = str(header["fix_id"]), header["kind"] in CLOSING_KINDS
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if fix_id not in found and len(found) == MAX_LISTED:
            continue
        before = found.get(fix_id, UncoveredFix(fix_id=fix_id, events=0, ended=False))
        found[fix_id] = UncoveredFix(
            fix_id=fix_id, events=before.events + 1, ended=before.ended or ended
        )
    return tuple(found.values())
