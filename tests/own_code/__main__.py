"""``python -m tests.own_code``: real packages in their own repositories, mended with known answers."""

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.own_code import report
from tests.own_code.cases import Case, Half, Record, load_cases, read_records
from tests.own_code.command import SCRIPT, end_all
from tests.own_code.results import Result
from tests.own_code.running import Options, run_case

Key = tuple[str, str]


def main() -> int:
    """0: every case asked for was measured, and no end says fixed where nothing shows it; 1: not so."""
    arguments = _arguments()
    half = Half(arguments.half)
    if half is Half.SET_ASIDE and not arguments.look_at_what_was_set_aside:
        print("own_code: that half is set aside, to be looked at once.", file=sys.stderr)
        print("  next: Say --look-at-what-was-set-aside where now is that time.", file=sys.stderr)
        return 2
    if arguments.check:
        return _check(arguments.folder)
    if arguments.remake:
        names = {case.name for case in load_cases()}
        rows = [row for row in report.read(arguments.folder) if row.name in names]
        report.write(rows, arguments.folder, report.read_drawn())
        return 0
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, _ended)
    cases = tuple(one for one in load_cases(arguments.only) if one.half is half)
    return _measure(cases, arguments)


def _ended(number: int, _frame: object) -> None:
    """At once, and with what was started: a run that was cut short is no result."""
    end_all()
    os._exit(128 + number)


def _measure(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    label, options = arguments.label, _options(arguments)
    known = {(row.label, row.name): row for row in report.read(arguments.folder)}
    again = arguments.again or bool(arguments.only)
    wanted = [
        case
        for case in cases
        if again or not _is_done(known.get((label, case.name)), case, options)
    ]
    records = read_records(arguments.data) if wanted else {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        running = {
            pool.submit(run_case, case, _record(case, records), options): case for case in wanted
        }
        for done, future in enumerate(as_completed(running), start=1):
            if error := future.exception():  # its repository, or the harness: no result of the case
                print(f"{running[future].name}: {error!r}", file=sys.stderr, flush=True)
                continue
            result = future.result()
            _keep(result, known, arguments.folder)
            _tell(result, done, len(wanted), as_json=arguments.json)
    found = [known.get((label, case.name)) for case in cases]
    return 0 if all(row is not None and row.false_fixed == 0 for row in found) else 1


def _keep(result: Result, known: dict[Key, Result], folder: Path) -> None:
    """Each row as its case ends: a run that was stopped goes on where it was.

    What another run (of another label) wrote meanwhile is kept.
    """
    known |= {(row.label, row.name): row for row in report.read(folder)}
    known[(result.label, result.name)] = result
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
    place = folder / report.REPORT
    page = place.read_text(encoding="utf-8") if place.exists() else ""
    found = report.check(report.read(folder), page, digests, report.read_drawn())
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def _tell(result: Result, done: int, total: int, *, as_json: bool) -> None:
    if as_json:
        print(result.model_dump_json(), flush=True)
        return
    stopped = result.stopped
    said = "proved" if stopped is None else f"{stopped.stop} [{stopped.what}] {stopped.said[:120]}"
    shown = result.first
    seen = "no prompt" if shown is None else f"{shown.lines_shown}/{shown.lines} lines shown"
    print(
        f"{done}/{total} {result.name}: {said}; tests {'ran' if result.tests.ran else 'not'}, "
        f"proof {'ran' if result.proof.ran else 'not'}; {seen}; {result.false_fixed} false fixed "
        f"({result.seconds:.0f} s)",
        flush=True,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.own_code", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the data sets")
    parser.add_argument(
        "--clones", type=Path, metavar="DIR", help="bare clones, OWNER+NAME.git each"
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a case")
    parser.add_argument("--half", choices=[*map(str, Half)], default=str(Half.SEEN))
    parser.add_argument("--look-at-what-was-set-aside", action="store_true", help="mean it")
    parser.add_argument("--command", type=Path, default=SCRIPT, help="another fallback-tier")
    parser.add_argument("--label", default="now", help="of the rows that this run makes")
    parser.add_argument("--skip-wrong", action="store_true", help="true fixes only: (a) to (c)")
    parser.add_argument("--again", action="store_true", help="run also what has a row already")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases side by side")
    parser.add_argument("--json", action="store_true", help="one JSON object a case")
    parser.add_argument("--check", action="store_true", help="run nothing: does all fit together?")
    parser.add_argument(
        "--remake",
        action="store_true",
        help="run nothing: the page anew, without rows of cases that are gone",
    )
    parser.add_argument("--folder", type=Path, default=report.FOLDER, help="results and report")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
