"""The parsers of commands with few options, each made when its command is given."""

import argparse

from fallback_tier.cli.arguments import (
    AGES,
    CHOICE,
    DELIVERY,
    RECORD,
    SCAN_RULES,
    TESTS,
    add,
    add_budget,
    add_fix_id,
    add_model,
    add_signature,
    add_verbosity,
    add_whose_code,
    count,
    dollars,
    finish,
    parse_days,
    seconds,
    whole_number,
    words,
)
from fallback_tier.cli.exit_codes import BAD_INPUT, ENVIRONMENT, MEANING, OK, epilog

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from fallback_tier.cli.arguments import Verbs


def add_attempt(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``attempt``, in addition to its standard input."""
    parser.description = (
        "Read one JSON object from standard input: advisory (OSV), repository (path),\n"
        "and optionally prior_attempts, fix_id, gate_transition_id.\n"
        "Print one RecipeApplication."
    )
    parser.epilog = epilog()
    parser.add_argument(
        "--serve",
        action="store_true",
        help="read one such object a line until the input ends, each with an id of its own if you "
        "like, and print an answer a line (docs/attempt-serve.md): without the cost of a start each",
    )
    add_whose_code(parser)
    add(parser, "--offline", "--allow-host", *AGES)
    add_model(parser)
    add_budget(parser)
    add(parser, *RECORD, "--on-violation")
    parser.set_defaults(handler="fallback_tier.cli.attempt:run", json=True)


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add the verbs ``list`` and ``clear``."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    shown = verbs.add_parser(
        "list",
        help="each entry: its kind, size, last use, and whether a run has it now",
        description="What projects declare, installed, and base commits, checked out. Both are made once,\n"
        "used by every fix that needs the same, checked when they are taken, and bounded.",
    )
    finish(shown, "cache:show_list", on_record=False)
    clear = verbs.add_parser(
        "clear",
        help="remove entries that no run uses",
        description="Remove what no run uses now. The next fix that needs it makes it again; the audit\n"
        "trail and the evidence stay as they are.",
    )
    clear.add_argument(
        "--older-than",
        type=whole_number,
        metavar="DAYS",
        help="only what was last used so many days ago or earlier (at least 1)",
    )
    finish(clear, "cache:clear", on_record=False)


#: Options of `fix` that are settings: their types, and the names of their values in `--help`.
_OPTIONS = (
    ("--model", str, "NAME"),
    ("--base-url", str, "URL"),
    ("--judge-model", str, "NAME"),
    ("--judge-base-url", str, "URL"),
    ("--max-usd", dollars, "N"),
    ("--max-usd-per-day", dollars, "N"),
    ("--max-tokens", count, "N"),
    ("--max-tokens-per-day", count, "N"),
    ("--release-age", parse_days, "DAYS"),
    ("--test-timeout", seconds, "SECONDS"),
)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add what is shown, and of which repository."""
    parser.description = (
        "Show each setting and where it comes from. The first of these that has a setting\n"
        "counts: an option of `fix` or `scan`, a variable (FALLBACK_TIER_ and the key), the\n"
        "file of --config, your own file, the file that is committed in REPO, the default. A\n"
        "repository may not set models, addresses and budgets."
    )
    parser.add_argument(
        "repository",
        nargs="?",
        metavar="REPO",
        help="also read what its current commit says (default: no repository is read)",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML with [tool.fallback-tier], instead of the repository's own",
    )
    parser.add_argument(
        "--schema",
        action="store_true",
        help="print the JSON schema of these files, for editors, and nothing else",
    )
    for option, value_type, metavar in _OPTIONS:
        parser.add_argument(option, type=value_type, metavar=metavar, help="as for fix")
    parser.add_argument(
        "--test-command",
        action="append",
        type=words,
        default=[],
        metavar="CMD",
        help="as for fix",
    )
    add(parser, *SCAN_RULES, "--json")
    parser.set_defaults(handler="fallback_tier.cli.config:run")


_HEALTH_CODES = {
    OK: "ready; what is degraded is listed",
    BAD_INPUT: MEANING[BAD_INPUT],
    ENVIRONMENT: "not ready: no fix should be begun",
}


def add_health(parser: argparse.ArgumentParser) -> None:
    """Add what is checked: the same parts that a fix with these options would use."""
    parser.description = (
        "Look at what a fix needs, without beginning one: the store, the checkpoints, the\n"
        "keys, the disk, the sandbox, the model and its judge. Each is shown with its reason\n"
        "and, where something is wrong, the next step. Nothing is written, and no model is\n"
        "asked: only whether its server answers and takes the key."
    )
    _add_checked(parser)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a service's file (`serve --config`): state folder, record and model are the service's",
    )
    parser.set_defaults(handler="fallback_tier.cli.health:run")


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the checks of `health`, and of this machine."""
    parser.description = (
        "Look at all that a fix needs, without beginning one: what `health` looks at, and\n"
        "whether REPO is a clean checkout, git and the package clients with their versions,\n"
        "the registries that they may ask, proxies, the clock, and folders that must be\n"
        "written. Each is shown with its reason and, where something is wrong, the next\n"
        "step. Nothing is written. Each registry is asked for one page; with --offline none."
    )
    parser.add_argument(
        "repository",
        nargs="?",
        metavar="REPO",
        help="the checkout to be fixed: its ecosystems alone are looked at (default: all)",
    )
    _add_checked(parser)
    parser.add_argument("--offline", action="store_true", help="ask no registry")
    add(parser, "--allow-host")
    parser.set_defaults(handler="fallback_tier.cli.health:diagnose")


def _add_checked(parser: argparse.ArgumentParser) -> None:
    parser.epilog = epilog(_HEALTH_CODES)
    parser.add_argument("--model", metavar="NAME", help="as for fix")
    parser.add_argument("--base-url", metavar="URL", help="as for fix")
    parser.add_argument("--judge-model", metavar="NAME", help="as for fix")
    parser.add_argument("--judge-base-url", metavar="URL", help="as for fix")
    parser.add_argument(
        "--no-sandbox", action="store_true", help="as for fix: the sandbox is not tried"
    )
    add(parser, *RECORD, "--json")


def add_mcp(parser: argparse.ArgumentParser) -> None:
    """Add what an agent may do: the person who starts the server decides it here."""
    parser.description = (
        "Serve scan, plan, fix, and reading of reviews and of the audit trail as tools for a\n"
        "coding agent (Model Context Protocol, over standard input and output). An agent\n"
        "starts it. Models, budgets and keys are those of your settings, as for `fix`; an agent\n"
        "can't change them. It needs the extra: pip install 'fallback-tier[mcp]'"
    )
    parser.add_argument(
        "--root",
        action="append",
        metavar="DIR",
        help="a folder; only repositories and advisory files in it may be named (default: the current "
        "folder; can be given again)",
    )
    parser.add_argument(
        "--allow-writes",
        action="store_true",
        help="let the tool fix put a proved patch on the working tree, if an agent asks for it; without, "
        "every fix is a dry run",
    )
    parser.add_argument(
        "--advisory-url",
        metavar="URL",
        help="the OSV API to query (or FALLBACK_TIER_ADVISORY_URL; default: the public one)",
    )
    add(parser, "--offline", "--allow-host", *RECORD)
    parser.set_defaults(handler="fallback_tier.cli.mcp.command:run")


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``resume``: which fix, and what is different now."""
    parser.description = (
        "Continue a fix where its record ends: after a crash, after `review raise-budget`, or\n"
        "after `review reopen`. REPO, advisory, model and gates are those that it began with\n"
        "(keys are read from the environment). No gate that gave a verdict is run again, and no\n"
        "answer is paid twice. After `review reopen --gates-again` only the gates are run, and no\n"
        "model is asked."
    )
    parser.epilog = epilog()
    add_fix_id(parser, "audit log")
    parser.add_argument(
        "repository", metavar="REPO", nargs="?", help="where the checkout is now, if it was moved"
    )
    add(parser, "--dry-run", "--output")
    different = parser.add_argument_group("what is different now (default: as the fix began)")
    for option, metavar in (
        ("--model", "NAME"),
        ("--base-url", "URL"),
        ("--script", "FILE"),
        ("--judge-model", "NAME"),
        ("--judge-base-url", "URL"),
        ("--judge-script", "FILE"),
        ("--examples", "DB"),
        ("--price", "IN:OUT"),
    ):
        different.add_argument(option, metavar=metavar, help=f"as `fix {option}`")
    different.add_argument(
        "--no-sandbox", action="store_true", help="as for `fix`; recorded in the audit trail"
    )
    different.add_argument("--max-usd-per-day", type=dollars, metavar="N", help="as for `fix`")
    different.add_argument("--max-tokens-per-day", type=count, metavar="N", help="as for `fix`")
    add(different, "--allow-host")
    add(parser, *RECORD, "--on-violation")
    add_verbosity(parser)
    add(parser, "--json")
    parser.set_defaults(handler="fallback_tier.cli.fix.resume:run")


