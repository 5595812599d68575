"""The inputs of a fix, as evidence, so that another process can resume it. Never a secret."""

from collections import OrderedDict
from pathlib import Path
from threading import Lock

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from fallback_audit.errors import EvidenceError
from fallback_audit.events import Digest
from fallback_audit.evidence.store import get_document
from fallback_audit.frozen import Frozen
from fallback_audit.ports import EvidenceStore
from fallback_tier.advisory import Advisory, AdvisoryBundle
from fallback_tier.advisory.vulnerability import Vulnerability, vulnerabilities
from fallback_tier.repo import ProofFailure


class Setup(Frozen):
    """What was decided beside advisory and repository.

    ``configuration``: the host's, as JSON and without keys (``wiring.Configuration.recorded``); the gates
    only keep it. ``dry_run``, ``output``, ``commit`` (a branch; empty: one that is named after what is
    fixed) and ``report`` (a folder): where a proved patch goes; ``into``: the repository that gets the
    branch, where that is another one. ``several``: this fix is one ecosystem's
    part of a run over several advisories, whose patches are delivered together. ``batch_sha256``: what that
    run began with, as evidence; ``divisible``: what gates refuse is proved in smaller parts. ``bounds``:
    which limits of memory and processes held for the target's commands where the fix began, and Landlock.
    ``proof_failure``: how the proof fails at the base commit: a resumed fix asks with the same prompt.
    """

    configuration: dict[str, JsonValue] = Field(default_factory=dict)
    dry_run: bool = False
    output: str | None = None
    commit: str | None = None
    report: str | None = None
    into: str | None = None
    several: bool = False
    batch_sha256: Digest | None = None
    divisible: bool = False
    bounds: str = ""
    #: Not written if there is no proof.
    proof_failure: ProofFailure | None = Field(default=None, exclude_if=lambda it: it is None)


class FixInputs(Frozen):
    """Everything that a resumed run needs and that the trail does not say."""

    repository: Path
    # The more specific type first, because every bundle would pass as an advisory.
    advisory: AdvisoryBundle | Advisory = Field(union_mode="left_to_right")
    setup: Setup = Setup()


class RecordedResolution(Frozen):
    """What an ecosystem resolved for a fix, as evidence: its plugin's key and text."""

    key: str
    text: str


class _AdvisoryOfInputs(BaseModel):
    """The advisory of a fix's inputs, whatever else a version wrote beside it."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    advisory: AdvisoryBundle | Advisory = Field(union_mode="left_to_right")


#: How many fixes' vulnerabilities are kept in memory: a queue's page and the next one.
_MAX_KEPT = 1_000

_kept: OrderedDict[Digest, tuple[Vulnerability, ...]] = OrderedDict()
_lock = Lock()


def recorded_vulnerabilities(
    digest: Digest | None, evidence: EvidenceStore
) -> tuple[Vulnerability, ...]:
    """Return the vulnerabilities of a fix, by the digest of its inputs; empty if the trail names none (an
    older version) or they can't be read. Each digest is read once."""
    if digest is None:
        return ()
    with _lock:
        if digest in _kept:
            _kept.move_to_end(digest)
            return _kept[digest]
    try:
        vulnerabilities_found = vulnerabilities(
            get_document(evidence, _AdvisoryOfInputs, digest).advisory
        )
    except EvidenceError:
        return ()
    with _lock:
        _kept[digest] = vulnerabilities_found
        while len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)
    return vulnerabilities_found
