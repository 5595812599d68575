"""``python -m tests.campaigns.own_code``: real packages in their own repositories, with known answers."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from fallback_eval.campaign import Campaign
from tests.campaigns.measuring.process import end_with_all
from tests.campaigns.measuring.tool import tool_options
from tests.campaigns.own_code import report
from tests.campaigns.own_code.cases import Case, load_cases, read_records
from tests.campaigns.own_code.results import Result
from tests.campaigns.own_code.running import Options, run_case


def _options() -> argparse.ArgumentParser:
    parser = tool_options("python -m tests.campaigns.own_code", __doc__, report.FOLDER)
    parser.add_argument(
        "--skip-wrong",
        action="store_true",
        help="true fixes only: (a) to (c); the wrong answers of an earlier run stay, with its day",
    )
    return parser


def _prepare(arguments: argparse.Namespace, due: Sequence[Case]) -> Callable[[Case], Result]:
    end_with_all()
    records = read_records(arguments.data) if due else {}
    options = Options(
        label=arguments.label,
        script=arguments.command.absolute(),
        clones=arguments.clones,
        skip_wrong=arguments.skip_wrong,
    )
    return lambda case: run_case(case, records[(case.record, case.fix_commit)], options)


def _is_done(row: Result | None, case: Case, arguments: argparse.Namespace) -> bool:
    return (
        row is not None
        and row.case_sha256 == case.digest
        and (arguments.skip_wrong or not row.wrong_skipped)
    )


def _sentence(result: Result) -> str:
    stopped, shown = result.stopped, result.first
    message = (
        "proved" if stopped is None else f"{stopped.stop} [{stopped.what}] {stopped.said[:120]}"
    )
    seen = "no prompt" if shown is None else f"{shown.lines_shown}/{shown.lines} lines shown"
    return (
        f"{message}; tests {'ran' if result.tests.ran else 'not'}, "
        f"proof {'ran' if result.proof.ran else 'not'}; {seen}; {result.false_fixed} false fixed"
    )


def _faults(rows: Sequence[Result]) -> Iterable[str]:
    return report.check(rows, {case.name: (case.digest, case.half) for case in load_cases()})


#: It holds where no end says fixed and nothing shows it.
CAMPAIGN = Campaign(
    name="own_code",
    parser=_options,
    rows=report.ROWS,
    cases=load_cases,
    key=lambda case, arguments: (arguments.label, case.name),
    prepare=_prepare,
    is_done=_is_done,
    sentence=_sentence,
    holds=lambda row: row.false_fixed == 0,
    faults=_faults,
    half_of=lambda case: case.half,
    follow=Result.beside,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
