"""The root of the project's exception tree, and the audit trail's branch.

::

    FallbackError                  all our errors: what is wrong, why, and the next step
    ├── DiskError                  the system failed to read or write a file, or has no room for it
    ├── AuditError
    │   ├── AuditStoreError        the store can't be opened, read or written
    │   │   ├── RequestError       the request names nothing on record, or can't be done; bad input
    │   │   ├── ContractError      the event would break the trace contract
    │   │   ├── OvertakenError     another session continues the fix
    │   │   └── CheckpointError    a checkpoint can't be made
    │   │       └── HistoryError   the store is not the one that was signed
    │   ├── KeyringError           a signing or trusted key is missing or malformed
    │   ├── AuditIntegrityError    what is stored is not what was written
    │   │   └── NotAnExportError   a file is not an export, or one of a newer format
    │   └── EvidenceError          an evidence file is missing, altered or too large
    │       ├── UnreadEvidenceError  it may not be read: its state is unknown
    │       └── EncryptedEvidenceError  an earlier release encrypted it
    └── (fallback_tier.errors)     the other branches
"""

from typing import ClassVar, NamedTuple


class FallbackError(Exception):
    """Base of all our errors.

    ``problem`` names the input and the reason in one sentence; ``next_step`` says what a person can do
    about it. The command line only prints them. ``kind`` distinguishes the refusals of one class, for
    programs: the text may change, it does not. ``tests/golden/messages.txt`` lists all of them.
    """

    #: Stable machine name, printed by ``--json``.
    code: ClassVar[str] = "error"

    def __init__(self, problem: str, *, next_step: str, kind: str = "") -> None:
        super().__init__(f"{problem} {next_step}")
        self.problem = problem
        self.next_step = next_step
        self.kind = kind


class TrailFault(NamedTuple):
    """Why something that was read is wrong, if nothing is raised. ``kind``: as an error's."""

    kind: str
    reason: str

    @classmethod
    def of(cls, error: FallbackError) -> "TrailFault":
        """Return the error as the fault that it reports."""
        return cls(error.kind, error.problem)


class DiskError(FallbackError):
    """The system failed to read or write a file, or has no room for it: not bad input, and not damage."""

    code = "disk"


class AuditError(FallbackError):
    """The audit trail could not do its work."""

    code = "audit"


class AuditStoreError(AuditError):
    """The store can't be opened, read or written; nothing was recorded."""

    code = "audit_store"


class RequestError(AuditStoreError):
    """What the request names is not on record, or can't be changed so: bad input, and nothing was done."""

    code = "audit_request"


class ContractError(AuditStoreError):
    """Appending this event would break a rule of the trace contract; nothing was recorded."""

    code = "audit_contract"


class OvertakenError(AuditStoreError):
    """Another session continues this fix (ADR-0086); nothing was recorded."""

    code = "audit_overtaken"


class CheckpointError(AuditStoreError):
    """No checkpoint can be made that is consistent with those before it, or none can be written."""

    code = "audit_checkpoint"


class HistoryError(CheckpointError):
    """The store has fewer events than its last checkpoint, or others: rolled back, or re-chained."""

    code = "audit_history"


class KeyringError(AuditError):
    """A key of the audit trail is missing, malformed, or readable by others."""

    code = "audit_keys"


class AuditIntegrityError(AuditError):
    """Stored bytes are not those that were appended."""

    code = "audit_integrity"


class NotAnExportError(AuditIntegrityError):
    """A file's first line is not an export's, or is of a newer format: none of its content was judged.

    For a part of the audit trail (a sealed file) that is damage; for a file that a person named, bad input.
    """

    code = "audit_not_an_export"


class EvidenceError(AuditError):
    """An evidence file is missing, altered, or larger than its cap."""

    code = "evidence"


class UnreadEvidenceError(EvidenceError):
    """An evidence file may not be read, so whether it is intact is unknown."""

    code = "evidence_unread"


class EncryptedEvidenceError(EvidenceError):
    """An earlier release encrypted this evidence file, and this release can't read it (ADR-0126)."""

    code = "evidence_encrypted"
