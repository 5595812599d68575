"""The verbs of ``fallback-tier keys``."""

import argparse

from fallback_tier.cli.arguments import finish

#: As in fallback_tier.service.roles, which a help text need not import.
ROLES = ("submit", "read", "decide", "admin")


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """new, list, rotate, revoke; person, people, remove-person, end-sessions."""
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
    _finish(new, "new")
    _finish(
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
    _finish(rotate, "rotate")
    revoke = verbs.add_parser("revoke", help="end a key now")
    revoke.add_argument("key_id", metavar="KEY", help="as `keys list` prints it: key-…")
    _finish(revoke, "revoke")
    person = verbs.add_parser(
        "person",
        help="let somebody sign in with a password",
        description="Let somebody sign in with a password, which is read from standard input, or asked\n"
        "for on a terminal. Given again, it replaces password and roles. The service's configuration\n"
        "has people.local = true for that.",
    )
    person.add_argument("name", metavar="NAME", help="decisions are on record as person:NAME")
    person.add_argument("--role", action="append", required=True, choices=ROLES, help="as for new")
    _finish(person, "person")
    _finish(verbs.add_parser("people", help="who can sign in with a password"), "show_people")
    gone = verbs.add_parser("remove-person", help="let somebody in no more, at once")
    gone.add_argument("name", metavar="NAME", help="as `keys people` prints it")
    _finish(gone, "remove_person")
    ended = verbs.add_parser(
        "end-sessions",
        help="sign everybody out, at once",
        description="End every session that is open, of a running service too: of people with a password,\n"
        "of an issuer's people, of browsers that gave a key. Keys and passwords stay as they are.",
    )
    _finish(ended, "end_sessions")


def _finish(parser: argparse.ArgumentParser, function: str) -> None:
    finish(parser, f"keys.command:{function}", on_record=False)
