"""People of one machine: a name, a password, roles. scrypt (RFC 7914) makes guesses expensive."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Collection
from pathlib import Path

from fallback_audit.frozen import Frozen
from fallback_tier.errors import ConfigurationError
from fallback_tier.files.folders import writing_below
from fallback_tier.service.database import Database, service_dir
from fallback_tier.service.refusals import NotFoundError
from fallback_tier.service.roles import Caller, Role

#: Cost of one guess: 32 MiB and some 80 ms.
_COST, _BLOCK, _MAX_MEMORY = 2**15, 8, 64 * 1024 * 1024

#: NIST SP 800-63B: length counts, composition does not. The upper bound limits the work of hashing.
MIN_PASSWORD, MAX_PASSWORD = 12, 1_000

MAX_NAME_CHARS = 100

_SALT_BYTES = 16

#: Dummy salt and hash, so that unknown names take equally long.
_NOBODY = (b"\0" * _SALT_BYTES, b"\0" * 64)


class Person(Frozen):
    """What is kept, but for the password's hash."""

    name: str
    roles: tuple[Role, ...]


class People:
    """The people of one service."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, name: str, password: str, roles: Collection[Role]) -> Person:
        """Add a person, or give one a new password and roles. Raises ConfigurationError."""
        name = name.strip()
        if not name.isprintable() or not 0 < len(name) <= MAX_NAME_CHARS or not roles:
            raise ConfigurationError(
                f"A person has a name of 1 to {MAX_NAME_CHARS} printable characters, and a role.",
                next_step="Give both.",
                kind="bad_name",
            )
        if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
            raise ConfigurationError(
                f"A password has {MIN_PASSWORD} to {MAX_PASSWORD:,} characters, and this has "
                f"{len(password)}.",
                next_step="Take some words that belong to nothing.",
                kind="bad_password",
            )
        person = Person(name=name, roles=tuple(role for role in Role if role in roles))
        salt = secrets.token_bytes(_SALT_BYTES)
        with self._database.writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO people VALUES (?,?,?,?)",
                (name, salt, _hash(password, salt), " ".join(person.roles)),
            )
        return person

    def remove(self, name: str) -> None:
        """Remove a person, which also ends that person's sessions. Raises NotFoundError."""
        with self._database.writing() as db:
            if not db.execute("DELETE FROM people WHERE name = ?", (name,)).rowcount:
                raise NotFoundError(
                    f"There is nobody called {name!r}.",
                    next_step="`fallback-tier keys people`.",
                    kind="no_such_person",
                )

    def all(self) -> tuple[Person, ...]:
        """Return everyone, by name."""
        with self._database.reading() as db:
            rows = db.execute("SELECT name, roles FROM people ORDER BY name").fetchall()
        return tuple(Person(name=name, roles=_roles(roles)) for name, roles in rows)

    def signed_in(self, name: str, password: str) -> Caller | None:
        """Return the caller with this name and password, or None. It takes equally long in either case."""
        with self._database.reading() as db:
            row = db.execute("SELECT salt, hash FROM people WHERE name = ?", (name,)).fetchone()
        salt, stored = tuple(row) if row is not None else _NOBODY
        same = hmac.compare_digest(_hash(password[:MAX_PASSWORD], salt), stored)
        return self.caller(name) if same and row is not None else None

    def stamp(self, name: str) -> str | None:
        """Return a fingerprint of a person's password hash, or None for an unknown person.

        It does not reveal the hash, and changes with the password.
        """
        with self._database.reading() as db:
            row = db.execute("SELECT salt, hash FROM people WHERE name = ?", (name,)).fetchone()
        return None if row is None else hashlib.sha256(row["salt"] + row["hash"]).hexdigest()

    def generation(self) -> str:
        """Return the generation that every session opened now carries."""
        with self._database.reading() as db:
            return str(db.execute("SELECT generation FROM sessions").fetchone()[0])

    def is_open(self, generation: str, session_sha256: str) -> bool:
        """Return whether no process of the service has ended this session, alone or with all others."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT 1 FROM sessions WHERE generation = ? AND NOT EXISTS"
                " (SELECT 1 FROM ended_sessions WHERE session_sha256 = ?)",
                (generation, session_sha256),
            ).fetchone()
        return row is not None

    def end_session(self, session_sha256: str, until: float, now: float) -> None:
        """End a session, so that a copy of its cookie is worthless, too.

        ``until``: when it would have expired; sessions that expired by ``now`` are removed (seconds since
        the epoch).
        """
        with self._database.writing() as db:
            db.execute("DELETE FROM ended_sessions WHERE until <= ?", (now,))
            db.execute("INSERT OR IGNORE INTO ended_sessions VALUES (?,?)", (session_sha256, until))

    def end_sessions(self) -> None:
        """End all sessions, also those of a running service and of people of an issuer."""
        with self._database.writing() as db:
            db.execute("UPDATE sessions SET generation = ?", (secrets.token_hex(_SALT_BYTES),))
            db.execute("DELETE FROM ended_sessions")

    def caller(self, name: str) -> Caller | None:
        """Return the caller of this name with its current roles, or None for an unknown person."""
        match = next((person for person in self.all() if person.name == name), None)
        return None if match is None else person_caller(match.name, match.roles)


def person_caller(name: str, roles: Collection[Role], issuer: str | None = None) -> Caller:
    """Return a person as a caller.

    ``issuer``: the OpenID Connect issuer that vouches for the name. It goes on record, so that an issuer's
    people are not confused with those of this machine. An issuer's address has no ``#``, so the part before
    the first one is the issuer.
    """
    known_as = f"person:{name}" if issuer is None else f"oidc:{issuer}#{name}"
    return Caller(name=known_as, roles=frozenset(roles), is_person=True)


def session_key(state_dir: Path) -> str:
    """Return the key that signs sessions, created once and readable by its owner only. Raises
    StateFolderError.
    """
    path = service_dir(state_dir) / "session.key"
    with writing_below(state_dir):
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}.part")
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
            part.rename(path)
        return path.read_text(encoding="ascii")


def _hash(password: str, salt: bytes) -> bytes:
    encoded = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(encoded, salt=salt, n=_COST, r=_BLOCK, p=1, maxmem=_MAX_MEMORY)


def _roles(text: str) -> tuple[Role, ...]:
    return tuple(Role(role) for role in text.split())
