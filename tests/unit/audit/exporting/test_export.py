"""Exports: byte for byte, proved, readable by people, noticed when cut or changed; and back to a store."""

import hashlib
import io
import json
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_audit.checkpoints.checkpoint import Span
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.merkle import Frontier, inclusion_holds, leaf_hash
from fallback_audit.checkpoints.writer import Checkpointer
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting.export import Exporter, inclusion_paths
from fallback_audit.exporting.proved import verify_fix
from fallback_audit.exporting.spool import Imported, Spool, Target, import_export
from fallback_audit.ports import Record, Scope
from fallback_audit.showing.describe import WORDS, shown
from fallback_audit.stores.sqlite import open_readonly
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.sources import GivenCheckpoints, LogCheckpoints
from fallback_audit.verifying.verify import verify
from tests.kinds import OfKind
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.signed import TrailFolder


@pytest.fixture(scope="module")
def trail(tmp_path_factory: pytest.TempPathFactory) -> TrailFolder:
    trail = TrailFolder(tmp_path_factory.mktemp("trail"))
    trail.append("fix-0", t.verified_on_retry())
    trail.append("fix-1", t.model_with_examples())
    trail.append("fix-2", t.recipe_verified()[:2], cover=False)
    return trail


def export(
    trail: TrailFolder, fix_id: str | None = None, evidence: FileEvidenceStore | None = None
) -> bytes:
    file = io.BytesIO()
    with (
        closing(open_readonly(trail.path, verifiers=trail.keyring.verifiers())) as reader,
        reader.snapshot() as snapshot,
    ):
        exporter = Exporter(
            snapshot, trail.source(), origin=trail.keyring.origin, evidence=evidence
        )
        written = exporter.fix(file, fix_id) if fix_id else exporter.trail(file)
    assert written.sha256 == hashlib.sha256(file.getvalue()).hexdigest()
    return file.getvalue()


def spooled(trail: TrailFolder, data: bytes) -> Spool:
    return Spool(io.BytesIO(data), "the export", trail.keyring.verifiers())


