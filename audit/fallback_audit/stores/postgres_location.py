"""Location of a chain in PostgreSQL, by URL and schema, and how to show it without its passwords."""

import importlib
import re
from typing import NamedTuple
from urllib.parse import unquote

from fallback_audit.errors import AuditStoreError, RequestError

#: One schema holds one chain.
DEFAULT_SCHEMA = "fallback_audit"

#: PostgreSQL truncates names at 63 bytes; the roles are named after the schema (``_owner``, …). Lower-case
#: letters only, so that the name needs no quotes.
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")

_URL = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?"
    r"(?P<hosts>(?:[^@/?#:,\[\]]*|\[[0-9a-fA-F:.]*\])(?::\d*)?(?:,[^@/?#]*)?)"
    r"(?:/(?P<database>[^@?#/:]*))?(?:\?(?P<query>[^#]*))?"
)

#: Parameters of a URL that may be shown. A list of secret ones would miss new ones.
_SHOWN = ("host", "hostaddr", "port", "user", "dbname", "sslmode", "schema")


def require_driver() -> None:
    """Raise AuditStoreError if psycopg, which is an extra, can't be imported.

    Call this before importing a module that uses psycopg: such a module can't raise this error itself.
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
    def of(
        cls, url: str, *, schema: str | None = None, default: str = DEFAULT_SCHEMA
    ) -> "PostgresLocation":
        """Parse libpq's ``postgresql://user@host/database``, with our own parameter ``schema``.

        ``schema`` overrides that parameter; ``default`` is the schema if neither is given.

        Raises RequestError, whose text never repeats the URL, since that may hold a password.
        """
        match = _URL.fullmatch(url)
        if match is None:
            raise RequestError(
                "The audit store's address is not a PostgreSQL URL.",
                next_step="Give postgresql://USER@HOST/DATABASE; write : / @ ? # in a password as "
                "%3A %2F %40 %3F %23, or better keep it in ~/.pgpass.",
            )
        pairs = [pair for pair in (match["query"] or "").split("&") if pair]
        parameters = dict(pair.partition("=")[::2] for pair in pairs)
        chosen = schema or unquote(parameters.get("schema", "")) or default
        if not _SCHEMA.fullmatch(chosen):
            raise RequestError(
                f"{chosen!r} can't be the schema of an audit chain.",
                next_step="Use up to 48 small letters, digits and underscores, no digit first.",
                kind="bad_schema_name",
            )
        address = match["scheme"] + (match["user"] + "@" if match["user"] else "")
        address += match["hosts"] + ("/" + match["database"] if match["database"] else "")
        shown = {name: parameters[name] for name in _SHOWN if name in parameters} | {
            "schema": chosen
        }
        if not shown.get("port", "").isdecimal():  # it may be a password in the wrong place
            shown.pop("port", None)
        query_pairs = [pair for pair in pairs if not pair.startswith("schema=")]
        secrets = (
            match["password"] or "",
            parameters.get("password", ""),
            parameters.get("sslpassword", ""),
        )
        return cls(
            conninfo=url.partition("?")[0] + ("?" + "&".join(query_pairs) if query_pairs else ""),
            schema=chosen,
            shown=address + "?" + "&".join(f"{name}={value}" for name, value in shown.items()),
            secrets=tuple(
                {form for secret in secrets if secret for form in (secret, unquote(secret))}
            ),
        )

    def __repr__(self) -> str:
        return f"PostgresLocation({self.shown})"

    def __str__(self) -> str:
        return self.shown

    def scrubbed(self, text: str) -> str:
        """Return ``text`` without our passwords, which a library may have repeated."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text
