"""``fallback-tier eval retry``: the comparison of retry policies: run, report, check."""

import argparse
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from fallback_audit.showing.describe import visible
from fallback_eval.cli.reporting import add_kept_report, print_check
from fallback_tier.cli import exit_codes
from fallback_tier.cli.arguments import dollars
from fallback_tier.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fallback_eval.retry.calls import Server
    from fallback_eval.retry.run import RetryCase
    from fallback_eval.retry.study import Estimate, StudyFolder
    from fallback_tier.budget.prices import Prices


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run."""
    parser.add_argument(
        "--tasks",
        metavar="DIR",
        default="tests/campaigns/retry/tasks",
        help="folder of the tasks (default: %(default)s)",
    )
    add_kept_report(
        parser,
        "docs/evaluation/retry",
        report_help="where rows, answers and report are kept",
        check_help="does the report follow from the rows, and is every answer kept?",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="run nothing: print what is due, and what it may cost",
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="run what has a row again from kept answers alone, without weights, into --into",
    )
    parser.add_argument("--into", metavar="DIR", help="an empty folder for the rows of --replay")
    parser.add_argument("--pilot", action="store_true", help="the cases of the pilot alone")
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="one case, TASK.POLICY.SEED; may be given again",
    )
    parser.add_argument(
        "--base-url",
        metavar="URL",
        help="a running llama-server of this machine, which answers; with --max-usd any server that "
        "speaks the Messages API (key: FALLBACK_TIER_API_KEY)",
    )
    parser.add_argument(
        "--model",
        default="qwen2.5-coder-1.5b-instruct-q4_k_m",
        metavar="NAME",
        help="its model, as recorded; another one needs another --report (default: %(default)s)",
    )
    parser.add_argument(
        "--max-usd",
        type=dollars,
        metavar="DOLLARS",
        help="ask --model through the Messages API (key: ANTHROPIC_API_KEY) until this sum is spent",
    )
    parser.add_argument(
        "--price",
        metavar="IN:OUT",
        help="of a model without a known price: dollars per million tokens",
    )
    parser.add_argument(
        "--like",
        metavar="DIR",
        default="docs/evaluation/retry",
        help="a run from which cost is estimated while --report has none (default: %(default)s)",
    )


def retry(arguments: argparse.Namespace) -> int:
    """Run what was not run yet (or nothing: --check, --again, --estimate), and make the report. 6 if cases
    are left that could not be run to their end."""
    from fallback_eval.retry.study import StudyFolder

    folder, left = StudyFolder(Path(arguments.report), Path(arguments.tasks)), 0
    if arguments.check:
        return _check(arguments, folder.faults())
    if arguments.replay:
        return _replay(arguments, folder)
    if not arguments.again:
        due = _due(arguments, folder)
        _print_estimate(arguments, folder, due)
        if arguments.estimate:
            return exit_codes.OK
        _run(arguments, folder, due)
        left = len(_due(arguments, folder))
    folder.publish()
    if arguments.json:
        print_json({"report": str(folder.path), "rows": len(folder.rows()), "left": left})
    else:
        sys.stdout.write(f"report: {visible(str(folder.path / 'report.md'))}\n")
    return exit_codes.ENVIRONMENT if left else exit_codes.OK


def _due(arguments: argparse.Namespace, folder: "StudyFolder") -> "list[RetryCase]":
    from fallback_eval.retry.study import PILOT_SEED, ROWS, is_done, load_cases

    rows = ROWS.by_key(folder.path)
    cases = load_cases(folder.root, arguments.only)
    return [
        case
        for case in cases
        if not is_done(rows.get(case.name), case)
        and (case.seed == PILOT_SEED or not arguments.pilot)
    ]


def _print_estimate(
    arguments: argparse.Namespace, folder: "StudyFolder", due: "Sequence[RetryCase]"
) -> None:
    """Print what the due cases may cost, before any of it is spent."""
    from fallback_eval.retry.study import StudyFolder, estimate

    known = folder if folder.rows() else StudyFolder(Path(arguments.like), folder.root)
    found: Estimate = estimate(due, known.rows(), known.calls())
    usd = _dollars(arguments, found)
    if arguments.json:
        if arguments.estimate:
            print_json({**vars(found), "dollars": None if usd is None else float(usd)})
        return
    sys.stdout.write(f"{found.cases} cases are due")
    if found.calls is None:
        sys.stdout.write("; no case was run yet, so what they cost is not known\n")
        return
    cost = f"{(found.seconds or 0) / 3600:.1f} hours of a server like that of the earlier cases"
    if usd is not None:
        cost = f"{usd:.2f} dollars"
    sys.stdout.write(
        f": about {found.calls:.0f} answers, {found.input_tokens:.0f} tokens read and "
        f"{found.output_tokens:.0f} written, {cost}\n"
    )
    sys.stdout.flush()


def _dollars(arguments: argparse.Namespace, found: "Estimate") -> Decimal | None:
    """Return what that costs with a key; None without one, or where nothing is known."""
    from fallback_tier.ports import Usage

    if arguments.max_usd is None or found.input_tokens is None or found.output_tokens is None:
        return None
    usage = Usage(input_tokens=round(found.input_tokens), output_tokens=round(found.output_tokens))
    return _prices(arguments).cost(arguments.model, usage)


def _prices(arguments: argparse.Namespace) -> "Prices":
    """Return the prices. Raises ConfigurationError for a model without one: nothing could stop it."""
    from fallback_tier.errors import ConfigurationError
    from fallback_tier.wiring import Configuration
    from fallback_tier.wiring.models import prices

    found = prices(Configuration(state_dir=Path(), price=arguments.price))
    if not found.knows(arguments.model):
        raise ConfigurationError(
            f"--max-usd needs the price of {arguments.model!r}, which is not known.",
            next_step="Say it with --price IN:OUT, in dollars per million tokens.",
            kind="no_price",
        )
    return found


def _server(arguments: argparse.Namespace) -> "Server | None":
    """Return what answers new requests. Raises ConfigurationError."""
    from fallback_eval.retry.calls import LlamaServer, PaidServer, check_loopback
    from fallback_tier.cli.options import OTHER_KEY, PROVIDER_KEY
    from fallback_tier.wiring import Configuration
    from fallback_tier.wiring.models import build_author

    if arguments.max_usd is None:
        return arguments.base_url and LlamaServer(check_loopback(arguments.base_url))
    key = os.environ.get(OTHER_KEY if arguments.base_url else PROVIDER_KEY)
    author = build_author(
        Configuration(
            state_dir=Path(),
            model=arguments.model,
            base_url=arguments.base_url,
            api_key=SecretStr(key) if key else None,
        )
    )
    if author is None:
        raise AssertionError("a model is named")
    return PaidServer(author, _prices(arguments), Decimal(arguments.max_usd))


def _run(arguments: argparse.Namespace, folder: "StudyFolder", due: "Sequence[RetryCase]") -> None:
    from fallback_eval.campaign import check_disk, measure
    from fallback_eval.retry.calls import Calls
    from fallback_eval.retry.run import Row, Setup, run_case
    from fallback_eval.retry.study import CALLS_NAME, ROWS

    setup = Setup(arguments.model, Calls(folder.path / CALLS_NAME), _server(arguments))

    def run(case: "RetryCase") -> Row:
        check_disk()
        return run_case(case, setup)

    def keep(row: Row, which: str) -> None:
        ROWS.keep(row, folder.path)
        sys.stderr.write(f"{which} {visible(row.name)}: {row.outcome} {row.reason}\n")

    measure(due, run, keep, jobs=1)


def _replay(arguments: argparse.Namespace, folder: "StudyFolder") -> int:
    """Make every row again from kept answers; 6 if one comes out otherwise than it is kept."""
    from fallback_eval.retry.study import replayed
    from fallback_tier.errors import ConfigurationError

    if arguments.into is None:
        raise ConfigurationError(
            "--replay needs a folder for its rows.",
            next_step="Name an empty one with --into.",
            kind="no_folder",
        )
    return _check(arguments, replayed(folder, Path(arguments.into), arguments.only))


def _check(arguments: argparse.Namespace, faults: list[str]) -> int:
    return print_check(faults, as_json=arguments.json, if_none="all follows from what is kept")
