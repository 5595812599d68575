"""The verbs of ``fallback-tier audit`` that sign and prove."""

from fallback_tier.cli import arguments
from fallback_tier.cli.arguments import words


def add_keygen(verbs: "arguments.Verbs") -> None:
    """``audit keygen``."""
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
    arguments.finish(keygen, "audit.keys:keygen")


def add_checkpoint(verbs: "arguments.Verbs") -> None:
    """``audit checkpoint``."""
    checkpoint = verbs.add_parser("checkpoint", help="sign what is on record, now")
    arguments.finish(checkpoint, "audit.keys:checkpoint")


def add_prove(verbs: "arguments.Verbs") -> None:
    """``audit prove``."""
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
    arguments.finish(prove, "audit.prove:prove")
