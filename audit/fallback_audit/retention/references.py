"""Which evidence the record still needs: what open fixes name, and ended ones until a date."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fallback_audit.events import AuditEvent
from fallback_audit.ports import MAINTENANCE, AuditReader

_DIGEST = re.compile(r"[0-9a-f]{64}")

#: Later than any time there is: a fix that is not over, or the record itself, needs it.
FOREVER: Final = "~"


def named_digests(event: AuditEvent) -> Iterator[bytes]:
    """Everything in an event that may be the digest of evidence, in 32 bytes.

    Not only what must be kept (``evidence.kept``): what an event names is never an orphan.
    """
    return _digests(event.model_dump())


def references(reader: AuditReader, ended: Mapping[str, str]) -> dict[bytes, str]:
    """Digest → until when it is needed: FOREVER, or the end of the last fix that names it."""
    needed: dict[bytes, str] = {}
    for stored in reader.events():
        fix_id = stored.scope.fix_id
        until = FOREVER if fix_id == MAINTENANCE.fix_id else ended.get(fix_id, FOREVER)
        for digest in named_digests(stored.payload):
            needed[digest] = max(until, needed.get(digest, ""))
    return needed


def _digests(value: Any) -> Iterator[bytes]:
    if isinstance(value, str):
        if _DIGEST.fullmatch(value):
            yield bytes.fromhex(value)
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _digests(member)
    elif isinstance(value, tuple | list):
        for member in value:
            yield from _digests(member)
