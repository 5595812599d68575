"""The verbs of ``fallback-tier audit``."""

import argparse
from argparse import ArgumentTypeError
from datetime import UTC, datetime

from fallback_tier.cli import arguments
from fallback_tier.cli.arguments import add_fix_id, finish, whole_number, words


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """Add the verbs that read, verify, export, sign, redact, seal and set up the audit trail."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    log = verbs.add_parser("log", help="list the fixes on record")
    show = verbs.add_parser("show", help="show one fix, event by event")
    add_fix_id(show, "audit log")
    stats = verbs.add_parser("stats", help="show how often a judge changed something, and its cost")
    for verb, name in ((log, "log"), (show, "show"), (stats, "stats")):
        finish(verb, f"audit.trails:{name}")
    _add_verify(verbs)
    _add_export(verbs)
    _add_import(verbs)
    _add_checkpoint(verbs)
    _add_keygen(verbs)
    _add_prove(verbs)
    _add_redact(verbs)
    _add_seal(verbs)
    _add_retire(verbs)
    _add_evidence(verbs)
    _add_begin_again(verbs)
    _add_init_postgres(verbs)


def _add_verify(verbs: "arguments.Verbs") -> None:
    verify = verbs.add_parser(
        "verify",
        help="check the chain, the checkpoints, the evidence and the trace contract",
        description="Check that each event is as it was written, that the events are those that the\n"
        "checkpoints signed, that each recorded verdict has its action, and that the\n"
        "evidence is there. The first bad event is named. Nothing is changed.\n\n"
        "--since-state FILE continues where the last run ended: only newer events are hashed,\n"
        "and fixes that have some are judged whole. It does not notice that an older event,\n"
        "or evidence of another fix, was altered since: run without it from time to time.",
    )
    verify.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="a copy of a store, an export, or - for an export on standard input (default: the "
        "record itself)",
    )
    arguments.add_trust(verify)
    verify.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="FILE",
        help="a checkpoint that you kept: the record must continue from it; may be given again",
    )
    verify.add_argument("--no-evidence", action="store_true", help="read no evidence")
    verify.add_argument(
        "--since-state",
        metavar="FILE",
        help="verify what is new since the run that wrote FILE, then rewrite it (made if missing)",
    )
    finish(verify, "audit.verify:verify")


def _add_export(verbs: "arguments.Verbs") -> None:
    export = verbs.add_parser(
        "export",
        help="write the record, or one fix, to a file that can be verified alone",
        description="Write JSON lines: each event byte for byte, what `audit show` says of it, and the\n"
        "checkpoints. With --fix each event has its proof, and nothing of other fixes is\n"
        "shown. `audit verify FILE` checks it anywhere, with the public key alone.",
    )
    export.add_argument("--fix", metavar="FIX", help="this fix only")
    export.add_argument("--out", metavar="FILE", help="write to FILE (default: standard output)")
    export.add_argument(
        "--with-evidence",
        action="store_true",
        help="include the evidence that the events name, except raw prompts and answers",
    )
    finish(export, "audit.verify:export_")


def _add_import(verbs: "arguments.Verbs") -> None:
    imported = verbs.add_parser(
        "import",
        help="make a new store from an export",
        description="Verify an export of a whole record, then make a new store of it, with its\n"
        "checkpoints and evidence: all of it, or nothing.",
    )
    imported.add_argument("file", metavar="FILE", help="an export, or - for standard input")
    arguments.add_trust(imported)
    finish(imported, "audit.verify:import_")


def _add_keygen(verbs: "arguments.Verbs") -> None:
    keygen = verbs.add_parser(
        "keygen",
        help="make the key that signs checkpoints, or rotate it",
        description="Make an Ed25519 key and print its public half. The first fix does so by itself;\n"
        "an existing key is kept. --rotate makes a new key: both sign until --end-overlap,\n"
        "and the old one stays trusted for what it signed.",
    )
    keygen.add_argument(
        "--name", type=words, metavar="NAME", help="the log's name (default: a random one)"
    )
    keygen.add_argument("--rotate", action="store_true", help="sign with a new key from now on")
    keygen.add_argument(
        "--end-overlap", action="store_true", help="stop signing with the old key, and delete it"
    )
    keygen.add_argument("--by", type=words, metavar="NAME", help="--rotate: who decides")
    keygen.add_argument("--because", type=words, metavar="TEXT", help="--rotate: why")
    finish(keygen, "audit.setup:keygen")


def _add_checkpoint(verbs: "arguments.Verbs") -> None:
    checkpoint = verbs.add_parser("checkpoint", help="sign what is on record, now")
    finish(checkpoint, "audit.setup:checkpoint")


def _add_prove(verbs: "arguments.Verbs") -> None:
    prove = verbs.add_parser(
        "prove",
        help="prove that an event is on record, or that nothing before it was changed",
        description="Print a proof that whoever has the public key can check, without the record:\n"
        "that event SEQ is covered by the latest checkpoint (C2SP tlog-proof), or, with\n"
        "--from, that the record continues from an old checkpoint. --check checks one.",
    )
    prove.add_argument("seq", nargs="?", type=int, metavar="SEQ", help="an event's number")
    prove.add_argument("--from", dest="old", metavar="FILE", help="a checkpoint that was kept")
    prove.add_argument("--check", metavar="FILE", help="check the proof in FILE; needs no record")
    arguments.add_trust(prove, "--check: ")
    prove.add_argument("-o", "--output", metavar="FILE", help="write the proof to FILE")
    finish(prove, "audit.verify:prove")


def _add_redact(verbs: "arguments.Verbs") -> None:
    redact = verbs.add_parser(
        "redact",
        help="remove a person's words from an event, on record",
        description="Replace the words in event SEQ by [redacted], for good. Its digest stays in the\n"
        "chain, a signed tombstone replaces it, and the record says who did it and\n"
        "why, so that everything still verifies. An event can be redacted once.",
    )
    redact.add_argument(
        "seq",
        metavar="SEQ",
        type=whole_number,
        help="the event's number, as `audit show` prints it",
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
    finish(redact, "audit.retention:redact", signed=True)


def _add_seal(verbs: "arguments.Verbs") -> None:
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
        type=_day,
        metavar="DATE",
        help="e.g. 2026-01-31 (UTC); today at the latest",
    )
    seal.add_argument("--dry-run", action="store_true", help="show what would be sealed")
    finish(seal, "audit.retention:seal", signed=True)


def _add_retire(verbs: "arguments.Verbs") -> None:
    retire = verbs.add_parser(
        "retire",
        help="delete a sealed file whose retention is over",
        description="Record that a sealed segment is deleted, then delete its file. The record still\n"
        "verifies, by the segment's signed statement. The oldest is deleted first.",
    )
    retire.add_argument(
        "segment",
        metavar="SEGMENT",
        type=whole_number,
        help="its number: the first of its file's name",
    )
    finish(retire, "audit.retention:retire", signed=True)


def _add_evidence(verbs: "arguments.Verbs") -> None:
    evidence = verbs.add_parser("evidence", help="check the evidence store, or clean it up")
    actions = evidence.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="check that all evidence is there, and unaltered")
    finish(check, "audit.retention:check")
    gc = actions.add_parser(
        "gc",
        help="delete evidence whose retention is over",
        description="Delete the evidence of fixes that ended before a time, and files that no event\n"
        "names. It is recorded first. Evidence of a fix that has not ended is never deleted.",
    )
    gc.add_argument(
        "--older-than",
        type=whole_number,
        metavar="DAYS",
        help="of fixes that ended so many days ago or earlier (at least 1)",
    )
    gc.add_argument(
        "--max-bytes",
        type=whole_number,
        metavar="N",
        help="then of those that ended first, until no more than N bytes are left",
    )
    gc.add_argument("--dry-run", action="store_true", help="show what would be deleted")
    finish(gc, "audit.retention:gc", signed=True)


def _add_begin_again(verbs: "arguments.Verbs") -> None:
    again = verbs.add_parser(
        "begin-again",
        help="confirm that the record was removed on purpose, and start a new one",
        description="If the last signed checkpoint is gone, nothing more is recorded: an attacker may "
        "have\n"
        "removed it. If you removed the record on purpose, confirm it here. The first event of\n"
        "the new record says who, why, and which checkpoint is gone.",
    )
    finish(again, "audit.setup:begin_again", signed=True)


def _day(text: str) -> datetime:
    """Return a date or a time, in UTC unless it names a zone. Raises ArgumentTypeError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no date, e.g. 2026-01-31") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _add_init_postgres(verbs: "arguments.Verbs") -> None:
    init = verbs.add_parser(
        "init-postgres",
        help="make a chain's tables and roles in PostgreSQL",
        description="Make the schema, its tables and four roles in the database that --audit-store names:\n"
        "an owner, a writer (appends), a reader, a keeper (redacts and seals). The user of the\n"
        "URL must be an administrator. May be run again. See docs/postgresql.md.",
    )
    finish(init, "audit.setup:init_postgres")
