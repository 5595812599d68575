"""The draw is the seed's alone, and finds the records of what is installed."""

import pytest

from tests.campaigns.eval_repos.cases import DRAWS, Facts, load_cases
from tests.campaigns.eval_repos.drawing import WANTED, advisory, matching, names


def test_the_seed_decides_the_order_of_each_list_of_the_frame() -> None:
    assert sum(WANTED.values()) == 10
    for seed in DRAWS:
        assert names(seed) == names(seed)
        assert names(seed).keys() == WANTED.keys()
    first, second, third = (names(seed)["package-lock.json"][:2] for seed in DRAWS)
    assert first == ["0-0Dibakar/Success-Sprout", "0-Adz/NoteDown-backend"]
    assert second == ["0-2HERO/Team6Project", "0-0v0lts/save_point"]
    assert third == ["0-AI-UG/cate", "0-0Jia/learnWebpack"]
    with pytest.raises(ValueError):
        names("another-seed")


def test_a_draw_leaves_out_what_earlier_draws_took_and_nothing_else() -> None:
    for number, seed in enumerate(DRAWS[1:], start=1):
        taken = {case.repo for case in load_cases() if case.draw in DRAWS[:number]}
        assert len(taken) == 10 * number
        for path, order in names(seed).items():
            assert set(names(DRAWS[0])[path]) - set(order) == taken & set(names(DRAWS[0])[path])


def test_an_advisory_is_drawn_from_those_that_match_whatever_their_order() -> None:
    seed = DRAWS[0]
    assert advisory(seed, "acme/app", ["A", "B", "C"]) == advisory(
        seed, "acme/app", ["C", "A", "B"]
    )
    drawn = {advisory(seed, f"acme/{number}", ["A", "B"]) for number in range(20)}
    assert drawn == {"A", "B"}
    with pytest.raises(IndexError):
        advisory(seed, "acme/app", [])


def test_a_record_covers_an_installed_version_or_only_names_its_package() -> None:
    left = Facts(id="A", summary="left", affected={"left": (("0", "2.0.0"),)}).osv("npm")
    right = Facts(id="B", summary="right", affected={"right": (("0", "2.0.0"),)}).osv("npm")
    held = [("left", "1.0.0"), ("right", "2.0.0")]
    assert matching([left, right], "npm", held) == ({"A"}, {"A", "B"})
    assert matching([left, right], "PyPI", held) == (set(), set())
