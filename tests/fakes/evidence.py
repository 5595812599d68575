"""Evidence on disk, with keys that a test may lose."""

from pathlib import Path

from fallback_audit.evidence.keys import EvidenceKeys
from fallback_audit.evidence.store import FileEvidenceStore


def file_evidence(root: Path) -> FileEvidenceStore:
    """The store on ``root``; its keys stand beside it, as ``keys``."""
    return FileEvidenceStore(root, keys=EvidenceKeys(lambda: root.parent / "keys"))
