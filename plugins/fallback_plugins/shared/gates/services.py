"""Servers that a project's CI starts for its tests: a command is run with those that the machine has.

A sandbox has a separate network, so a server is started by the command's own shell, with its data in a
temporary folder, and ends with it. Any password is accepted. Users, databases and ports are those that the
command's environment states, otherwise the defaults of the usual images.
"""

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Folders with programs that a sandbox shows: the system's, and Debian's for PostgreSQL.
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_POSTGRESQL = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class _Kind:
    """One kind of server. ``names``: as CI files call it; ``programs``: all must be installed;
    ``start``: shell lines, with the folder ``$data``, the port ``$port``, and ``$users`` and
    ``$databases``."""

    names: tuple[str, ...]
    programs: tuple[str, ...]
    port: int
    start: str
    user: str = ""
    stop: str = ""


_KINDS = (
    _Kind(
        ("postgres", "postgresql", "pgsql", "psql", "postgis", "pgvector", "timescaledb"),
        ("initdb", "pg_ctl", "psql"),
        5432,
        """initdb -D "$data/db" -U postgres -A trust -E UTF8 --no-sync &&
pg_ctl -D "$data/db" -l "$data/server.log" -s -w -t 60 \
  -o "-p $port -k $data -c listen_addresses=* -c fsync=off -c shared_buffers=32MB" start &&
for name in $users; do
  psql -h "$data" -p "$port" -U postgres -qc "CREATE ROLE \\"$name\\" SUPERUSER LOGIN" 2>&1
done
for name in $users $databases; do
  psql -h "$data" -p "$port" -U postgres -qc "CREATE DATABASE \\"$name\\"" 2>&1
done
psql -h "$data" -p "$port" -U postgres -qc 'SELECT 1'
""",
        user="postgres",
        stop='pg_ctl -D "$data/db" -m immediate -s stop',
    ),
    _Kind(
        ("redis", "valkey"),
        ("redis-server", "redis-cli"),
        6379,
        """redis-server --port "$port" --bind 127.0.0.1 --protected-mode no --save '' --dir "$data" \
  --daemonize yes --logfile "$data/server.log" --pidfile "$data/pid" &&
for _ in 1 2 3 4 5 6 7 8 9 10; do redis-cli -p "$port" ping && break || sleep 0.3; done
redis-cli -p "$port" ping
""",
        stop='redis-cli -p "$port" shutdown nosave',
    ),
    _Kind(
        ("memcached",),
        ("memcached",),
        11211,
        """memcached -d -p "$port" -l 127.0.0.1 -u "$(id -un)" -P "$data/pid"
""",
        stop='kill "$(cat "$data/pid")"',
    ),
    _Kind(
        ("mysql", "mariadb"),
        ("mysqld", "mysql"),
        3306,
        """if command -v mariadb-install-db; then
  mariadb-install-db --no-defaults --datadir="$data/db" --auth-root-authentication-method=normal
else
  mysqld --no-defaults --initialize-insecure --datadir="$data/db"
fi
mysqld --no-defaults --datadir="$data/db" --port="$port" --bind-address=127.0.0.1 --skip-grant-tables \
  --socket="$data/socket" --skip-networking=0 --pid-file="$data/pid" &
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
  mysql --no-defaults -S "$data/socket" -e 'SELECT 1' && break || sleep 1
done
for name in $databases; do
  mysql --no-defaults -S "$data/socket" -e "CREATE DATABASE IF NOT EXISTS \\`$name\\`"
done
mysql --no-defaults -S "$data/socket" -e 'SELECT 1'
""",
        stop='kill "$(cat "$data/pid")"',
    ),
    _Kind(
        ("mongo", "mongodb"),
        ("mongod",),
        27017,
        """mkdir "$data/db" && mongod --dbpath "$data/db" --port "$port" --bind_ip 127.0.0.1 --fork \
  --logpath "$data/server.log" --pidfilepath "$data/pid"
""",
        stop='kill "$(cat "$data/pid")"',
    ),
)

#: A service's name in a CI file: an image, with its registry and its tag.
_IMAGE = re.compile(r"(?:.*/)?([a-z][a-z0-9]*)")

