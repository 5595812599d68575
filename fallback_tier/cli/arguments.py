"""Options that several commands have."""

import argparse
from argparse import ArgumentTypeError

from fallback_tier.limits import USD_PER_FIX

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from typing import Any

    Options = argparse.ArgumentParser | argparse._ArgumentGroup
    from fallback_tier.configured import Ignored

    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]


#: Most seconds of wall clock that a proof may take: an hour, as any gate of the user's own.
MAX_PROOF_SECONDS = 3600

#: Values of ``--severity``, the lowest first: ``configured.SeverityFloor``.
SEVERITIES = ("none", "low", "medium", "high", "critical")

#: Values of ``repo.Effort`` and ``repo.AnswerForm``, which help texts need not import.
EFFORTS = ("low", "medium", "high", "xhigh", "max")
ANSWER_FORMS = ("json", "blocks")

#: Most days of ``--release-age``: ten years, as ``repo.ReleaseAge``.
_MAX_DAYS = 3650


# --- Values -------------------------------------------------------------------------------------------


def words(text: str) -> str:
    """Return a text that is recorded. Raises ArgumentTypeError for bytes of another encoding, such as a
    Latin-1 terminal's."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentTypeError(f"{text!r} is not UTF-8 text") from error
    return text


def dollars(text: str) -> str:
    """Return an amount as it was written: a cap is compared as a decimal, and read by people."""
    whole, _, part = text.partition(".")
    if not (text.isascii() and whole.isdigit() and (part.isdigit() or "." not in text)):
        raise ArgumentTypeError(f"{text!r} is not an amount of dollars, e.g. 2.50")
    return text


def count(text: str) -> int:
    """Return a number of tokens."""
    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"{text!r} is not a number of tokens")
    return int(text)


def whole_number(text: str) -> int:
    """Return a whole number from 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def seconds(text: str) -> float:
    """Return seconds of wall clock, up to an hour."""
    value = _number(text)
    if not 0 < value <= MAX_PROOF_SECONDS:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds up to {MAX_PROOF_SECONDS}")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def _number(text: str) -> float:
    """Return a number. A text that is not one gives NaN, which is outside of every bound."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def parse_days(text: str) -> int:
    """Return a number of days, up to ten years."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MAX_DAYS):
        raise ArgumentTypeError(f"{text!r} is not a number of days from 1 to {_MAX_DAYS}")
    return int(text)


