"""Changes of events, by hand: single bytes, whole events, and the whole chain made anew."""

import json
from collections.abc import Callable
from random import Random
from typing import Literal

from fallback_audit.canonical import canonical_bytes, leaf_digest
from tests.campaigns.hostile.audit.rows import Row, flipped, put_rows, read_rows, rechained
from tests.campaigns.hostile.audit.trail_folder import TrailFolder
from tests.unit.audit.tamper import behind_the_triggers

#: Changes the record in that folder. What it did, for the message of a failure.
Mutation = Callable[[TrailFolder, Random], str]


def _on_rows(change: Callable[[list[Row], int, Random], list[Row]]) -> Mutation:
    """A mutation of the list of rows around a random one."""

    def mutate(trail: TrailFolder, chance: Random) -> str:
        rows = read_rows(trail.database)
        at = chance.randrange(len(rows))
        put_rows(trail.database, change(rows, at, chance))
        return f"at event {at + 1} of {len(rows)}"

    return mutate


def _replaced(rows: list[Row], at: int, row: Row) -> list[Row]:
    return [*rows[:at], row, *rows[at + 1 :]]


def _flip(field: Literal["header", "leaf", "payload"]) -> Mutation:
    def change(rows: list[Row], at: int, chance: Random) -> list[Row]:
        row = rows[at]

        def flip(content: bytes) -> bytes:
            # The leaf is text: its lowest bits keep it valid UTF-8.
            return flipped(content, chance.randrange(len(content)), chance.randrange(4))

        match field:
            case "header":
                row = row._replace(header=flip(row.header))
            case "leaf":
                row = row._replace(leaf=flip(row.leaf.encode()).decode())
            case "payload":
                row = row._replace(payload=flip(row.payload))
        return _replaced(rows, at, row)

    return _on_rows(change)


def _other_words(row: Row, chance: Random) -> Row:
    """The payload says something else, and is still an event of its kind."""
    payload = json.loads(row.payload)
    texts = [key for key, value in payload.items() if isinstance(value, str) and key != "kind"]
    if texts:
        key = chance.choice(sorted(texts))
        old = payload[key]
        payload[key] = ("0" if old[:1] != "0" else "1") + old[1:]
    else:
        payload["forged"] = True
    return row._replace(payload=canonical_bytes(payload))


def _other_payload(rows: list[Row], at: int, chance: Random) -> list[Row]:
    return _replaced(rows, at, _other_words(rows[at], chance))


def _other_payload_and_header(rows: list[Row], at: int, chance: Random) -> list[Row]:
    """The event and its leaf agree; what follows does not."""
    forged = rechained(_replaced(rows, at, _other_words(rows[at], chance)), at)[at]
    return _replaced(rows, at, forged)


def _full_rechain(rows: list[Row], at: int, chance: Random) -> list[Row]:
    return rechained(_replaced(rows, at, _other_words(rows[at], chance)), at)


def _rechain_time(rows: list[Row], at: int, chance: Random) -> list[Row]:
    members = rows[at].members | {
        "recorded_at": f"20{chance.randint(10, 99)}-01-01T00:00:00.000000Z"
    }
    return rechained(_replaced(rows, at, rows[at]._replace(header=canonical_bytes(members))), at)


def _rechain_scope(rows: list[Row], at: int, chance: Random) -> list[Row]:
    members = rows[at].members | {"fix_id": "another"}
    return rechained(_replaced(rows, at, rows[at]._replace(header=canonical_bytes(members))), at)


def _rechain_without(rows: list[Row], at: int, chance: Random) -> list[Row]:
    return rechained([*rows[:at], *rows[at + 1 :]], at)


def _rechain_inserted(rows: list[Row], at: int, chance: Random) -> list[Row]:
    return rechained([*rows[:at], chance.choice(rows), *rows[at:]], at)


def _rechain_duplicate(rows: list[Row], at: int, chance: Random) -> list[Row]:
    return rechained([*rows[:at], rows[at], *rows[at:]], at)


