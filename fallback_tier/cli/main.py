"""The command line. This module imports argparse and nothing heavy: a command loads what it needs."""

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from fallback_tier.cli.arguments import (
    add_ages,
    add_allow_host,
    add_budget,
    add_delivery,
    add_json,
    add_no_sandbox,
    add_offline,
    add_on_violation,
    add_paths,
    add_prefer,
    add_proof,
    add_record,
    add_tests,
    add_verbosity,
    add_whose_code,
    words,
)
from fallback_tier.cli.exit_codes import BAD_INPUT, OK, TERMINATION, epilog
from fallback_tier.cli.model_options import add_model
from fallback_tier.cli.parsing import Parser
from fallback_tier.cli.suggesting import suggest_with

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypeAlias

    from fallback_tier.cli.progress import CommandWatch

    Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

DESCRIPTION = (
    "Fix a known vulnerability: a patch, proved in a sandbox, with a record an\nauditor can check."
)


def build_parser() -> argparse.ArgumentParser:
    """The whole command tree."""
    parser = Parser(prog="fallback-tier", description=DESCRIPTION, epilog=epilog())
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_fix(commands)
    what = "continue a fix that was interrupted, reopened, or given more budget"
    _family(commands, "resume", what, "fix.resume_parser")
    what = "end a fix for good that was interrupted"
    _family(commands, "abandon", what, "review.parser", "add_abandon")
    _add_plan(commands)
    what = "show what is vulnerable in a repository, and fix it"
    _family(commands, "scan", what, "scan.parser", first=(_SHORT_SCAN, _USUAL_SCAN))
    what = "make one attempt, JSON in and out (for an orchestrator in any language)"
    _family(commands, "attempt", what, "attempt.parser")
    _family(commands, "audit", "read, verify and maintain the audit trail", "audit.parser")
    _family(commands, "review", "answer the questions of escalated fixes", "review.parser")
    what = "check what a fix needs: store, checkpoints, keys, disk, sandbox, model"
    _family(commands, "health", what, "health.parser")
    what = "check what a fix needs of this machine, and of a repository"
    _family(commands, "doctor", what, "health.parser", "add_doctor")
    what = "show each setting and where it comes from"
    _family(commands, "config", what, "config.parser")
    _family(commands, "cache", "what is kept to make the next fix faster", "cache_parser")
    _family(commands, "examples", "the solved-example memory", "examples.parser")
    what = "run campaigns: many advisories in many repositories"
    _family(commands, "fleet", what, "fleet.parser")
    _family(commands, "worker", "take fixes of campaigns on Temporal", "fleet.parser", "add_worker")
    _family(commands, "serve", "serve fixes over HTTP", "serve.parser")
    what = "serve tools for a coding agent (MCP)"
    _family(commands, "mcp", what, "mcp.parser")
    _family(commands, "keys", "manage the API keys of the service", "keys.parser")
    what = "measure retrieval, judges and models (source tree only)"
    commands.add_parser("eval", help=what, verbs=_evaluations)
    _add_schema(commands)
    _add_completion(commands)
    _add_local_model(commands)
    demo = commands.add_parser("demo", help="fix real vulnerabilities and show the audit trail")
    demo.add_argument("--keep", metavar="DIR", help="keep repositories and audit trail in DIR")
    demo.set_defaults(handler="fallback_tier.demo.show:run")
    return parser


#: What most people give `fix` and `plan`; the rest is in `--help-all`.
_USUAL = ("--advisory", "--offline", "--json")
_USUAL_FIX = (
    *(*_USUAL, "--dry-run", "--output", "--commit", "--report", "--proof", "--require-tests"),
    *("--model", "--max-usd"),
)
_USUAL_SCAN = (
    *("--fix", "--path", "--severity", "--production", "--no-production", "--ignore"),
    *("--offline", "--json", "--dry-run", "--output", "--commit", "--report", "--require-tests"),
)
_SHORT_SCAN = "fallback-tier {} [REPO] [OPTION ...]"
_SHORT = "fallback-tier {} REPO --advisory ADVISORY [OPTION ...]"


