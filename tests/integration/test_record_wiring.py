"""The record as everything that writes gets it: judged, checkpointed, refused where it can't be kept."""

from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.checkpoints.checkpoint import Span, others
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.errors import CheckpointError, ContractError
from fallback_audit.events import AppendFlagged, AttemptFailed, FixResumed, SigningKeyRotated
from fallback_audit.ports import MAINTENANCE, Record, Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.verifying.verify import verify
from fallback_tier.wiring.trail import (
    OnViolation,
    RecordSettings,
    audit_db,
    checkpoint_dir,
    open_bare,
    open_trail,
    read_checkpoints,
    read_trail,
)
from tests.unit.audit.trails import (
    SCOPE,
    fix_started,
    recipe_verified,
    verified_on_retry,
)

SIGNED = SigningKeyRotated(old_vkey="a", new_vkey="b", by="Ada", reason="why")
RESUMED = FixResumed(after="FixStarted", tool_version="0")


def record(place: Path, **more: object) -> RecordSettings:
    return RecordSettings.model_validate({"keys": place / "keys", **more})


def sizes(place: Path, settings: RecordSettings) -> list[int]:
    return list(CheckpointLog(checkpoint_dir(place, settings)).sizes())


def test_a_log_has_a_checkpoint_from_its_first_event_on(tmp_path: Path) -> None:
    """So that a trail without any was robbed of it, also where the first fix was killed."""
    settings = record(tmp_path)
    with closing(open_trail(tmp_path, settings)) as store:
        first, *others = recipe_verified()
        store.append(SCOPE, first)
        assert sizes(tmp_path, settings) == [1]
        for event in others:
            store.append(SCOPE, event)
        assert sizes(tmp_path, settings) == [1, 1 + len(others)]


def found(place: Path, settings: RecordSettings) -> list[Span]:
    """What the checkpoints say was found."""
    checked = CheckpointLog(checkpoint_dir(place, settings)).checked(Keyring.load(place / "keys"))
    return [span for one in checked if one.signed for span in one.signed.checkpoint.found]


def test_the_end_of_an_attempt_is_covered(tmp_path: Path) -> None:
    settings = record(tmp_path)
    with closing(open_trail(tmp_path, settings)) as store:
        for event in verified_on_retry():
            last = store.append(SCOPE, event).seq
            if isinstance(event, AttemptFailed):
                assert sizes(tmp_path, settings) == [1, last]
    assert sizes(tmp_path, settings)[-1] == last
    assert found(tmp_path, settings) == []


def forge(place: Path, fix: str) -> Span:
    """Whoever has the file, and no key: a whole fix that keeps the contract, chained as it should be."""
    with closing(SqliteAuditStore(audit_db(place))) as store:
        scope = Scope(fix_id=fix, gate_transition_id="t")
        forged = store.append_all([Record(scope, event) for event in recipe_verified()])
    return Span(forged[0].seq, forged[-1].seq)


def test_what_a_run_did_not_write_is_signed_as_found(tmp_path: Path) -> None:
    """Before it came, while it was at work, and before its last checkpoint; its own events never."""
    settings = record(tmp_path)
    with closing(open_trail(tmp_path, settings)) as store:
        for event in recipe_verified():
            store.append(SCOPE, event)
    forged = [forge(tmp_path, "forged-1")]
    first, *rest = recipe_verified()
    with closing(open_trail(tmp_path, settings)) as store:
        scope = Scope(fix_id="fix-2", gate_transition_id="t")
        store.append(scope, first)
        forged.append(forge(tmp_path, "forged-2"))
        store.append_all([Record(scope, event) for event in rest[:-1]])
        store.store.append(MAINTENANCE, SIGNED)  # as a keeper does
        forged.append(forge(tmp_path, "forged-3"))
        store.append(scope, rest[-1])
    assert found(tmp_path, settings) == forged
    with closing(read_trail(tmp_path, settings)) as reader:
        report = verify(reader, checkpoints=read_checkpoints(tmp_path, settings))
    assert report.ok, report
    (note,) = report.notes
    ranges = ", ".join(f"{span.first} to {span.last}" for span in forged)
    assert note.startswith(
        f"{3 * len(recipe_verified())} events ({ranges}) were signed by a run that had "
    )
    assert "the trail does not say why" in note


@pytest.mark.parametrize("is_resumed", [True, False])
def test_interrupted_run_is_named_as_the_cause(tmp_path: Path, is_resumed: bool) -> None:
    """A run is killed before its first checkpoint; the run that resumes it, or another one, signs."""
    settings = record(tmp_path)
    first, *rest = recipe_verified()
    begun, at = [first, FixResumed(after=first.kind, tool_version="0"), *rest], 1
    bare = open_bare(tmp_path, settings)
    scope = Scope(fix_id="fix-killed", gate_transition_id="t")
    bare.append_all([Record(scope, event) for event in begun[:at]])
    bare.close()
    with closing(open_trail(tmp_path, settings)) as store:
        if is_resumed:
            store.append_all([Record(scope, event) for event in begun[at:]])
        else:
            store.append_all([Record(SCOPE, event) for event in recipe_verified()])
    with closing(read_trail(tmp_path, settings)) as reader:
        report = verify(reader, checkpoints=read_checkpoints(tmp_path, settings))
    assert report.ok, report
    (note,) = report.notes
    assert f"the run of fix-killed was interrupted after event {at}" in note
    assert (f"{at + 1} resumed it" in note) is is_resumed
    assert "does not say why" not in note


def test_a_person_who_signs_wrote_nothing(tmp_path: Path) -> None:
    """`audit checkpoint`, and keepers before they take anything away."""
    settings = record(tmp_path)
    with closing(open_trail(tmp_path, settings)) as store:
        store.append(SCOPE, fix_started())
    span = forge(tmp_path, "forged")
    with closing(open_trail(tmp_path, settings)) as store:
        store.checkpoint()
    assert found(tmp_path, settings) == [span]


def test_what_is_none_of_ours() -> None:
    wrote = (Span(3, 4), Span(7, 9))
    assert others(wrote, after=0, upto=9) == (Span(1, 2), Span(5, 6))
    assert others(wrote, after=3, upto=12) == (Span(5, 6), Span(10, 12))
    assert others(wrote, after=7, upto=8) == ()
    assert others((), after=2, upto=2) == ()


def test_without_a_place_for_checkpoints_nothing_is_begun(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    settings = record(tmp_path, checkpoints=tmp_path / "taken")
    with closing(open_trail(tmp_path, settings)) as store:
        with pytest.raises(CheckpointError, match="taken"):
            store.append(SCOPE, fix_started())
        assert store.tip()[0] == 0


def test_what_breaks_the_contract_is_refused(tmp_path: Path) -> None:
    settings = record(tmp_path)
    with closing(open_trail(tmp_path, settings)) as store:
        with pytest.raises(ContractError, match="resumes-are-of-open-fixes"):
            store.append(SCOPE, RESUMED)
        assert store.tip()[0] == 0


def test_or_flagged_where_that_was_chosen(tmp_path: Path) -> None:
    settings = record(tmp_path, on_violation=OnViolation.FLAG)
    with closing(open_trail(tmp_path, settings)) as store:
        store.append(SCOPE, RESUMED)
    with closing(read_trail(tmp_path, settings)) as reader:
        payloads = [stored.payload for stored in reader.events()]
    assert payloads[0] == RESUMED
    assert {flag.rule for flag in payloads[1:] if isinstance(flag, AppendFlagged)} >= {
        "resumes-are-of-open-fixes"
    }
