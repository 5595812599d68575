"""Changes of files, of the schema, of checkpoints and of keys."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

from fallback_audit.checkpoints.checkpoint import Checkpoint, sign_checkpoint
from fallback_audit.checkpoints.keyring import Keyring, generate
from fallback_audit.events import event_adapter
from fallback_audit.evidence.checking import kept_digests
from tests.campaigns.hostile.audit.mutations_rows import Mutation
from tests.campaigns.hostile.audit.promises import roots
from tests.campaigns.hostile.audit.rows import flipped, put_rows, read_rows, rechained
from tests.campaigns.hostile.audit.trail_folder import TrailFolder


def _flip_file(path: Path, chance: Random) -> str:
    content = path.read_bytes()
    at = chance.randrange(len(content))
    path.write_bytes(flipped(content, at, chance.randrange(8)))
    return f"byte {at} of {path.name}"


def _flip_database(trail: TrailFolder, chance: Random) -> str:
    return _flip_file(trail.database, chance)


def _cut_database(trail: TrailFolder, chance: Random) -> str:
    content = trail.database.read_bytes()
    length = chance.randrange(len(content))
    trail.database.write_bytes(content[:length])
    return f"cut to {length} of {len(content)} bytes"


def _page(trail: TrailFolder, chance: Random) -> str:
    """A page of random bytes, or of zeros, or another page of the same file."""
    content = bytearray(trail.database.read_bytes())
    page = chance.randrange(len(content) // 4096)
    other = chance.randrange(len(content) // 4096)
    new = chance.choice(
        [chance.randbytes(4096), bytes(4096), bytes(content[other * 4096 : other * 4096 + 4096])]
    )
    content[page * 4096 : page * 4096 + 4096] = new
    trail.database.write_bytes(content)
    return f"page {page}"


def _schema(trail: TrailFolder, chance: Random) -> str:
    with closing(sqlite3.connect(trail.database, isolation_level=None)) as connection:
        found = connection.execute(
            "SELECT type, name FROM sqlite_master WHERE name LIKE 'audit%' AND type != 'table'"
        ).fetchall()
        triggers = sorted(name for kind, name in found if kind == "trigger")
        name = chance.choice(triggers)
        drop = f"DROP TRIGGER {name}"
        (table,) = connection.execute(
            "SELECT tbl_name FROM sqlite_master WHERE name = ?", (name,)
        ).fetchone()
        idle = f"CREATE TRIGGER {name} BEFORE DELETE ON {table} BEGIN SELECT 1; END"
        silent = (
            "CREATE TRIGGER silent AFTER INSERT ON audit_header BEGIN"
            " DELETE FROM audit_payload WHERE seq = NEW.seq - 1; END"
        )
        statements = chance.choice([[drop], [drop, idle], ["DROP INDEX audit_trail"], [silent]])
        for statement in statements:
            connection.execute(statement)
    return "; ".join(statements)


def _generated_columns(trail: TrailFolder, chance: Random) -> str:
    """The index of fixes over plain columns, which say what somebody likes."""
    rows = read_rows(trail.database)
    with closing(sqlite3.connect(trail.database, isolation_level=None)) as connection:
        triggers = connection.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit_header'"
        ).fetchall()
        connection.execute("DROP TABLE audit_header")
        connection.execute(
            "CREATE TABLE audit_header (seq INTEGER PRIMARY KEY, header BLOB NOT NULL, leaf TEXT NOT"
            " NULL, fix_id TEXT, gate_transition_id TEXT, kind TEXT, recorded_at TEXT) STRICT"
        )
        for row in rows:
            reported = row.members
            columns = (
                reported["fix_id"],
                reported["gate_transition_id"],
                reported["kind"],
                reported["recorded_at"],
            )
            connection.execute(
                "INSERT INTO audit_header VALUES (?, ?, ?, ?, ?, ?, ?)", (*row[:3], *columns)
            )
        connection.execute("CREATE INDEX audit_trail ON audit_header (fix_id, gate_transition_id)")
        for (sql,) in triggers:
            connection.execute(sql)
    return "plain columns"


def _other_types(trail: TrailFolder, chance: Random) -> str:
    """A table that takes anything, with a number, a text or nothing where bytes were."""
    table, column = chance.choice(
        (("audit_header", "header"), ("audit_header", "leaf"), ("audit_payload", "payload"))
    )
    value = chance.choice(
        (
            "NULL",
            "7",
            "1.5",
            "CAST(x'ff' AS TEXT)",
            f"CAST({column} AS TEXT)",
            f"CAST({column} AS BLOB)",
        )
    )
    with closing(sqlite3.connect(trail.database, isolation_level=None)) as connection:
        safeguards = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,)
        ).fetchall()
        for name, _ in safeguards:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(replace(sql, ' STRICT', ''), 'NOT NULL', '')"
            " WHERE name = ?",
            (table,),
        )
        connection.execute("PRAGMA writable_schema = RESET")
        seq = connection.execute(
            f"SELECT seq FROM {table} ORDER BY seq LIMIT 1 OFFSET {chance.randrange(8)}"
        ).fetchone()[0]
        connection.execute(f"UPDATE {table} SET {column} = {value} WHERE seq = {seq}")
        for _, sql in safeguards:
            connection.execute(sql)
    return f"{column} of event {seq} = {value}"


def _checkpoints(trail: TrailFolder) -> list[Path]:
    return sorted((trail.place / "checkpoints").rglob("*.checkpoint"))


def _flip_checkpoint(trail: TrailFolder, chance: Random) -> str:
    return _flip_file(chance.choice(_checkpoints(trail)), chance)


def _cut_checkpoint(trail: TrailFolder, chance: Random) -> str:
    path = chance.choice(_checkpoints(trail))
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])
    return f"{path.name} cut"


def _exchanged_checkpoints(trail: TrailFolder, chance: Random) -> str:
    """One file under the name of another, both well signed."""
    one, other = chance.sample(_checkpoints(trail), 2)
    one.write_bytes(other.read_bytes())
    return f"{other.name} as {one.name}"


def _removed_checkpoint(trail: TrailFolder, chance: Random) -> str:
    """Any but the last: the one behind it names it."""
    path = chance.choice(_checkpoints(trail)[:-1])
    path.unlink()
    return f"{path.name} removed"


def _no_checkpoints(trail: TrailFolder, chance: Random) -> str:
    for path in _checkpoints(trail):
        path.unlink()
    return "all removed"


def _foreign_signature(trail: TrailFolder, chance: Random) -> str:
    """The right checkpoint, signed by a key of one's own."""
    folder = trail.place / "foreign"
    mine = generate(folder, Keyring.load(trail.keys).origin)
    path = chance.choice(_checkpoints(trail))
    signed = trail.log.open(int(path.stem), Keyring.load(trail.keys)).checkpoint
    path.write_bytes(sign_checkpoint(signed, mine.signers()).note)
    shutil.rmtree(folder)
    return f"{path.name} signed by another key"


