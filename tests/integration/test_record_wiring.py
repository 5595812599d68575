"""The record as everything that writes gets it: judged, checkpointed, refused where it can't be kept."""

from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.errors import CheckpointError, ContractError
from fallback_audit.events import AppendFlagged, FixResumed
from fallback_tier.wiring.trail import (
    OnViolation,
    RecordSettings,
    checkpoint_dir,
    open_trail,
    read_trail,
)
from tests.unit.audit.trails import SCOPE, fix_started, recipe_verified

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
