"""Where the process of a fix on Temporal finds its order."""

from pathlib import Path

import pytest

from fallback_audit.errors import EvidenceError
from fallback_audit.evidence.store import put_document
from fallback_tier.engines.temporal.fix_process import Job, WorkerKeys, read_order
from fallback_tier.fleet.campaign_file import Campaign
from fallback_tier.fleet.fix_order import Place, listed_order
from fallback_tier.fleet.store.store import open_store
from fallback_tier.wiring import RecordSettings
from fallback_tier.wiring.trail import open_evidence
from tests.kinds import OfKind
from tests.unit.fleet.made import NAME, fix, planned

FIX = "fix-0"


def job(state_dir: Path, order_sha256: str, fix_id: str = FIX) -> Job:
    place = Place(state_dir=state_dir, record=RecordSettings(), fix_s=60.0)
    return Job(fix_id=fix_id, order_sha256=order_sha256, place=place, secrets=WorkerKeys())


def test_an_order_that_evidence_has_no_more_is_made_by_the_list(tmp_path: Path) -> None:
    """No event names it, so it may have been collected while the fix waited."""
    with open_store(tmp_path) as store:
        settings = Campaign(name=NAME, checkouts=(tmp_path,), advisories=(tmp_path,))
        one = planned([fix(0)]).model_copy(update={"settings": settings.model_dump_json()})
        store.create(one)
        order = listed_order(store, FIX)
    digest = put_document(open_evidence(tmp_path), order)
    assert read_order(job(tmp_path, digest)) == order
    assert read_order(job(tmp_path, "0" * 64)) == order


def test_an_order_that_nobody_has_is_missing_evidence(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError):
        read_order(job(tmp_path, "0" * 64, "fix-of-another-machine"))


def test_an_order_that_was_altered_is_no_missing_one(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        settings = Campaign(name=NAME, checkouts=(tmp_path,), advisories=(tmp_path,))
        one = planned([fix(0)]).model_copy(update={"settings": settings.model_dump_json()})
        store.create(one)
        order = listed_order(store, FIX)
    digest = put_document(open_evidence(tmp_path), order)
    (place,) = [it for it in tmp_path.rglob(f"*{digest[2:]}*") if it.is_file()]
    place.chmod(0o644)
    place.write_bytes(place.read_bytes().replace(b"spring", b"autumn"))
    with pytest.raises(EvidenceError, check=OfKind("altered")):
        read_order(job(tmp_path, digest))
