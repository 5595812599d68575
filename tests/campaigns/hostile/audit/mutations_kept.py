"""Changes of what keepers left: tombstones, statements of segments, sealed files, exports, and the -wal."""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

from fallback_audit.checkpoints.keyring import Keyring, generate
from fallback_audit.checkpoints.note import Signer
from fallback_audit.exporting.format import rows_of_file
from fallback_audit.retention.history import file_digest
from fallback_audit.statements import (
    SEGMENT_DOMAIN,
    TOMBSTONE_DOMAIN,
    open_statement,
    sign_statement,
)
from tests.campaigns.hostile.audit.mutations_files import FILE_MUTATIONS
from tests.campaigns.hostile.audit.mutations_rows import Mutation
from tests.campaigns.hostile.audit.rows import flipped
from tests.campaigns.hostile.audit.trail_folder import TrailFolder
from tests.unit.audit.tamper import behind_the_triggers


def _flip(find: Callable[[TrailFolder], list[Path]]) -> Mutation:
    def mutate(trail: TrailFolder, chance: Random) -> str:
        path = chance.choice(find(trail))
        content = path.read_bytes()
        at = chance.randrange(len(content))
        path.write_bytes(flipped(content, at, chance.randrange(8)))
        return f"byte {at} of {path.name}"

    return mutate


def _cut(find: Callable[[TrailFolder], list[Path]]) -> Mutation:
    def mutate(trail: TrailFolder, chance: Random) -> str:
        path = chance.choice(find(trail))
        content = path.read_bytes()
        path.write_bytes(content[: chance.randrange(len(content))])
        return f"{path.name} cut"

    return mutate


def _removed(find: Callable[[TrailFolder], list[Path]]) -> Mutation:
    def mutate(trail: TrailFolder, chance: Random) -> str:
        path = chance.choice(find(trail))
        path.unlink()
        return f"{path.name} removed"

    return mutate


def _sealed(trail: TrailFolder) -> list[Path]:
    return sorted(trail.segments.glob("*.jsonl"))


def _export(trail: TrailFolder) -> list[Path]:
    return [trail.place / "export.jsonl"]


def _wal(trail: TrailFolder) -> list[Path]:
    return [trail.database.with_name(trail.database.name + "-wal")]


def _other_sealed(trail: TrailFolder, chance: Random) -> str:
    """An auditor's copy of another segment, under this one's name."""
    (path,) = _sealed(trail)
    others = sorted((trail.place / "copies").glob("*.jsonl"))
    other = next(one for one in others if one.name != path.name)
    shutil.copy(other, path)
    return f"{other.name} as {path.name}"


