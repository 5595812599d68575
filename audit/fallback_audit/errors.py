"""The root of the one exception tree, and the audit trail's own branch.

::

    FallbackError                  every error of ours: what is wrong, why, and the next step
    ├── AuditError
    │   ├── AuditStoreError        the store can't be opened, read or written
    │   ├── AuditIntegrityError    what is stored is not what was written
    │   └── EvidenceError          an evidence file is missing, altered or too large
    └── (fallback_tier.errors)     the other branches
"""

from typing import ClassVar


class FallbackError(Exception):
    """Base of every error of ours.

    ``problem`` names the input and the reason in one sentence; ``next_step`` says what a person can
    do about it. The command line only prints them.
    """

    #: Stable machine name, printed by ``--json``.
    code: ClassVar[str] = "error"

    def __init__(self, problem: str, *, next_step: str) -> None:
        super().__init__(f"{problem} {next_step}")
        self.problem = problem
        self.next_step = next_step


class AuditError(FallbackError):
    """The audit trail could not do its work."""

    code = "audit"


class AuditStoreError(AuditError):
    """The store can't be opened, read or written; nothing was recorded."""

    code = "audit_store"


class AuditIntegrityError(AuditError):
    """Stored bytes are not those that were appended."""

    code = "audit_integrity"


class EvidenceError(AuditError):
    """An evidence file is missing, altered, or larger than its cap."""

    code = "evidence"
