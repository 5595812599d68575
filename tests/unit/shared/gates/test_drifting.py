"""Which of the packages that moved are not the patch's doing."""

import pytest

from fallback_plugins.shared.gates.drifting import not_by_patch

EDGES = {("app", "left"), ("left", "low"), ("low", "lower"), ("app", "alone")}


@pytest.mark.parametrize(
    ("moved", "left"),
    [
        ({"left", "low", "lower"}, []),
        ({"left", "lower"}, ["lower"]),  # what stands between did not move
        ({"left", "alone", "far"}, ["alone", "far"]),
        ({"app", "left", "alone"}, []),
        (set(), []),
    ],
)
def test_beside_what_it_moves_is_what_asks_for_it_or_is_asked_for(
    moved: set[str], left: list[str]
) -> None:
    assert not_by_patch(moved, EDGES, {"left"}) == left
