"""What a run over several advisories began with, as evidence, and its parts on record (ADR-0028, ADR-0051).

Each part is a fix of its own, and names this document: so the trail is the run's journal as well.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from fallback_audit.errors import EvidenceError
from fallback_audit.events import Digest, FixStarted
from fallback_audit.evidence.store import get_document
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditReader, EvidenceStore
from fallback_tier.advisory import Advisory, AdvisoryBundle
from fallback_tier.gates.journal.inputs import Setup
from fallback_tier.planning import RemediationPlan
from fallback_tier.prompt.prose import without_secrets

_STARTS = frozenset({FixStarted.__name__})


class BatchRecord(Frozen):
    """``batch_id``: nobody else's. ``given``: all advisories, for who plans less; ``plan``: what is to be
    proved, whose bundles are in ``bundles``, by ecosystem."""

    batch_id: str
    repository: Path
    base_commit: str
    tool_version: str
    setup: Setup
    given: tuple[Advisory, ...]
    plan: dict[str, JsonValue]
    bundles: dict[str, AdvisoryBundle | Advisory]

    @property
    def begun_with(self) -> Digest:
        """Equal for the same command on the same commit, by the same version."""
        reported: Any = self.model_dump(mode="json", exclude={"batch_id", "plan", "bundles"})
        return hashlib.sha256(json.dumps(reported, sort_keys=True).encode()).hexdigest()

    @property
    def planned(self) -> RemediationPlan:
        """The plan, as it was made."""
        reported: dict[str, Any] = dict(self.plan)
        fixes = [{**fix, "advisory": self.bundles[fix["ecosystem"]]} for fix in reported["fixes"]]
        return RemediationPlan.model_validate({**reported, "fixes": fixes})


def kept_plan(plan: RemediationPlan) -> dict[str, Any]:
    """The members of a BatchRecord that say what was planned."""
    bundles = {fix.ecosystem: fix.advisory for fix in plan.fixes}
    return {"plan": without_secrets(plan).model_dump(mode="json"), "bundles": bundles}


#: A part by what it is about: its ecosystem, and the advisories that it is to fix.
PartKey = tuple[str, frozenset[str]]


def parts_on_record(audit: AuditReader, batch: Digest) -> dict[PartKey, str]:
    """The fixes that are parts of a run, by what they are about."""
    return {
        (start.ecosystem, frozenset(start.advisory_ids)): fix_id
        for fix_id, start in _starts(audit)
        if start.batch_sha256 == batch
    }


def latest_like(
    audit: AuditReader, evidence: EvidenceStore, like: BatchRecord
) -> tuple[Digest, BatchRecord] | None:
    """The latest run on record that began with the same; None: there is none that can be read."""
    digests = (
        start.batch_sha256
        for _, start in reversed([*_starts(audit)])
        if start.batch_sha256 and start.base_commit == like.base_commit
    )
    for digest in dict.fromkeys(digests):
        try:
            found = get_document(evidence, BatchRecord, digest)
        except EvidenceError:
            continue  # collected, or of another version's form: then it is begun anew
        if found.begun_with == like.begun_with:
            return digest, found
    return None


def _starts(audit: AuditReader) -> Iterator[tuple[str, FixStarted]]:
    for stored in audit.events(kinds=_STARTS):
        if isinstance(stored.payload, FixStarted):
            yield stored.scope.fix_id, stored.payload
