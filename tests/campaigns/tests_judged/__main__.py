"""``python -m tests.campaigns.tests_judged``: are tests compared, and does a broken function fail them?"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from fallback_eval.campaign import Campaign
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.drawing import records
from tests.campaigns.measuring.pages import ROOT
from tests.campaigns.measuring.process import end_with_all
from tests.campaigns.measuring.tool import tool_options
from tests.campaigns.tests_judged import report
from tests.campaigns.tests_judged.cases import Case, halves, load_cases
from tests.campaigns.tests_judged.drawing import Covering, record_of
from tests.campaigns.tests_judged.results import Row
from tests.campaigns.tests_judged.running import Options, bench

#: Clients that are fetched, kept from run to run, never committed.
WORK = ROOT / "bench-results" / "tests-judged"

_halves = cache(halves)


def _prepare(arguments: argparse.Namespace, due: Sequence[Case]) -> Callable[[Case], Row]:
    end_with_all()
    published = Covering(records(arguments.data)).records if due else {}
    arguments.work.mkdir(parents=True, exist_ok=True)
    options = Options(
        clients=Clients(arguments.work.resolve() / "clients"),
        label=arguments.label,
        script=arguments.command.absolute(),
        clones=arguments.clones,
    )
    half_of, again = _halves(), arguments.again or bool(arguments.only)
    known = report.ROWS.by_key(arguments.folder)

    def run(case: Case) -> Row:
        """Measure the case unless it has a row, then break a function."""
        row = known.get((options.label, case.name))
        if again and not arguments.breaks_alone:
            row = None
        record = record_of(published, case.advisory)
        with bench(case, half_of[case.name], record, options) as laid_out:
            if row is None:
                row = laid_out.measure()
                # The break takes as long again: a stop during it does not lose the row.
                report.ROWS.keep(row, arguments.folder)
            if row.is_breakable and not arguments.no_breaks:
                row = laid_out.broken(row)
        return row

    return run


def _is_done(row: Row | None, _: Case, arguments: argparse.Namespace) -> bool:
    if row is None:
        return bool(arguments.breaks_alone)
    return arguments.no_breaks or not row.is_breakable


def _sentence(row: Row) -> str:
    if row.breaking is not None:
        return f"break {report.break_of(row)}"
    return f"{row.outcome}; {row.level} {row.cause} ({row.detail[:160]})"


def _faults(rows: Sequence[Row]) -> Iterable[str]:
    return report.check(rows, _halves())


def _options() -> argparse.ArgumentParser:
    parser = tool_options("python -m tests.campaigns.tests_judged", __doc__, report.FOLDER)
    parser.add_argument("--work", type=Path, default=WORK, help="where fetched clients are kept")
    parser.add_argument("--no-breaks", action="store_true", help="break no function")
    parser.add_argument("--breaks-alone", action="store_true", help="of cases with a row alone")
    return parser


CAMPAIGN = Campaign(
    name="tests_judged",
    parser=_options,
    rows=report.ROWS,
    cases=load_cases,
    key=lambda case, arguments: (arguments.label, case.name),
    prepare=_prepare,
    is_done=_is_done,
    sentence=_sentence,
    faults=_faults,
    half_of=lambda case: _halves()[case.name],
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
