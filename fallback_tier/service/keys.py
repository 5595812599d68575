"""API keys: generated at random, stored as SHA-256, compared in constant time (ADR-0081).

A key is ``ftk_`` and 256 random bits, too many to guess, so a plain hash is enough. The hash can't be
reversed; a key is shown once, when it is generated.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from sqlite3 import Connection, Row
from typing import NamedTuple

from fallback_audit.frozen import Frozen
from fallback_tier.errors import ConfigurationError
from fallback_tier.service.database import Database
from fallback_tier.service.refusals import NotFoundError
from fallback_tier.service.roles import Caller, Role

#: Prefix of every key, so that secret scanners recognise it.
PREFIX = "ftk_"

#: Random bytes of a key (256 bits).
KEY_BYTES = 32

#: How long the old key of a rotation still works, so that its users can be informed (24 h).
OVERLAP = timedelta(hours=24)

#: Longest name of a key: it appears in the audit trail and in lists.
MAX_NAME_CHARS = 100


class KeyRecord(Frozen):
    """What is kept of a key: all but the key."""

    key_id: str
    name: str
    roles: tuple[Role, ...]
    made_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def valid(self, now: datetime) -> bool:
        """Return whether the key is valid at this time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class NewKey(NamedTuple):
    """A new key. ``secret`` is shown now, or never."""

    record: KeyRecord
    secret: str


def utc_now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


class KeyStore:
    """The keys of one service."""

    def __init__(self, database: Database, clock: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._clock = clock

    def new(self, name: str, roles: Collection[Role], lasts: timedelta | None = None) -> NewKey:
        """Generate a key. Raises ConfigurationError if it has no role or no valid name, or if a key has
        or had this name, since the audit trail could not tell the two apart.
        """
        name = _checked_name(name)
        if not roles:
            raise ConfigurationError(
                f"Key {name!r} has no role, and could do nothing.",
                next_step=f"Give it some of {', '.join(Role)}.",
                kind="no_role",
            )
        now = self._clock()
        with self._database.writing() as db:
            if any(key.name == name for key in _all(db)):
                raise ConfigurationError(
                    f"There is or was a key {name!r}, and the record would not tell the two apart.",
                    next_step="Choose another name; or rotate that key, unless it was revoked.",
                    kind="name_taken",
                )
            return _made(db, name, roles, now, None if lasts is None else now + lasts)

    def rotate(self, key_id: str, overlap: timedelta = OVERLAP) -> NewKey:
        """Return a new key with the same name, roles and lifetime; the old one ends after ``overlap``,
        unless it expires earlier.

        Raises NotFoundError if there is no such key, or it was revoked.
        """
        now = self._clock()
        with self._database.writing() as db:
            old = _not_revoked(db, key_id)
            lifetime = None if old.expires_at is None else old.expires_at - old.made_at
            ends = now + overlap if old.expires_at is None else min(now + overlap, old.expires_at)
            db.execute(
                "UPDATE keys SET expires_at = ? WHERE key_id = ?", (ends.isoformat(), old.key_id)
            )
            expires = None if lifetime is None else now + lifetime
            return _made(db, old.name, old.roles, now, expires)

    def revoke(self, key_id: str) -> KeyRecord:
        """Revoke a key from now on. Raises NotFoundError."""
        now = self._clock()
        with self._database.writing() as db:
            key = _not_revoked(db, key_id)
            db.execute("UPDATE keys SET revoked_at = ? WHERE key_id = ?", (now.isoformat(), key_id))
        return key.model_copy(update={"revoked_at": now})

    def all(self) -> tuple[KeyRecord, ...]:
        """Return every key that ever was, the oldest first."""
        with self._database.reading() as db:
            return _all(db)

    def caller(self, secret: str) -> Caller | None:
        """Return the caller who presents this key, or None if it is not valid now.

        The row is looked up by the hash of what was presented, so that neither timing nor anything else
        reveals how close a guess was; the hashes are compared once more in constant time.
        """
        return self.caller_of(digest_of(secret))

    def caller_of(self, digest: str) -> Caller | None:
        """Return the caller by the digest of a key, for a session, which stores only that."""
        with self._database.reading() as db:
            row = db.execute("SELECT * FROM keys WHERE sha256 = ?", (digest,)).fetchone()
        if row is None or not hmac.compare_digest(row["sha256"], digest):
            return None
        key = _record(row)
        if not key.valid(self._clock()):
            return None
        return Caller(name=f"key:{key.name}", roles=frozenset(key.roles), expires_at=key.expires_at)


def _made(
    db: Connection,
    name: str,
    roles: Collection[Role],
    now: datetime,
    expires: datetime | None,
) -> NewKey:
    secret = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    record = KeyRecord(
        key_id=f"key-{secrets.token_hex(4)}",
        name=name,
        roles=tuple(role for role in Role if role in roles),
        made_at=now,
        expires_at=expires,
    )
    db.execute(
        "INSERT INTO keys (key_id, name, sha256, roles, made_at, expires_at) VALUES (?,?,?,?,?,?)",
        (
            record.key_id,
            name,
            digest_of(secret),
            " ".join(record.roles),
            now.isoformat(),
            None if expires is None else expires.isoformat(),
        ),
    )
    return NewKey(record, secret)


def digest_of(secret: str) -> str:
    """Return the stored form of a secret: SHA-256, in hex."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _not_revoked(db: Connection, key_id: str) -> KeyRecord:
    for key in _all(db):
        if key.key_id == key_id and key.revoked_at is None:
            return key
    raise NotFoundError(
        f"There is no key {key_id!r}, or it was revoked.",
        next_step="`fallback-tier keys list` shows all keys.",
        kind="no_such_key",
    )


def _all(db: Connection) -> tuple[KeyRecord, ...]:
    return tuple(_record(row) for row in db.execute("SELECT * FROM keys ORDER BY made_at, key_id"))


def _record(row: Row) -> KeyRecord:
    return KeyRecord(
        key_id=row["key_id"],
        name=row["name"],
        roles=tuple(Role(role) for role in row["roles"].split()),
        made_at=row["made_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )


def _checked_name(name: str) -> str:
    name = name.strip()
    if not name.isprintable() or not 0 < len(name) <= MAX_NAME_CHARS:
        raise ConfigurationError(
            f"A key's name has 1 to {MAX_NAME_CHARS} printable characters, and this is {name[:120]!r}.",
            next_step="Call it after the program that will use it.",
            kind="bad_name",
        )
    return name