#: Variables that name a user, a database, a port: ``POSTGRES_USER``, ``PGDATABASE``, ``DB_PORT``.
_USER = re.compile(r"(?:PG|POSTGRES_|MYSQL_|DB_|DATABASE_)USER(?:NAME)?")
_DATABASE = re.compile(r"(?:PG|POSTGRES_|MYSQL_|DB_|DATABASE_)(?:DB|DATABASE|NAME)|PGDATABASE")

_URL = re.compile(
    r"(?P<scheme>\w+)(?:\+\w+)?://(?:(?P<user>[\w.-]+)(?::[^@/]*)?@)?[\w.-]*(?::(?P<port>\d{1,5}))?"
    r"(?:/(?P<database>[\w.-]+))?"
)

#: An accepted name of a user or a database, as it is written into a command.
_PLAIN = re.compile(r"[A-Za-z0-9_][\w.$-]{0,62}")


def _kind_of(name: str) -> _Kind | None:
    match = _IMAGE.match(name.lower())
    return next((kind for kind in _KINDS if match is not None and match[1] in kind.names), None)


def missing(names: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence for each service that can't be started here: ``needs redis, which is not installed
    here``."""
    reasons = []
    for name in dict.fromkeys(names):
        kind = _kind_of(name)
        if kind is None:
            reasons.append(f"needs {name}, which is not known here")
        elif not _is_installed(kind):
            reasons.append(f"needs {name}, which is not installed here")
    return tuple(reasons)


def around(argv: Sequence[str], names: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the command, with these services started before and stopped after it; the exit code stays the
    command's. ``env``: what the source of the command states. A service that is missing is left out
    (``missing``); the output of a server that does not start is printed."""
    kinds = [
        kind
        for kind in dict.fromkeys(map(_kind_of, names))
        if kind is not None and _is_installed(kind)
    ]
    if not kinds:
        return [*argv]
    lines = [f'PATH="$PATH:{":".join(_folders())}"; export PATH']
    stops = []
    for number, kind in enumerate(kinds):
        port, users, databases = _stated(kind, env)
        data = f"data_{number}"
        settings = f"port={port} users={shlex.quote(' '.join(users))}"
        settings += f" databases={shlex.quote(' '.join(databases))}"
        lines += [
            f"{data}=$(mktemp -d)",
            f"start_{number}() (",
            f'data="${data}" {settings}',
            kind.start,
            ")",
        ]
        complain = f'echo "{kind.names[0]} did not start:"; tail -n 20 "${data}/log"'
        lines.append(f'start_{number} >"${data}/log" 2>&1 </dev/null || {{ {complain}; }}')
        stops.append(f'(data="${data}" port={port}; {kind.stop}; rm -rf "$data") >/dev/null 2>&1')
    lines += ['"$@"', "code=$?", *stops, "exit $code"]
    return ["sh", "-c", "\n".join(lines), "sh", *argv]


def _stated(kind: _Kind, env: Mapping[str, str]) -> tuple[int, list[str], list[str]]:
    """Return a server's port, users and databases, as an environment states them."""
    users, databases, port = {kind.user: None}, dict[str, None](), kind.port
    for name, value in env.items():
        if _USER.fullmatch(name):
            users[value] = None
        elif _DATABASE.fullmatch(name):
            databases[value] = None
        elif (url := _URL.match(value)) and _kind_of(url["scheme"]) is kind:
            users[url["user"] or ""] = None
            databases[url["database"] or ""] = None
            port = int(url["port"] or port)
    if kind.user and env.get("PGPORT", "").isdigit():
        port = int(env["PGPORT"])
    return port, [*filter(_PLAIN.fullmatch, users)], [*filter(_PLAIN.fullmatch, databases)]


def _is_installed(kind: _Kind) -> bool:
    return all(shutil.which(program, path=":".join(_folders())) for program in kind.programs)


def _folders() -> list[str]:
    folders = sorted(_POSTGRESQL.glob("*/bin"), key=lambda folder: _number(folder.parent.name))
    return [*_FOLDERS, *map(str, reversed(folders))]


def _number(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return 0.0
