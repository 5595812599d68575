"""``python -m tests.proofs``: real packages at vulnerable versions, fixed and proved end to end."""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.proofs import report
from tests.proofs.cases import Case, load_cases
from tests.proofs.running import Result, published_records, run_case


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
    with ThreadPoolExecutor(arguments.jobs) as pool:
        running = {pool.submit(run_case, case, published): case for case in wanted}
        for done, future in enumerate(as_completed(running), start=1):
            if error := future.exception():  # a client or the registry: no result of the case
                print(f"{running[future].name}: {error}", file=sys.stderr, flush=True)
                continue
            result = future.result()
            known[result.name] = result
            # Kept as each ends: a run that was stopped goes on where it was.
            report.write((one for one in known.values() if one.name in names), arguments.folder)
            _tell(result, done, len(wanted), as_json=arguments.json)
    return 0 if all(case.name in known and known[case.name].ok for case in cases) else 1


def _check(folder: Path) -> int:
    digests = {case.name: case.digest for case in load_cases()}
    place = folder / report.REPORT
    page = place.read_text(encoding="utf-8") if place.exists() else ""
    found = report.check(report.read(folder), page, digests)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def _is_done(result: Result | None, case: Case) -> bool:
    return result is not None and result.ok and result.case_sha256 == case.digest


def _tell(result: Result, done: int, total: int, *, as_json: bool) -> None:
    if as_json:
        print(result.model_dump_json(), flush=True)
        return
    said = "; ".join(result.problems) or f"{result.resolved}, attempt {result.attempts}"
    print(f"{done}/{total} {result.name}: {said} ({result.seconds:.0f} s)", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a case")
    parser.add_argument("--again", action="store_true", help="run also what holds already")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases side by side")
    parser.add_argument("--json", action="store_true", help="one JSON object a case")
    parser.add_argument("--check", action="store_true", help="run nothing: does all fit together?")
    parser.add_argument("--folder", type=Path, default=report.FOLDER, help="results and report")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
