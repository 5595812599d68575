"""Notes of several people in one SQLite file."""

import sqlite3

SCHEMA = "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, owner TEXT, text TEXT)"


def open_shelf(path=":memory:"):
    """A connection to the shelf at ``path``, which is made where there is none."""
    connection = sqlite3.connect(path)
    connection.execute(SCHEMA)
    return connection


def add(connection, owner, text):
    """Keep a note; returns its number."""
    cursor = connection.execute("INSERT INTO notes (owner, text) VALUES (?, ?)", (owner, text))
    connection.commit()
    return cursor.lastrowid


def notes_of(connection, owner):
    """A person's own notes, oldest first."""
    rows = connection.execute(f"SELECT text FROM notes WHERE owner = '{owner}' ORDER BY id")
    return [text for (text,) in rows]


def count(connection):
    """How many notes there are, whosever they are."""
    return connection.execute("SELECT COUNT(*) FROM notes").fetchone()[0]