def _add_fix(commands: "Commands") -> None:
    fix = commands.add_parser(
        "fix",
        help="fix advisories in a repository, and prove the patch",
        description="Make a patch for an advisory, prove it in a sandbox, and put it on the working tree\n"
        "of REPO (a clean git checkout), not committed. Several advisories are planned together\n"
        "and fixed by recipe, one patch an ecosystem; what can't be is reported with its reason.",
        epilog=epilog(),
    )
    _add_subject(fix)
    add_delivery(fix)
    fix.add_argument(
        "--resume",
        type=words,
        metavar="FIX",
        help="as `fallback-tier resume FIX`, with the options that are given here",
    )
    add_proof(fix)
    add_no_sandbox(fix)
    add_whose_code(fix)
    add_paths(fix)
    add_prefer(fix)
    add_offline(fix)
    add_allow_host(fix)
    add_ages(fix)
    add_model(fix)
    add_budget(fix)
    add_record(fix)
    add_on_violation(fix)
    add_verbosity(fix)
    add_json(fix)
    fix.show_first(_SHORT.format("fix"), _USUAL_FIX)
    fix.set_defaults(handler="fallback_tier.cli.fix.command:run")


def _add_plan(commands: "Commands") -> None:
    plan = commands.add_parser(
        "plan",
        help="show what fix would do by recipe, and why",
        description="Find the smallest fix for all advisories together and show each change of a version,\n"
        "why cheaper steps do not work, and what can't be fixed. The package clients run, but\n"
        "nothing is written: not to REPO, and not to the audit trail.",
        epilog=epilog(),
    )
    _add_subject(plan)
    plan.add_argument(
        "--no-resolve",
        action="store_true",
        help="predict from the files alone: no client runs, and nothing is resolved",
    )
    add_whose_code(plan)
    add_paths(plan)
    add_prefer(plan)
    add_offline(plan)
    add_allow_host(plan)
    add_ages(plan)
    add_tests(plan)
    plan.add_argument(
        "--state-dir",
        metavar="DIR",
        help="as for fix; a plan keeps only looked-up advisories there",
    )
    add_verbosity(plan)
    add_json(plan)
    plan.show_first(_SHORT.format("plan"), (*_USUAL, "--no-resolve"))
    plan.set_defaults(handler="fallback_tier.cli.fix.plan:run")


def _add_schema(commands: "Commands") -> None:
    schema = commands.add_parser(
        "schema",
        help="print the JSON schema of what a command prints with --json",
        description="Print the JSON schema of a command's --json, as in `fallback-tier schema audit log`.\n"
        "Without a name, list all. `error` is what any of them prints if it fails. Later\n"
        "releases add names, and remove or retype none without another version in $id.",
    )
    schema.add_argument(
        "name", nargs="*", metavar="NAME", help="a command, in words or as audit-log; or error"
    )
    schema.set_defaults(handler="fallback_tier.cli.schema:run")


def _add_completion(commands: "Commands") -> None:
    completion = commands.add_parser(
        "completion",
        help="print what completes commands and options in a shell",
        description="Print a script that completes commands, options and their values. For bash:\n"
        'eval "$(fallback-tier completion bash)"; for zsh: put it into a file _fallback-tier in\n'
        "a folder of $fpath; for fish: into ~/.config/fish/completions/fallback-tier.fish.",
    )
    completion.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"))
    completion.set_defaults(handler="fallback_tier.cli.completion:run", parser=build_parser)


def _add_local_model(commands: "Commands") -> None:
    local = commands.add_parser("local-model", help="get a small model for --model local:FILE")
    verbs = local.add_subparsers(dest="verb", metavar="VERB", required=True)
    fetch = verbs.add_parser(
        "fetch", help="fetch a code model of 1.5 billion parameters (1.1 GB), hash checked"
    )
    fetch.add_argument("folder", metavar="DIR", help="where the model's file goes")
    add_json(fetch)
    fetch.set_defaults(handler="fallback_tier.cli.local_model:fetch")


def _family(
    commands: "Commands",
    name: str,
    what: str,
    module: str,
    adds: str = "add_verbs",
    *,
    first: tuple[str, Sequence[str]] | None = None,
) -> None:
    """What a command's own module adds to its parser is imported when the command is given. ``first``: as
    for ``Parser.show_first``."""

    def add(parser: argparse.ArgumentParser) -> None:
        getattr(import_module(f"fallback_tier.cli.{module}"), adds)(parser)
        if first is not None:
            assert isinstance(parser, Parser)  # noqa: S101 (every command's is)
            usage, options = first
            parser.show_first(usage.format(name), options)

    commands.add_parser(name, help=what, verbs=add)


