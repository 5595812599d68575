"""``python -m tests.campaigns.eval_repos``: whole runs of ``fix`` over repositories, beside peers."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.eval_repos import report
from tests.campaigns.eval_repos.advisories import read_published
from tests.campaigns.eval_repos.cases import Case, load_cases
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.history import faults, read_history, state
from tests.campaigns.eval_repos.results import Result
from tests.campaigns.eval_repos.running import Options, look_at_base, run_case
from tests.campaigns.measuring.halves import Half, may_look
from tests.campaigns.measuring.loop import measure, tell_of, tool_options
from tests.campaigns.measuring.process import end_with_all
from tests.campaigns.measuring.rows import ROOT, read_page
from tests.registry.upstream import Upstream

#: Clients that are fetched, and caches: kept from run to run, never committed.
WORK = ROOT / "bench-results" / "repos"


def main() -> int:
    """0: every case asked for was measured, and none has a false "fixed"; 1: not so."""
    arguments = _arguments()
    if arguments.check:
        return _check(arguments.folder)
    if arguments.state:
        print(f"{len(state(load_cases()))} forms stated")
        return 0
    if arguments.remake:
        names = {case.name for case in load_cases()}
        report.write(
            (row for row in report.read(arguments.folder) if row.name in names), arguments.folder
        )
        return 0
    half = Half(arguments.half)
    named = load_cases(arguments.only)
    halves = {case.half for case in named} if arguments.only else {half}
    meant = arguments.look_at_what_was_set_aside or arguments.bases
    if not may_look(halves, "eval_repos", meant=meant):
        return 2
    end_with_all()
    if arguments.bases:
        return _bases([case for case in named if case.half in halves], arguments)
    return _measure([case for case in named if case.half in halves], arguments)


def _bases(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    """Make each base and look at it: the tool isn't run. 0: all are as their cases say."""
    published = read_published(arguments.data, {name for it in cases for name in it.advisories})
    chosen, good = _options(arguments), []

    def keep(hit: tuple[str, list[str], str], which: str) -> None:
        good.append(hit[0])
        print(f"{which} {hit[0]}: {', '.join(hit[1]) or hit[2]}", flush=True)

    measure(cases, lambda case: look_at_base(case, published, chosen), keep, jobs=arguments.jobs)
    return 0 if len(good) == len(cases) else 1


def _measure(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    known = {(row.label, row.name): row for row in report.read(arguments.folder)}
    stated = {(one.name, one.expected_sha256) for one in read_history()}
    again = arguments.again or bool(arguments.only)
    wanted = []
    for case in cases:
        if (case.name, case.expected_sha256) not in stated:
            print(
                f"{case.name}: state what is expected first (--state), and commit it",
                file=sys.stderr,
            )
        elif again or not _is_done(known.get((arguments.label, case.name)), case):
            wanted.append(case)
    published = read_published(
        arguments.data, {name for case in wanted for name in case.advisories}
    )
    chosen = _options(arguments) if wanted else None

    def run(case: Case) -> Result:
        assert chosen is not None
        return run_case(case, published, chosen)

    def keep(result: Result, which: str) -> None:
        # What another run (of another label) wrote meanwhile is kept.
        known.update({(row.label, row.name): row for row in report.read(arguments.folder)})
        known[(result.label, result.name)] = result
        report.write(known.values(), arguments.folder)
        _tell(result, which, as_json=arguments.json)

    measure(wanted, run, keep, jobs=arguments.jobs)
    found = [known.get((arguments.label, case.name)) for case in cases]
    return 0 if all(row is not None and not row.is_false_fixed for row in found) else 1


def _is_done(row: Result | None, case: Case) -> bool:
    return row is not None and row.case_sha256 == case.sha256


def _options(arguments: argparse.Namespace) -> Options:
    arguments.work.mkdir(parents=True, exist_ok=True)
    return Options(
        clients=Clients(arguments.work.resolve() / "clients"),
        label=arguments.label,
        script=arguments.command.absolute(),
        clones=arguments.clones,
        npm=Upstream.discover().npm,
        with_peers=not arguments.skip_peers,
    )


def _check(folder: Path) -> int:
    cases, history = load_cases(), read_history()
    digests = {case.name: (case.sha256, case.part) for case in cases}
    stated = [(one.name, one.expected_sha256) for one in history]
    rows = report.read(folder)
    found = [*faults(cases, history), *report.check(rows, read_page(folder), digests, stated)]
    return tell_of([*found, *report.missed(rows)])


def _tell(result: Result, which: str, *, as_json: bool) -> None:
    if as_json:
        print(result.model_dump_json(), flush=True)
        return
    problems = "; ".join(f"{one.kind}: {one.detail[:160]}" for one in result.verdict.problems)
    peers = ", ".join(f"{one.peer} {'serves' if one.serves else 'not'}" for one in result.peers)
    print(
        f"{which} {result.name}: {result.told.outcome} {' '.join(result.told.reasons)}; "
        f"{problems or 'right'}; plan {'differs' if result.unlike else 'agrees'}; "
        f"{result.lines} lines; {peers or 'no peers'} ({result.seconds:.0f} s)",
        flush=True,
    )


def _arguments() -> argparse.Namespace:
    parser = tool_options("python -m tests.campaigns.eval_repos", __doc__, report.FOLDER)
    parser.add_argument("--work", type=Path, default=WORK, help="where fetched clients are kept")
    parser.add_argument("--skip-peers", action="store_true", help="the tool alone")
    parser.add_argument(
        "--state", action="store_true", help="run nothing: state what is expected of new cases"
    )
    parser.add_argument(
        "--bases", action="store_true", help="make the bases and look at them, without the tool"
    )
    parser.add_argument("--remake", action="store_true", help="run nothing: the page anew")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
