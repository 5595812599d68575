"""Sealing: old events move to a file that proves itself, whole or not at all."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.keyring import Keyring, generate
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.writer import Checkpointer
from fallback_audit.contract.guard import ContractGuard
from fallback_audit.errors import (
    AuditError,
    AuditIntegrityError,
    AuditStoreError,
    CheckpointError,
    TrailFault,
)
from fallback_audit.events import AuditEvent, SegmentRetired, SegmentSealed
from fallback_audit.ports import HeaderRow, Record, Scope
from fallback_audit.retention.history import History
from fallback_audit.retention.redact import Redactor
from fallback_audit.retention.seal import Retired, Sealed, Sealer, choose
from fallback_audit.stores.appending import timestamp
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.kinds import OfKind
from tests.unit.audit import human_trails as h
from tests.unit.audit import trails

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)
TODAY = datetime(2026, 6, 30, tzinfo=UTC)


class Archive:
    """A store with keys, checkpoints and sealed segments, whose clock a test sets."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.folder = folder
        self.path = folder / "state" / "audit.db"
        self.segments = folder / "state" / "segments"
        self.keys = generate(folder / "keys")
        self.store = SqliteAuditStore(
            self.path,
            clock=lambda: self.now,
            verifiers=self.keys.verifiers(),
            busy_timeout_s=0.2,
        )

    @property
    def keyring(self) -> Keyring:
        return self.keys

    def fix(self, fix_id: str, days: float, events: list[AuditEvent] | None = None) -> None:
        """A fix whose events were all recorded so many days ago."""
        scope = Scope(fix_id=fix_id, gate_transition_id=f"{fix_id}-1")
        self.now = NOW - timedelta(days=days)
        reported = trails.recipe_verified() if events is None else events
        self.store.append_all([Record(scope, event) for event in reported])
        self.now = NOW

    def checkpoint(self) -> SignedCheckpoint | None:
        log = CheckpointLog(self.folder / "checkpoints")
        keys = self.folder / "keys"
        return Checkpointer(self.store, log, keys, segments=self.store.segments).checkpoint()

    def sealer(self) -> Sealer:
        return Sealer(self.store, self.segments, self.keyring, clock=lambda: self.now)

    def seal(self, days: float = 10) -> Sealed | None:
        before = NOW - timedelta(days=days)
        covered = self.checkpoint()
        return self.sealer().seal(before, covered, by="A. Keeper", reason="retention")

    def retire(self, number: int) -> Retired:
        return self.sealer().retire(number, by="A. Keeper", reason="over")

    def history(self) -> History:
        return History(self.store, self.segments, self.keyring.verifiers())

    def files(self) -> list[str]:
        return sorted(path.name for path in self.segments.glob("*"))

    def told(self) -> list[AuditEvent]:
        kinds = frozenset({"SegmentSealed", "SegmentRetired"})
        return [stored.payload for stored in self.store.events(kinds=kinds)]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    archive = Archive(tmp_path)
    with closing(archive.store):
        yield archive


LENGTH = len(trails.recipe_verified())


def test_old_events_move_and_are_still_on_record(archive: Archive) -> None:
    for fix_id, days in (("a", 40), ("b", 30), ("c", 2)):
        archive.fix(fix_id, days)
    before = list(archive.store.events())
    sealed = archive.seal()
    assert sealed is not None
    assert (sealed.number, sealed.first_seq, sealed.last_seq) == (1, 1, 2 * LENGTH)
    assert archive.files() == [sealed.file] == [f"000001-1-{2 * LENGTH}.jsonl"]
    assert next(archive.store.events()).seq == 2 * LENGTH + 1
    assert list(archive.history().events())[: len(before)] == before
    assert [e.seq for e in archive.history().events("b")] == [e.seq for e in before][
        LENGTH : 2 * LENGTH
    ]
    assert next(e.seq for e in archive.history().events(after=LENGTH)) == LENGTH + 1
    (reported,) = archive.told()
    assert isinstance(reported, SegmentSealed)
    assert (reported.last_seq, reported.sha256, reported.by) == (
        2 * LENGTH,
        sealed.sha256,
        "A. Keeper",
    )
    assert archive.checkpoint() is not None, "checkpoints go on from the segment's tree"