def _evaluations(parser: argparse.ArgumentParser) -> None:
    """The evaluations are in the source tree alone (ADR-0062): the command says so elsewhere."""
    try:
        module = import_module("fallback_eval.cli.parser")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("fallback_eval"):
            raise
        parser.description = (
            "The evaluations are part of the source tree. In a checkout of it:\n"
            "make setup && .venv/bin/fallback-tier eval --help"
        )
        parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        parser.set_defaults(handler="fallback_tier.cli.main:no_evaluations")
    else:
        module.add_verbs(parser)


def no_evaluations(arguments: argparse.Namespace) -> int:
    """Raise ConfigurationError, always: an installed wheel has no evaluations (ADR-0062)."""
    from fallback_tier.errors import ConfigurationError

    arguments.json = "--json" in arguments.rest
    raise ConfigurationError(
        "The evaluations are part of the source tree, and not of an installed fallback-tier.",
        next_step="In a checkout of the source: make setup && .venv/bin/fallback-tier eval --help",
    )


def _add_subject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "repository",
        nargs="?",
        default=".",
        metavar="REPO",
        help="a git checkout, or a folder in it (default: .)",
    )
    parser.add_argument(
        "--advisory",
        required=True,
        action="append",
        metavar="ADVISORY",
        help="an identifier (GHSA-…, CVE-…, PYSEC-…, MAL-…), which is looked up; or a file, a folder or "
        "- (standard input) with OSV records, GitHub's advisories, Dependabot's alerts or a report "
        "of Trivy, Grype, npm audit, pip-audit, uv audit, osv-scanner, SARIF or CycloneDX; may be "
        "given again",
    )
    parser.add_argument(
        "--advisory-url",
        metavar="URL",
        help="OSV API that identifiers are looked up at (default: FALLBACK_TIER_ADVISORY_URL, or "
        "https://api.osv.dev); with --offline, answers that were kept",
    )


def script(follower: "CommandWatch | None" = None) -> "NoReturn":
    """Run one command as a process, and end it. This is the console script. SIGTERM ends a command as
    Ctrl-C does: it says how it goes on. ``follower``: as for ``main``."""
    signal.signal(signal.SIGTERM, _terminate)
    code = main(follower=follower)
    if "temporalio" in sys.modules:
        # Threads of its SDK outlive the event loop, and CPython aborts if one of them is at work while it
        # finalizes (temporalio/sdk-python#300). All that a command writes is durable before it returns.
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    sys.exit(code)


def _terminate(*_: object) -> None:
    raise KeyboardInterrupt(TERMINATION)


def main(argv: Sequence[str] | None = None, *, follower: "CommandWatch | None" = None) -> int:
    """Run one command; the return value is the exit code. Errors explain themselves: we print them.

    ``follower``: a program's watch that follows the command, in place of a person at a terminal.
    """
    parser = build_parser()
    arguments = parser.parse_args(argv)
    arguments.follower = follower
    if arguments.version:
        from importlib.metadata import version

        sys.stdout.write(f"fallback-tier {version('fallback-tier')}\n")
        return OK
    if arguments.command is None:
        parser.print_help()
        return BAD_INPUT
    suggest_with(lambda: _load("fallback_tier.cli.service_file:locations")(arguments))
    handler = _load(arguments.handler)
    try:
        code: int = handler(arguments)
        sys.stdout.flush()  # here, not at exit: a full disk behind it is an error, too
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (all is told in one form)
        from fallback_tier.cli.ending import ended

        resumes = arguments.command == "resume" or bool(getattr(arguments, "resume", None))
        return ended(error, as_json=getattr(arguments, "json", False), resumes=resumes)
    return code


def _load(name: str) -> "Callable[[argparse.Namespace], Any]":
    """The function that runs a command. What importing makes stays: looking for garbage among it
    would take as long again as half of it (docs/benchmarks.md, `import-gc`)."""
    module, _, function = name.partition(":")
    gc.disable()
    try:
        handler: Callable[[argparse.Namespace], Any] = getattr(import_module(module), function)
    finally:
        gc.freeze()
        gc.enable()
    return handler
