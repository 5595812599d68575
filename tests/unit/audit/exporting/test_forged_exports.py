"""Exports by somebody without the key: what he made up is never taken for what was signed."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.chain import make_link
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import AuditEvent
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting import spool as module
from fallback_audit.exporting.spool import Target, import_export
from fallback_audit.ports import Scope
from fallback_audit.showing.describe import WORDS, shown
from fallback_audit.verifying.verify import verify
from fallback_tier.wiring.trail import RecordSettings, exported_checkpoints
from tests.kinds import OfKind
from tests.unit.audit import trails as t
from tests.unit.audit.exporting.test_export import check, export, lines, sealed, spooled
from tests.unit.audit.signed import TrailFolder

Documents = list[dict[str, Any]]

#: Deeper than Python's own reader of JSON goes.
DEEP = '{"a":' * 100_000


@pytest.fixture(scope="module")
def trail(tmp_path_factory: pytest.TempPathFactory) -> TrailFolder:
    trail = TrailFolder(tmp_path_factory.mktemp("trail"))
    trail.append("fix-0", t.verified_on_retry())
    return trail


def made_up(events: list[AuditEvent], *, after: int, leaf: str) -> Documents:
    """Events as the program would write them, by whoever read its source."""
    found: Documents = []
    for seq, event in enumerate(events, start=after + 1):
        link = make_link(
            Scope(fix_id="fix-0", gate_transition_id="t"),
            event,
            seq=seq,
            previous_leaf=leaf,
            recorded_at="2026-01-02T03:04:05.000006Z",
        )
        leaf = link.event.leaf
        found.append(
            {
                "line": "event",
                "seq": seq,
                "header": link.header.decode(),
                "leaf": leaf,
                "payload": link.payload.decode(),
                "shown": shown(event),
                "proof": None,
            }
        )
    return found


def with_events(documents: Documents, events: Documents) -> bytes:
    rest = [line for line in documents if line["line"] != "event"]
    rest[0] |= {"first_seq": events[0]["seq"], "last_seq": events[-1]["seq"]}
    return sealed([rest[0], *events, *rest[1:]])


@pytest.mark.parametrize("after", [0, 1_000])
def test_events_without_proofs_beside_a_real_checkpoint(trail: TrailFolder, after: int) -> None:
    forged = made_up(t.recipe_verified(), after=after, leaf="0" * 64)
    found = check(trail, with_events(lines(export(trail, "fix-0")), forged))
    assert not found.ok
    assert ("no proof says" if after == 0 else "no checkpoint covers any") in str(found.first_bad)


def test_a_made_up_end_behind_proved_events(trail: TrailFolder) -> None:
    documents = lines(export(trail, "fix-0"))
    real = [line for line in documents if line["line"] == "event"]
    forged = made_up(t.recipe_verified()[-1:], after=1_000, leaf=real[-1]["leaf"])
    found = check(trail, with_events(documents, [*real[:-1], *forged]))
    assert not found.ok
    assert "no checkpoint covers its end" in str(found.checkpoint_problems)


def test_more_events_behind_a_whole_record_than_its_writers_leave(trail: TrailFolder) -> None:
    documents = lines(export(trail))
    real = [line for line in documents if line["line"] == "event"]
    forged = made_up(t.recipe_verified(), after=len(real), leaf=real[-1]["leaf"])
    data = with_events(documents, [*real, *forged])
    for events, problems in ((1, 1), (256, 0)):
        with spooled(trail, data) as spool:
            source = exported_checkpoints(
                RecordSettings(checkpoint_events=events), trail.keyring, *spool.notes()
            )
            found = verify(spool, checkpoints=source)
        assert found.checkpoint_problem_count == problems
        assert found.uncovered_events == len(forged)


def test_words_that_were_not_compared_are_said(trail: TrailFolder) -> None:
    documents = lines(export(trail, "fix-0"))
    assert "not compared" not in str(check(trail, sealed(documents)).notes)
    documents[0]["words"] = WORDS + 1
    documents[1]["shown"] = "all is well"
    assert "was not compared" in check(trail, sealed(documents)).notes[-1]


def test_the_log_that_it_says_it_is_of(trail: TrailFolder) -> None:
    documents = lines(export(trail, "fix-0"))
    documents[0]["origin"] = "example.com/another"
    assert "of the log example.com/another" in str(check(trail, sealed(documents)).first_bad)


def _event(**members: object) -> Callable[[Documents], None]:
    return lambda documents: documents[1].update(members)


def _evidence(documents: Documents) -> None:
    at = next(n for n, line in enumerate(documents) if line["line"] == "checkpoint")
    documents.insert(at, {"line": "evidence", "digest": "a" * 64, "base64": "é"})


@pytest.mark.parametrize("fix_id", [None, "fix-0"])
@pytest.mark.parametrize(
    "change",
    [_event(seq=2**63), _event(header=DEEP), _event(header="[" * 100_000, leaf="x"), _evidence],
)
def test_garbage_is_a_finding(
    trail: TrailFolder, fix_id: str | None, change: Callable[[Documents], None]
) -> None:
    documents = lines(export(trail, fix_id))
    change(documents)
    try:
        found = check(trail, sealed(documents)).ok
    except AuditIntegrityError:  # so far from an event that it is no line of an export
        found = False
    assert not found


def test_a_disk_that_fills_up_while_a_store_is_made(
    trail: TrailFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(module, "_fill", full)
    target = Target(
        tmp_path / "audit.db", CheckpointLog(tmp_path / "log"), FileEvidenceStore(tmp_path / "e")
    )
    with spooled(trail, export(trail)) as spool:
        source = exported_checkpoints(RecordSettings(), trail.keyring, *spool.notes())
        with pytest.raises(AuditStoreError, check=OfKind("disk_full")):
            import_export(spool, source, target)
    assert list(tmp_path.iterdir()) == []


def test_what_is_made_up_is_what_the_program_writes(trail: TrailFolder) -> None:
    """Else the tests above would see no more than a malformed file."""
    events = [event.payload for event in trail.events()]
    real = [line for line in lines(export(trail)) if line["line"] == "event"]
    first = json.loads(real[0]["header"])["previous_leaf"]
    assert made_up(events, after=0, leaf=first) == real
