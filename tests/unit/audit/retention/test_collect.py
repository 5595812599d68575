"""Evidence goes when its retention is over, on record, and never while something may need it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallback_audit.errors import AuditStoreError, EvidenceError
from fallback_audit.events import (
    AuditEvent,
    EvidenceCollected,
    FixRefused,
    FixStarted,
    GateJudged,
)
from fallback_audit.evidence.checking import check_evidence, collected, read_list
from fallback_audit.evidence.store import PART_PREFIX, FileEvidenceStore
from fallback_audit.ports import Record, Scope
from fallback_audit.retention.collect import GRACE, Collection, Collector, Limits
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.kinds import OfKind
from tests.unit.audit import trails

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)
MONTH = timedelta(days=30)


class TrailFolder:
    """A store whose clock a test sets, and evidence that is as old as the events that name it."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.store = SqliteAuditStore(folder / "audit.db", clock=lambda: self.now)
        self.evidence = FileEvidenceStore(folder / "evidence")

    def put(self, text: str, age: timedelta) -> str:
        digest = self.evidence.put(text.encode())
        moment = (NOW - age).timestamp()
        os.utime(self.evidence.path(digest), (moment, moment))
        return digest

    def fix(self, fix_id: str, *digests: str, age: timedelta, ends: bool = True) -> None:
        events: list[AuditEvent] = []
        for event in trails.not_affected():
            if isinstance(event, FixStarted):
                logs = [
                    judged().model_copy(update={"evidence_sha256": digest}) for digest in digests
                ]
                events += [event, *logs]
            elif ends or not isinstance(event, FixRefused):
                events.append(event)
        scope = Scope(fix_id=fix_id, gate_transition_id=f"{fix_id}-1")
        self.now = NOW - age
        self.store.append_all([Record(scope, event) for event in events])
        self.now = NOW

    def collector(self) -> Collector:
        return Collector(self.store, self.store, self.evidence, clock=lambda: self.now)

    def collect(
        self, days: int | None = 10, *, max_bytes: int | None = None, dry_run: bool = False
    ) -> Collection:
        older_than = None if days is None else NOW - timedelta(days=days)
        limits = Limits(older_than=older_than, max_bytes=max_bytes)
        return self.collector().collect(limits, by="A. Keeper", reason="retention", dry_run=dry_run)

    def has(self, digest: str) -> bool:
        return self.evidence.find(digest) is not None

    def told(self) -> list[EvidenceCollected]:
        payloads = (stored.payload for stored in self.store.events())
        return [event for event in payloads if isinstance(event, EvidenceCollected)]


def judged() -> AuditEvent:
    return next(event for event in trails.recipe_verified() if isinstance(event, GateJudged))


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[TrailFolder]:
    trail = TrailFolder(tmp_path)
    with closing(trail.store):
        yield trail


def test_what_goes_and_what_stays(trail: TrailFolder) -> None:
    old, open_, young, shared, orphan = (
        trail.put(name, MONTH) for name in ("old", "open", "young", "shared", "orphan")
    )
    new = trail.put("an orphan that may be on record in a moment", timedelta(hours=1))
    trail.fix("old", old, shared, age=MONTH)
    trail.fix("interrupted", open_, age=MONTH, ends=False)
    trail.fix("young", young, shared, age=timedelta(days=2))
    done = trail.collect()
    assert (done.expired, done.orphans, done.spared) == (1, 1, 0)
    assert [trail.has(one) for one in (old, orphan)] == [False, False]
    assert all(trail.has(one) for one in (open_, young, shared, new))
    (reported,) = trail.told()
    assert set(read_list(trail.evidence, reported.list_sha256)) == {old, orphan}
    assert (reported.removed, reported.removed_bytes, reported.by) == (2, 9, "A. Keeper")


def test_an_escalation_that_nobody_answered_is_not_over(trail: TrailFolder) -> None:
    log = trail.put("log", MONTH)
    scope = Scope(fix_id="asks", gate_transition_id="asks-1")
    trail.now = NOW - MONTH
    events = [
        event.model_copy(update={"evidence_sha256": log})
        if isinstance(event, GateJudged)
        else event
        for event in trails.cap_reached()
    ]
    trail.store.append_all([Record(scope, event) for event in events])
    trail.now = NOW
    assert trail.collect().expired == 0
    assert trail.has(log)


def test_a_dry_run_does_nothing(trail: TrailFolder) -> None:
    old = trail.put("old", MONTH)
    trail.fix("old", old, age=MONTH)
    tip = trail.store.tip()
    foreseen = trail.collect(dry_run=True)
    assert trail.store.tip() == tip
    assert trail.has(old)
    assert trail.collect().model_copy(update={"dry_run": True, "seqs": ()}) == foreseen


def test_nothing_to_do_leaves_no_event(trail: TrailFolder) -> None:
    trail.fix("young", trail.put("young", timedelta(days=2)), age=timedelta(days=2))
    assert trail.collect().seqs == ()
    assert trail.told() == []


def test_a_second_run_finds_nothing(trail: TrailFolder) -> None:
    trail.fix("old", trail.put("old", MONTH), age=MONTH)
    assert len(trail.collect().seqs) == 1
    again = trail.collect()
    assert (again.expired, again.orphans, again.seqs) == (0, 0, ())


def test_parts_of_files_go_without_an_event(trail: TrailFolder) -> None:
    old = trail.put("old", MONTH)
    part = trail.evidence.path(old).with_name(f"{PART_PREFIX}x")
    part.write_bytes(b"half")
    os.utime(part, (0, 0))
    fresh = part.with_name(f"{PART_PREFIX}y")
    fresh.write_bytes(b"being written")
    os.utime(fresh, (NOW.timestamp(), NOW.timestamp()))
    trail.fix("young", old, age=timedelta(days=2))
    done = trail.collect()
    assert (done.parts, done.seqs) == (1, ())
    assert (part.exists(), fresh.exists()) == (False, True)


