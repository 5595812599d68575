"""Options that several commands have."""

import argparse
from argparse import ArgumentTypeError

from fallback_tier.limits import USD_PER_FIX

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    Options = argparse.ArgumentParser | argparse._ArgumentGroup
    from fallback_tier.configured import Ignored

    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]


#: Wall clock that a proof may be given: an hour, as any gate of one's own.
MAX_PROOF_SECONDS = 3600

#: What ``--severity`` takes, the lowest first: ``configured.SeverityFloor``.
SEVERITIES = ("none", "low", "medium", "high", "critical")

#: Days of ``--release-age``: ten years, as ``repo.ReleaseAge``.
_MAX_DAYS = 3650


def add_state(parser: argparse.ArgumentParser) -> None:
    """``--state-dir``."""
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="audit trail, evidence and caches (default: the user's state folder)",
    )


def add_record(parser: argparse.ArgumentParser) -> None:
    """``--state-dir``, and where the parts of the record are that can stand elsewhere."""
    add_state(parser)
    parser.add_argument(
        "--audit-store",
        metavar="URL",
        help="postgresql://…: the audit trail stands there (default: SQLite in the state folder)",
    )
    parser.add_argument(
        "--checkpoints",
        metavar="DIR",
        help="signed checkpoints, best on another disk (default: in the state folder)",
    )
    parser.add_argument(
        "--keys",
        metavar="DIR",
        help="signing and trusted keys (default: the user's configuration folder)",
    )


