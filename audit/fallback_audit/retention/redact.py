"""Redaction: removal of text from an event, on record, while the chain stays valid.

The header keeps the digest of the old payload, a signed tombstone replaces the payload, and an event says
who did it and why. The store does these as one step. If a run dies and leaves the text in the store's
files, or evidence, running the command again removes them (ADR-0036).
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, get_args, get_origin

from fallback_audit.checkpoints.note import Signer
from fallback_audit.errors import AuditStoreError, RequestError
from fallback_audit.event_types import FREE_TEXT, Digest
from fallback_audit.events import (
    TERMINAL_KINDS,
    AuditEvent,
    EvidenceCollected,
    PayloadRedacted,
    event_adapter,
)
from fallback_audit.evidence.checking import put_list
from fallback_audit.evidence.store import FileEvidenceStore, StoredFile
from fallback_audit.frozen import Frozen
from fallback_audit.ports import MAINTENANCE, AuditReader, KeepableStore, Record, Scope, StoredEvent
from fallback_audit.retention.ended import ended_fixes, named_digests
from fallback_audit.statements import TOMBSTONE_DOMAIN, Tombstone, sign_statement
from fallback_audit.stores.appending import Clock, timestamp

#: Replacement of removed text.
REDACTED: Final = "[redacted]"


def free_text_fields(event: type[AuditEvent]) -> tuple[str, ...]:
    """Return the members of this kind of event that can be redacted, in their order."""
    return tuple(
        name
        for name, field in event.model_fields.items()
        if FREE_TEXT in field.metadata or _marked(field.annotation)
    )


def with_words(event: AuditEvent) -> tuple[str, ...]:
    """Return the members that can be redacted and are not empty in this event."""
    return tuple(
        name for name in free_text_fields(type(event)) if getattr(event, name) not in (None, "", ())
    )


def residue(event: AuditEvent, fields: Collection[str]) -> dict[str, Any]:
    """Return the event without the text in ``fields``, as JSON: valid as an event of the same kind.

    Lists keep their lengths, missing values stay missing (rules may count), and members of vocabularies
    stay.
    """
    content, typed = event.model_dump(mode="json"), event.model_dump()
    for name in fields:
        content[name] = _without_words(typed[name])
    assert event_adapter.validate_python(content).kind == event.kind  # noqa: S101 - FREE_TEXT ensures it
    return content


def _without_words(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_words(member) for member in value]
    if isinstance(value, dict):
        return {name: _without_words(member) for name, member in value.items()}
    return value if value is None or isinstance(value, int | StrEnum) else REDACTED


def _marked(annotation: Any) -> bool:
    """Return whether a type inside this one is marked, e.g. in an optional member or a tuple."""
    if get_origin(annotation) is Annotated and FREE_TEXT in annotation.__metadata__:
        return True
    return any(_marked(inner) for inner in get_args(annotation))


class Redaction(Frozen):
    """What was done. ``by_event``: the PayloadRedacted that tells of it; ``finished``: of an earlier run.

    ``evidence``: the pieces that were deleted with it.
    """

    seq: int
    kind: str
    fix_id: str
    fields: tuple[str, ...]
    by_event: int
    finished: bool
    evidence: tuple[Digest, ...] = ()


@dataclass(frozen=True)
class Redactor:
    """Redaction of one store's events. ``signers`` sign the tombstones."""

    store: KeepableStore
    evidence: FileEvidenceStore
    signers: Sequence[Signer]
    _: KW_ONLY
    clock: Clock

    def redact(
        self,
        seq: int,
        fields: Sequence[str] = (),
        *,
        by: str,
        reason: str,
        with_evidence: bool = False,
    ) -> Redaction:
        """Redact ``fields`` of event ``seq``, or all free text if none is named. Once per event.

        ``with_evidence``: the evidence that it names is deleted too. Raises AuditStoreError: no such event,
        sealed, redacted before, a member that is not free text, a fix that still needs it.
        """
        stored = _event(self.store, seq)
        files = self._evidence_of(stored) if with_evidence else ()
        if stored.redacted:
            redaction = self._again(stored, fields)
        else:
            redaction = self._first(stored, fields, by=by, reason=reason)
        deleted = self._delete(files, by=by, reason=reason)
        return redaction.model_copy(update={"evidence": deleted})

    def _first(
        self, stored: StoredEvent, fields: Sequence[str], *, by: str, reason: str
    ) -> Redaction:
        chosen = _checked(stored, fields)
        _check_over(self.store, stored)
        stone = Tombstone(
            seq=stored.seq,
            leaf=stored.leaf,
            payload_sha256=stored.payload_sha256,
            fields=chosen,
            residue=residue(stored.payload, chosen),
            by=by,
            reason=reason,
            at=timestamp(self.clock()),
        )
        signed = sign_statement(TOMBSTONE_DOMAIN, stone.model_dump(mode="json"), self.signers)
        event = PayloadRedacted(
            seq=stored.seq,
            payload_sha256=stored.payload_sha256,
            tombstone_sha256=hashlib.sha256(signed).hexdigest(),
            fields=chosen,
            by=by,
            reason=reason,
        )
        last = self.store.replace_payload(stored.seq, signed, Record(stored.scope, event))
        return _redaction(stored, chosen, last.seq, finished=False)

    def _again(self, stored: StoredEvent, fields: Sequence[str]) -> Redaction:
        """Finish the redaction of an event that is redacted already: scrub the store's files."""
        last = _redacted_by(self.store, stored)
        if last is None or not isinstance(last.payload, PayloadRedacted):
            raise AuditStoreError(
                f"Event {stored.seq} is redacted, and no event says by whom.",
                next_step="Run `fallback-tier audit verify`, and find out who wrote to it.",
            )
        done = last.payload.fields
        if fields and set(fields) - set(done):
            raise AuditStoreError(
                f"Event {stored.seq} was redacted by {last.payload.by} ({', '.join(done)}); a tombstone is "
                "never replaced.",
                next_step="The rest of it stays until its segment is retired.",
                kind="redacted_before",
            )
        self.store.scrub()
        return _redaction(stored, done, last.seq, finished=True)

    def _evidence_of(self, stored: StoredEvent) -> tuple[StoredFile, ...]:
        """Return its evidence files that exist. Raises AuditStoreError if an open fix needs one."""
        digests = {digest.hex() for digest in named_digests(stored.payload)}
        files = tuple(file for digest in sorted(digests) if (file := self.evidence.find(digest)))
        ended = ended_fixes(self.store)
        stored_digests = {file.digest for file in files}
        for other in self.store.events() if files else ():
            fix_id = other.scope.fix_id
            needed = stored_digests & {digest.hex() for digest in named_digests(other.payload)}
            if needed and fix_id not in ended:
                raise AuditStoreError(
                    f"Evidence {min(map(str, needed))} is needed by {fix_id}, which has not ended.",
                    next_step="End that fix first (`fallback-tier resume`, `fallback-tier review`).",
                    kind="needed_by_open_fix",
                )
        return files

    def _delete(self, files: Sequence[StoredFile], *, by: str, reason: str) -> tuple[Digest, ...]:
        """Record the files, then delete them, except those put again since. Return the deleted digests."""
        if not files:
            return ()
        event = EvidenceCollected(
            removed=len(files),
            removed_bytes=sum(file.size for file in files),
            list_sha256=put_list(self.evidence, [str(file.digest) for file in files]),
            older_than=timestamp(self.clock()),
            by=by,
            reason=reason,
        )
        self.store.append(MAINTENANCE, event)
        deleted = [
            str(file.digest)
            for file in files
            if self.evidence.remove(file, untouched_since=file.touched)
        ]
        self.evidence.sync()
        return tuple(deleted)