def _said_otherwise(path: Path, chance: Random) -> str:
    """A line says something else, and the last line's digest is made right."""
    lines = path.read_bytes().splitlines(keepends=True)
    events = [number for number, line in enumerate(lines) if b'"line":"event"' in line]
    at = chance.choice(events)
    how = chance.choice(("payload", "header", "leaf", "shown", "removed", "doubled", "swapped"))
    if how == "removed":
        del lines[at]
    elif how == "doubled":
        lines.insert(at, lines[at])
    elif how == "swapped":
        other = chance.choice([number for number in events if number != at])
        lines[at], lines[other] = lines[other], lines[at]
    else:
        reported = json.loads(lines[at])
        text = reported[how]
        place = chance.randrange(len(text))
        reported[how] = text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]
        lines[at] = json.dumps(
            reported, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()
        lines[at] += b"\n"
    end = json.loads(lines[-1])
    end["events"] = sum(b'"line":"event"' in line for line in lines[:-1])
    end["sha256"] = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    lines[-1] = json.dumps(end, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    return f"line {at}, {how}"


def _export_forged(trail: TrailFolder, chance: Random) -> str:
    return _said_otherwise(_export(trail)[0], chance)


def _sealed_forged(trail: TrailFolder, chance: Random) -> str:
    return _said_otherwise(_sealed(trail)[0], chance)


def _wal_put_aside(trail: TrailFolder, chance: Random) -> str:
    """What was not copied into the database yet, as if it had never been."""
    (path,) = _wal(trail)
    path.unlink()
    return "no -wal"


# --- Statements and tombstones, in the database ---


def _in_database(trail: TrailFolder, statements: list[tuple[str, tuple[object, ...]]]) -> None:
    with behind_the_triggers(trail.database) as connection:
        for sql, values in statements:
            connection.execute(sql, values)


def _foreign(trail: TrailFolder) -> tuple[Signer, ...]:
    """A key of the same name, that nobody trusts."""
    folder = trail.place / "foreign"
    made = generate(folder, Keyring.load(trail.keys).origin)
    shutil.rmtree(folder)
    return made.signers()


def _one(trail: TrailFolder, sql: str, chance: Random) -> tuple[int, bytes]:
    with closing(sqlite3.connect(trail.database)) as connection:
        number, content = chance.choice(connection.execute(sql).fetchall())
    return int(number), bytes(content)


_STATEMENTS = "SELECT number, statement FROM audit_segment ORDER BY number"
_TOMBSTONES = (
    "SELECT seq, tombstone FROM audit_tombstone JOIN audit_payload USING (seq) ORDER BY seq"
)


def _put_statement(trail: TrailFolder, number: int, statement: bytes) -> None:
    sql = "UPDATE audit_segment SET statement = ? WHERE number = ?"
    _in_database(trail, [(sql, (statement, number))])


def _put_tombstone(trail: TrailFolder, seq: int, tombstone: bytes) -> None:
    """In both of its places."""
    _in_database(
        trail,
        [
            ("UPDATE audit_tombstone SET tombstone = ? WHERE seq = ?", (tombstone, seq)),
            ("UPDATE audit_payload SET payload = ? WHERE seq = ?", (tombstone, seq)),
        ],
    )


def _flip_statement(trail: TrailFolder, chance: Random) -> str:
    number, statement = _one(trail, _STATEMENTS, chance)
    at = chance.randrange(len(statement))
    _put_statement(trail, number, flipped(statement, at, chance.randrange(8)))
    return f"byte {at} of statement {number}"


def _foreign_statement(trail: TrailFolder, chance: Random) -> str:
    number, statement = _one(trail, _STATEMENTS, chance)
    reported = open_statement(SEGMENT_DOMAIN, statement, Keyring.load(trail.keys).verifiers())
    if chance.random() < 0.5:
        reported = {**reported, "reason": "another one"}
    _put_statement(trail, number, sign_statement(SEGMENT_DOMAIN, reported, _foreign(trail)))
    return f"statement {number} by another key"


def _no_statements(trail: TrailFolder, chance: Random) -> str:
    sql = chance.choice(("DELETE FROM audit_segment", "DELETE FROM audit_segment WHERE number = 2"))
    _in_database(trail, [(sql, ())])
    return sql


def _swapped_statements(trail: TrailFolder, chance: Random) -> str:
    sql = "UPDATE audit_segment SET number = ? WHERE number = ?"
    _in_database(trail, [(sql, (9, 1)), (sql, (1, 2)), (sql, (2, 9))])
    return "statements exchanged"


def _flip_tombstone(trail: TrailFolder, chance: Random) -> str:
    seq, tombstone = _one(trail, _TOMBSTONES, chance)
    at = chance.randrange(len(tombstone))
    _put_tombstone(trail, seq, flipped(tombstone, at, chance.randrange(8)))
    return f"byte {at} of tombstone {seq}"


def _foreign_tombstone(trail: TrailFolder, chance: Random) -> str:
    """Another person is said to have done it, or another thing to have been left."""
    seq, tombstone = _one(trail, _TOMBSTONES, chance)
    reported = open_statement(TOMBSTONE_DOMAIN, tombstone, Keyring.load(trail.keys).verifiers())
    reported = {**reported, **chance.choice(({"by": "Nobody"}, {"reason": "none"}, {}))}
    _put_tombstone(trail, seq, sign_statement(TOMBSTONE_DOMAIN, reported, _foreign(trail)))
    return f"tombstone {seq} by another key"


def _misplaced_tombstone(trail: TrailFolder, chance: Random) -> str:
    """A good one, in the place of an event that nobody redacted."""
    seq, tombstone = _one(trail, _TOMBSTONES, chance)
    live = (
        "SELECT seq, payload FROM audit_payload WHERE seq NOT IN (SELECT seq FROM audit_tombstone)"
    )
    other, _ = _one(trail, live, chance)
    sql = "UPDATE audit_payload SET payload = ? WHERE seq = ?"
    statements: list[tuple[str, tuple[object, ...]]] = [(sql, (tombstone, other))]
    if chance.random() < 0.5:
        statements.append(("INSERT INTO audit_tombstone VALUES (?, ?)", (other, tombstone)))
    _in_database(trail, statements)
    return f"tombstone of {seq} over {other}"


def _own_tombstone(trail: TrailFolder, chance: Random) -> str:
    """Words taken out by whoever has the file, and no key."""
    live = (
        "SELECT seq, payload FROM audit_payload WHERE seq NOT IN (SELECT seq FROM audit_tombstone)"
    )
    seq, _ = _one(trail, live, chance)
    _, tombstone = _one(trail, _TOMBSTONES, chance)
    reported = open_statement(TOMBSTONE_DOMAIN, tombstone, Keyring.load(trail.keys).verifiers())
    signed = sign_statement(TOMBSTONE_DOMAIN, {**reported, "seq": seq}, _foreign(trail))
    _in_database(
        trail,
        [
            ("INSERT INTO audit_tombstone VALUES (?, ?)", (seq, signed)),
            ("UPDATE audit_payload SET payload = ? WHERE seq = ?", (signed, seq)),
        ],
    )
    return f"event {seq}"


def _no_tombstone(trail: TrailFolder, chance: Random) -> str:
    """The table forgets it, or another payload stands in its place."""
    seq, tombstone = _one(trail, _TOMBSTONES, chance)
    reported = open_statement(TOMBSTONE_DOMAIN, tombstone, Keyring.load(trail.keys).verifiers())
    payload = json.dumps(reported["residue"], sort_keys=True, separators=(",", ":")).encode()
    drop = ("DELETE FROM audit_tombstone WHERE seq = ?", (seq,))
    put = ("UPDATE audit_payload SET payload = ? WHERE seq = ?", (payload, seq))
    ways: list[list[tuple[str, tuple[object, ...]]]] = [[drop], [put], [drop, put]]
    _in_database(trail, chance.choice(ways))
    return f"tombstone {seq}"


def _sealed_put_back(trail: TrailFolder, chance: Random) -> str:
    """Events that were sealed stand in the store again."""
    (path,) = _sealed(trail)
    row = chance.choice(list(rows_of_file(path, sha256=str(file_digest(path)))))
    _in_database(
        trail,
        [
            ("INSERT INTO audit_payload VALUES (?, ?)", (row.seq, row.payload)),
            (
                "INSERT INTO audit_header (seq, header, leaf) VALUES (?, ?, ?)",
                (row.seq, row.header, row.leaf),
            ),
        ],
    )
    return f"event {row.seq}"


KEPT_MUTATIONS: dict[str, Mutation] = {
    "kept: a bit of a sealed file": _flip(_sealed),
    "kept: a sealed file cut": _cut(_sealed),
    "kept: a sealed file removed": _removed(_sealed),
    "kept: another sealed file": _other_sealed,
    "kept: a sealed file forged": _sealed_forged,
    "kept: a bit of a statement": _flip_statement,
    "kept: a statement by a foreign key": _foreign_statement,
    "kept: statements removed": _no_statements,
    "kept: statements exchanged": _swapped_statements,
    "kept: sealed events put back": _sealed_put_back,
    "kept: a bit of a tombstone": _flip_tombstone,
    "kept: a tombstone by a foreign key": _foreign_tombstone,
    "kept: a tombstone over another event": _misplaced_tombstone,
    "kept: a tombstone of one's own": _own_tombstone,
    "kept: a tombstone removed": _no_tombstone,
    "kept: a bit of an export": _flip(_export),
    "kept: an export cut": _cut(_export),
    "kept: an export forged": _export_forged,
    "kept: a bit of the -wal file": _flip(_wal),
    "kept: the -wal file cut": _cut(_wal),
    "kept: the -wal file removed": _wal_put_aside,
    "kept: a bit of the database file": FILE_MUTATIONS["a bit of the database file"],
    "kept: a page overwritten": FILE_MUTATIONS["a page overwritten"],
    "kept: triggers and indexes": FILE_MUTATIONS["triggers and indexes"],
}
