"""The report's folder: whole or not there, and nothing is overwritten."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fallback_tier.errors import ConfigurationError, PatchError
from fallback_tier.handover.folder import check_folder, handover_files, write_folder
from tests.fakes.repository import context
from tests.kinds import OfKind
from tests.unit.handover.verified import DIFF, TESTS, advisory, verified

AT = datetime(2026, 11, 22, tzinfo=UTC)


def test_the_files(tmp_path: Path) -> None:
    repo = context(tmp_path / "shop", {"a.txt": "one\n"})
    files = handover_files(
        verified(TESTS), advisory(), repo, tool_version="0.1.0", at=AT, commit="c" * 40
    )
    write_folder(tmp_path / "report", files)
    found = {place.name: place.read_text() for place in (tmp_path / "report").iterdir()}
    assert set(found) == {"patch.diff", "pull-request.md", "openvex.json", "cyclonedx.json"}
    assert found["patch.diff"] == DIFF
    assert json.loads(found["openvex.json"])["statements"][0]["products"][0]["@id"] == (
        f"pkg:generic/shop@{'c' * 40}"
    )
    assert list(tmp_path.glob(".*")) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "mine").write_text("mine")
    with pytest.raises(ConfigurationError, check=OfKind("exists")):
        check_folder(tmp_path / "report")
    with pytest.raises(PatchError):
        write_folder(tmp_path / "report", {"patch.diff": "x"})
    assert [place.name for place in (tmp_path / "report").iterdir()] == ["mine"]
    assert [place.name for place in tmp_path.iterdir()] == ["report"]


def test_a_place_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("no_parent")):
        check_folder(tmp_path / "no" / "report")
    check_folder(tmp_path / "report")


def test_half_a_report_is_removed(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="report"):
        write_folder(tmp_path / "report", {"patch.diff": "x", "patch.diff/y": "y"})
    assert list(tmp_path.iterdir()) == []
