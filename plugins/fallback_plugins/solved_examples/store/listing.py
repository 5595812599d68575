"""What is in a memory, one line a version, without reading the records themselves."""

import json
from collections.abc import Iterator
from datetime import datetime

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_plugins.solved_examples.store.schema import State
from fallback_tier.advisory import canonical_name

#: Lines that are held at once.
_PAGE = 500

_COLUMNS = (
    "id, example_id, version, state, json_extract(record, '$.advisory_id'), ecosystem, package, "
    "language, cwe, json_extract(record, '$.provenance.origin'), content_sha256, added_at"
)


class Selection(Frozen):
    """Which records are meant: all that agree in what is given."""

    ecosystem: str | None = None
    package: str | None = None
    language: str | None = None
    cwe: str | None = None
    #: None: every state.
    state: State | None = State.LIVE


class Listed(Frozen):
    """One version of a record."""

    example_id: str
    version: int
    state: State
    advisory_id: str
    ecosystem: str
    package: str
    language: str
    cwe: tuple[str, ...]
    origin: str
    content_sha256: Digest
    added_at: datetime


def listing(store: ExampleStore, selection: Selection) -> Iterator[Listed]:
    """The versions that are meant, in the order in which they came. Raises ExampleStoreError."""
    where, values = _conditions(selection)
    last = 0
    while True:
        with store.reading(as_is=True) as connection:
            page = connection.execute(
                f"SELECT {_COLUMNS} FROM examples WHERE id > ? {where} ORDER BY id LIMIT ?",  # noqa: S608
                [last, *values, _PAGE],
            ).fetchall()
        yield from (_listed(*row[1:]) for row in page)
        if len(page) < _PAGE:
            return
        last = page[-1][0]


def _conditions(selection: Selection) -> tuple[str, list[str]]:
    """SQL of ours, and its values. A package's name counts as each ecosystem reads it."""
    given = {
        "ecosystem = ?": selection.ecosystem,
        "language = ?": selection.language,
        "state = ?": selection.state,
        "EXISTS (SELECT 1 FROM json_each(cwe) WHERE value = ?)": selection.cwe,
    }
    conditions = {sql: [str(value)] for sql, value in given.items() if value is not None}
    if selection.package is not None:
        names = [canonical_name("PyPI", selection.package), selection.package]
        conditions["package = CASE ecosystem WHEN 'PyPI' THEN ? ELSE ? END"] = names
    return (
        "".join(f"AND {sql} " for sql in conditions),
        [value for values in conditions.values() for value in values],
    )


def _listed(*row: object) -> Listed:
    facts = dict(zip(Listed.model_fields, row, strict=True))
    return Listed.model_validate({**facts, "cwe": json.loads(str(facts["cwe"]))})
