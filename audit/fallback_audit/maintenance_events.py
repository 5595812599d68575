"""Events about the record itself: what its keepers took out, sealed or retired, and what was let through.

Part of the vocabulary in ``fallback_audit.events``, which names them all. Those that are not about one
fix stand in the scope ``MAINTENANCE``.
"""

from typing import Annotated, Literal

from pydantic import Field

from fallback_audit.event_types import Digest, Excerpt
from fallback_audit.frozen import Frozen
from fallback_audit.human_events import Words

Seq = Annotated[int, Field(ge=1)]


class AppendFlagged(Frozen):
    """The event number ``at``, just before this one, broke a rule; the store was told to flag, not refuse.

    Stands in the scope of that event. Verification reports the broken rule all the same.
    """

    kind: Literal["AppendFlagged"] = "AppendFlagged"
    at: Seq
    rule: str
    detail: Excerpt


class PayloadRedacted(Frozen):
    """A person had words taken out of event ``seq`` of this scope: a signed tombstone stands there now.

    ``fields``: which of its members. The header keeps the digest of what stood there before.
    """

    kind: Literal["PayloadRedacted"] = "PayloadRedacted"
    seq: Seq
    payload_sha256: Digest
    tombstone_sha256: Digest
    fields: tuple[str, ...]
    by: Words
    reason: Words


class SegmentSealed(Frozen):
    """The oldest events were moved, as they stood, to a sealed file; ``sha256`` is the file's digest."""

    kind: Literal["SegmentSealed"] = "SegmentSealed"
    first_seq: Seq
    last_seq: Seq
    sha256: Digest
    by: Words
    reason: Words


class SegmentRetired(Frozen):
    """A sealed file was deleted, its retention over: its absence is no damage."""

    kind: Literal["SegmentRetired"] = "SegmentRetired"
    first_seq: Seq
    last_seq: Seq
    sha256: Digest
    by: Words
    reason: Words


class EvidenceCollected(Frozen):
    """Evidence past its retention was deleted. ``list_sha256``: the digests of what went, as evidence."""

    kind: Literal["EvidenceCollected"] = "EvidenceCollected"
    removed: Annotated[int, Field(ge=1)]
    removed_bytes: Annotated[int, Field(ge=0)]
    list_sha256: Digest
    older_than: str
    by: Words
    reason: Words


class RecordBegunAgain(Frozen):
    """A person said that a record of ``lost_size`` events was removed on purpose: a checkpoint of it was
    signed, and is gone. Since schema version 10.

    ``lost_sha256``: that checkpoint's digest, by which a copy of it is known again. Events that stand
    before this one were there when it was said.
    """

    kind: Literal["RecordBegunAgain"] = "RecordBegunAgain"
    lost_size: Seq
    lost_sha256: Digest
    by: Words
    reason: Words


class SigningKeyRotated(Frozen):
    """Checkpoints are signed by another key from now on, for a while by both. Keys are C2SP vkeys."""

    kind: Literal["SigningKeyRotated"] = "SigningKeyRotated"
    old_vkey: str
    new_vkey: str
    by: Words
    reason: Words