def _swapped(rows: list[Row], at: int, chance: Random) -> list[Row]:
    other = chance.choice([number for number in range(len(rows)) if number != at])
    rows = list(rows)
    rows[at], rows[other] = rows[other], rows[at]
    return rows


def _reordered(rows: list[Row], at: int, chance: Random) -> list[Row]:
    """Each keeps its bytes; only the numbers of the table are others."""
    swapped = _swapped(rows, at, chance)
    return [row._replace(seq=seq) for seq, row in enumerate(swapped, start=1)]


def _rechain_reordered(rows: list[Row], at: int, chance: Random) -> list[Row]:
    return rechained(_swapped(rows, at, chance), 0)


def _swapped_payloads(rows: list[Row], at: int, chance: Random) -> list[Row]:
    swapped = _swapped(rows, at, chance)
    return [row._replace(payload=other.payload) for row, other in zip(rows, swapped, strict=True)]


def _duplicate_number(rows: list[Row], at: int, chance: Random) -> list[Row]:
    """An event a second time, at the number of its neighbour, which is gone."""
    other = at - 1 if at else 1
    return _replaced(rows, other, rows[at]._replace(seq=rows[other].seq))


def _gap(rows: list[Row], at: int, chance: Random) -> list[Row]:
    return [row._replace(seq=row.seq + (number >= at) * 5) for number, row in enumerate(rows)]


def _other_form(rows: list[Row], at: int, chance: Random) -> list[Row]:
    """The header says the same in another form of JSON, and the leaf is that of the new bytes."""
    header = json.dumps(rows[at].members, indent=chance.choice([None, 1])).encode()
    return _replaced(rows, at, rows[at]._replace(header=header, leaf=leaf_digest(header)))


def _delete(table: str) -> Mutation:
    def mutate(trail: TrailFolder, chance: Random) -> str:
        seq = chance.choice(read_rows(trail.database)).seq
        with behind_the_triggers(trail.database) as connection:
            connection.execute(f"DELETE FROM {table} WHERE seq = {seq}")
        return f"event {seq}"

    return mutate


def _orphan(trail: TrailFolder, chance: Random) -> str:
    seq = len(read_rows(trail.database)) + 1 + chance.randrange(3)
    with behind_the_triggers(trail.database) as connection:
        connection.execute("INSERT INTO audit_payload VALUES (?, ?)", (seq, b"{}"))
    return f"payload {seq}"


ROW_MUTATIONS: dict[str, Mutation] = {
    "a bit of a header": _flip("header"),
    "a bit of a leaf": _flip("leaf"),
    "a bit of a payload": _flip("payload"),
    "other words in a payload": _on_rows(_other_payload),
    "other words, header and leaf agree": _on_rows(_other_payload_and_header),
    "other words, all re-chained": _on_rows(_full_rechain),
    "another time, all re-chained": _on_rows(_rechain_time),
    "another fix, all re-chained": _on_rows(_rechain_scope),
    "an event removed": _on_rows(lambda rows, at, chance: [*rows[:at], *rows[at + 1 :]]),
    "an event removed, all re-chained": _on_rows(_rechain_without),
    "an event inserted, all re-chained": _on_rows(_rechain_inserted),
    "an event doubled, all re-chained": _on_rows(_rechain_duplicate),
    "a duplicate sequence number": _on_rows(_duplicate_number),
    "events reordered": _on_rows(_reordered),
    "events reordered, all re-chained": _on_rows(_rechain_reordered),
    "payloads swapped": _on_rows(_swapped_payloads),
    "a gap in the numbers": _on_rows(_gap),
    "a header in another form": _on_rows(_other_form),
    "truncated to any length": _on_rows(lambda rows, at, chance: rows[:at]),
    "a header deleted": _delete("audit_header"),
    "a payload deleted": _delete("audit_payload"),
    "a payload without a header": _orphan,
}