def test_segments_follow_each_other(archive: Archive) -> None:
    archive.fix("a", 40)
    archive.fix("b", 20)
    archive.fix("c", 2)
    first, second = archive.seal(30), archive.seal(10)
    assert first is not None
    assert second is not None
    assert (second.number, second.first_seq) == (2, first.last_seq + 1)
    assert archive.seal(10) is None, "nothing is left to seal"
    seqs = [e.seq for e in archive.history().events()]
    assert seqs == list(range(1, len(seqs) + 1))
    archive.fix("d", 0)
    assert archive.checkpoint() is not None


def test_what_holds_it_back(archive: Archive) -> None:
    archive.fix("over", 40)
    archive.fix("interrupted", 35, trails.recipe_verified()[:-1])
    archive.fix("later", 30)
    choice = archive.sealer().choose(NOW - timedelta(days=10))
    assert (choice.last_seq, choice.old) == (LENGTH, 3 * LENGTH - 1)
    assert [(held.fix_id, held.over) for held in choice.held_by] == [("interrupted", False)]


@pytest.mark.parametrize("events", [h.abandoned_between_gates(), h.abandoned_when_reopened()])
def test_an_abandoned_fix_is_sealed_as_one_that_has_ended(
    archive: Archive, events: trails.Events
) -> None:
    archive.fix("given-up", 40, events[:-1])
    assert archive.seal() is None
    archive.fix("given-up", 39, events[-1:])
    archive.fix("later", 5)
    sealed = archive.seal()
    assert sealed is not None
    assert sealed.last_seq == len(events)


def test_a_fix_on_both_sides_is_not_cut(archive: Archive) -> None:
    scope = Scope(fix_id="long", gate_transition_id="long-1")
    events = trails.recipe_verified()
    archive.fix("over", 40)
    archive.fix("long", 35, events[:-1])
    archive.fix("between", 30)
    archive.fix("long", 2, events[-1:])
    assert scope.fix_id == "long"
    choice = archive.sealer().choose(NOW - timedelta(days=10))
    assert choice.last_seq == LENGTH
    assert [(held.fix_id, held.over) for held in choice.held_by] == [("long", True)]
    assert archive.sealer().choose(TODAY).last_seq == archive.store.tip()[0]


def test_an_open_question_is_not_sealed(archive: Archive) -> None:
    archive.fix("asks", 40, trails.cap_reached())
    assert archive.seal() is None


def test_today_is_not_sealed(archive: Archive) -> None:
    archive.fix("a", 40)
    with pytest.raises(AuditStoreError, check=OfKind("too_recent")):
        archive.seal(0.2)


def test_only_what_a_checkpoint_covers(archive: Archive) -> None:
    archive.fix("a", 40)
    covered = archive.checkpoint()
    archive.fix("b", 40)
    before = NOW - timedelta(days=10)
    for given_ in (None, covered):
        with pytest.raises(CheckpointError, check=OfKind("not_covered")):
            archive.sealer().seal(before, given_, by="A. Keeper", reason="retention")
    assert archive.files() == []


