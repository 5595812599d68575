"""``python -m tests.campaigns.proofs``: real packages at vulnerable versions, fixed and proved."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from fallback_eval.campaign import Campaign, parser_of
from tests.campaigns.proofs import report
from tests.campaigns.proofs.cases import Case, load_cases
from tests.campaigns.proofs.running import Result, published_records, run_case


def _prepare(_: argparse.Namespace, __: Sequence[Case]) -> Callable[[Case], Result]:
    published = published_records()
    return lambda case: run_case(case, published)


def _sentence(result: Result) -> str:
    return "; ".join(result.problems) or f"{result.resolved}, attempt {result.attempts}"


def _faults(rows: Sequence[Result]) -> Iterable[str]:
    return report.check(rows, {case.name: case.digest for case in load_cases()})


CAMPAIGN = Campaign(
    name="proofs",
    parser=partial(parser_of, "python -m tests.campaigns.proofs", __doc__, report.FOLDER),
    rows=report.ROWS,
    cases=load_cases,
    key=lambda case, _: case.name,
    prepare=_prepare,
    is_done=lambda row, case, _: row is not None and row.ok and row.case_sha256 == case.digest,
    sentence=_sentence,
    holds=lambda row: row.ok,
    faults=_faults,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
