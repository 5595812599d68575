"""Proofs over the real store: what they show, and that nothing in them can be changed."""

import base64
from pathlib import Path

import pytest

from fallback_audit.canonical import leaf_digest
from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Signer
from fallback_audit.checkpoints.proofs import (
    ConsistencyProof,
    InclusionProof,
    prove_consistency,
    prove_inclusion,
)
from fallback_audit.errors import AuditIntegrityError, CheckpointError, RequestError
from tests.kinds import OfKind
from tests.unit.audit.checkpoints.trail_folder import EVENT, SCOPE, TrailFolder
from tests.unit.audit.tamper import behind_the_triggers

STRANGER = Signer("log.example", b"\x07" * 32).verifier


@pytest.fixture(scope="module")
def trail(tmp_path_factory: pytest.TempPathFactory) -> TrailFolder:
    """Eleven events; checkpoints of 5, 8 and 11."""
    trail = TrailFolder(tmp_path_factory.mktemp("proofs"))
    for count in (5, 3, 3):
        trail.add(count)
        trail.sign()
    return trail


def latest(trail: TrailFolder) -> SignedCheckpoint:
    signed = trail.log.latest(trail.keyring)
    assert signed is not None
    return signed


def inclusion(trail: TrailFolder, seq: int) -> InclusionProof:
    store = trail.raw()
    try:
        return prove_inclusion(seq, store, latest(trail), trail.keyring.verifiers())
    finally:
        store.close()


def consistency(trail: TrailFolder, old: int) -> ConsistencyProof:
    before = trail.log.open(old, trail.keyring).checkpoint
    store = trail.raw()
    try:
        return prove_consistency(before, store, latest(trail), trail.keyring.verifiers())
    finally:
        store.close()


def test_every_event_is_proved_from_its_file_alone(trail: TrailFolder) -> None:
    store = trail.raw()
    events = list(store.events())
    store.close()
    assert len(events) == 11
    for stored in events:
        data = inclusion(trail, stored.seq).text()
        proof = InclusionProof.parse(data)
        signed = proof.checked(trail.keyring.verifiers())
        assert signed == latest(trail)
        assert proof.index == stored.seq - 1
        assert leaf_digest(proof.header) == stored.leaf
        assert proof.text() == data


def test_the_form_of_a_tlog_proof(trail: TrailFolder) -> None:
    proof = inclusion(trail, 4)
    lines = proof.text().decode().split("\n")
    assert lines[0] == "c2sp.org/tlog-proof@v1"
    assert lines[1] == "extra " + base64.b64encode(proof.header).decode()
    assert lines[2] == "index 3"
    assert [base64.b64decode(line) for line in lines[3:7]] == list(proof.hashes)
    assert lines[7] == ""
    assert "\n".join(lines[8:]).encode() == latest(trail).note