def add_scan(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``scan``: what it shows, and those of ``fix`` except the ones about a single
    advisory (a proof, whose code it is, the fix that is resumed)."""
    parser.description = (
        "Ask an OSV database which packages of REPO are affected, and show for each advisory\n"
        "its severity, how the package comes in, and the step that fixes it. Locks that are\n"
        "in step are read; otherwise the project's own client resolves. Nothing is written\n"
        "to REPO or to the audit trail. With --fix, what is shown is fixed as by `fix`."
    )
    parser.epilog = epilog()
    parser.add_argument(
        "repository",
        nargs="?",
        default=".",
        metavar="REPO",
        help="a clean git checkout, or a folder in it (default: .)",
    )
    add(parser, *SCAN_RULES)
    parser.add_argument(
        "--advisory-url",
        metavar="URL",
        help="the OSV API to ask (or FALLBACK_TIER_ADVISORY_URL; default: the public one)",
    )
    parser.add_argument(
        "--no-resolve",
        action="store_true",
        help="predict the steps from the files alone; what is installed is read or resolved all the same",
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="for finding the steps, once what is vulnerable is known (default: 300); the others are shown "
        "as not resolved; the fix of --fix has no such limit",
    )
    add(parser, *CHOICE, "--config")
    parser.add_argument(
        "--fix",
        action="store_true",
        help="make one patch for the advisories that are shown, prove it, and put it on the working tree, "
        "as `fix --advisory` with each of them; exit codes are those of fix, and 0 if there are none",
    )
    fix = parser.add_argument_group("with --fix, as for fix")
    add(fix, *DELIVERY, "--no-sandbox", *TESTS)
    add_model(parser)
    add_budget(parser)
    add(parser, *RECORD, "--on-violation")
    add_verbosity(parser)
    add(parser, "--json")
    parser.set_defaults(handler="fallback_tier.cli.scan.command:run")


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``serve``; an option counts before the same setting of the file."""
    parser.description = (
        "Serve fixes over HTTP: submit, follow, decide, audit. It listens on this machine alone\n"
        "unless TLS or a trusted proxy is configured. The first start makes an admin's API key\n"
        "and prints it once. It needs the extra: pip install 'fallback-tier[serve]'"
    )
    parser.epilog = epilog()
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML: repositories, limits, models (docs/service-configuration.md)",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="listen there (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="N", help="default: 8765; 0: any free one")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate chain, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key, PEM")
    parser.set_defaults(handler="fallback_tier.cli.serve:run")
    parser.add_argument(
        "--demo",
        action="store_const",
        dest="handler",
        const="fallback_tier.demo.served:run",
        help="make a record with questions to decide (real fixes, a scripted model), and serve it",
    )
    add(parser, *RECORD)


#: As in fallback_tier.service.roles, which a help text need not import.
ROLES = ("submit", "read", "decide", "admin")


def add_keys(parser: argparse.ArgumentParser) -> None:
    """Add new, list, rotate, revoke; person, people, remove-person, end-sessions."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    new = verbs.add_parser(
        "new",
        help="make an API key, and print it once",
        description="Make an API key for a program that calls the service. It is printed once: what is\n"
        "kept is its SHA-256.",
    )
    new.add_argument("name", metavar="NAME", help="who uses it; its acts are on record as key:NAME")
    new.add_argument(
        "--role",
        action="append",
        required=True,
        choices=ROLES,
        help="submit fixes, read everything, decide about escalated fixes, or all of it and raw "
        "prompts (admin); may be given again",
    )
    new.add_argument("--days", type=float, metavar="N", help="it expires then (default: never)")
    _finish_keys(new, "new")
    _finish_keys(
        verbs.add_parser("list", help="every key that there was, without the keys"), "show_list"
    )
    rotate = verbs.add_parser(
        "rotate",
        help="make a key in another's place; the old one ends in a day",
        description="Make a new key of the same name and roles, and print it once. The old one ends\n"
        "after --hours.",
    )
    rotate.add_argument("key_id", metavar="KEY", help="as `keys list` prints it: key-…")
    rotate.add_argument(
        "--hours",
        type=float,
        default=24.0,
        metavar="N",
        help="the old one still works (default: 24)",
    )
    _finish_keys(rotate, "rotate")
    revoke = verbs.add_parser("revoke", help="end a key now")
    revoke.add_argument("key_id", metavar="KEY", help="as `keys list` prints it: key-…")
    _finish_keys(revoke, "revoke")
    person = verbs.add_parser(
        "person",
        help="let somebody sign in with a password",
        description="Let somebody sign in with a password, which is read from standard input, or asked\n"
        "for on a terminal. Given again, it replaces password and roles. The service's configuration\n"
        "has people.local = true for that.",
    )
    person.add_argument("name", metavar="NAME", help="decisions are on record as person:NAME")
    person.add_argument("--role", action="append", required=True, choices=ROLES, help="as for new")
    _finish_keys(person, "person")
    _finish_keys(verbs.add_parser("people", help="who can sign in with a password"), "show_people")
    remove = verbs.add_parser("remove-person", help="let somebody in no more, at once")
    remove.add_argument("name", metavar="NAME", help="as `keys people` prints it")
    _finish_keys(remove, "remove_person")
    end = verbs.add_parser(
        "end-sessions",
        help="sign everybody out, at once",
        description="End every session that is open, of a running service too: of people with a password,\n"
        "of an issuer's people, of browsers that gave a key. Keys and passwords stay as they are.",
    )
    _finish_keys(end, "end_sessions")


def _finish_keys(parser: argparse.ArgumentParser, function: str) -> None:
    finish(parser, f"keys:{function}", on_record=False)


def add_review(parser: argparse.ArgumentParser) -> None:
    """Add list, show, approve, reject, reopen, raise-budget."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_review_list(verbs)
    show = verbs.add_parser(
        "show",
        help="one question, with what is needed to answer it",
        description="The question that a fix ended with, each attempt in two lines, the last failure, "
        "the\nlast patch, and the commands that answer.",
    )
    _finish_review(show, "show")
    _add_approve(verbs)
    reject = verbs.add_parser(
        "reject",
        help="reject all patches of an escalated fix",
        description="Record that a person decided against a fix. It can't be reopened then.",
    )
    _finish_review(reject, "reject", signed=True)
    _add_reopen(verbs)
    raise_budget = verbs.add_parser(
        "raise-budget",
        help="raise the cap of a fix that stopped at it",
        description="Record that a person raised a cap of a fix that stopped at it, and why. Then\n"
        "`fallback-tier resume FIX` continues where it stopped.",
    )
    add_fix_id(raise_budget, "audit log")
    add_signature(raise_budget)
    raise_budget.add_argument(
        "--max-usd", type=dollars, metavar="N", help="estimated dollars that the fix may now use"
    )
    raise_budget.add_argument(
        "--max-tokens", type=count, metavar="N", help="tokens that the fix may now use"
    )
    finish(raise_budget, "review:raise_budget")


def _add_review_list(verbs: "Verbs") -> None:
    questions = verbs.add_parser(
        "list", help="escalated fixes that nobody has answered, newest first"
    )
    questions.add_argument("--all", action="store_true", help="also those that were answered")
    finish(questions, "review:show_list")


def _add_approve(verbs: "Verbs") -> None:
    approve = verbs.add_parser(
        "approve",
        help="accept a patch of an escalated fix as it is",
        description="Record that a person accepts a patch that was not proved, and print it, for\n"
        "`git apply`. The record says approved by, never verified.",
    )
    approve.add_argument(
        "--patch",
        metavar="DIGEST",
        help="which one, by the beginning of its digest (default: the last that was proposed)",
    )
    approve.add_argument("--output", metavar="FILE", help="write the patch to FILE, print nothing")
    _finish_review(approve, "approve", signed=True)


def _add_reopen(verbs: "Verbs") -> None:
    reopen = verbs.add_parser(
        "reopen",
        help="try an escalated fix again, or only its gates",
        description="Record that a person opens a new gate transition, linked to the one that ended. It\n"
        "starts with the last failure, without retrieval, and has three attempts of its own;\n"
        "with --gates-again it runs all gates on a patch that is on record, and no model.\n"
        "`fallback-tier resume FIX` runs it.",
    )
    reopen.add_argument(
        "--gates-again",
        action="store_true",
        help="after a false failure (a flaky machine, a missing tool): no new attempt, only the gates, "
        "from scratch; if they pass, the fix ends as it would have",
    )
    reopen.add_argument(
        "--patch",
        metavar="DIGEST",
        help="with --gates-again: on which patch of the fix, by the beginning of its digest "
        "(default: the one asked about)",
    )
    _finish_review(reopen, "reopen", signed=True)


def _finish_review(parser: argparse.ArgumentParser, handler: str, *, signed: bool = False) -> None:
    add_fix_id(parser, "review list")
    finish(parser, f"review:{handler}", signed=signed)


def add_abandon(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``abandon``: which fix ends, who decides, and why."""
    parser.description = (
        "End a fix for good that was interrupted, or reopened and not resumed, and that nobody\n"
        "is to continue: it is listed as abandoned, can't be resumed, and its working files are\n"
        "removed. Its record and its evidence stay. A fix that was escalated is ended with\n"
        "`review reject`."
    )
    add_fix_id(parser, "audit log")
    parser.add_argument("--reason", required=True, type=words, metavar="TEXT", help="why")
    parser.add_argument(
        "--by", type=words, metavar="NAME", help="who decides (default: the user's name)"
    )
    finish(parser, "review:abandon")
