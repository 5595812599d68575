"""Idempotency keys: one table and one rule for all that is asked once and answered the same.

The same key with another request is a conflict; with the same one it is answered as before, by the fix
that it submitted or with the answer that it had. What is being answered has neither yet.
"""

import hashlib
import json
from sqlite3 import Connection
from typing import NamedTuple

from pydantic import BaseModel

from fallback_tier.service.refusals import ConflictError

#: A token is good for as long as a client may reasonably try again (48 h).
TOKEN_SECONDS = 48 * 3_600.0


class Token(NamedTuple):
    """An ``Idempotency-Key``, and the digest of what came with it."""

    text: str
    body_sha256: str

    @classmethod
    def of(cls, text: str, what: str, body: BaseModel) -> "Token":
        """Two requests are the same where they ask the same (``what``) with the same values, however
        they are spelled."""
        message = json.dumps([what, body.model_dump(mode="json")], sort_keys=True)
        return cls(text, hashlib.sha256(message.encode()).hexdigest())


class Known(NamedTuple):
    """What a token has led to: a submitted fix, an answer, or neither yet."""

    fix_id: str | None
    answer: str | None


def known(db: Connection, owner: str, token: Token, now: float) -> Known | None:
    """What this request has led to; None: it is new. ``now``: seconds since the epoch.

    Raises ConflictError: the token came with another request.
    """
    db.execute("DELETE FROM requests WHERE kept_until < ?", (now,))
    row = db.execute(
        "SELECT * FROM requests WHERE owner = ? AND token = ?", (owner, token.text)
    ).fetchone()
    if row is None:
        return None
    if row["body_sha256"] != token.body_sha256:
        was = "" if row["fix_id"] is None else f": that was fix {row['fix_id']}"
        raise ConflictError(
            f"This Idempotency-Key came with another body before{was}.",
            next_step="Use a new key for a new request; send the same body to ask again.",
            kind="another_body",
        )
    return Known(row["fix_id"], row["answer"])


def remember(
    db: Connection, owner: str, token: Token, now: float, fix_id: str | None = None
) -> None:
    """From here on the request is known. Without ``fix_id`` it is being answered."""
    facts = (owner, token.text, token.body_sha256, fix_id, now + TOKEN_SECONDS)
    db.execute(
        "INSERT INTO requests (owner, token, body_sha256, fix_id, kept_until) VALUES (?,?,?,?,?)",
        facts,
    )


def answered(db: Connection, owner: str, token: Token, answer: str) -> None:
    """``answer``: JSON, given again from here on."""
    db.execute(
        "UPDATE requests SET answer = ? WHERE owner = ? AND token = ?", (answer, owner, token.text)
    )


def forget(db: Connection, owner: str, token: Token) -> None:
    """It came to nothing, and may be tried again; what has an answer keeps it."""
    db.execute(
        "DELETE FROM requests WHERE owner = ? AND token = ? AND fix_id IS NULL AND answer IS NULL",
        (owner, token.text),
    )


def forget_unanswered(db: Connection) -> None:
    """Whoever asked these was cut off with the service that answered them."""
    db.execute("DELETE FROM requests WHERE fix_id IS NULL AND answer IS NULL")
