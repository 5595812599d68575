"""Which of several fixes hold together: what is returned was accepted, nothing that would hold is left out,
and it costs no more than it should."""

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.fix.batch.running import most_that_hold

Holds = Callable[[tuple[int, ...]], bool]


class Asked:
    """Remembers what it was asked, as its callers do."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self.answers: dict[tuple[int, ...], bool] = {}

    def __call__(self, units: tuple[int, ...]) -> bool:
        if units not in self.answers:
            self.answers[units] = self._holds(units)
        return self.answers[units]


def without(*bad: int) -> Asked:
    return Asked(lambda units: not set(units) & set(bad))


@given(st.integers(0, 9), st.data())
def test_each_that_fails_by_itself_is_left_out_and_no_other(
    count: int, data: st.DataObject
) -> None:
    bad = data.draw(st.sets(st.integers(0, 9)))
    found = most_that_hold(range(count), without(*bad))
    assert found == tuple(unit for unit in range(count) if unit not in bad)


@given(st.integers(1, 7), st.data())
def test_whatever_the_answers_only_what_was_accepted_is_returned(
    count: int, data: st.DataObject
) -> None:
    sets = [it for size in range(1, count + 1) for it in combinations(range(count), size)]
    accepted = data.draw(st.sets(st.sampled_from(sets)))
    asked = Asked(lambda units: units in accepted)
    found = most_that_hold(range(count), asked)
    assert found == () or asked.answers[found]
    for unit in set(range(count)) - set(found):
        assert asked.answers[tuple(sorted((*found, unit)))] is False


def test_what_failed_beside_less_holds_beside_more() -> None:
    """0 needs 2, and 1 breaks everything: 0 fails alone and beside 1, and holds beside 2."""
    asked = Asked(lambda units: 1 not in units and (0 not in units or 2 in units))
    assert most_that_hold(range(3), asked) == (0, 2)


@pytest.mark.parametrize(
    ("count", "most"), [(1, 1), (2, 2), (4, 5), (8, 7), (16, 9), (32, 11)], ids=str
)
def test_one_that_fails_costs_little(count: int, most: int) -> None:
    """As ADR-0051 says; where it failed only beside others, its run by itself comes to that."""
    for bad in range(count):
        asked = without(bad)
        most_that_hold(range(count), asked)
        assert len(asked.answers) + ((bad,) not in asked.answers) <= max(most, 1 + (count > 1) * 2)


def test_where_all_hold_they_are_asked_for_once() -> None:
    asked = without()
    assert most_that_hold(range(32), asked) == tuple(range(32))
    assert len(asked.answers) == 1
    assert most_that_hold((), asked) == ()
