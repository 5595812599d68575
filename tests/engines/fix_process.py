"""The process of one fix of a scenario: ``python -m tests.engines.fix_process``."""

from collections.abc import Iterator
from contextlib import contextmanager

from fallback_tier.engines.opened import OpenedFix
from fallback_tier.engines.temporal.fix_process import serve_standard_input
from tests.engines.scenario import scenario_of


@contextmanager
def opened(order: bytes) -> Iterator[OpenedFix]:
    scenario, fix_id = scenario_of(order)
    with scenario.opened(fix_id) as fix:
        yield fix


if __name__ == "__main__":
    serve_standard_input(opened)
