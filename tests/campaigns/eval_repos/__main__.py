"""``python -m tests.campaigns.eval_repos``: whole runs of ``fix`` over repositories, beside peers."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fallback_eval.campaign import Campaign, measure
from tests.campaigns.eval_repos import report
from tests.campaigns.eval_repos.advisories import read_published
from tests.campaigns.eval_repos.cases import Case, load_cases
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.history import faults, read_history, state
from tests.campaigns.eval_repos.results import Result
from tests.campaigns.eval_repos.running import Options, look_at_base, run_case
from tests.campaigns.measuring.pages import ROOT
from tests.campaigns.measuring.process import end_with_all
from tests.campaigns.measuring.tool import tool_options
from tests.registry.upstream import Upstream

#: Clients that are fetched, and caches: kept from run to run, never committed.
WORK = ROOT / "bench-results" / "repos"


def main() -> int:
    """0: every case asked for was measured, and none has a false "fixed"; 1: not so; 2: set aside."""
    arguments = _parser().parse_args()
    if arguments.state:
        print(f"{len(state(load_cases()))} forms stated")
        return 0
    if arguments.bases:
        # The tool does not run: that is no look at what it makes of the half set aside.
        arguments.look_at_what_was_set_aside = True
        return _bases(CAMPAIGN.chosen(arguments) or (), arguments)
    return CAMPAIGN.run(arguments)


def _bases(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    """Make each base and look at it: the tool isn't run. 0: all are as their cases say."""
    end_with_all()
    published = read_published(arguments.data, {name for it in cases for name in it.advisories})
    chosen, good = _options(arguments), []

    def keep(hit: tuple[str, list[str], str], which: str) -> None:
        good.append(hit[0])
        print(f"{which} {hit[0]}: {', '.join(hit[1]) or hit[2]}", flush=True)

    measure(cases, lambda case: look_at_base(case, published, chosen), keep, jobs=arguments.jobs)
    return 0 if len(good) == len(cases) else 1


def _prepare(arguments: argparse.Namespace, due: Sequence[Case]) -> Callable[[Case], Result]:
    end_with_all()
    stated = {(one.name, one.expected_sha256) for one in read_history()}
    published = read_published(arguments.data, {name for case in due for name in case.advisories})
    options = _options(arguments) if due else None

    def run(case: Case) -> Result:
        if (case.name, case.expected_sha256) not in stated:
            raise RuntimeError("state what is expected first (--state), and commit it")
        assert options is not None
        return run_case(case, published, options)

    return run


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


def _faults(rows: Sequence[Result]) -> Iterable[str]:
    cases, history = load_cases(), read_history()
    digests = {case.name: (case.sha256, case.part) for case in cases}
    stated = [(one.name, one.expected_sha256) for one in history]
    return [
        *faults(cases, history),
        *report.check(rows, digests, stated),
        *report.missed(rows),
    ]


def _sentence(result: Result) -> str:
    problems = "; ".join(f"{one.kind}: {one.detail[:160]}" for one in result.verdict.problems)
    peers = ", ".join(f"{one.peer} {'serves' if one.serves else 'not'}" for one in result.peers)
    return (
        f"{result.told.outcome} {' '.join(result.told.reasons)}; "
        f"{problems or 'right'}; plan {'differs' if result.unlike else 'agrees'}; "
        f"{result.lines} lines; {peers or 'no peers'}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = tool_options("python -m tests.campaigns.eval_repos", __doc__, report.FOLDER)
    parser.add_argument("--work", type=Path, default=WORK, help="where fetched clients are kept")
    parser.add_argument("--skip-peers", action="store_true", help="the tool alone")
    parser.add_argument(
        "--state", action="store_true", help="run nothing: state what is expected of new cases"
    )
    parser.add_argument(
        "--bases", action="store_true", help="make the bases and look at them, without the tool"
    )
    return parser


CAMPAIGN = Campaign(
    name="eval_repos",
    parser=_parser,
    rows=report.ROWS,
    cases=load_cases,
    key=lambda case, arguments: (arguments.label, case.name),
    prepare=_prepare,
    is_done=lambda row, case, _: row is not None and row.case_sha256 == case.sha256,
    sentence=_sentence,
    holds=lambda row: not row.is_false_fixed,
    faults=_faults,
    half_of=lambda case: case.half,
)

if __name__ == "__main__":
    sys.exit(main())
