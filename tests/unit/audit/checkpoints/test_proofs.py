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
from tests.unit.audit.checkpoints.house import EVENT, SCOPE, House
from tests.unit.audit.tamper import behind_the_triggers

STRANGER = Signer("log.example", b"\x07" * 32).verifier


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Eleven events; checkpoints of 5, 8 and 11."""
    house = House(tmp_path_factory.mktemp("proofs"))
    for count in (5, 3, 3):
        house.add(count)
        house.sign()
    return house


def latest(house: House) -> SignedCheckpoint:
    signed = house.log.latest(house.keyring)
    assert signed is not None
    return signed


def inclusion(house: House, seq: int) -> InclusionProof:
    store = house.raw()
    try:
        return prove_inclusion(seq, store, latest(house), house.keyring.verifiers())
    finally:
        store.close()


def consistency(house: House, old: int) -> ConsistencyProof:
    before = house.log.open(old, house.keyring).checkpoint
    store = house.raw()
    try:
        return prove_consistency(before, store, latest(house), house.keyring.verifiers())
    finally:
        store.close()


def test_every_event_is_proved_from_its_file_alone(house: House) -> None:
    store = house.raw()
    events = list(store.events())
    store.close()
    assert len(events) == 11
    for stored in events:
        data = inclusion(house, stored.seq).text()
        proof = InclusionProof.parse(data)
        signed = proof.checked(house.keyring.verifiers())
        assert signed == latest(house)
        assert proof.index == stored.seq - 1
        assert leaf_digest(proof.header) == stored.leaf
        assert proof.text() == data


def test_the_form_of_a_tlog_proof(house: House) -> None:
    proof = inclusion(house, 4)
    lines = proof.text().decode().split("\n")
    assert lines[0] == "c2sp.org/tlog-proof@v1"
    assert lines[1] == "extra " + base64.b64encode(proof.header).decode()
    assert lines[2] == "index 3"
    assert [base64.b64decode(line) for line in lines[3:7]] == list(proof.hashes)
    assert lines[7] == ""
    assert "\n".join(lines[8:]).encode() == latest(house).note


def test_no_bit_of_a_proof_can_flip(house: House) -> None:
    """Not in the index, the header, a hash, the checkpoint or its signature."""
    data = inclusion(house, 4).text()
    trusted = house.keyring.verifiers()
    for place in range(len(data) * 8):
        altered = bytearray(data)
        altered[place // 8] ^= 1 << place % 8
        with pytest.raises(AuditIntegrityError):
            InclusionProof.parse(bytes(altered)).checked(trusted)


@pytest.mark.parametrize("old", [5, 8, 11])
def test_an_old_checkpoint_is_the_beginning(house: House, old: int) -> None:
    before = house.log.open(old, house.keyring).checkpoint
    data = consistency(house, old).text()
    proof = ConsistencyProof.parse(data)
    assert proof.checked(before, house.keyring.verifiers()) == latest(house)
    assert proof.text() == data
    for other in {5, 8, 11} - {old}:
        wrong = house.log.open(other, house.keyring).checkpoint
        with pytest.raises(AuditIntegrityError, match="another checkpoint"):
            proof.checked(wrong, house.keyring.verifiers())


def test_no_bit_of_a_proof_of_consistency_can_flip(house: House) -> None:
    before = house.log.open(5, house.keyring).checkpoint
    data = consistency(house, 5).text()
    trusted = house.keyring.verifiers()
    for place in range(len(data) * 8):
        altered = bytearray(data)
        altered[place // 8] ^= 1 << place % 8
        with pytest.raises(AuditIntegrityError):
            ConsistencyProof.parse(bytes(altered)).checked(before, trusted)


def test_a_proof_by_nobody_trusted(house: House) -> None:
    with pytest.raises(AuditIntegrityError, match="no trusted key"):
        inclusion(house, 4).checked([STRANGER])


@pytest.mark.parametrize("seq", [-1, 0, 12])
def test_what_is_not_covered_is_not_proved(house: House, seq: int) -> None:
    with pytest.raises(RequestError, match=f"Event {seq} is not among the 11"):
        inclusion(house, seq)


def test_a_younger_checkpoint_is_no_beginning(house: House) -> None:
    store = house.raw()
    old, young = house.log.open(8, house.keyring), latest(house).checkpoint
    with pytest.raises(CheckpointError, match="of 11 events can't be the beginning"):
        prove_consistency(young, store, old, house.keyring.verifiers())
    store.close()


def test_an_altered_store_proves_nothing(house: House, tmp_path: Path) -> None:
    other = House(tmp_path)
    other.add(11, EVENT)
    other.roll_back(house.db)
    with behind_the_triggers(other.db) as db:
        db.execute(
            "UPDATE audit_header SET header = CAST(replace(CAST(header AS TEXT), 'gate-1', 'gate-2')"
            " AS BLOB) WHERE seq = 3"
        )
    store = other.raw()
    trusted = house.keyring.verifiers()
    for seq in (3, 4, 11):
        with pytest.raises(AuditIntegrityError, match="not entry"):
            prove_inclusion(seq, store, latest(house), trusted)
    before = house.log.open(5, house.keyring).checkpoint
    with pytest.raises(AuditIntegrityError, match="not those that were signed before"):
        prove_consistency(before, store, latest(house), trusted)
    store.close()


def test_behind_a_sealed_segment(house: House, tmp_path: Path) -> None:
    """What is live is proved with the segment's frontier; what is sealed, from the segment."""
    base = Frontier()
    other = House(tmp_path)
    other.roll_back(house.db)
    store = other.raw()
    for row in store.headers(upto=6):
        base.append(row.header)
    with behind_the_triggers(other.db) as db:
        db.execute("DELETE FROM audit_header WHERE seq <= 6")
    trusted = house.keyring.verifiers()
    for seq in range(7, 12):
        proof = prove_inclusion(seq, store, latest(house), trusted, base)
        assert proof == inclusion(house, seq)
    with pytest.raises(RequestError, match="it was sealed"):
        prove_inclusion(6, store, latest(house), trusted, base)
    old = [house.log.open(size, house.keyring).checkpoint for size in (5, 8)]
    assert prove_consistency(old[1], store, latest(house), trusted, base) == consistency(house, 8)
    with pytest.raises(CheckpointError, match="the entries before 6 are sealed"):
        prove_consistency(old[0], store, latest(house), trusted, base)
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
    with pytest.raises(AuditIntegrityError, match="proof does not hold"):
        parse(data)


def test_a_proof_may_have_no_hashes(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.add(1)
    house.sign()
    proof = inclusion(house, 1)
    assert proof.hashes == ()
    assert InclusionProof.parse(proof.text()) == proof
    assert SCOPE.fix_id.encode() in proof.header
