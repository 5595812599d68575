"""Which of several fixes hold together, found by halves: pure, so that it can be counted."""

from collections.abc import Callable, Sequence
from typing import TypeVar

UnitT = TypeVar("UnitT")


def most_that_hold(
    units: Sequence[UnitT], holds: Callable[[tuple[UnitT, ...]], bool]
) -> tuple[UnitT, ...]:
    """As many units as ``holds`` accepts in one set, in their order; empty where it accepts none.

    ``holds`` has accepted exactly the set that is returned, and has refused that set with any one of the
    others added. It is asked for the whole first. It should remember its answers: a set may come again.
    """
    held: list[int] = []

    def try_with(some: Sequence[int]) -> bool:
        more = sorted({*held, *some})
        if holds(tuple(units[number] for number in more)):
            held[:] = more
            return True
        return False

    def take(some: Sequence[int]) -> None:
        if not try_with(some) and len(some) > 1:
            middle = len(some) // 2
            take(some[:middle])
            take(some[middle:])

    everyone = range(len(units))
    if units:
        take(everyone)
    # What failed beside less may hold beside more.
    while any(try_with([number]) for number in everyone if number not in held):
        pass
    return tuple(units[number] for number in held)