def add_on_violation(parser: argparse.ArgumentParser) -> None:
    """``--on-violation``."""
    parser.add_argument(
        "--on-violation",
        choices=("refuse", "flag"),
        default="refuse",
        help="an event that would break the trace contract is not recorded (refuse, the default), or "
        "recorded and flagged",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object for machines")


def add_verbosity(parser: "Options") -> None:
    """``-q``, ``-v``."""
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
    """What each verb on the state folder has last. ``handler``: a function of a module of
    ``fallback_tier.cli``; ``signed``: a person answers for what it does; ``on_record``: it asks for the
    record, parts of which may stand elsewhere."""
    if signed:
        add_signature(parser)
    add_record(parser) if on_record else add_state(parser)
    add_json(parser)
    parser.set_defaults(handler=f"fallback_tier.cli.{handler}")


def add_delivery(parser: "Options") -> None:
    """``--dry-run``, ``--output``, ``--commit``, ``--report``."""
    parser.add_argument(
        "--dry-run", action="store_true", help="prove the patch and print it; leave REPO as it is"
    )
    parser.add_argument("--output", metavar="FILE", help="write the proved patch to FILE as well")
    parser.add_argument(
        "--commit",
        nargs="?",
        const="",
        metavar="BRANCH",
        help="commit the proved patch to a new branch (default: fallback-tier/ADVISORY), unless one holds "
        "it already; REPO's own branch and files stay as they are",
    )
    parser.add_argument(
        "--report",
        metavar="DIR",
        help="make a folder with the patch, a pull request's body and VEX (OpenVEX, CycloneDX)",
    )


def add_no_sandbox(parser: "Options") -> None:
    """``--no-sandbox``."""
    parser.add_argument(
        "--no-sandbox",
        action="store_true",
        help="run the target's own commands unprotected (recorded in the audit trail)",
    )


def add_whose_code(parser: argparse.ArgumentParser) -> None:
    """``--own-code``, ``--dependency``."""
    reported = parser.add_mutually_exclusive_group()
    reported.add_argument(
        "--own-code",
        action="store_true",
        help="REPO is the source of the affected package: its code is to be edited (default: decided by "
        "the names in its manifests; recorded)",
    )
    reported.add_argument(
        "--dependency",
        action="store_true",
        help="REPO only uses the affected package, whatever it is called: its version is to be raised",
    )


def add_paths(parser: "Options") -> None:
    """``--path``."""
    parser.add_argument(
        "--path",
        action="append",
        type=_folder,
        default=[],
        metavar="DIR",
        help="only projects with a file below DIR (relative to the repository's root; can be given again); "
        "what others hold is left, by name",
    )


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


def add_prefer(parser: "Options") -> None:
    """``--prefer``."""
    parser.add_argument(
        "--prefer",
        choices=("parent", "override"),
        help="try this one first: a bump of the parent, or an override of what it depends on (default: "
        "what changes less for the application)",
    )


def add_routing_floor(parser: "Options") -> None:
    """``--routing-floor``."""
    parser.add_argument(
        "--routing-floor",
        type=_share,
        metavar="SCORE",
        help="0 to 1: use examples only if the best one reaches this score (cosine; without vectors: "
        "probability); default: a bound that refuses no example known to be right",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Caps on what model calls may use, and what a model costs."""
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
    """``--trust``. ``when``: said first, of what else must be given."""
    parser.add_argument(
        "--trust",
        action="append",
        metavar="VKEY",
        help=f"{when}trust this public key, or those in this file, a line each (default: those in "
        "--keys); may be given again",
    )


def add_fix_id(parser: argparse.ArgumentParser, printed_by: str) -> None:
    """``FIX``: which one is meant, and the command that tells."""
    parser.add_argument(
        "fix_id", metavar="FIX", type=words, help=f"a fix identifier, as `{printed_by}` prints it"
    )


def add_signature(parser: argparse.ArgumentParser) -> None:
    """``--by``, ``--because``."""
    parser.add_argument("--by", required=True, type=words, metavar="NAME", help="who decides")
    parser.add_argument("--because", required=True, type=words, metavar="TEXT", help="why")


def add_raise_budget(parser: argparse.ArgumentParser) -> None:
    """What ``review raise-budget`` is told."""
    add_fix_id(parser, "audit log")
    add_signature(parser)
    parser.add_argument(
        "--max-usd", type=dollars, metavar="N", help="estimated dollars that the fix may now use"
    )
    parser.add_argument(
        "--max-tokens", type=count, metavar="N", help="tokens that the fix may now use"
    )


def add_proof(parser: argparse.ArgumentParser) -> None:
    """What a person wants a patch to be judged by, beside the gates that are always there."""
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
    add_config(judged)
    add_tests(judged)
    add_test_limits(judged)


def add_config(parser: "Options") -> None:
    """``--config``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML with [tool.fallback-tier], instead of the base commit's own",
    )


def add_tests(parser: "Options") -> None:
    """``--test-command``."""
    parser.add_argument(
        "--test-command",
        action="append",
        type=words,
        default=[],
        metavar="CMD",
        help="how the project is tested, a line for a shell: tried before what CI and files say, in the "
        "folder of each project that the patch touches (default: test_command of the base commit's "
        "configuration; can be given again)",
    )


def add_test_limits(parser: "Options") -> None:
    """``--test-timeout``, ``--require-tests``."""
    parser.add_argument(
        "--test-timeout",
        type=seconds,
        metavar="SECONDS",
        help="for one run of the project's tests (default: derived from how long the base commit's take)",
    )
    parser.add_argument(
        "--require-tests",
        action="store_true",
        help="exit with 10 unless the project's tests were compared with the base commit's; patch and "
        "record stay the same",
    )


def words(text: str) -> str:
    """What goes on record: bytes of another encoding (a Latin-1 terminal's) have no place there."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentTypeError(f"{text!r} is not UTF-8 text") from error
    return text


def dollars(text: str) -> str:
    """An amount as it was written: a cap is compared as a decimal, and read by people."""
    whole, _, part = text.partition(".")
    if not (text.isascii() and whole.isdigit() and (part.isdigit() or "." not in text)):
        raise ArgumentTypeError(f"{text!r} is not an amount of dollars, e.g. 2.50")
    return text


def count(text: str) -> int:
    """A number of tokens."""
    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"{text!r} is not a number of tokens")
    return int(text)


def whole_number(text: str) -> int:
    """A whole number from 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def seconds(text: str) -> float:
    """A wall clock, up to an hour."""
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
    """Not a number where it is none: outside of every bound."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def add_offline(parser: "Options") -> None:
    """``--offline``."""
    parser.add_argument(
        "--offline",
        action="store_true",
        help="do not ask a registry if the files suffice; yanked releases are not noticed then",
    )


def add_allow_host(parser: "Options") -> None:
    """``--allow-host``."""
    parser.add_argument(
        "--allow-host",
        action="append",
        type=_host,
        default=[],
        metavar="HOST[:PORT]",
        help="let package clients ask a host that only the repository names (can be given again)",
    )


def add_ages(parser: "Options") -> None:
    """``--release-age``, ``--age-exception``, ``--because``."""
    parser.add_argument(
        "--release-age",
        type=parse_days,
        metavar="DAYS",
        help="take no release that was published less than DAYS days ago, besides the project's own rules "
        "(default: FALLBACK_TIER_RELEASE_AGE)",
    )
    parser.add_argument(
        "--age-exception",
        action="append",
        type=words,
        default=[],
        metavar="PACKAGE",
        help="exempt PACKAGE from every rule on the age of releases, for this fix alone; recorded, with "
        "--because (can be given again)",
    )
    parser.add_argument(
        "--because", type=words, metavar="TEXT", help="why --age-exception is needed"
    )


def add_scan_rules(parser: "Options") -> None:
    """``--severity``, ``--production``, ``--ignore``."""
    parser.add_argument(
        "--severity",
        choices=SEVERITIES,
        help="show this severity and higher ones, and those that no database states (none: all)",
    )
    parser.add_argument(
        "--production",
        action=argparse.BooleanOptionalAction,
        help="leave out what is installed for development alone",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        type=_ignored,
        metavar="ID,DATE,REASON",
        help="leave this advisory until the end of DATE (2026-12-31), and say so; may be repeated",
    )


def _ignored(text: str) -> "Ignored":
    from fallback_tier.configured import ignored_of

    try:
        return ignored_of(text)
    except ValueError:
        message = f"{text!r} is not ID,DATE,REASON (GHSA-…,2026-12-31,no untrusted input)"
        raise ArgumentTypeError(message) from None


def parse_days(text: str) -> int:
    """A number of days, up to ten years."""
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