def test_a_broken_chain_is_not_sealed(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.fix("a", 40)
    covered = archive.checkpoint()
    fault = TrailFault("header_altered", "altered")
    monkeypatch.setattr("fallback_audit.retention.seal.broken_link", lambda *_, **__: fault)
    with pytest.raises(AuditIntegrityError, check=OfKind("event_altered")):
        archive.sealer().seal(NOW - timedelta(days=10), covered, by="x", reason="y")
    assert (archive.files(), archive.told()) == ([], [])


def test_a_redacted_event_is_sealed_as_it_stands(archive: Archive) -> None:
    archive.fix("a", 40)
    archive.now = NOW - timedelta(days=39)
    evidence = None
    redactor = Redactor(archive.store, evidence, archive.keyring.signers(), clock=lambda: NOW)  # type: ignore[arg-type]
    redactor.redact(1, by="A. Keeper", reason="a request")
    archive.now = NOW
    assert archive.seal() is not None
    first = next(archive.history().events())
    assert first.redacted
    with pytest.raises(AuditStoreError, check=OfKind("event_sealed")):
        redactor.redact(1, by="A. Keeper", reason="a request")


class BrokenError(AuditError):
    """What a test makes of a step."""


STEPS = {
    "writing": "fallback_audit.retention.seal._written",
    "reading back": "fallback_audit.retention.seal._check",
    "signing": "fallback_audit.retention.seal.sign_statement",
    "the store's step": "fallback_audit.stores.sqlite.SqliteAuditStore.add_segment",
    "cleaning": "fallback_audit.stores.sqlite.SqliteAuditStore.scrub",
}


@pytest.mark.parametrize("step", STEPS)
def test_a_failure_at_any_step_is_finished_by_the_next_run(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    archive.fix("a", 40)
    archive.fix("b", 2)
    before = list(archive.store.events())

    def broken(*_: object, **__: object) -> None:
        raise BrokenError("It broke.", next_step="Mend it.")

    with monkeypatch.context() as patch:
        patch.setattr(STEPS[step], broken)
        with pytest.raises(BrokenError):
            archive.seal()
    assert not any(name.startswith(".tmp") for name in archive.files())
    assert list(archive.history().events())[: len(before)] == before
    assert (archive.seal() is None) == (step == "cleaning")
    assert list(archive.history().events())[: len(before)] == before
    assert len(archive.files()) == len(archive.told()) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.unit.audit.retention.test_seal import Archive

setattr(SqliteAuditStore, sys.argv[2], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
Archive(Path(sys.argv[1])).seal()
"""


@pytest.mark.parametrize("step", ["add_segment", "scrub"])
def test_a_run_that_is_killed(tmp_path: Path, step: str) -> None:
    archive = Archive(tmp_path)
    archive.fix("a", 40)
    archive.fix("b", 2)
    before = list(archive.store.events())
    archive.store.close()
    child = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), step], check=False)
    assert child.returncode == -signal.SIGKILL
    archive = Archive(tmp_path)
    with closing(archive.store):
        assert list(archive.history().events())[: len(before)] == before
        archive.seal()
        assert list(archive.history().events())[: len(before)] == before
        assert len(archive.files()) == len(archive.told()) == 1


def test_a_fix_that_goes_on_meanwhile(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.fix("a", 40)
    write = Sealer._check_unchanged

    def meanwhile(sealer: Sealer, *arguments: object) -> None:
        archive.fix("a", 0, [trails.fix_started("a-1")])
        write(sealer, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Sealer, "_check_unchanged", meanwhile)
    with pytest.raises(AuditStoreError, check=OfKind("continued_meanwhile")):
        archive.seal()
    assert (archive.files(), archive.told()) == ([], [])


def test_the_oldest_is_retired_first_and_once(archive: Archive) -> None:
    for fix_id, days in (("a", 40), ("b", 20), ("c", 2)):
        archive.fix(fix_id, days)
    archive.seal(30)
    archive.seal(10)
    with pytest.raises(AuditStoreError, check=OfKind("older_first"), match=r"\b1\b"):
        archive.retire(2)
    with pytest.raises(AuditStoreError, check=OfKind("no_such_segment"), match=r"\b3\b"):
        archive.retire(3)
    done = archive.retire(1)
    assert not done.finished
    assert len(archive.files()) == 1
    assert isinstance(archive.told()[-1], SegmentRetired)
    with pytest.raises(
        AuditStoreError, check=OfKind("retired_before"), match=f"event {done.by_event} "
    ):
        archive.retire(1)
    assert next(archive.history().events()).seq == done.last_seq + 1
    archive.retire(2)
    assert archive.files() == []


def test_a_retirement_that_broke_off_is_finished(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.fix("a", 40)
    archive.fix("b", 2)
    archive.seal()

    def broken(path: Path) -> None:
        raise BrokenError(f"{path} broke.", next_step="Mend it.")

    with monkeypatch.context() as patch:
        patch.setattr("fallback_audit.retention.seal.delete_segment", broken)
        with pytest.raises(BrokenError):
            archive.retire(1)
    assert len(archive.files()) == 1
    assert archive.retire(1).finished
    assert archive.files() == []
    assert sum(isinstance(event, SegmentRetired) for event in archive.told()) == 1


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_a_retirement_hides_no_damage(archive: Archive, damage: str) -> None:
    archive.fix("a", 40)
    archive.fix("b", 2)
    sealed = archive.seal()
    assert sealed is not None
    path = archive.segments / sealed.file
    if damage == "missing":
        path.unlink()
        with pytest.raises(AuditIntegrityError, check=OfKind("segment_missing")):
            list(archive.history().events())
    else:
        path.write_bytes(path.read_bytes().replace(b"shop", b"shoe"))
        with pytest.raises(AuditIntegrityError):
            list(archive.history().events())
    with pytest.raises(
        AuditIntegrityError,
        check=OfKind("event_altered", "segment_altered"),
    ):
        archive.retire(1)


def test_a_retirement_that_is_sealed_itself_is_said_again(archive: Archive) -> None:
    archive.fix("a", 400)
    archive.fix("b", 300)
    archive.seal(350)
    archive.now = NOW - timedelta(days=200)
    archive.retire(1)
    archive.fix("c", 100)
    archive.now = NOW + timedelta(days=300)
    covered = archive.checkpoint()
    archive.sealer().seal(NOW + timedelta(days=299), covered, by="A. Keeper", reason="retention")
    assert [type(event) for event in archive.told()] == [SegmentSealed, SegmentRetired]
    assert next(archive.history().events()).seq == LENGTH + 1


def test_a_segment_whose_own_event_was_sealed_can_still_be_retired(archive: Archive) -> None:
    """Sealed in one year, and its SegmentSealed with the next one's; retired after that."""
    archive.fix("a", 400)
    archive.fix("b", 300)
    archive.now = NOW - timedelta(days=200)
    archive.seal(350)
    archive.fix("c", 100)
    archive.seal(50)
    (left,) = archive.told()
    assert isinstance(left, SegmentSealed)
    assert left.first_seq > 1
    guarded = SqliteAuditStore(
        archive.path, guard=ContractGuard(), verifiers=archive.keys.verifiers()
    )
    with closing(guarded) as store:
        sealer = Sealer(store, archive.segments, archive.keyring, clock=lambda: NOW)
        sealer.retire(1, by="A. Keeper", reason="over")
    assert len(archive.files()) == 1


class _Headers:
    """A chain of (fix, days ago) that nothing else is known of."""

    def __init__(self, chain: list[tuple[str, int]]) -> None:
        self.chain = chain

    def tip(self) -> tuple[int, str]:
        return len(self.chain), ""

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        for seq, (fix_id, days) in enumerate(self.chain[after:upto], after + 1):
            moment = timestamp(NOW - timedelta(days=days))
            yield HeaderRow(
                seq, b'{"fix_id":"%b","recorded_at":"%b"}' % (fix_id.encode(), moment.encode()), ""
            )


@given(
    chain=st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", "audit"]), st.integers(0, 20)), max_size=12
    ),
    over=st.sets(st.sampled_from(["a", "b", "c"])),
    base=st.integers(0, 3),
)
def test_the_last_event_that_can_be_sealed_is_chosen(
    chain: list[tuple[str, int]], over: set[str], base: int
) -> None:
    base = min(base, len(chain))
    chosen = choose(
        _Headers(chain), dict.fromkeys(over, ""), base=base, before=NOW - timedelta(days=10)
    )

    def fits(last: int) -> bool:
        live, behind = chain[base:last], chain[last:]
        fixes = {fix_id for fix_id, _ in live} - {"audit"}
        old = all(days > 10 for _, days in live)
        return old and fixes <= over and fixes.isdisjoint(fix_id for fix_id, _ in behind)

    assert chosen.last_seq == max(last for last in range(base, len(chain) + 1) if fits(last))