def test_no_bit_of_a_proof_can_flip(trail: TrailFolder) -> None:
    """Not in the index, the header, a hash, the checkpoint or its signature."""
    data = inclusion(trail, 4).text()
    trusted = trail.keyring.verifiers()
    for place in range(len(data) * 8):
        altered = bytearray(data)
        altered[place // 8] ^= 1 << place % 8
        with pytest.raises(AuditIntegrityError):
            InclusionProof.parse(bytes(altered)).checked(trusted)


@pytest.mark.parametrize("old", [5, 8, 11])
def test_an_old_checkpoint_is_the_beginning(trail: TrailFolder, old: int) -> None:
    before = trail.log.open(old, trail.keyring).checkpoint
    data = consistency(trail, old).text()
    proof = ConsistencyProof.parse(data)
    assert proof.checked(before, trail.keyring.verifiers()) == latest(trail)
    assert proof.text() == data
    for other in {5, 8, 11} - {old}:
        wrong = trail.log.open(other, trail.keyring).checkpoint
        with pytest.raises(AuditIntegrityError, check=OfKind("another_checkpoint")):
            proof.checked(wrong, trail.keyring.verifiers())


def test_no_bit_of_a_proof_of_consistency_can_flip(trail: TrailFolder) -> None:
    before = trail.log.open(5, trail.keyring).checkpoint
    data = consistency(trail, 5).text()
    trusted = trail.keyring.verifiers()
    for place in range(len(data) * 8):
        altered = bytearray(data)
        altered[place // 8] ^= 1 << place % 8
        with pytest.raises(AuditIntegrityError):
            ConsistencyProof.parse(bytes(altered)).checked(before, trusted)


def test_a_proof_by_nobody_trusted(trail: TrailFolder) -> None:
    with pytest.raises(AuditIntegrityError, check=OfKind("no_trusted_key")):
        inclusion(trail, 4).checked([STRANGER])


@pytest.mark.parametrize("seq", [-1, 0, 12])
def test_what_is_not_covered_is_not_proved(trail: TrailFolder, seq: int) -> None:
    with pytest.raises(RequestError, check=OfKind("not_covered"), match=f"Event {seq} .* 11 "):
        inclusion(trail, seq)


def test_a_younger_checkpoint_is_no_beginning(trail: TrailFolder) -> None:
    store = trail.raw()
    old, young = trail.log.open(8, trail.keyring), latest(trail).checkpoint
    with pytest.raises(CheckpointError, check=OfKind("not_a_beginning"), match=" 11 "):
        prove_consistency(young, store, old, trail.keyring.verifiers())
    store.close()


def test_an_altered_store_proves_nothing(trail: TrailFolder, tmp_path: Path) -> None:
    other = TrailFolder(tmp_path)
    other.add(11, EVENT)
    other.roll_back(trail.db)
    with behind_the_triggers(other.db) as db:
        db.execute(
            "UPDATE audit_header SET header = CAST(replace(CAST(header AS TEXT), 'gate-1', 'gate-2')"
            " AS BLOB) WHERE seq = 3"
        )
    store = other.raw()
    trusted = trail.keyring.verifiers()
    for seq in (3, 4, 11):
        with pytest.raises(AuditIntegrityError, check=OfKind("not_in_the_tree")):
            prove_inclusion(seq, store, latest(trail), trusted)
    before = trail.log.open(5, trail.keyring).checkpoint
    with pytest.raises(AuditIntegrityError, check=OfKind("beginning_differs")):
        prove_consistency(before, store, latest(trail), trusted)
    store.close()


def test_behind_a_sealed_segment(trail: TrailFolder, tmp_path: Path) -> None:
    """What is live is proved with the segment's frontier; what is sealed, from the segment."""
    base = Frontier()
    other = TrailFolder(tmp_path)
    other.roll_back(trail.db)
    store = other.raw()
    for row in store.headers(upto=6):
        base.append(row.header)
    with behind_the_triggers(other.db) as db:
        db.execute("DELETE FROM audit_header WHERE seq <= 6")
    trusted = trail.keyring.verifiers()
    for seq in range(7, 12):
        proof = prove_inclusion(seq, store, latest(trail), trusted, base)
        assert proof == inclusion(trail, seq)
    with pytest.raises(RequestError, check=OfKind("event_sealed")):
        prove_inclusion(6, store, latest(trail), trusted, base)
    old = [trail.log.open(size, trail.keyring).checkpoint for size in (5, 8)]
    assert prove_consistency(old[1], store, latest(trail), trusted, base) == consistency(trail, 8)
    with pytest.raises(CheckpointError, check=OfKind("beginning_sealed"), match=" 6 "):
        prove_consistency(old[0], store, latest(trail), trusted, base)
    store.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"c2sp.org/tlog-proof@v1\n",
        b"c2sp.org/tlog-proof@v1\nindex 0\n\n",
        b"c2sp.org/tlog-proof@v1\nextra !\nindex 0\n\n",
        b"c2sp.org/tlog-proof@v1\nextra QQ==\nindex 00\n\n",
        b"c2sp.org/tlog-proof@v1\nextra QQ==\nindex -1\n\n",
        b"c2sp.org/tlog-proof@v1\nextra QQ==\nindex 0\nQQ=\n\n",
        b"c2sp.org/tlog-proof@v1\nextra QQ==\nindex 0\n" + b"QQ==\n" * 65 + b"\n",
        b"old 1\n" + b"QQ==\n" * 65 + b"\n",
        b"old 01\n\n",
        b"x" * 3_000_000,
    ],
)
def test_malformed_proofs(data: bytes) -> None:
    parse = ConsistencyProof.parse if data.startswith(b"old") else InclusionProof.parse
    with pytest.raises(AuditIntegrityError, check=OfKind("not_a_proof")):
        parse(data)


def test_a_proof_may_have_no_hashes(tmp_path: Path) -> None:
    trail = TrailFolder(tmp_path)
    trail.add(1)
    trail.sign()
    proof = inclusion(trail, 1)
    assert proof.hashes == ()
    assert InclusionProof.parse(proof.text()) == proof
    assert SCOPE.fix_id.encode() in proof.header
