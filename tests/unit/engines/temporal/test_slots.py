"""How many fixes a worker asks for."""

from typing import Any, cast

import pytest

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from fallback_tier.engines.temporal.worker import RoomForFixes

CONTEXT = cast(Any, None)


def test_open_fixes_and_those_that_are_being_opened_take_room() -> None:
    opened = [1]
    room = RoomForFixes(2, lambda: opened[0])
    assert room.try_reserve_slot(CONTEXT) is not None
    assert room.try_reserve_slot(CONTEXT) is None
    room.release_slot(CONTEXT)
    opened[0] = 2
    assert room.try_reserve_slot(CONTEXT) is None
    opened[0] = 1
    assert room.try_reserve_slot(CONTEXT) is not None


def test_a_worker_that_can_open_none_asks_for_none() -> None:
    """It would fail with each at once, and be the first to ask for the next."""
    can = [False]
    room = RoomForFixes(2, lambda: 0, lambda: can[0])
    assert room.try_reserve_slot(CONTEXT) is None
    can[0] = True
    assert room.try_reserve_slot(CONTEXT) is not None
