"""``python -m tests.campaigns.own_code``: real packages in their own repositories, with known answers."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaigns.measuring.halves import Half, may_look
from tests.campaigns.measuring.loop import measure, tell_of, tool_options
from tests.campaigns.measuring.process import end_with_all
from tests.campaigns.measuring.rows import read_page
from tests.campaigns.own_code import report
from tests.campaigns.own_code.cases import Case, Record, load_cases, read_records
from tests.campaigns.own_code.results import Result
from tests.campaigns.own_code.running import Options, run_case

Key = tuple[str, str]


def main() -> int:
    """0: every case asked for was measured, and no end says fixed where nothing shows it; 1: not so."""
    arguments = _arguments()
    half = Half(arguments.half)
    if not may_look([half], "own_code", meant=arguments.look_at_what_was_set_aside):
        return 2
    if arguments.check:
        return _check(arguments.folder)
    if arguments.remake:
        names = {case.name for case in load_cases()}
        rows = [row for row in report.read(arguments.folder) if row.name in names]
        report.write(rows, arguments.folder, report.read_drawn())
        return 0
    end_with_all()
    cases = tuple(one for one in load_cases(arguments.only) if one.half is half)
    return _measure(cases, arguments)


def _measure(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    label, chosen = arguments.label, _options(arguments)
    known = {(row.label, row.name): row for row in report.read(arguments.folder)}
    again = arguments.again or bool(arguments.only)
    wanted = [
        case for case in cases if again or not _is_done(known.get((label, case.name)), case, chosen)
    ]
    records = read_records(arguments.data) if wanted else {}

    def keep(result: Result, which: str) -> None:
        _keep(result, known, arguments.folder)
        _tell(result, which, as_json=arguments.json)

    measure(
        wanted,
        lambda case: run_case(case, _record(case, records), chosen),
        keep,
        jobs=arguments.jobs,
    )
    found = [known.get((label, case.name)) for case in cases]
    return 0 if all(row is not None and row.false_fixed == 0 for row in found) else 1


def _keep(result: Result, known: dict[Key, Result], folder: Path) -> None:
    """Each row as its case ends: a run that was stopped goes on where it was.

    What another run (of another label) wrote meanwhile is kept.
    """
    known |= {(row.label, row.name): row for row in report.read(folder)}
    key = (result.label, result.name)
    known[key] = result.beside(known.get(key))
    report.write(known.values(), folder, report.read_drawn())


def _record(case: Case, records: Mapping[Key, Record]) -> Record:
    return records[(case.record, case.fix_commit)]


def _is_done(row: Result | None, case: Case, options: Options) -> bool:
    return (
        row is not None
        and row.case_sha256 == case.digest
        and (options.skip_wrong or not row.wrong_skipped)
    )


def _options(arguments: argparse.Namespace) -> Options:
    return Options(
        label=arguments.label,
        script=arguments.command.absolute(),
        clones=arguments.clones,
        skip_wrong=arguments.skip_wrong,
    )


def _check(folder: Path) -> int:
    digests = {case.name: (case.digest, case.half) for case in load_cases()}
    found = report.check(report.read(folder), read_page(folder), digests, report.read_drawn())
    return tell_of(found)


def _tell(result: Result, which: str, *, as_json: bool) -> None:
    if as_json:
        print(result.model_dump_json(), flush=True)
        return
    stopped = result.stopped
    message = (
        "proved" if stopped is None else f"{stopped.stop} [{stopped.what}] {stopped.said[:120]}"
    )
    shown = result.first
    seen = "no prompt" if shown is None else f"{shown.lines_shown}/{shown.lines} lines shown"
    print(
        f"{which} {result.name}: {message}; tests {'ran' if result.tests.ran else 'not'}, "
        f"proof {'ran' if result.proof.ran else 'not'}; {seen}; {result.false_fixed} false fixed "
        f"({result.seconds:.0f} s)",
        flush=True,
    )


def _arguments() -> argparse.Namespace:
    parser = tool_options("python -m tests.campaigns.own_code", __doc__, report.FOLDER)
    parser.add_argument(
        "--skip-wrong",
        action="store_true",
        help="true fixes only: (a) to (c); the wrong answers of an earlier run stay, with its day",
    )
    parser.add_argument(
        "--remake",
        action="store_true",
        help="run nothing: the page anew, without rows of cases that are gone",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
