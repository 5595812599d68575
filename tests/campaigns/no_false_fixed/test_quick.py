"""The seen half, run by this checkout's tool and judged: cases whose clients need no fetching, no peers."""

from pathlib import Path

import pytest

from tests.campaigns.no_false_fixed.__main__ import run_ours
from tests.campaigns.no_false_fixed.case import Case, Half, Outcome, load_cases
from tests.campaigns.no_false_fixed.peers import programs

#: Clients that are on every machine that runs the tests.
_HERE = {"npm", "pip", "uv"}

#: Cases that end otherwise than expected today. Who makes one right takes its line away.
RED = frozenset({"pip-other-ecosystem-advisory", "pip-uvx-in-makefile"})

CASES = [case for case in load_cases(half=Half.SEEN) if case.client in _HERE]


@pytest.mark.sandbox
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case_ends_as_an_engineer_expects(
    case: Case, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if case.id in RED:
        request.applymarker(pytest.mark.xfail(strict=True, reason="in docs/no-false-fixed.md"))
    clients, missing = programs(tmp_path, fetched=())
    (ours,) = run_ours(case, clients).runs
    assert not missing
    assert ours.outcome == Outcome.AS_EXPECTED, ours