def check(trail: TrailFolder, data: bytes) -> VerificationReport:
    with spooled(trail, data) as spool:
        source = GivenCheckpoints(tuple(spool.notes()), trail.keyring)
        if spool.head.fix_id is not None:
            return verify_fix(spool, source)
        evidence = spool.evidence if spool.has_evidence else None
        return verify(spool, checkpoints=source, evidence=evidence, complete_evidence=False)


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def sealed(documents: list[dict[str, Any]]) -> bytes:
    """The lines again, with an end that agrees: a change that is no accident."""
    body = b"".join(
        json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for line in documents[:-1]
    )
    sorts = [line["line"] for line in documents]
    end = {
        "line": "end",
        "segments": sorts.count("segment"),
        "events": sorts.count("event"),
        "evidence": sorts.count("evidence"),
        "checkpoints": sorts.count("checkpoint"),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return body + json.dumps(end, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def test_a_whole_record_verifies_as_its_store_does(trail: TrailFolder) -> None:
    data = export(trail)
    assert data == export(trail)
    assert sealed(lines(data)) == data
    found, original = check(trail, data), trail.verify()
    assert found.ok, found
    # A file tells nothing of what came after it: only what was kept elsewhere does.
    assert (original.end_known, found.end_known) == (True, False)
    alike = found.model_dump(exclude={"end_known", "notes"})
    assert alike == original.model_dump(exclude={"end_known", "notes"})


def test_each_event_is_byte_for_byte_and_shown_as_audit_show_does(trail: TrailFolder) -> None:
    events = [line for line in lines(export(trail)) if line["line"] == "event"]
    stored = trail.events()
    assert [line["shown"] for line in events] == [shown(event.payload) for event in stored]
    with closing(open_readonly(trail.path)) as reader, reader.snapshot() as snapshot:
        rows = [(row.seq, row.header, row.leaf, row.payload) for row in snapshot.rows()]
    assert rows == [
        (e["seq"], e["header"].encode(), e["leaf"], e["payload"].encode()) for e in events
    ]


def test_both_prompt_shapes_stand_in_what_is_shown(trail: TrailFolder) -> None:
    text = "\n".join(line["shown"] for line in lines(export(trail)) if line["line"] == "event")
    assert "initial LLM run" in text
    assert "fresh LLM run, no RAG: in place of examples, the summary of the last failure" in text
    skipped = next(e.payload for e in trail.events() if e.kind == "RagSkippedOnRetry")
    assert skipped.summary_excerpt in text  # type: ignore[union-attr]


def test_the_words_have_a_version() -> None:
    """Fails when what any event says was changed: raise WORDS then, and put the new digest here."""
    message = "\n".join(
        shown(event)
        for recorded in (t.verified_on_retry(), t.model_with_examples(), m.raised_and_verified())
        for event in recorded
    )
    digest = hashlib.sha256(message.encode()).hexdigest()
    assert {WORDS: digest[:16]} == {4: "b4f93a6d63b7f27e"}


def test_one_fix_is_proved_event_by_event(trail: TrailFolder) -> None:
    for fix, count in (
        ("fix-0", len(t.verified_on_retry())),
        ("fix-1", len(t.model_with_examples())),
    ):
        data = export(trail, fix)
        assert b"fix-2" not in data
        found = check(trail, data)
        assert found.ok, found
        assert (found.events, found.uncovered_events, found.gate_transitions) == (count, 0, 1)
    assert "left out" in found.notes[0]


def test_what_no_checkpoint_covers_is_exported_without_a_proof(trail: TrailFolder) -> None:
    found = check(trail, export(trail, "fix-2"))
    assert found.uncovered_events == 2
    assert found.uncovered_fixes[0].fix_id == "fix-2"
    assert [one.reason for one in found.checkpoint_problems] == [
        "no checkpoint covers any of its events, so nothing shows that the log has it"
    ]


def test_the_export_of_one_fix_says_which_of_its_events_were_found(tmp_path: Path) -> None:
    """Two stood there when their signer came; a later checkpoint says nothing of it."""
    trail = TrailFolder(tmp_path)
    recorded = t.recipe_verified()
    trail.append("fix-1", recorded[:2], cover=False)
    with closing(trail.store()) as store:
        store.append_all(
            [Record(Scope(fix_id="fix-1", gate_transition_id="t"), e) for e in recorded[2:]]
        )
        Checkpointer(store, trail.log, trail.place / "keys").checkpoint([Span(3, len(recorded))])
    trail.append("fix-2", recorded)
    data = export(trail, "fix-1")
    found = check(trail, data)
    assert found.ok, found
    assert found.notes[1].startswith("2 of its events (1, 2) were signed by a run that had not")
    assert len(check(trail, export(trail, "fix-2")).notes) == 1
    # As an export of before: with the last checkpoint alone.
    documents = lines(data)
    first, *_ = (line for line in documents if line["line"] == "checkpoint")
    documents.remove(first)
    assert check(trail, sealed(documents)).notes[1] == (
        f"Of {len(recorded)} of its events ({', '.join(str(n) for n in range(1, 6))}, …) the export does "
        "not show whether the run that signed them had written them."
    )


def test_an_unknown_fix(trail: TrailFolder) -> None:
    with pytest.raises(AuditStoreError, check=OfKind("no_such_fix"), match="fix-9"):
        export(trail, "fix-9")


@given(cut=st.integers(0, 10_000))
@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_a_cut_file_is_noticed(trail: TrailFolder, cut: int) -> None:
    data = export(trail, "fix-1")
    with pytest.raises(AuditIntegrityError):
        check(trail, data[: cut % len(data)])


def test_a_file_with_a_line_taken_out_is_noticed(trail: TrailFolder) -> None:
    whole = export(trail).splitlines(keepends=True)
    for gone in range(len(whole)):
        with pytest.raises(AuditIntegrityError, match="line"):
            check(trail, b"".join(whole[:gone] + whole[gone + 1 :]))


Change = Callable[[list[dict[str, Any]]], object]


def event(number: int, key: str, change: Callable[[str], object]) -> Change:
    def apply(documents: list[dict[str, Any]]) -> None:
        line = [line for line in documents if line["line"] == "event"][number]
        line[key] = change(line[key])

    return apply


CHANGES: dict[str, Change] = {
    "payload": event(4, "payload", lambda text: text.replace("1", "2", 1)),
    "header": event(4, "header", lambda text: text.replace("1", "2", 1)),
    "leaf": event(4, "leaf", lambda text: text[::-1]),
    "shown": event(4, "shown", lambda text: f"{text} and all was well"),
    "seq": event(-1, "seq", lambda seq: int(seq) + 1),
    "checkpoint": lambda d: d[-2].update(note=d[-2]["note"].replace("\n36\n", "\n35\n")),
    "no checkpoints": lambda d: d.__setitem__(
        slice(None), [line for line in d if line["line"] != "checkpoint"]
    ),
    "base": lambda d: d[0].update(base={"seq": 3, "leaf": "0" * 64, "frontier": []}),
    "range": lambda d: d[0].update(last_seq=d[0]["last_seq"] + 1),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("fix", [None, "fix-1"])
def test_a_change_with_an_end_that_agrees_is_caught(
    trail: TrailFolder, name: str, fix: str | None
) -> None:
    documents = lines(export(trail, fix))
    CHANGES[name](documents)
    found = check(trail, sealed(documents))
    assert not found.ok
    assert found.first_bad is not None


def test_an_event_left_out_of_the_middle_is_caught(trail: TrailFolder) -> None:
    documents = lines(export(trail))
    documents.remove(next(line for line in documents if line.get("seq") == 5))
    found = check(trail, sealed(documents))
    assert found.first_bad is not None
    assert found.first_bad.seq == 6


def test_an_event_of_another_fix_and_a_moved_proof_are_caught(trail: TrailFolder) -> None:
    ours, theirs = lines(export(trail, "fix-1")), lines(export(trail, "fix-0"))
    mixed = [ours[0] | {"first_seq": theirs[1]["seq"]}, theirs[1], *ours[1:]]
    assert not check(trail, sealed(mixed)).ok
    ours[1]["proof"], ours[2]["proof"] = ours[2]["proof"], ours[1]["proof"]
    found = check(trail, sealed(ours))
    assert [problem.seq for problem in found.integrity_problems] == [ours[1]["seq"], ours[2]["seq"]]
    assert {problem.kind for problem in found.integrity_problems} == {"another_root"}


def test_other_words_are_not_held_to_ours(trail: TrailFolder) -> None:
    documents = lines(export(trail))
    documents[0]["words"] = WORDS + 1
    for line in documents[1:]:
        if line["line"] == "event":
            line["shown"] = "said otherwise then"
    assert check(trail, sealed(documents)).ok


@pytest.mark.parametrize(
    ("first", "kind", "value"),
    [
        ({"format": "another"}, "malformed_line", "format"),
        ({"version": 2}, "newer_version", " 2 "),
        ({"extra": 1}, "malformed_line", "extra"),
    ],
)
def test_another_format_is_refused(
    trail: TrailFolder, first: dict[str, Any], kind: str, value: str
) -> None:
    documents = lines(export(trail))
    documents[0] |= first
    with pytest.raises(AuditIntegrityError, check=OfKind(kind), match=value):
        check(trail, sealed(documents))


# --- Proofs ---------------------------------------------------------------------------------------


@given(size=st.integers(1, 70), data=st.data())
@settings(max_examples=60, deadline=None)
def test_paths_of_many_events_in_one_pass(size: int, data: st.DataObject) -> None:
    headers = [random.Random(number).randbytes(40) for number in range(size)]
    sealed_away = data.draw(st.integers(0, size - 1))
    seqs = sorted(data.draw(st.sets(st.integers(sealed_away + 1, size), min_size=1)))
    base, whole = Frontier(), Frontier()
    for number, header in enumerate(headers):
        whole.append(header)
        if number < sealed_away:
            base.append(header)
    paths, root = inclusion_paths(seqs, size, headers[sealed_away:], base)
    assert root == whole.root()
    for seq in seqs:
        leaf = leaf_hash(headers[seq - 1])
        assert inclusion_holds(leaf, index=seq - 1, size=size, path=paths[seq], root=root)


# --- Evidence, import -----------------------------------------------------------------------------


def target(folder: Path) -> Target:
    return Target(
        folder / "audit.db",
        CheckpointLog(folder / "checkpoints"),
        FileEvidenceStore(folder / "evidence"),
    )


def import_(trail: TrailFolder, data: bytes, folder: Path) -> Imported:
    with spooled(trail, data) as spool:
        source = GivenCheckpoints(tuple(spool.notes()), trail.keyring)
        return import_export(spool, source, target(folder))


def test_an_import_is_the_same_record(trail: TrailFolder, tmp_path: Path) -> None:
    evidence = FileEvidenceStore(tmp_path / "evidence")
    for content in ("patch 1", "summary 1"):
        evidence.put(content.encode())
    data = export(trail, evidence=evidence)
    found = check(trail, data)
    assert (found.ok, found.evidence_checked) == (True, 3)
    assert "not in this export" in found.notes[-1]
    done = import_(trail, data, tmp_path / "new")
    assert done == Imported(events=len(trail.events()), checkpoints=2, evidence=2)
    copy = TrailFolder(tmp_path / "new")
    with closing(open_readonly(copy.path)) as reader:
        found = verify(
            reader,
            checkpoints=LogCheckpoints(copy.log, trail.keyring),
        )
        assert found.ok, found
        assert found.model_dump() == trail.verify().model_dump()
    assert {file.name for file in copy.place.iterdir()} == {"audit.db", "checkpoints", "evidence"}
    assert copy.path.stat().st_mode & 0o777 == 0o600


def test_prompts_answers_and_judgements_are_in_no_export(tmp_path: Path) -> None:
    """Private by the events that name them: their files are as others."""
    trail = TrailFolder(tmp_path / "record")
    trail.place.mkdir()
    events = [
        event.model_copy(update={"prompt_evidence": t.digest("a prompt")})
        if event.kind == "ModelCalled"
        else event
        for event in m.raised_and_verified()
    ]
    trail.append("fix-0", events)
    evidence = FileEvidenceStore(tmp_path / "evidence")
    private = {"a prompt", "whole answer author 1", "whole answer judge 1", "judgement of 2"}
    for content in private | {"patch 1"}:
        evidence.put(content.encode())
    for fix_id in (None, "fix-0"):
        documents = lines(export(trail, fix_id, evidence))
        held = [it["digest"] for it in documents if it["line"] == "evidence"]
        assert held == [t.digest("patch 1")]


def test_an_import_is_never_mixed_with_another_record(trail: TrailFolder, tmp_path: Path) -> None:
    data = export(trail)
    import_(trail, data, tmp_path / "new")
    with pytest.raises(AuditStoreError, check=OfKind("store_exists")):
        import_(trail, data, tmp_path / "new")
    other = TrailFolder(tmp_path / "other")
    (tmp_path / "other").mkdir()
    other.append("fix-9", t.recipe_verified())
    other.path.unlink()
    with pytest.raises(AuditStoreError, check=OfKind("another_record")):
        import_(trail, data, tmp_path / "other")


def test_what_does_not_verify_is_not_imported(trail: TrailFolder, tmp_path: Path) -> None:
    documents = lines(export(trail))
    documents[3]["payload"] = documents[3]["payload"].replace("1", "2", 1)
    with pytest.raises(AuditIntegrityError, check=OfKind("not_verified")):
        import_(trail, sealed(documents), tmp_path / "new")
    with pytest.raises(AuditStoreError, check=OfKind("one_fix_only")):
        import_(trail, export(trail, "fix-0"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_interrupted_import_can_be_done_again(trail: TrailFolder, tmp_path: Path) -> None:
    place = target(tmp_path / "new")
    with pytest.MonkeyPatch.context() as patched:

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr("fallback_audit.exporting.spool.os.link", fail)
        with pytest.raises(AuditStoreError):
            import_(trail, export(trail), tmp_path / "new")
    assert not place.database.exists()
    assert not list((tmp_path / "new").glob(".import-*"))
    assert import_(trail, export(trail), tmp_path / "new").events == len(trail.events())


def test_a_record_with_sealed_and_redacted_events_goes_over_and_back(tmp_path: Path) -> None:
    trail = TrailFolder(tmp_path / "trail")
    trail.place.mkdir()
    for number in range(2):
        trail.append(f"fix-{number}", t.verified_on_retry())
    last = len(t.verified_on_retry())
    trail.seal(last)
    seq = next(e.seq for e in trail.events() if e.kind == "AttemptFailed")
    trail.redact(seq, "summary_excerpt")
    data = export(trail)
    found = check(trail, data)
    assert found.ok, found
    assert (found.sealed_events, found.redacted_events) == (last, 1)
    import_(trail, data, tmp_path / "new")
    copy = TrailFolder(tmp_path / "new")
    with closing(open_readonly(copy.path, verifiers=trail.keyring.verifiers())) as reader:
        source = LogCheckpoints(copy.log, trail.keyring)
        found = verify(reader, checkpoints=source)
        assert found.ok, found
    for fix in ("fix-1", "audit"):
        found = check(trail, export(trail, fix))
        assert (found.ok, found.sealed_events) == (True, last)