def _event(store: KeepableStore, seq: int) -> StoredEvent:
    tip = store.tip()[0]
    stored = next(store.events(after=seq - 1), None) if 1 <= seq <= tip else None
    if stored is not None and stored.seq == seq:
        return stored
    if stored is not None:
        raise RequestError(
            f"Event {seq} is in a sealed segment, which is never changed.",
            next_step="Its words are deleted when the segment is retired: `fallback-tier audit retire`.",
            kind="event_sealed",
        )
    raise RequestError(
        f"There is no event {seq}; the last one is {tip}.",
        next_step="`fallback-tier audit show FIX` numbers the events of a fix.",
        kind="no_such_event",
    )


def _checked(stored: StoredEvent, fields: Sequence[str]) -> tuple[str, ...]:
    if isinstance(stored.payload, PayloadRedacted):
        raise RequestError(
            f"Event {stored.seq} says who redacted another one, and why: that stays on record.",
            next_step="Name the event whose words are to be removed.",
            kind="is_a_redaction",
        )
    redactable = with_words(stored.payload)
    unknown = [name for name in fields if name not in redactable]
    if unknown or not redactable:
        subject = f"{', '.join(unknown)} can't" if unknown else "Nothing can"
        next_step = (
            f"Those of this event are {', '.join(redactable)}."
            if redactable
            else "It holds no words."
        )
        raise RequestError(
            f"{subject} be redacted in event {stored.seq} ({stored.kind}): only somebody's words can.",
            next_step=next_step,
            kind="not_free_text",
        )
    return tuple(name for name in redactable if name in fields or not fields)


def _check_over(store: AuditReader, stored: StoredEvent) -> None:
    """Raise AuditStoreError if a run may still need the event's text to act as it would have."""
    scope = stored.scope
    if scope.fix_id == MAINTENANCE.fix_id or scope.fix_id in ended_fixes(store):
        return
    ends = store.events(scope.fix_id, kinds=TERMINAL_KINDS, after=stored.seq)
    if not any(end.scope == scope for end in ends) and stored.kind not in TERMINAL_KINDS:
        raise AuditStoreError(
            f"{scope.fix_id} is running or was interrupted: it may still need event {stored.seq}.",
            next_step=f"End it first: `fallback-tier resume {scope.fix_id}`, or `fallback-tier abandon "
            f"{scope.fix_id} --reason TEXT`.",
            kind="fix_open",
        )


def _redacted_by(store: AuditReader, stored: StoredEvent) -> StoredEvent | None:
    scope: Scope = stored.scope
    events = store.events(scope.fix_id, kinds=frozenset({"PayloadRedacted"}), after=stored.seq)
    return next(
        (event for event in events if getattr(event.payload, "seq", None) == stored.seq), None
    )


def _redaction(
    stored: StoredEvent, fields: tuple[str, ...], by_event: int, *, finished: bool
) -> Redaction:
    return Redaction(
        seq=stored.seq,
        kind=stored.kind,
        fix_id=stored.scope.fix_id,
        fields=fields,
        by_event=by_event,
        finished=finished,
    )
