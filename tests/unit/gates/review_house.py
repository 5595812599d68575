"""Escalated fixes on record, with real evidence: a patch that git applies, summaries, logs."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fallback_audit.events import (
    AttemptFailed,
    AuditEvent,
    GateJudged,
    PatchProposed,
    RagSkippedOnRetry,
)
from fallback_audit.ports import AuditStore, EvidenceStore, Scope
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.unit.audit.trails import SCOPE, Events

FIX = SCOPE.fix_id


def diff(attempt: int) -> str:
    return (
        "diff --git a/app.py b/app.py\n--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n"
        f"-unsafe()\n+safe({attempt})\n"
    )


def summary(attempt: int) -> str:
    return f"gate tests failed\nexpected 1, got {attempt + 1}\nin test_app.py"


@dataclass
class Record:
    """A store and its evidence."""

    audit: AuditStore = field(default_factory=MemoryAudit)
    evidence: EvidenceStore = field(default_factory=MemoryEvidence)
    diff: Callable[[int], str] = diff

    def write(self, events: Events, scope: Scope = SCOPE) -> None:
        """Append a trail of the unit tests, its digests those of evidence that is there."""
        for event in events:
            self.audit.append(scope, self._kept(event))

    def patch(self, attempt: int) -> str:
        return self.evidence.put(self.diff(attempt).encode())

    def _kept(self, event: AuditEvent) -> AuditEvent:
        put = self.evidence.put
        match event:
            case PatchProposed(attempt=attempt):
                return event.model_copy(update={"patch_sha256": self.patch(attempt)})
            case AttemptFailed(attempt=attempt):
                return event.model_copy(update={"summary_sha256": put(summary(attempt).encode())})
            case RagSkippedOnRetry(attempt=attempt):
                return event.model_copy(
                    update={"summary_sha256": put(summary(attempt - 1).encode())}
                )
            case GateJudged(status="failed", attempt=attempt):
                log = put(f"log of attempt {attempt}".encode())
                return event.model_copy(update={"evidence_sha256": log})
            case _:
                return event
