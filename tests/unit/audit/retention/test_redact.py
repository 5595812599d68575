"""Redaction: the words are gone from every byte of the store, and everything still holds."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fallback_audit.checkpoints.keyring import generate
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, EvidenceError
from fallback_audit.events import (
    AttemptFailed,
    AuditEvent,
    FixRefused,
    FixStarted,
    PayloadRedacted,
    RagSkippedOnRetry,
    SandboxDisabled,
)
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Record, Scope, StoredEvent
from fallback_audit.retention.free_text import REDACTED
from fallback_audit.retention.redact import Redaction, Redactor
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.unit.audit import trails

#: A person's name, which no fixture, field or schema has in it.
WORDS = "Wilhelmina Quackenbush"
LONG = f"{WORDS} " * 20


def clock() -> datetime:
    return datetime(2026, 6, 1, tzinfo=UTC)


class Desk:
    """A store, evidence and keys in one folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state" / "audit.db"
        self.evidence = FileEvidenceStore(folder / "state" / "evidence")
        self.keys = generate(folder / "keys")
        self.store = SqliteAuditStore(
            self.path, verifiers=self.keys.verifiers(), busy_timeout_s=0.2
        )

    def redact(self, seq: int, *fields: str, with_evidence: bool = False) -> Redaction:
        redactor = Redactor(self.store, self.evidence, self.keys.signers(), clock=clock)
        return redactor.redact(
            seq, fields, by="A. Keeper", reason="a request", with_evidence=with_evidence
        )

    def tell(self, events: list[AuditEvent], fix_id: str = "fix-1") -> None:
        scope = Scope(fix_id=fix_id, gate_transition_id=f"{fix_id}-1")
        self.store.append_all([Record(scope, event) for event in events])

    def at(self, seq: int) -> StoredEvent:
        return next(self.store.events(after=seq - 1))

    def bytes(self) -> bytes:
        """The store's own files, after it was closed or killed."""
        files = self.path.parent.glob("audit.db*")
        return b"\0".join(path.read_bytes() for path in files)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    with closing(desk.store):
        yield desk


def failing(desk: Desk) -> list[AuditEvent]:
    """A fix that failed once, with a person's name in its words and its evidence."""
    summary = desk.evidence.put(f"{WORDS} broke the build".encode())
    events = trails.verified_on_retry()
    for place, event in enumerate(events):
        if isinstance(event, AttemptFailed | RagSkippedOnRetry):
            words = {"summary_sha256": summary, "summary_excerpt": LONG[:600]}
            events[place] = event.model_copy(update=words)
        if isinstance(event, FixStarted):
            events[place] = event.model_copy(update={"repository": WORDS})
    return events


def seqs(desk: Desk, kind: type[AuditEvent]) -> list[int]:
    return [e.seq for e in desk.store.events() if isinstance(e.payload, kind)]


def test_the_words_are_in_no_byte_of_the_store(desk: Desk) -> None:
    desk.tell(failing(desk))
    assert WORDS.encode() in desk.bytes(), "the search finds what is there"
    for kind in (FixStarted, AttemptFailed, RagSkippedOnRetry):
        for seq in seqs(desk, kind):
            desk.redact(seq)
    assert WORDS.encode() not in desk.bytes()
    for stored in desk.store.events():
        assert WORDS not in stored.model_dump_json()


def test_what_is_left_is_readable_and_says_so(desk: Desk) -> None:
    desk.tell(failing(desk))
    (seq,) = seqs(desk, AttemptFailed)
    before = desk.at(seq)
    done = desk.redact(seq)
    assert done.fields == ("summary_excerpt",)
    assert not done.finished
    after = desk.at(seq)
    assert after.redacted
    assert after.leaf == before.leaf
    assert after.payload == before.payload.model_copy(update={"summary_excerpt": REDACTED})
    reported = desk.at(done.by_event)
    assert reported.scope == after.scope
    assert isinstance(reported.payload, PayloadRedacted)
    assert (reported.payload.seq, reported.payload.by) == (seq, "A. Keeper")


def test_without_a_trusted_key_a_tombstone_is_an_altered_payload(
    desk: Desk, tmp_path: Path
) -> None:
    desk.tell(failing(desk))
    (seq,) = seqs(desk, AttemptFailed)
    desk.redact(seq)
    stranger = generate(tmp_path / "another").verifiers()
    for verifiers in ((), stranger):
        with (
            closing(SqliteAuditStore(desk.path, verifiers=verifiers)) as store,
            pytest.raises(AuditIntegrityError),
        ):
            list(store.events())


