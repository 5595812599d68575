"""The command line. This module imports argparse and nothing heavy: a command loads what it needs."""

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from fallback_tier.cli.arguments import (
    CHOICE,
    DELIVERY,
    RECORD,
    add,
    add_budget,
    add_model,
    add_proof,
    add_verbosity,
    add_whose_code,
    words,
)
from fallback_tier.cli.exit_codes import BAD_INPUT, OK, TERMINATION, epilog
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


#: Commands, the help of each, and the function that adds its own commands and options when it is given.
_FAMILIES = (
    (
        "resume",
        "continue a fix that was interrupted, reopened, or given more budget",
        "parsers:add_resume",
    ),
    ("abandon", "end a fix for good that was interrupted", "parsers:add_abandon"),
    (
        "attempt",
        "make one attempt, JSON in and out (for an orchestrator in any language)",
        "parsers:add_attempt",
    ),
    ("audit", "read, verify and maintain the audit trail", "audit.parser:add_verbs"),
    ("review", "answer the questions of escalated fixes", "parsers:add_review"),
    (
        "health",
        "check what a fix needs: store, checkpoints, keys, disk, sandbox, model",
        "parsers:add_health",
    ),
    ("doctor", "check what a fix needs of this machine, and of a repository", "parsers:add_doctor"),
    ("config", "show each setting and where it comes from", "parsers:add_config"),
    ("cache", "what is kept to make the next fix faster", "parsers:add_cache"),
    ("examples", "the solved-example memory", "examples.parser:add_verbs"),
    ("fleet", "run campaigns: many advisories in many repositories", "fleet.parser:add_verbs"),
    ("worker", "take fixes of campaigns on Temporal", "fleet.parser:add_worker"),
    ("serve", "serve fixes over HTTP", "parsers:add_serve"),
    ("mcp", "serve tools for a coding agent (MCP)", "parsers:add_mcp"),
    ("keys", "manage the API keys of the service", "parsers:add_keys"),
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command tree."""
    parser = Parser(prog="fallback-tier", description=DESCRIPTION, epilog=epilog())
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_fix(commands)
    for name, what, adds in _FAMILIES[:2]:
        _family(commands, name, what, adds)
    _add_plan(commands)
    what = "show what is vulnerable in a repository, and fix it"
    _family(commands, "scan", what, "parsers:add_scan", first=(_SHORT_SCAN, _USUAL_SCAN))
    for name, what, adds in _FAMILIES[2:]:
        _family(commands, name, what, adds)
    what = "measure retrieval, judges and models (source tree only)"
    commands.add_parser("eval", help=what, verbs=_evaluations)
    _add_schema(commands)
    _add_completion(commands)
    _add_local_model(commands)
    demo = commands.add_parser("demo", help="fix real vulnerabilities and show the audit trail")
    demo.add_argument("--keep", metavar="DIR", help="keep repositories and audit trail in DIR")
    demo.set_defaults(handler="fallback_tier.demo.show:run")
    return parser


#: Options of `fix` and `plan` that most people give; the rest is in `--help-all`.
_USUAL = ("--advisory", "--offline", "--json")
_USUAL_FIX = (
    *(*_USUAL, "--dry-run", "--output", "--commit", "--report", "--proof", "--require-tests"),
    *("--model", "--max-usd"),
)
_USUAL_SCAN = (
    *("--fix", "--path", "--severity", "--production", "--no-production", "--ignore"),
    "--time-limit",
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
    add(fix, *DELIVERY)
    fix.add_argument(
        "--resume",
        type=words,
        metavar="FIX",
        help="as `fallback-tier resume FIX`, with the options that are given here",
    )
    add_proof(fix)
    add(fix, "--no-sandbox")
    add_whose_code(fix)
    add(fix, *CHOICE)
    add_model(fix)
    add_budget(fix)
    add(fix, *RECORD, "--on-violation")
    add_verbosity(fix)
    add(fix, "--json")
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
    add(plan, *CHOICE, "--test-command")
    plan.add_argument(
        "--state-dir",
        metavar="DIR",
        help="as for fix; a plan keeps only looked-up advisories there",
    )
    add_verbosity(plan)
    add(plan, "--json")
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
    add(fetch, "--json")
    fetch.set_defaults(handler="fallback_tier.cli.local_model:fetch")


def _family(
    commands: "Commands",
    name: str,
    what: str,
    adds: str,
    *,
    first: tuple[str, Sequence[str]] | None = None,
) -> None:
    """Add a command. ``adds``: the function (``module:name``) that adds to its parser, imported when the
    command is given. ``first``: as for ``Parser.show_first``."""

    def add(parser: argparse.ArgumentParser) -> None:
        module, _, function = adds.partition(":")
        getattr(import_module(f"fallback_tier.cli.{module}"), function)(parser)
        if first is not None:
            assert isinstance(parser, Parser)  # noqa: S101 (every command's is)
            usage, options = first
            parser.show_first(usage.format(name), options)

    commands.add_parser(name, help=what, verbs=add)


def _evaluations(parser: argparse.ArgumentParser) -> None:
    """Add the evaluations, which are in the source tree alone (ADR-0062); elsewhere the command says so."""
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
    Ctrl-C does: it prints how to continue. ``follower``: as for ``main``."""
    signal.signal(signal.SIGTERM, _terminate)
    code = main(follower=follower)
    if "temporalio" in sys.modules:
        # Threads of its SDK outlive the event loop, and CPython aborts if one of them runs while it
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
    """Run one command and return the exit code. Errors are printed with their explanation.

    ``follower``: a program's watch that follows the command, instead of a person at a terminal.
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
        sys.stdout.flush()  # here, not at exit: a full disk is an error, too
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (all are reported in one form)
        from fallback_tier.cli.ending import ended

        resumes = arguments.command == "resume" or bool(getattr(arguments, "resume", None))
        return ended(error, as_json=getattr(arguments, "json", False), resumes=resumes)
    return code


def _load(name: str) -> "Callable[[argparse.Namespace], Any]":
    """Return the function that runs a command. Objects made by imports stay: collecting garbage among them
    would take as long again as half of it (docs/benchmarks.md, `import-gc`)."""
    module, _, function = name.partition(":")
    gc.disable()
    try:
        handler: Callable[[argparse.Namespace], Any] = getattr(import_module(module), function)
    finally:
        gc.freeze()
        gc.enable()
    return handler
