"""Many alike: the suite runs a choice of them, ``make test-campaign`` the rest, ``make test-all`` all."""

from collections.abc import Iterable

import pytest


def a_choice(all_of_them: Iterable[object], *, step: int) -> list[pytest.ParameterSet]:
    """Every ``step``-th runs with the suite, from the first on; the others are marked ``campaign``.

    A tuple is the values of one run. Of products, a step that shares no factor with the sizes meets every
    value.
    """
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)),
            marks=[pytest.mark.campaign] if number % step else [],
        )
        for number, one in enumerate(all_of_them)
    ]
