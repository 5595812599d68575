"""Room is judged by the fullest disk of those that are used."""

from pathlib import Path

import pytest

from fallback_tier.observing.health import checks as module
from fallback_tier.observing.health.checks import Room, disk, room
from fallback_tier.observing.health.running import CheckState

GIB = 1024**3


def test_room_is_that_of_the_disk_that_would_hold_a_folder(tmp_path: Path) -> None:
    assert room(tmp_path / "not" / "there" / "yet").free_bytes > 0


@pytest.mark.parametrize(
    ("found", "state", "says"),
    [
        (Room(3 * GIB, 10**6), CheckState.OK, "3.0 GiB are free"),
        (Room(3 * GIB, None), CheckState.OK, "3.0 GiB are free"),
        (Room(3 * GIB // 2, 10**6), CheckState.DEGRADED, "below 1.0 GiB no fix is begun"),
        (Room(GIB // 2, 10**6), CheckState.FAILED, "a fix may need 1.0 GiB"),
        (Room(3 * GIB, 19_999), CheckState.FAILED, "19,999 more files fit"),
    ],
)
def test_what_is_free_is_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Room,
    state: CheckState,
    says: str,
) -> None:
    monkeypatch.setattr(
        module, "room", lambda folder: found if folder == tmp_path else Room(9 * GIB, None)
    )
    reported = disk([tmp_path / "other", tmp_path], GIB)
    assert reported.state is state
    assert says in (
        reported.reason
        if state is not CheckState.OK
        else f"{found.free_bytes / GIB:.1f} GiB are free"
    )
    if state is not CheckState.OK:
        assert str(tmp_path) in reported.reason
        assert reported.next_step


def test_the_least_is_the_callers() -> None:
    assert disk([], 10**18).state is CheckState.FAILED
    assert disk([], 0).state is CheckState.OK
