"""``python -m tests.campaigns.tests_judged``: are tests compared, and does a broken function fail them?"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fallback_eval.campaign import Half, may_look
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.drawing import records
from tests.campaigns.measuring.loop import check_disk, tell_of, tool_options
from tests.campaigns.measuring.process import end_with_all
from tests.campaigns.measuring.rows import ROOT, read_page, read_rows, write_rows
from tests.campaigns.tests_judged import report
from tests.campaigns.tests_judged.cases import Case, halves, load_cases
from tests.campaigns.tests_judged.drawing import Covering, record_of
from tests.campaigns.tests_judged.results import Row
from tests.campaigns.tests_judged.running import Options, bench

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
    """Measure each case that has no row, then break a function: one after the other."""
    due, again = halves(), arguments.again or bool(arguments.only)
    published = Covering(records(arguments.data)).records
    arguments.work.mkdir(parents=True, exist_ok=True)
    options = Options(
        clients=Clients(arguments.work.resolve() / "clients"),
        label=arguments.label,
        script=arguments.command.absolute(),
        clones=arguments.clones,
    )
    missing = 0
    for case in cases:
        row = None if again else _rows(arguments.folder).get((arguments.label, case.name))
        is_whole = row is not None and (arguments.no_breaks or not row.is_breakable)
        if is_whole or (arguments.breaks_alone and row is None):
            continue
        check_disk()
        record = record_of(published, case.advisory)
        try:
            with bench(case, due[case.name], record, options) as laid_out:
                if row is None:
                    row = _keep(laid_out.measure(), arguments.folder)
                if row.is_breakable and not arguments.no_breaks:
                    _keep(laid_out.broken(row), arguments.folder)
        except (RuntimeError, OSError) as error:
            missing += 1
            print(f"{case.name}: {error!r}", file=sys.stderr, flush=True)
    return 1 if missing else 0


def _rows(folder: Path) -> dict[tuple[str, str], Row]:
    return {(row.label, row.name): row for row in read_rows(folder, Row)}


def _keep(row: Row, folder: Path) -> Row:
    """Write the row with those that another run (of another label) wrote meanwhile."""
    rows = {**_rows(folder), (row.label, row.name): row}
    ordered = [rows[key] for key in sorted(rows)]
    write_rows(folder, ordered, report.page(ordered))
    ends = f"{row.outcome}; {row.level} {row.cause} ({row.detail[:160]})"
    if row.breaking is not None:
        ends = f"break {report.break_of(row)}"
    print(f"{row.name}: {ends}; {row.seconds:.0f} s", flush=True)
    return row


def _arguments() -> argparse.Namespace:
    parser = tool_options("python -m tests.campaigns.tests_judged", __doc__, report.FOLDER)
    parser.add_argument("--work", type=Path, default=WORK, help="where fetched clients are kept")
    parser.add_argument("--no-breaks", action="store_true", help="break no function")
    parser.add_argument("--breaks-alone", action="store_true", help="of cases with a row alone")
    parser.add_argument(
        "--remake", action="store_true", help="run nothing: make the page from the rows"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
