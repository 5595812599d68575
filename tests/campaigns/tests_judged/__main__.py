"""``python -m tests.campaigns.tests_judged``: are tests compared, and does a broken function fail them?"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.tests_judged import report
from tests.campaigns.tests_judged.cases import Case, halves, load_cases
from tests.campaigns.tests_judged.drawing import Covering, record_of
from tests.campaigns.tests_judged.results import Row
from tests.campaigns.tests_judged.running import Options, run_case
from tests.eval_repos.clients import Clients
from tests.eval_repos.drawing import records
from tests.measuring.halves import Half, may_look
from tests.measuring.loop import measure, tell_of, tool_options
from tests.measuring.process import end_with_all
from tests.measuring.rows import ROOT, read_page, read_rows, write_rows

#: Clients that are fetched, kept from run to run, never committed.
WORK = ROOT / "bench-results" / "tests-judged"


def main() -> int:
    """0: every case asked for was measured; 1: not so; 2: set aside."""
    arguments = _arguments()
    due = halves()
    if arguments.check:
        return tell_of(
            report.check(read_rows(arguments.folder, Row), read_page(arguments.folder), due)
        )
    if arguments.remake:
        rows = read_rows(arguments.folder, Row)
        write_rows(arguments.folder, rows, report.page(rows))
        return 0
    named = load_cases(arguments.only)
    wanted = {due[case.name] for case in named} if arguments.only else {Half(arguments.half)}
    if not may_look(wanted, "tests_judged", meant=arguments.look_at_what_was_set_aside):
        return 2
    end_with_all()
    return _measure([case for case in named if due[case.name] in wanted], arguments)


def _measure(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    due = halves()
    known = {(row.label, row.name): row for row in read_rows(arguments.folder, Row)}
    again = arguments.again or bool(arguments.only)
    left = [case for case in cases if again or (arguments.label, case.name) not in known]
    published = Covering(records(arguments.data)).records
    arguments.work.mkdir(parents=True, exist_ok=True)
    options = Options(
        clients=Clients(arguments.work.resolve() / "clients"),
        label=arguments.label,
        script=arguments.command.absolute(),
        clones=arguments.clones,
        breaks=not arguments.no_breaks,
    )

    def run(case: Case) -> Row:
        return run_case(case, due[case.name], record_of(published, case.advisory), options)

    def keep(row: Row, which: str) -> None:
        # What another run (of another label) wrote meanwhile is kept.
        rows = {(it.label, it.name): it for it in read_rows(arguments.folder, Row)}
        rows[row.label, row.name] = row
        ordered = [rows[key] for key in sorted(rows)]
        write_rows(arguments.folder, ordered, report.page(ordered))
        broken = row.breaking
        ends = (
            row.no_breaking if broken is None else ("caught" if broken.is_caught else broken.status)
        )
        print(
            f"{which} {row.name}: {row.outcome}; {row.level} {row.cause} ({row.detail[:160]}); "
            f"break: {ends}; {row.seconds:.0f} s",
            flush=True,
        )

    measure(left, run, keep, jobs=1)
    found = {(row.label, row.name) for row in read_rows(arguments.folder, Row)}
    return 0 if all((arguments.label, case.name) in found for case in cases) else 1


def _arguments() -> argparse.Namespace:
    parser = tool_options("python -m tests.campaigns.tests_judged", __doc__, report.FOLDER)
    parser.add_argument("--work", type=Path, default=WORK, help="where fetched clients are kept")
    parser.add_argument("--no-breaks", action="store_true", help="the first measure alone")
    parser.add_argument(
        "--remake", action="store_true", help="run nothing: make the page from the rows"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
