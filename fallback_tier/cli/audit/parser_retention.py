"""The verbs of ``fallback-tier audit`` about what is taken away, or is gone."""

from argparse import ArgumentTypeError
from datetime import UTC, datetime

from fallback_tier.cli import arguments


def add_redact(verbs: "arguments.Verbs") -> None:
    """``audit redact``."""
    redact = verbs.add_parser(
        "redact",
        help="remove a person's words from an event, on record",
        description="Replace the words in event SEQ by [redacted], for good. Its digest stays in the\n"
        "chain, a signed tombstone replaces it, and the record says who did it and\n"
        "why, so that everything still verifies. An event can be redacted once.",
    )
    redact.add_argument(
        "seq", metavar="SEQ", type=number, help="the event's number, as `audit show` prints it"
    )
    redact.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="NAME",
        help="only this member of the event; may be given again (default: all that hold words)",
    )
    redact.add_argument(
        "--with-evidence", action="store_true", help="delete the evidence that it names, too"
    )
    arguments.finish(redact, "audit.retention:redact", signed=True)


def add_seal(verbs: "arguments.Verbs") -> None:
    """``audit seal``."""
    seal = verbs.add_parser(
        "seal",
        help="move old events to a sealed file",
        description="Move the events before DATE, unchanged, from the store to a file below the state\n"
        "folder that can be verified alone. No fix is split, and none that has not ended is\n"
        "sealed: what prevents sealing is reported.",
    )
    seal.add_argument(
        "--before",
        required=True,
        type=day,
        metavar="DATE",
        help="e.g. 2026-01-31 (UTC); today at the latest",
    )
    seal.add_argument("--dry-run", action="store_true", help="show what would be sealed")
    arguments.finish(seal, "audit.retention:seal", signed=True)


def add_retire(verbs: "arguments.Verbs") -> None:
    """``audit retire``."""
    retire = verbs.add_parser(
        "retire",
        help="delete a sealed file whose retention is over",
        description="Record that a sealed segment is deleted, then delete its file. The record still\n"
        "verifies, by the segment's signed statement. The oldest is deleted first.",
    )
    retire.add_argument(
        "segment", metavar="SEGMENT", type=number, help="its number: the first of its file's name"
    )
    arguments.finish(retire, "audit.retention:retire", signed=True)


def add_evidence(verbs: "arguments.Verbs") -> None:
    """``audit evidence check``, ``audit evidence gc``."""
    evidence = verbs.add_parser("evidence", help="check the evidence store, or clean it up")
    actions = evidence.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="check that all evidence is there, and unaltered")
    arguments.finish(check, "audit.evidence:check")
    gc = actions.add_parser(
        "gc",
        help="delete evidence whose retention is over",
        description="Delete the evidence of fixes that ended before a time, and files that no event\n"
        "names. It is recorded first. Evidence of a fix that has not ended is never deleted.",
    )
    gc.add_argument(
        "--older-than",
        type=number,
        metavar="DAYS",
        help="of fixes that ended so many days ago or earlier (at least 1)",
    )
    gc.add_argument(
        "--max-bytes",
        type=number,
        metavar="N",
        help="then of those that ended first, until no more than N bytes are left",
    )
    gc.add_argument("--dry-run", action="store_true", help="show what would be deleted")
    arguments.finish(gc, "audit.evidence:gc", signed=True)


def add_begin_again(verbs: "arguments.Verbs") -> None:
    """``audit begin-again``."""
    again = verbs.add_parser(
        "begin-again",
        help="confirm that the record was removed on purpose, and start a new one",
        description="If the last signed checkpoint is gone, nothing more is recorded: an attacker may "
        "have\n"
        "removed it. If you removed the record on purpose, confirm it here. The first event of\n"
        "the new record says who, why, and which checkpoint is gone.",
    )
    arguments.finish(again, "audit.again:begin_again", signed=True)


def number(text: str) -> int:
    """A whole number from 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def day(text: str) -> datetime:
    """A date or a time; UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no date, e.g. 2026-01-31") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
