"""Questions that are one question: the same package, and the same failure."""

from collections.abc import Sequence

from fallback_audit.errors import AuditError
from fallback_audit.evidence.store import get_document
from fallback_audit.ports import EvidenceStore
from fallback_tier.gates.journal.inputs import FixInputs
from fallback_tier.portal.lines import FixLine

#: Questions that are compared, and decided at once: a person looks at each of them.
MAX_ALIKE = 100


def packages_of(line: FixLine, evidence: EvidenceStore) -> frozenset[str]:
    """What its advisory is about, ``npm:lodash``; where that is not kept any more, the advisory itself."""
    if line.inputs_sha256 is not None:
        try:
            advisory = get_document(evidence, FixInputs, line.inputs_sha256).advisory
        except AuditError:
            return frozenset(line.advisory_ids)
        named = (one.package for one in advisory.affected if one.package is not None)
        found = frozenset(f"{package.ecosystem}:{package.name}" for package in named)
        if found:
            return found
    return frozenset(line.advisory_ids)


def alike(line: FixLine, waiting: Sequence[FixLine], evidence: EvidenceStore) -> list[FixLine]:
    """Those that wait for the same reason, with the same failure, on the same package; ``line`` first."""
    same = [one for one in waiting if one is not line and _failure(one) == _failure(line)]
    packages = packages_of(line, evidence)
    found = [one for one in same[:MAX_ALIKE] if packages_of(one, evidence) == packages]
    return [line, *found] if line.waits else []


def _failure(line: FixLine) -> tuple[object, ...]:
    return line.reason, line.cause, line.failure_kind, line.failing_gates
