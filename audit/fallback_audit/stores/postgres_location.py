"""Where a chain is in PostgreSQL: the server's URL and the schema. Passwords stay in here."""

import importlib
import re
from typing import NamedTuple
from urllib.parse import unquote

from fallback_audit.errors import AuditStoreError, RequestError

#: One schema holds one chain.
DEFAULT_SCHEMA = "fallback_audit"

#: PostgreSQL cuts names off at 63 bytes; the roles are named after the schema (``_owner``, …). Small
#: letters only, so that no one needs to quote the name.
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")

_URL = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?"
    r"(?P<hosts>(?:[^@/?#:,\[\]]*|\[[0-9a-fA-F:.]*\])(?::\d*)?(?:,[^@/?#]*)?)"
    r"(?:/(?P<database>[^@?#/:]*))?(?:\?(?P<query>[^#]*))?"
)

#: Parameters of a URL that may be shown. A list of what is secret would miss the next one.
_SHOWN = ("host", "hostaddr", "port", "user", "dbname", "sslmode", "schema")


def require_driver() -> None:
    """Raises AuditStoreError where psycopg, which is an extra, can't be imported.

    The modules that use it can't say so themselves: ask before importing one.
    """
    try:
        importlib.import_module("psycopg")
    except ImportError as error:
        raise AuditStoreError(
            f"The audit trail is in PostgreSQL, and its driver can't be loaded: {error}.",
            next_step="Install it: pip install 'fallback-tier[postgres]'.",
            kind="no_driver",
        ) from error


class PostgresLocation(NamedTuple):
    """``conninfo`` is secret (it may hold a password); ``str()`` is not."""

    conninfo: str
    schema: str
    shown: str
    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, url: str, *, schema: str | None = None) -> "PostgresLocation":
        """From libpq's ``postgresql://user@host/database``, with one parameter of ours: ``schema``.

        Raises RequestError; its words never hold what was given, since that may be a password.
        """
        match = _URL.fullmatch(url)
        if match is None:
            raise RequestError(
                "The audit store's address is not a PostgreSQL URL.",
                next_step="Give postgresql://USER@HOST/DATABASE; write : / @ ? # in a password as "
                "%3A %2F %40 %3F %23, or better keep it in ~/.pgpass.",
            )
        pairs = [pair for pair in (match["query"] or "").split("&") if pair]
        named = dict(pair.partition("=")[::2] for pair in pairs)
        chosen = schema or unquote(named.get("schema", "")) or DEFAULT_SCHEMA
        if not _SCHEMA.fullmatch(chosen):
            raise RequestError(
                f"{chosen!r} can't be the schema of an audit chain.",
                next_step="Use up to 48 small letters, digits and underscores, no digit first.",
                kind="bad_schema_name",
            )
        place = match["scheme"] + (match["user"] + "@" if match["user"] else "")
        place += match["hosts"] + ("/" + match["database"] if match["database"] else "")
        shown = {name: named[name] for name in _SHOWN if name in named} | {"schema": chosen}
        if not shown.get("port", "").isdecimal():  # it may be a password at the wrong place
            shown.pop("port", None)
        kept = [pair for pair in pairs if not pair.startswith("schema=")]
        secrets = (match["password"] or "", named.get("password", ""), named.get("sslpassword", ""))
        return cls(
            conninfo=url.partition("?")[0] + ("?" + "&".join(kept) if kept else ""),
            schema=chosen,
            shown=place + "?" + "&".join(f"{name}={value}" for name, value in shown.items()),
            secrets=tuple(
                {word for reported in secrets if reported for word in (reported, unquote(reported))}
            ),
        )

    def __repr__(self) -> str:
        return f"PostgresLocation({self.shown})"

    def __str__(self) -> str:
        return self.shown

    def scrubbed(self, text: str) -> str:
        """``text`` without our passwords, should a library have repeated one."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text