def _forged_history(trail: TrailFolder, chance: Random) -> str:
    """Everything re-chained, and every checkpoint made anew by a key of one's own."""
    rows = read_rows(trail.database)
    at = chance.randrange(trail.log.latest_size())
    forged = rechained(
        [
            *rows[:at],
            rows[at]._replace(payload=rows[at].payload[:-1] + b',"x":1}'),
            *rows[at + 1 :],
        ],
        at,
    )
    put_rows(trail.database, forged)
    mine = generate(trail.place / "foreign", Keyring.load(trail.keys).origin)
    previous = None
    for path in _checkpoints(trail):
        size = int(path.stem)
        root = roots([row.header for row in forged])(size)
        made = Checkpoint(mine.origin, size, root, forged[size - 1].leaf, previous)
        signed = sign_checkpoint(made, mine.signers())
        previous = signed.named
        path.write_bytes(signed.note)
    shutil.rmtree(trail.place / "foreign")
    return f"from event {at + 1}"


def _replaced_key(trail: TrailFolder, chance: Random) -> str:
    """Key files of one's own, the checkpoints as they are."""
    shutil.rmtree(trail.keys)
    generate(trail.keys)
    return "other keys"


def _flip_key(trail: TrailFolder, chance: Random) -> str:
    return _flip_file(chance.choice(sorted(trail.keys.glob("*.skey"))), chance)


def _frontier(trail: TrailFolder, chance: Random) -> str:
    """The cache: never believed without a signature, so nothing may come of it."""
    cache = trail.place / "checkpoints" / "frontier.json"
    reported = json.loads(cache.read_bytes())
    reported["hashes"] = [chance.randbytes(32).hex() for _ in reported["hashes"]]
    cache.write_text(json.dumps(reported))
    return "other hashes in the cache"


def _old_copy(trail: TrailFolder, chance: Random) -> str:
    """The database as it was before; checkpoints, evidence and keys as they are."""
    old = chance.choice(sorted((trail.place / "old").glob("*.db")))
    shutil.copy(old, trail.database)
    for rest in ("-wal", "-shm"):
        trail.database.with_name(trail.database.name + rest).unlink(missing_ok=True)
    return f"copy {old.name}"


def _evidence(trail: TrailFolder, chance: Random) -> str:
    """A file of evidence that events name: altered, cut, gone, or another one's bytes."""
    files = sorted(path for path in (trail.state / "evidence").glob("??/*") if path.is_file())
    events = (event_adapter.validate_json(row.payload) for row in read_rows(trail.database))
    kept = {name for event in events for name in kept_digests(event)}
    files = [path for path in files if path.parent.name + path.name in kept]
    path, other = chance.sample(files, 2)
    match chance.randrange(4):
        case 0:
            return _flip_file(path, chance)
        case 1:
            path.write_bytes(path.read_bytes()[:-1])
        case 2:
            path.unlink()
        case _:
            path.write_bytes(other.read_bytes())
    return f"evidence {path.name}"


FILE_MUTATIONS: dict[str, Mutation] = {
    "a bit of the database file": _flip_database,
    "the database file cut": _cut_database,
    "a page overwritten": _page,
    "triggers and indexes": _schema,
    "generated columns made plain": _generated_columns,
    "values of another type": _other_types,
    "rolled back to an old copy": _old_copy,
    "evidence altered, cut, gone, exchanged": _evidence,
    "a bit of a checkpoint": _flip_checkpoint,
    "a checkpoint cut": _cut_checkpoint,
    "checkpoints exchanged": _exchanged_checkpoints,
    "a checkpoint removed": _removed_checkpoint,
    "all checkpoints removed": _no_checkpoints,
    "a checkpoint by a foreign key": _foreign_signature,
    "all re-chained, checkpoints forged": _forged_history,
    "the keys replaced": _replaced_key,
    "a bit of the signing key": _flip_key,
    "the frontier cache": _frontier,
}
