"""What two runs must have alike for one to say something of the other."""

from dataclasses import replace

import pytest

from fallback_plugins.shared.installation import Installed, Level

FOUND = Installed(Level.IN_PART, (("a==1", "no wheel"), ("b==1", "gone")), step="all of it")


@pytest.mark.parametrize(
    ("other", "is_alike"),
    [
        (replace(FOUND, step="all of it, as uv reads it"), False),
        (replace(FOUND, how=("on Python 3.8",)), False),
        (replace(FOUND, declined=FOUND.declined[:1]), False),
        (replace(FOUND, declined=FOUND.declined[::-1]), True),
        (replace(FOUND, built=("c 1",), unbuilt=(("d 1", "no compiler"),)), True),
    ],
)
def test_runs_are_compared_by_how_their_trees_were_installed(
    other: Installed, is_alike: bool
) -> None:
    assert (other.compared == FOUND.compared) is is_alike
