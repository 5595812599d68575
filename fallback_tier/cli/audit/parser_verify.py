"""The verbs of ``fallback-tier audit`` that verify, export and import."""

from fallback_tier.cli import arguments


def add_verify(verbs: "arguments.Verbs") -> None:
    """``audit verify``."""
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
    arguments.finish(verify, "audit.verify:verify")


def add_export(verbs: "arguments.Verbs") -> None:
    """``audit export``."""
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
    arguments.finish(export, "audit.export:export_")


def add_import(verbs: "arguments.Verbs") -> None:
    """``audit import``."""
    imported = verbs.add_parser(
        "import",
        help="make a new store from an export",
        description="Verify an export of a whole record, then make a new store of it, with its\n"
        "checkpoints and evidence: all of it, or nothing.",
    )
    imported.add_argument("file", metavar="FILE", help="an export, or - for standard input")
    arguments.add_trust(imported)
    arguments.finish(imported, "audit.export:import_")
