"""Escalated fixes on record, with real evidence: a patch that git applies, summaries, logs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fallback_audit.events import (
    AttemptFailed,
    AuditEvent,
    FixStarted,
    GateJudged,
    PatchProposed,
    RagSkippedOnRetry,
)
from fallback_audit.evidence.store import put_document
from fallback_audit.ports import AuditStore, EvidenceStore, Scope
from fallback_audit.vocabulary import ProofLevel
from fallback_tier.advisory import Advisory
from fallback_tier.fix.journal.inputs import FixInputs
from fallback_tier.outcome import Applied
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.unit.audit.trails import SCOPE, Events

FIX = SCOPE.fix_id

#: What event and account of a patch have in common.
_SAID = ("attempt", "tier", "prompt_shape", "patch_sha256", "edit_digest", "files")


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
    #: What the fixes are about; None: a trail that names no inputs.
    advisory: Advisory | None = None

    def write(self, events: Events, scope: Scope = SCOPE) -> None:
        """Append a trail of the unit tests, its digests those of evidence that is there."""
        for event in events:
            self.audit.append(scope, self._kept(event))

    def patch(self, attempt: int) -> str:
        return self.evidence.put(self.diff(attempt).encode())

    def _application(self, patch: PatchProposed) -> str:
        reported = {name: getattr(patch, name) for name in _SAID}
        diff, level = self.diff(patch.attempt), ProofLevel.SOURCE
        return put_document(
            self.evidence, Applied.model_validate({**reported, "diff": diff, "proof_level": level})
        )

    def _kept(self, event: AuditEvent) -> AuditEvent:
        put = self.evidence.put
        match event:
            case FixStarted() if self.advisory is not None:
                inputs = FixInputs(repository=Path("/repository"), advisory=self.advisory)
                return event.model_copy(
                    update={"inputs_sha256": put_document(self.evidence, inputs)}
                )
            case PatchProposed(attempt=attempt):
                kept = event.model_copy(update={"patch_sha256": self.patch(attempt)})
                return kept.model_copy(update={"application_sha256": self._application(kept)})
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
