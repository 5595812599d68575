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
from fallback_audit.retention.redact import REDACTED, Redaction, Redactor
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.kinds import OfKind
from tests.unit.audit import trails

#: A person's name, which no fixture, field or schema has in it.
WORDS = "Wilhelmina Quackenbush"
LONG = f"{WORDS} " * 20


def clock() -> datetime:
    return datetime(2026, 6, 1, tzinfo=UTC)


class TrailFolder:
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
def trail(tmp_path: Path) -> Iterator[TrailFolder]:
    trail = TrailFolder(tmp_path)
    with closing(trail.store):
        yield trail


def failing(trail: TrailFolder) -> list[AuditEvent]:
    """A fix that failed once, with a person's name in its words and its evidence."""
    summary = trail.evidence.put(f"{WORDS} broke the build".encode())
    events = trails.verified_on_retry()
    for place, event in enumerate(events):
        if isinstance(event, AttemptFailed | RagSkippedOnRetry):
            words = {"summary_sha256": summary, "summary_excerpt": LONG[:600]}
            events[place] = event.model_copy(update=words)
        if isinstance(event, FixStarted):
            events[place] = event.model_copy(update={"repository": WORDS})
    return events


def seqs(trail: TrailFolder, kind: type[AuditEvent]) -> list[int]:
    return [e.seq for e in trail.store.events() if isinstance(e.payload, kind)]


def test_the_words_are_in_no_byte_of_the_store(trail: TrailFolder) -> None:
    trail.tell(failing(trail))
    assert WORDS.encode() in trail.bytes(), "the search finds what is there"
    for kind in (FixStarted, AttemptFailed, RagSkippedOnRetry):
        for seq in seqs(trail, kind):
            trail.redact(seq)
    assert WORDS.encode() not in trail.bytes()
    for stored in trail.store.events():
        assert WORDS not in stored.model_dump_json()


def test_what_is_left_is_readable_and_says_so(trail: TrailFolder) -> None:
    trail.tell(failing(trail))
    (seq,) = seqs(trail, AttemptFailed)
    before = trail.at(seq)
    done = trail.redact(seq)
    assert done.fields == ("summary_excerpt",)
    assert not done.finished
    after = trail.at(seq)
    assert after.redacted
    assert after.leaf == before.leaf
    assert after.payload == before.payload.model_copy(update={"summary_excerpt": REDACTED})
    reported = trail.at(done.by_event)
    assert reported.scope == after.scope
    assert isinstance(reported.payload, PayloadRedacted)
    assert (reported.payload.seq, reported.payload.by) == (seq, "A. Keeper")


def test_without_a_trusted_key_a_tombstone_is_an_altered_payload(
    trail: TrailFolder, tmp_path: Path
) -> None:
    trail.tell(failing(trail))
    (seq,) = seqs(trail, AttemptFailed)
    trail.redact(seq)
    stranger = generate(tmp_path / "another").verifiers()
    for verifiers in ((), stranger):
        with (
            closing(SqliteAuditStore(trail.path, verifiers=verifiers)) as store,
            pytest.raises(AuditIntegrityError),
        ):
            list(store.events())


def test_only_the_named_members_go(trail: TrailFolder) -> None:
    trail.tell([*trails.not_affected()[:-1], refusal("no")], "fix-2")
    (seq,) = seqs(trail, FixRefused)
    with pytest.raises(
        AuditStoreError, check=OfKind("not_free_text"), match=r"attempt .*FixRefused"
    ):
        trail.redact(seq, "attempt")
    assert trail.redact(seq, "sentence").fields == ("sentence",)


def refusal(sentence: str) -> FixRefused:
    (refused,) = [e for e in trails.not_affected() if isinstance(e, FixRefused)]
    return refused.model_copy(update={"sentence": sentence})


def test_once_an_event(trail: TrailFolder) -> None:
    trail.tell(trails.recipe_verified())
    recipes = [e.seq for e in trail.store.events() if e.kind == "GateJudged"]
    first = trail.redact(recipes[0], "detail")
    again = trail.redact(recipes[0])
    assert again == first.model_copy(update={"finished": True})
    with pytest.raises(
        AuditStoreError, check=OfKind("redacted_before"), match=r"A\. Keeper \(detail\)"
    ):
        trail.redact(recipes[0], "flaky")
    with pytest.raises(AuditStoreError, check=OfKind("is_a_redaction")):
        trail.redact(first.by_event)


@pytest.mark.parametrize("seq", [0, -1, 10_000])
def test_no_such_event(trail: TrailFolder, seq: int) -> None:
    trail.tell(trails.recipe_verified())
    with pytest.raises(AuditStoreError, check=OfKind("no_such_event")):
        trail.redact(seq)


def test_a_fix_that_may_go_on_still_needs_its_words(trail: TrailFolder) -> None:
    trail.tell(failing(trail)[:-1])
    with pytest.raises(AuditStoreError, check=OfKind("fix_open")):
        trail.redact(seqs(trail, AttemptFailed)[0])


def test_evidence_goes_with_the_words(trail: TrailFolder) -> None:
    trail.tell(failing(trail))
    (seq,) = seqs(trail, AttemptFailed)
    failed = trail.at(seq).payload
    assert isinstance(failed, AttemptFailed)
    digest = failed.summary_sha256
    done = trail.redact(seq, with_evidence=True)
    assert done.evidence == (digest,)
    with pytest.raises(EvidenceError, check=OfKind("missing")):
        trail.evidence.get(digest)
    assert [e.kind for e in trail.store.events()][-2:] == ["PayloadRedacted", "EvidenceCollected"]
    assert trail.redact(seq, with_evidence=True).evidence == ()


def test_evidence_that_another_fix_needs_stays(trail: TrailFolder) -> None:
    trail.tell(failing(trail))
    trail.tell(failing(trail)[:-1], "fix-2")
    (seq, _) = seqs(trail, AttemptFailed)
    with pytest.raises(AuditStoreError, check=OfKind("needed_by_open_fix"), match="fix-2"):
        trail.redact(seq, with_evidence=True)
    assert WORDS.encode() in trail.bytes(), "nothing was done"


def test_a_reader_in_the_way_is_said_and_the_next_run_finishes(trail: TrailFolder) -> None:
    trail.tell([SandboxDisabled(reason=WORDS), *trails.recipe_verified()])
    with closing(sqlite3.connect(trail.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM audit_header").fetchone()
        with pytest.raises(AuditStoreError, check=OfKind("log_not_scrubbed")):
            trail.redact(1)
    assert WORDS.encode() in trail.bytes()
    assert trail.redact(1).finished
    assert WORDS.encode() not in trail.bytes()


KILLED = """
import os, signal, sys
from pathlib import Path
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.unit.audit.retention.test_redact import TrailFolder

SqliteAuditStore.scrub = lambda store: os.kill(os.getpid(), signal.SIGKILL)
TrailFolder(Path(sys.argv[1])).redact(int(sys.argv[2]))
"""


def test_a_run_that_is_killed_before_the_files_are_clean(tmp_path: Path) -> None:
    trail = TrailFolder(tmp_path)
    trail.tell([SandboxDisabled(reason=WORDS), *trails.recipe_verified()])
    trail.store.close()
    child = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "1"], check=False)
    assert child.returncode == -signal.SIGKILL
    trail = TrailFolder(tmp_path)
    with closing(trail.store):
        assert trail.redact(1).finished
        assert WORDS.encode() not in trail.bytes()
        assert len(seqs(trail, PayloadRedacted)) == 1
