"""What is printed of a file in an environment is the same wherever the environment lies."""

from pathlib import Path

import pytest

from fallback_plugins.shared.gates.gating import placeless

#: Two trees' environments, one of them in a folder with a space.
PLACES = (
    Path("/state/cache/installed/python-12ab/installed"),
    Path("/my home/python-34cd/installed"),
)


@pytest.mark.parametrize(
    "shown",
    [
        "{}/lib/a.py:1: error: odd",
        'File "{}/lib/a.py", line 1',
        "{}/a.py {}/b.py",
        "[{}]",
        "PATH={}/bin:/usr/bin:{}/sbin",
        "nothing of it\n\n",
        "",
    ],
)
def test_one_word_stands_for_each_place(shown: str) -> None:
    wanted = shown.replace("{}", "/there")
    for place in PLACES:
        assert placeless(shown.replace("{}", str(place)), place, "/there") == wanted
        away = f"../../x/{place.parent.name}/{place.name}"
        assert placeless(shown.replace("{}", away), place, "/there") == wanted


def test_another_place_stays_as_it_is() -> None:
    """So does a release's own number: what fails otherwise is another failure."""
    here, other = PLACES
    text = f"{other}/a.py: needs left 1.0, {here.parent}/more, python-12ab"
    assert placeless(text, here, "/there") == text


def test_a_long_line_without_a_space_takes_no_longer_than_others() -> None:
    """A log is a target's own: the work grows with its length alone."""
    long = "../" * 300_000 + "python-12ab/installed"
    assert placeless(long, PLACES[0], "/there") == "/there"