def _host(text: str) -> str:
    from fallback_tier.hosts import allowed_hosts

    try:
        (host,) = allowed_hosts(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not HOST or HOST:PORT") from None
    return host


def _folder(text: str) -> str:
    from pydantic import TypeAdapter, ValidationError

    from fallback_tier.repo import Folder

    try:
        folder: str = TypeAdapter(Folder).validate_python(text)
    except ValidationError:
        raise ArgumentTypeError(
            f"{text!r} is not a folder of the repository, relative to its root"
        ) from None
    return folder


def _ignored(text: str) -> "Ignored":
    from fallback_tier.configured import ignored_of

    try:
        return ignored_of(text)
    except ValueError:
        message = f"{text!r} is not ID,DATE,REASON (GHSA-…,2026-12-31,no untrusted input)"
        raise ArgumentTypeError(message) from None


# --- Options ------------------------------------------------------------------------------------------

#: Options that several commands have, as ``add_argument`` takes them.
_SHARED: "dict[str, dict[str, Any]]" = {
    "--state-dir": {
        "metavar": "DIR",
        "help": "audit trail, evidence and caches (default: the user's state folder)",
    },
    "--audit-store": {
        "metavar": "URL",
        "help": "postgresql://…: the audit trail stands there (default: SQLite in the state folder)",
    },
    "--checkpoints": {
        "metavar": "DIR",
        "help": "signed checkpoints, best on another disk (default: in the state folder)",
    },
    "--keys": {
        "metavar": "DIR",
        "help": "signing and trusted keys (default: the user's configuration folder)",
    },
    "--on-violation": {
        "choices": ("refuse", "flag"),
        "default": "refuse",
        "help": "an event that would break the trace contract is not recorded (refuse, the default), or "
        "recorded and flagged",
    },
    "--json": {"action": "store_true", "help": "print one JSON object for machines"},
    "--dry-run": {
        "action": "store_true",
        "help": "prove the patch and print it; leave REPO as it is",
    },
    "--output": {"metavar": "FILE", "help": "write the proved patch to FILE as well"},
    "--commit": {
        "nargs": "?",
        "const": "",
        "metavar": "BRANCH",
        "help": "commit the proved patch to a new branch (default: fallback-tier/ADVISORY), unless one "
        "holds it already; REPO's own branch and files stay as they are",
    },
    "--report": {
        "metavar": "DIR",
        "help": "make a folder with the patch, a pull request's body and VEX (OpenVEX, CycloneDX)",
    },
    "--no-sandbox": {
        "action": "store_true",
        "help": "run the target's own commands unprotected (recorded in the audit trail)",
    },
    "--path": {
        "action": "append",
        "type": _folder,
        "default": [],
        "metavar": "DIR",
        "help": "only projects with a file below DIR (relative to the repository's root; can be given "
        "again); what others hold is left, by name",
    },
    "--prefer": {
        "choices": ("parent", "override"),
        "help": "try this one first: a bump of the parent, or an override of what it depends on (default: "
        "what changes less for the application)",
    },
    "--routing-floor": {
        "type": _share,
        "metavar": "SCORE",
        "help": "0 to 1: use examples only if the best one reaches this score (cosine; without vectors: "
        "probability); default: a bound that refuses no example known to be right",
    },
    "--config": {
        "metavar": "FILE",
        "help": "TOML with [tool.fallback-tier], instead of the base commit's own",
    },
    "--test-command": {
        "action": "append",
        "type": words,
        "default": [],
        "metavar": "CMD",
        "help": "how the project is tested, a line for a shell: tried before what CI and files say, in the "
        "folder of each project that the patch touches (default: test_command of the base commit's "
        "configuration; can be given again)",
    },
    "--test-timeout": {
        "type": seconds,
        "metavar": "SECONDS",
        "help": "for one run of the project's tests (default: derived from how long the base commit's "
        "take)",
    },
    "--require-tests": {
        "action": "store_true",
        "help": "exit with 10 unless the project's tests were compared with the base commit's; patch and "
        "record stay the same",
    },
    "--offline": {
        "action": "store_true",
        "help": "do not ask a registry if the files suffice; yanked releases are not noticed then",
    },
    "--allow-host": {
        "action": "append",
        "type": _host,
        "default": [],
        "metavar": "HOST[:PORT]",
        "help": "let package clients ask a host that only the repository names (can be given again)",
    },
    "--release-age": {
        "type": parse_days,
        "metavar": "DAYS",
        "help": "take no release that was published less than DAYS days ago, besides the project's own "
        "rules (default: FALLBACK_TIER_RELEASE_AGE)",
    },
    "--age-exception": {
        "action": "append",
        "type": words,
        "default": [],
        "metavar": "PACKAGE",
        "help": "exempt PACKAGE from every rule on the age of releases, for this fix alone; recorded, with "
        "--because (can be given again)",
    },
    "--because": {"type": words, "metavar": "TEXT", "help": "why --age-exception is needed"},
    "--severity": {
        "choices": SEVERITIES,
        "help": "show this severity and higher ones, and those that no database states (none: all)",
    },
    "--production": {
        "action": argparse.BooleanOptionalAction,
        "help": "leave out what is installed for development alone",
    },
    "--ignore": {
        "action": "append",
        "default": [],
        "type": _ignored,
        "metavar": "ID,DATE,REASON",
        "help": "leave this advisory until the end of DATE (2026-12-31), and say so; may be repeated",
    },
}

#: Options that commands have together, in the order of the help.
RECORD = ("--state-dir", "--audit-store", "--checkpoints", "--keys")
DELIVERY = ("--dry-run", "--output", "--commit", "--report")
AGES = ("--release-age", "--age-exception", "--because")
CHOICE = ("--path", "--prefer", "--offline", "--allow-host", *AGES)
SCAN_RULES = ("--severity", "--production", "--ignore")
TESTS = ("--test-command", "--test-timeout", "--require-tests")


def add(parser: "Options", *names: str) -> None:
    """Add shared options, in this order."""
    for name in names:
        parser.add_argument(name, **_SHARED[name])


def add_verbosity(parser: "Options") -> None:
    """Add ``-q`` and ``-v``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print the result alone, without progress; errors are still shown",
    )
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also show where settings come from, and all lines of each event; the result, --json and "
        "the exit code are as without",
    )


def finish(
    parser: argparse.ArgumentParser, handler: str, *, signed: bool = False, on_record: bool = True
) -> None:
    """Add the last options of each verb on the state folder. ``handler``: a function of a module of
    ``fallback_tier.cli``; ``signed``: a person signs for what it does; ``on_record``: it needs the audit
    trail, parts of which may be elsewhere."""
    if signed:
        add_signature(parser)
    add(parser, *(RECORD if on_record else RECORD[:1]), "--json")
    parser.set_defaults(handler=f"fallback_tier.cli.{handler}")


def add_whose_code(parser: argparse.ArgumentParser) -> None:
    """Add ``--own-code`` and ``--dependency``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--own-code",
        action="store_true",
        help="REPO is the source of the affected package: its code is to be edited (default: decided by "
        "the names in its manifests; recorded)",
    )
    group.add_argument(
        "--dependency",
        action="store_true",
        help="REPO only uses the affected package, whatever it is called: its version is to be raised",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add caps on what model calls may use, and the price of a model."""
    budget = parser.add_argument_group(
        "budget (a call that might exceed a cap is not sent, and the fix can be resumed)"
    )
    budget.add_argument(
        "--max-usd",
        type=dollars,
        metavar="N",
        help=f"estimated dollars that a fix may use; default: {USD_PER_FIX}, if the model's price is known "
        "and --max-tokens is not given",
    )
    budget.add_argument(
        "--max-usd-per-day",
        type=dollars,
        metavar="N",
        help="for all fixes of a UTC day with this state folder",
    )
    budget.add_argument("--max-tokens", type=count, metavar="N", help="tokens that a fix may use")
    budget.add_argument(
        "--max-tokens-per-day", type=count, metavar="N", help="for all fixes of a UTC day"
    )
    budget.add_argument(
        "--price",
        metavar="IN:OUT",
        help="dollars per million tokens of a model that the price table does not have",
    )


def add_trust(parser: argparse.ArgumentParser, when: str = "") -> None:
    """Add ``--trust``. ``when``: what else must be given, at the start of the help text."""
    parser.add_argument(
        "--trust",
        action="append",
        metavar="VKEY",
        help=f"{when}trust this public key, or those in this file, a line each (default: those in "
        "--keys); may be given again",
    )


def add_fix_id(parser: argparse.ArgumentParser, printed_by: str) -> None:
    """Add ``FIX``: which fix, and the command that prints its identifier."""
    parser.add_argument(
        "fix_id", metavar="FIX", type=words, help=f"a fix identifier, as `{printed_by}` prints it"
    )


def add_signature(parser: argparse.ArgumentParser) -> None:
    """Add ``--by`` and ``--because``."""
    parser.add_argument("--by", required=True, type=words, metavar="NAME", help="who decides")
    parser.add_argument("--because", required=True, type=words, metavar="TEXT", help="why")


def add_proof(parser: argparse.ArgumentParser) -> None:
    """Add a person's own checks of a patch, in addition to the gates that always run."""
    judged = parser.add_argument_group(
        "proof, and gates of your own (run in the sandbox, no network)"
    )
    judged.add_argument(
        "--proof",
        metavar="CMD",
        help="a command that shows the vulnerability, run in REPO's root without a shell: it must "
        "fail at the base commit (checked first) and pass with the patch",
    )
    judged.add_argument(
        "--proof-file",
        action="append",
        default=[],
        metavar="PATH[=PLACE]",
        help="a file that the proof needs, at PLACE in REPO (default: its name, in the root) for "
        "the proof's run only; may be given again",
    )
    judged.add_argument(
        "--proof-timeout", type=seconds, metavar="SECONDS", help="for one run (default: 120)"
    )
    judged.add_argument(
        "--proof-end",
        metavar="LINE",
        help="the line that the proof prints once it has found no flaw: a script without a test runner "
        "proves nothing unless it prints it",
    )
    add(judged, "--config", *TESTS)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the author, the memory, the judge and the strategy."""
    model = parser.add_argument_group("model (none: recipes and examples only)")
    model.add_argument(
        "--model",
        metavar="NAME",
        help="a Messages API model (key: ANTHROPIC_API_KEY), or local:FILE.gguf, which an installed "
        "llama-server serves for the length of the run",
    )
    model.add_argument(
        "--base-url",
        metavar="URL",
        help="any server that speaks the Messages API; key: FALLBACK_TIER_API_KEY",
    )
    model.add_argument(
        "--script", metavar="FILE", help="scripted answers instead of a model (tests)"
    )
    model.add_argument("--examples", metavar="DB", help="an example store (`examples ingest`)")
    add(model, "--routing-floor")
    model.add_argument(
        "--strategy",
        choices=("standard", "self-rag"),
        default="standard",
        help="how the first draft comes about: one answer, or a search over single edits that "
        "are criticised one by one (more calls)",
    )
    model.add_argument(
        "--beam-width",
        type=int,
        default=1,
        metavar="N",
        help="self-rag: drafts kept after each edit (1 is greedy; at most 4)",
    )
    model.add_argument(
        "--code-room",
        type=int,
        metavar="KB",
        help="how much of a package's own code a prompt shows if that code is at fault: what fits the "
        "model's window (default: 192, some 42,000 tokens; with local:FILE 12)",
    )
    model.add_argument(
        "--max-output-tokens",
        type=int,
        metavar="N",
        help="tokens of one answer, including its thinking (default: 16000; with local:FILE 2048); booked "
        "before a call is sent",
    )
    model.add_argument(
        "--effort",
        choices=EFFORTS,
        help="how much the model should think, if its server supports that (default: the model's own)",
    )
    model.add_argument(
        "--answer-form",
        choices=ANSWER_FORMS,
        help="how the model writes its plan: one JSON object, or plain text with search/replace blocks, "
        "for models that do not write JSON well (default: json; with local:FILE blocks; its server holds "
        "it to either by a grammar)",
    )
    model.add_argument(
        "--recall-attempts",
        action="store_true",
        help="also show a retry, in a line each, how the attempts before the last one failed (default: "
        "only the last failure)",
    )
    model.add_argument(
        "--keep-prompts",
        action="store_true",
        help="keep every prompt as private evidence (default: its digest only)",
    )
    judge = parser.add_argument_group("judge (none: grounding is not evaluated)")
    judge.add_argument(
        "--judge-model",
        metavar="NAME",
        help="a model that judges whether advisory and code support the plan; best not the author's",
    )
    judge.add_argument(
        "--judge-base-url",
        metavar="URL",
        help="the judge's server; key: FALLBACK_TIER_JUDGE_API_KEY (without: the provider's)",
    )
    judge.add_argument(
        "--judge-script", metavar="FILE", help="scripted judgements instead of a model (tests)"
    )
