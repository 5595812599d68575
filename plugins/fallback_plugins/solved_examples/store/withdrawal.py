"""Taking a record out that was found wrong: it is never found again, and stays on file with why."""

import sqlite3
from datetime import datetime

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.store.schema import State
from fallback_tier.errors import InputError

_COLUMNS = "example_id, content_sha256, reason, by, at"


class Withdrawal(Frozen):
    """Who took which record out, when (UTC) and why."""

    example_id: str
    content_sha256: Digest
    reason: str
    by: str
    at: datetime


def withdraw(connection: sqlite3.Connection, withdrawal: Withdrawal, row: int) -> None:
    """Take the live record ``row`` out. Its chunks go; its vectors die with them."""
    drop(connection, row, State.WITHDRAWN)
    connection.execute(
        f"INSERT INTO withdrawals ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
        [*withdrawal.model_dump(exclude={"at"}).values(), withdrawal.at.isoformat()],
    )


def drop(connection: sqlite3.Connection, row: int, state: State) -> None:
    """A live record becomes ``state``; nothing of it is searched from here on."""
    connection.execute("UPDATE examples SET state = ? WHERE id = ?", [state.value, row])
    connection.execute("DELETE FROM chunks WHERE example = ?", [row])


def is_withdrawn(connection: sqlite3.Connection, example_id: str, content: Digest) -> bool:
    """By id or by content: a corrected record takes an id of its own.

    By content alone, a data set that says the same in other words would bring a wrong fix back.
    """
    found = connection.execute(
        "SELECT 1 FROM withdrawals WHERE example_id = ? OR content_sha256 = ?",
        [example_id, content],
    )
    return found.fetchone() is not None


def all_withdrawals(connection: sqlite3.Connection) -> tuple[Withdrawal, ...]:
    """Every withdrawal, oldest first."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM withdrawals ORDER BY id")  # noqa: S608
    fields = Withdrawal.model_fields
    return tuple(Withdrawal.model_validate(dict(zip(fields, row, strict=True))) for row in rows)


def require_text(value: str, what: str) -> str:
    """Raises InputError for an empty reason or name: a withdrawal without one explains nothing."""
    if not value.strip():
        raise InputError(
            f"A withdrawal needs a {what}.", next_step=f"State the {what}.", kind="text_missing"
        )
    return value.strip()
