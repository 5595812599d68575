"""What the keepers of a record may do, and no one else: a tombstone once, a segment from the old end."""

from contextlib import closing

import pytest

from fallback_audit.canonical import GENESIS
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, ContractError
from fallback_audit.events import AuditEvent, PayloadRedacted, SandboxDisabled, SegmentSealed
from fallback_audit.ports import MAINTENANCE, Record, Segment, StoredEvent
from tests.kinds import OfKind
from tests.unit.audit.stores.conformance.backends import Backend, Store
from tests.unit.audit.trails import SCOPE, digest

EVENT = SandboxDisabled(reason="a person said so")
TOMBSTONE = b"a signed statement of what was taken out"


def redaction(seq: int) -> Record:
    event = PayloadRedacted(
        seq=seq,
        payload_sha256=digest("before"),
        tombstone_sha256=digest("after"),
        fields=("reason",),
        by="a keeper",
        reason="a law",
    )
    return Record(SCOPE, event)


def sealing(first: int, last: int) -> Record:
    event = SegmentSealed(
        first_seq=first, last_seq=last, sha256=digest("file"), by="a keeper", reason="retention"
    )
    return Record(MAINTENANCE, event)


@pytest.fixture
def filled(store: Store) -> Store:
    store.append_all([Record(SCOPE, EVENT)] * 6)
    return store


def payloads(backend: Backend) -> dict[int, bytes]:
    with backend.connect() as connection:
        return dict(connection.execute("SELECT seq, payload FROM audit_payload").fetchall())


def test_a_payload_is_replaced_with_its_event(backend: Backend, filled: Store) -> None:
    before = payloads(backend)
    stored = filled.replace_payload(3, TOMBSTONE, redaction(3))
    assert (stored.seq, stored.kind, stored.scope) == (7, "PayloadRedacted", SCOPE)
    after = payloads(backend)
    assert after[3] == TOMBSTONE
    assert {seq: after[seq] for seq in before if seq != 3} == {
        seq: payload for seq, payload in before.items() if seq != 3
    }
    assert [row.seq for row in filled.headers()] == list(range(1, 8))
    with filled.snapshot() as snapshot:
        assert snapshot.schema_problems() == []


def test_a_tombstone_that_replaced_nothing_is_a_finding(backend: Backend, filled: Store) -> None:
    filled.replace_payload(3, TOMBSTONE, redaction(3))
    with backend.attacker() as connection:
        connection.execute(
            f"INSERT INTO audit_tombstone VALUES (4, {backend.mark})", (b"put by a thief",)
        )
    with filled.snapshot() as snapshot:
        assert snapshot.schema_problems() == ["1 tombstones that no payload was replaced by"]


@pytest.mark.parametrize("seq", [3, 99])
def test_a_payload_is_replaced_once_and_only_where_there_is_one(
    backend: Backend, filled: Store, seq: int
) -> None:
    filled.replace_payload(3, TOMBSTONE, redaction(3))
    before = payloads(backend)
    with pytest.raises(AuditStoreError, check=OfKind("safeguard"), match=rf"\b{seq}\b"):
        filled.replace_payload(seq, b"another", redaction(3))
    assert payloads(backend) == before
    assert filled.tip()[0] == 7


def test_a_segment_takes_the_oldest_with_its_event(backend: Backend, filled: Store) -> None:
    leaf = filled.tip()[1]
    stored = filled.add_segment(Segment(1, 1, 4, b"statement 1"), sealing(1, 4))
    assert (stored.seq, stored.previous_leaf) == (7, leaf)
    assert [event.seq for event in filled.events()] == [5, 6, 7]
    assert sorted(payloads(backend)) == [5, 6, 7]
    filled.add_segment(Segment(2, 5, 7, b"statement 2"), sealing(5, 7))
    assert filled.append(SCOPE, EVENT).seq == 9
    assert filled.segments() == [b"statement 1", b"statement 2"]
    with closing(backend.reader()) as reader, reader.snapshot() as snapshot:
        assert snapshot.segments() == reader.segments() == filled.segments()
        assert [row.seq for row in snapshot.rows()] == [8, 9]
        assert snapshot.schema_problems() == []


@pytest.mark.parametrize(
    "segment",
    [
        Segment(2, 3, 4, b"s"),  # a number is missing
        Segment(1, 3, 4, b"s"),  # done before
        Segment(2, 4, 5, b"s"),  # a gap
        Segment(2, 2, 4, b"s"),  # an overlap
        Segment(2, 3, 2, b"s"),  # empty
        Segment(2, 3, 8, b"s"),  # with the event that tells of it
        Segment(2, 3, 99, b"s"),
    ],
)
def test_segments_stand_in_a_row(backend: Backend, filled: Store, segment: Segment) -> None:
    number = segment.number
    if segment != Segment(2, 3, 4, b"s"):
        filled.add_segment(Segment(1, 1, 2, b"statement"), sealing(1, 2))
    before = payloads(backend)
    with pytest.raises(AuditStoreError, check=OfKind("safeguard"), match=f"egment {number} "):
        filled.add_segment(segment, sealing(3, 4))
    assert payloads(backend) == before


def test_a_guard_may_refuse_a_maintenance_event(backend: Backend, filled: Store) -> None:
    class Strict:
        def admit(self, *_: object) -> tuple[AuditEvent, ...]:
            raise ContractError("Not now.", next_step="Wait.")

        def appended(self, event: StoredEvent) -> None: ...

    before = payloads(backend)
    with closing(backend.store(guard=Strict())) as strict:
        with pytest.raises(ContractError):
            strict.replace_payload(3, TOMBSTONE, redaction(3))
        with pytest.raises(ContractError):
            strict.add_segment(Segment(1, 1, 4, b"statement"), sealing(1, 4))
    assert (payloads(backend), filled.segments()) == (before, [])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_payload SET payload = {0} WHERE seq = 4",
        "UPDATE audit_payload SET seq = 99 WHERE seq = 3",
        "DELETE FROM audit_payload WHERE seq = 5",
        "DELETE FROM audit_header WHERE seq = 5",
        "DELETE FROM audit_segment",
        "UPDATE audit_segment SET last_seq = 6",
        "INSERT INTO audit_segment VALUES (9, 3, 4, {0})",
        "DELETE FROM audit_tombstone",
        "UPDATE audit_tombstone SET tombstone = {0}",
        "INSERT INTO audit_tombstone VALUES (3, {0})",
        "INSERT INTO audit_tombstone VALUES (1, {0})",
    ],
)
def test_nothing_else_is_let_through(backend: Backend, filled: Store, statement: str) -> None:
    filled.add_segment(Segment(1, 1, 2, b"statement"), sealing(1, 2))
    filled.replace_payload(3, TOMBSTONE, redaction(3))
    given = (b"other",) if "{0}" in statement else ()
    with backend.connect() as connection, pytest.raises(backend.refusal, match="append-only"):
        connection.execute(statement.format(backend.mark), given)


def test_segments_without_the_events_behind_them(backend: Backend, filled: Store) -> None:
    filled.add_segment(Segment(1, 1, 2, b"statement"), sealing(1, 2))
    with backend.attacker() as connection:
        connection.execute("DELETE FROM audit_header")
    with pytest.raises(AuditIntegrityError, check=OfKind("tail_missing")):
        filled.tip()
    with pytest.raises(AuditIntegrityError):
        filled.append(SCOPE, EVENT)


def test_an_empty_store_has_no_segments(store: Store) -> None:
    assert (store.segments(), store.tip()) == ([], (0, GENESIS))
