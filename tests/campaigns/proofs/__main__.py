"""``python -m tests.campaigns.proofs``: real packages at vulnerable versions, fixed and proved."""

import argparse
import sys
from pathlib import Path

from tests.campaigns.measuring.loop import measure, options, tell_of
from tests.campaigns.measuring.rows import read_page
from tests.campaigns.proofs import report
from tests.campaigns.proofs.cases import Case, load_cases
from tests.campaigns.proofs.running import Result, published_records, run_case


def main() -> int:
    """0: all that was asked holds; 1: not."""
    arguments = _arguments()
    cases = load_cases(arguments.only)
    if arguments.check:
        return _check(arguments.folder)
    known = {result.name: result for result in report.read(arguments.folder)}
    wanted = [
        case
        for case in cases
        if arguments.again or not _is_done(known.get(case.name), case) or arguments.only
    ]
    published = published_records()
    names = {case.name for case in load_cases()}

    def keep(result: Result, which: str) -> None:
        known[result.name] = result
        # Kept as each ends: a run that was stopped goes on where it was.
        report.write((one for one in known.values() if one.name in names), arguments.folder)
        _tell(result, which, as_json=arguments.json)

    measure(wanted, lambda case: run_case(case, published), keep, jobs=arguments.jobs)
    return 0 if all(case.name in known and known[case.name].ok for case in cases) else 1


def _check(folder: Path) -> int:
    digests = {case.name: case.digest for case in load_cases()}
    return tell_of(report.check(report.read(folder), read_page(folder), digests))


def _is_done(result: Result | None, case: Case) -> bool:
    return result is not None and result.ok and result.case_sha256 == case.digest


def _tell(result: Result, which: str, *, as_json: bool) -> None:
    if as_json:
        print(result.model_dump_json(), flush=True)
        return
    message = "; ".join(result.problems) or f"{result.resolved}, attempt {result.attempts}"
    print(f"{which} {result.name}: {message} ({result.seconds:.0f} s)", flush=True)


def _arguments() -> argparse.Namespace:
    return options("python -m tests.campaigns.proofs", __doc__, report.FOLDER).parse_args()


if __name__ == "__main__":
    sys.exit(main())