def test_only_the_named_members_go(desk: Desk) -> None:
    desk.tell([*trails.not_affected()[:-1], refusal("no")], "fix-2")
    (seq,) = seqs(desk, FixRefused)
    with pytest.raises(AuditStoreError, match=r"attempt can't be redacted .*FixRefused"):
        desk.redact(seq, "attempt")
    assert desk.redact(seq, "sentence").fields == ("sentence",)


def refusal(sentence: str) -> FixRefused:
    (refused,) = [e for e in trails.not_affected() if isinstance(e, FixRefused)]
    return refused.model_copy(update={"sentence": sentence})


def test_once_an_event(desk: Desk) -> None:
    desk.tell(trails.recipe_verified())
    recipes = [e.seq for e in desk.store.events() if e.kind == "GateJudged"]
    first = desk.redact(recipes[0], "detail")
    again = desk.redact(recipes[0])
    assert again == first.model_copy(update={"finished": True})
    with pytest.raises(AuditStoreError, match=r"was redacted by A\. Keeper \(detail\)"):
        desk.redact(recipes[0], "flaky")
    with pytest.raises(AuditStoreError, match="who redacted another one"):
        desk.redact(first.by_event)


@pytest.mark.parametrize("seq", [0, -1, 10_000])
def test_no_such_event(desk: Desk, seq: int) -> None:
    desk.tell(trails.recipe_verified())
    with pytest.raises(AuditStoreError, match="There is no event"):
        desk.redact(seq)


def test_a_fix_that_may_go_on_still_needs_its_words(desk: Desk) -> None:
    desk.tell(failing(desk)[:-1])
    with pytest.raises(AuditStoreError, match="running or was interrupted"):
        desk.redact(seqs(desk, AttemptFailed)[0])


def test_evidence_goes_with_the_words(desk: Desk) -> None:
    desk.tell(failing(desk))
    (seq,) = seqs(desk, AttemptFailed)
    failed = desk.at(seq).payload
    assert isinstance(failed, AttemptFailed)
    digest = failed.summary_sha256
    done = desk.redact(seq, with_evidence=True)
    assert done.evidence == (digest,)
    with pytest.raises(EvidenceError, match="missing"):
        desk.evidence.get(digest)
    assert [e.kind for e in desk.store.events()][-2:] == ["PayloadRedacted", "EvidenceCollected"]
    assert desk.redact(seq, with_evidence=True).evidence == ()


def test_evidence_that_another_fix_needs_stays(desk: Desk) -> None:
    desk.tell(failing(desk))
    desk.tell(failing(desk)[:-1], "fix-2")
    (seq, _) = seqs(desk, AttemptFailed)
    with pytest.raises(AuditStoreError, match="is needed by fix-2, which has not ended"):
        desk.redact(seq, with_evidence=True)
    assert WORDS.encode() in desk.bytes(), "nothing was done"


def test_a_reader_in_the_way_is_said_and_the_next_run_finishes(desk: Desk) -> None:
    desk.tell([SandboxDisabled(reason=WORDS), *trails.recipe_verified()])
    with closing(sqlite3.connect(desk.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM audit_header").fetchone()
        with pytest.raises(AuditStoreError, match="a reader has it open"):
            desk.redact(1)
    assert WORDS.encode() in desk.bytes()
    assert desk.redact(1).finished
    assert WORDS.encode() not in desk.bytes()


KILLED = """
import os, signal, sys
from pathlib import Path
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.unit.audit.retention.test_redact import Desk

SqliteAuditStore.scrub = lambda store: os.kill(os.getpid(), signal.SIGKILL)
Desk(Path(sys.argv[1])).redact(int(sys.argv[2]))
"""


def test_a_run_that_is_killed_before_the_files_are_clean(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.tell([SandboxDisabled(reason=WORDS), *trails.recipe_verified()])
    desk.store.close()
    child = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "1"], check=False)
    assert child.returncode == -signal.SIGKILL
    desk = Desk(tmp_path)
    with closing(desk.store):
        assert desk.redact(1).finished
        assert WORDS.encode() not in desk.bytes()
        assert len(seqs(desk, PayloadRedacted)) == 1
