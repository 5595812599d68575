"""``fallback-tier eval fixes``: run a model over mini-projects, report, check."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fallback_audit.showing.describe import visible
from fallback_eval.cli.reporting import add_kept_report, print_check
from fallback_tier.cli import exit_codes
from fallback_tier.cli.arguments import add_budget, add_model
from fallback_tier.cli.output import print_json

if TYPE_CHECKING:
    from fallback_eval.fixes.runs import FixFolder


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run."""
    parser.add_argument(
        "--projects",
        metavar="DIR",
        default="tests/mini_projects",
        help="folder of the projects (default: %(default)s)",
    )
    add_kept_report(
        parser,
        "docs/evaluation/fixes",
        report_help="where runs, transcripts and report are kept",
        check_help="do report and rows follow from the transcripts?",
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="one project; may be given again",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="names the run, and decides the nonces of its prompts (default: %(default)s)",
    )
    parser.add_argument(
        "--rerun", action="store_true", help="run also what was run with this seed: in its place"
    )
    parser.add_argument(
        "--setup",
        metavar="TEXT",
        default="",
        help="what serves the model and how, for the report (file and its hash, server, temperature)",
    )
    add_model(parser)
    add_budget(parser)
    parser.set_defaults(state_dir=None, offline=False)


def fixes(arguments: argparse.Namespace) -> int:
    """Run what was not run yet (or nothing: --check, --again), and make the report."""
    from fallback_eval.fixes.report import page
    from fallback_eval.fixes.runs import FixFolder

    folder = FixFolder(Path(arguments.report))
    if arguments.check:
        return print_check(
            folder.faults(page(folder.runs())),
            as_json=arguments.json,
            if_none="report and rows follow from the transcripts",
        )
    if not arguments.again:
        _run(arguments, folder)
    folder.publish(page(folder.runs()))
    return _report(arguments, folder)


def _run(arguments: argparse.Namespace, folder: "FixFolder") -> None:
    from fallback_eval.fixes.projects import load_projects
    from fallback_eval.fixes.report import page
    from fallback_eval.fixes.run import FixOptions, run_fixes
    from fallback_tier.cli.options import configuration

    def progress(what: str, done: int, total: int) -> None:
        """A run takes hours: who looks meanwhile finds the report of what is done."""
        folder.publish(page(folder.runs()))
        sys.stderr.write(f"{done}/{total} {visible(what)}\n")

    run_fixes(
        load_projects(Path(arguments.projects), arguments.only),
        folder,
        configuration(arguments),
        FixOptions(arguments.seed, arguments.setup, arguments.rerun),
        progress,
    )


def _report(arguments: argparse.Namespace, folder: "FixFolder") -> int:
    runs = folder.runs()
    if arguments.json:
        rows = [run.model_dump(mode="json", exclude={"facts": {"calls"}}) for run in runs]
        print_json({"report": str(folder.path), "runs": rows})
        return exit_codes.OK
    for run in runs:
        at = run.facts.verified_at
        message = f"verified at attempt {at}" if at else f"{run.facts.outcome}: {run.facts.reason}"
        sys.stdout.write(f"{visible(run.project):12} seed {run.seed}  {message}\n")
    sys.stdout.write(f"report: {visible(str(folder.path / 'report.md'))}\n")
    return exit_codes.OK