def test_the_cap_takes_what_ended_first(trail: TrailFolder) -> None:
    sizes = {}
    for days in (40, 30, 20, 3):
        sizes[days] = trail.put("x" * 100 + str(days), timedelta(days=days))
        trail.fix(f"fix-{days}", sizes[days], age=timedelta(days=days))
    needed = trail.put("y" * 500, timedelta(days=50))
    trail.fix("interrupted", needed, age=timedelta(days=50), ends=False)
    done = trail.collect(days=None, max_bytes=705)
    assert done.expired == 2
    assert [trail.has(sizes[days]) for days in (40, 30, 20, 3)] == [False, False, True, True]
    assert done.kept_bytes <= 705
    assert trail.collect(days=None, max_bytes=1).kept_bytes >= 500, "open fixes keep theirs"
    assert trail.has(needed)


def test_not_within_the_grace(trail: TrailFolder) -> None:
    with pytest.raises(AuditStoreError, check=OfKind("too_recent")):
        trail.collect(days=0)
    fresh = trail.put("fresh", GRACE / 2)
    trail.fix("old", fresh, age=MONTH)
    assert trail.collect().expired == 0, "put again since: somebody may be about to name it"


def test_what_is_put_or_named_again_meanwhile_stays(
    trail: TrailFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, revived, old = (trail.put(name, MONTH) for name in ("put", "revived", "old"))
    for fix_id, digest in (("a", put), ("b", revived), ("c", old)):
        trail.fix(fix_id, digest, age=MONTH)
    append = trail.store.append

    def meanwhile(scope: Scope, event: AuditEvent) -> object:
        trail.evidence.put(b"put")
        os.utime(trail.evidence.path(put), (NOW.timestamp(), NOW.timestamp()))
        append(Scope(fix_id="b", gate_transition_id="b-2"), trails.fix_started("b-1"))
        return append(scope, event)

    monkeypatch.setattr(trail.store, "append", meanwhile)
    done = trail.collect()
    assert done.spared == 2
    assert [trail.has(one) for one in (put, revived, old)] == [True, True, False]


@pytest.mark.parametrize("step", ["put_list", "append", "remove"])
def test_a_failure_at_any_step_is_finished_by_the_next_run(
    trail: TrailFolder, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    digests = [trail.put(str(number), MONTH) for number in range(5)]
    trail.fix("old", *digests, age=MONTH)

    def broken(*_: object, **__: object) -> None:
        raise EvidenceError("It broke.", next_step="Mend it.")

    with monkeypatch.context() as patch:
        if step == "put_list":
            patch.setattr("fallback_audit.retention.collect.put_list", broken)
        else:
            patch.setattr(trail.store if step == "append" else trail.evidence, step, broken)
        with pytest.raises(EvidenceError, match="It broke"):
            trail.collect()
    assert all(trail.has(one) for one in digests), "nothing goes that is not on record"
    assert trail.collect().expired == 5
    assert not any(trail.has(one) for one in digests)
    assert sum(event.removed for event in trail.told()) == 5


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.audit.retention.test_collect import TrailFolder

trail = TrailFolder(Path(sys.argv[1]))
remove, left = trail.evidence.remove, [2]

def die(file, **rest):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return remove(file, **rest)

trail.evidence.remove = die
trail.collect()
"""


def test_a_run_that_is_killed_among_its_removals(tmp_path: Path) -> None:
    trail = TrailFolder(tmp_path)
    digests = [trail.put(str(number), MONTH) for number in range(5)]
    trail.fix("old", *digests, age=MONTH)
    trail.store.close()
    child = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert child.returncode == -signal.SIGKILL
    trail = TrailFolder(tmp_path)
    with closing(trail.store):
        assert sum(map(trail.has, digests)) == 3
        gone = collected(trail.store, trail.evidence)
        assert {bytes.fromhex(one) for one in digests} <= gone, "what is gone is on record"
        done = trail.collect()
        assert (done.expired, done.seqs) == (3, ())
        assert not any(map(trail.has, digests))


def test_the_check_tells_removed_from_missing_and_altered(trail: TrailFolder) -> None:
    old, lost, altered, sound = (
        trail.put(name, MONTH) for name in ("old", "lost", "altered", "sound")
    )
    trail.fix("old", old, age=MONTH)
    trail.fix("young", lost, altered, sound, age=timedelta(days=2))
    trail.collect()
    trail.evidence.path(lost).unlink()
    trail.evidence.path(altered).write_bytes(b"something else")
    report = check_evidence(trail.store, trail.evidence)
    assert not report.ok
    assert (report.removed, report.bad_count, report.locked) == (1, 2, 0)
    problems = {bad.digest: bad.problem for bad in report.bad}
    assert set(problems) == {lost, altered}
    assert "missing" in problems[lost]
    assert "altered" in problems[altered]
    assert report.named == 5  # the list of what was removed is evidence, too
    trail.put("lost", MONTH)
    trail.evidence.path(altered).unlink()
    trail.put("altered", MONTH)
    assert check_evidence(trail.store, trail.evidence).ok


def test_a_lost_list_explains_nothing(trail: TrailFolder) -> None:
    trail.fix("old", trail.put("old", MONTH), age=MONTH)
    trail.collect()
    (reported,) = trail.told()
    trail.evidence.path(reported.list_sha256).unlink()
    report = check_evidence(trail.store, trail.evidence)
    assert (report.removed, report.bad_count) == (0, 2)
