"""Many alike: the suite runs a choice of them, ``make test-all`` every one."""

from collections.abc import Sequence

import pytest


def a_choice(names: Sequence[str], *, step: int) -> list[str | pytest.ParameterSet]:
    """Every ``step``-th runs with the suite, from the first on; the others are marked ``campaign``."""
    return [
        name if not number % step else pytest.param(name, marks=pytest.mark.campaign)
        for number, name in enumerate(names)
    ]
