"""The draw is the seed's alone, and finds the records of what is installed."""

import pytest

from tests.eval_repos.cases import Facts
from tests.eval_repos.drawing import WANTED, advisory, matching, names


def test_the_seed_decides_the_order_of_each_list_of_the_frame() -> None:
    assert names() == names()
    assert names().keys() == WANTED.keys()
    assert sum(WANTED.values()) == 10
    assert names()["package-lock.json"][:2] == [
        "0-0Dibakar/Success-Sprout",
        "0-Adz/NoteDown-backend",
    ]


def test_an_advisory_is_drawn_from_those_that_match_whatever_their_order() -> None:
    assert advisory("acme/app", ["A", "B", "C"]) == advisory("acme/app", ["C", "A", "B"])
    drawn = {advisory(f"acme/{number}", ["A", "B"]) for number in range(20)}
    assert drawn == {"A", "B"}
    with pytest.raises(IndexError):
        advisory("acme/app", [])


def test_a_record_covers_an_installed_version_or_only_names_its_package() -> None:
    left = Facts(id="A", summary="left", affected={"left": (("0", "2.0.0"),)}).osv("npm")
    right = Facts(id="B", summary="right", affected={"right": (("0", "2.0.0"),)}).osv("npm")
    held = [("left", "1.0.0"), ("right", "2.0.0")]
    assert matching([left, right], "npm", held) == ({"A"}, {"A", "B"})
    assert matching([left, right], "PyPI", held) == (set(), set())
