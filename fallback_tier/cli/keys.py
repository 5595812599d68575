"""``fallback-tier keys``: API keys of a service, running or not, and the people who sign in there."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal

from rich.console import Console

from fallback_audit.frozen import Frozen
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import state_dir
from fallback_tier.cli.output import print_json
from fallback_tier.cli.remediation import line, safe
from fallback_tier.cli.results import print_result
from fallback_tier.errors import ConfigurationError
from fallback_tier.service.database import Database, service_db
from fallback_tier.service.keys import KeyRecord, KeyStore, NewKey, utc_now
from fallback_tier.service.people import People, Person
from fallback_tier.service.roles import Role

#: More hours would be as good as for ever.
_MAX_HOURS = 100 * 366 * 24.0


class KeyMade(KeyRecord):
    """What ``keys new --json`` and ``keys rotate --json`` print: the key itself, this once."""

    secret: str


class KeyList(Frozen):
    """What ``keys list --json`` prints, the oldest first."""

    keys: tuple[KeyRecord, ...]


class PersonList(Frozen):
    """What ``keys people --json`` prints, by name."""

    people: tuple[Person, ...]


class PersonRemoved(Frozen):
    """What ``keys remove-person --json`` prints: a name."""

    removed: str


class SessionsEnded(Frozen):
    """What ``keys end-sessions --json`` prints."""

    sessions: Literal["ended"] = "ended"


def new(arguments: argparse.Namespace) -> int:
    """Make a key. Raises ConfigurationError."""
    roles = [Role(role) for role in arguments.role]
    lasts = None if arguments.days is None else _hours("--days", arguments.days * 24)
    with _keys(arguments) as keys:
        _show_new(keys.new(arguments.name, roles, lasts), as_json=arguments.json)
    return exit_codes.OK


def rotate(arguments: argparse.Namespace) -> int:
    """Make a key that replaces another. Raises NotFoundError."""
    with _keys(arguments) as keys:
        new_key = keys.rotate(arguments.key_id, _hours("--hours", arguments.hours))
        _show_new(new_key, as_json=arguments.json)
    return exit_codes.OK


def revoke(arguments: argparse.Namespace) -> int:
    """End a key. Raises NotFoundError."""
    with _keys(arguments) as keys:
        revoked = keys.revoke(arguments.key_id)
    message = f"[bold]revoked[/]  {revoked.key_id} ({safe(revoked.name)})"
    return print_result(arguments, revoked, message)


def show_list(arguments: argparse.Namespace) -> int:
    """Print every key, the oldest first."""
    with _keys(arguments) as keys:
        records = keys.all()
    lines = [
        f"{key.key_id}  {safe(key.name)}  {', '.join(key.roles)}  {_standing(key)}"
        for key in records
    ]
    none = "there is no key; `fallback-tier serve` makes an admin's at its first start"
    document = KeyList(keys=tuple(records))
    return print_result(arguments, document, *(lines or [none]))


def person(arguments: argparse.Namespace) -> int:
    """Let a person sign in. Raises ConfigurationError."""
    password = _password()
    with _database(arguments) as database:
        saved = People(database).put(
            arguments.name, password, [Role(role) for role in arguments.role]
        )
    message = f"[bold]{safe(saved.name)}[/] can sign in: {', '.join(saved.roles)}"
    return print_result(arguments, saved, message)


def show_people(arguments: argparse.Namespace) -> int:
    """Print the people who can sign in, by name."""
    with _database(arguments) as database:
        people = People(database).all()
    document = PersonList(people=tuple(people))
    lines = (f"{safe(person.name)}  {', '.join(person.roles)}" for person in people)
    return print_result(arguments, document, *lines)


def remove_person(arguments: argparse.Namespace) -> int:
    """Remove a person. Raises NotFoundError."""
    with _database(arguments) as database:
        People(database).remove(arguments.name)
    message = f"[bold]{safe(arguments.name)}[/] can't sign in any more"
    return print_result(arguments, PersonRemoved(removed=arguments.name), message)


def end_sessions(arguments: argparse.Namespace) -> int:
    """End all sessions: everybody signs in again."""
    with _database(arguments) as database:
        People(database).end_sessions()
    message = "[bold]all sessions have ended[/]: people sign in again; keys work on"
    return print_result(arguments, SessionsEnded(), message)


def _password() -> str:
    """Return a password: typed on a terminal, without echo, or the first line of standard input."""
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("password: ")
    return sys.stdin.readline().rstrip("\n")


def _database(arguments: argparse.Namespace) -> Database:
    return Database(service_db(state_dir(arguments)))


@contextmanager
def _keys(arguments: argparse.Namespace) -> Iterator[KeyStore]:
    with _database(arguments) as database:
        yield KeyStore(database)


def _show_new(new_key: NewKey, *, as_json: bool) -> None:
    if as_json:
        print_json(KeyMade(**dict(new_key.record), secret=new_key.secret).model_dump(mode="json"))
        return
    line(
        Console(stderr=True),
        f"[bold]{new_key.record.key_id}[/] ({safe(new_key.record.name)}), shown this once:",
    )
    sys.stdout.write(new_key.secret + "\n")


def _standing(key: KeyRecord) -> str:
    if key.revoked_at is not None:
        return f"revoked {key.revoked_at:%Y-%m-%d %H:%M}"
    if key.expires_at is None:
        return "valid"
    how = "valid until" if key.valid(utc_now()) else "expired"
    return f"{how} {key.expires_at:%Y-%m-%d %H:%M}"


def _hours(option: str, hours: float) -> timedelta:
    if not 0 <= hours <= _MAX_HOURS:  # refuses NaN, too
        raise ConfigurationError(
            f"{option}: that is no length of time.",
            next_step="Give a number from 0 on.",
            kind="bad_duration",
        )
    return timedelta(hours=hours)
