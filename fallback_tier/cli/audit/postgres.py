"""``fallback-tier audit init-postgres``: a chain's tables and roles."""

import argparse

from fallback_audit.frozen import Frozen
from fallback_audit.stores.postgres_location import require_driver
from fallback_tier.cli.options import record
from fallback_tier.cli.results import print_result
from fallback_tier.errors import InputError

_FOR = {
    "writer": "what runs fixes",
    "reader": "who reads and verifies",
    "keeper": "who redacts and seals",
    "owner": "migrations only",
}


class ChainRoles(Frozen):
    """The names of a chain's roles."""

    owner: str
    writer: str
    reader: str
    keeper: str


class RolesMade(Frozen):
    """What ``audit init-postgres --json`` prints."""

    roles: ChainRoles


def init_postgres(arguments: argparse.Namespace) -> int:
    """Make them and say what to grant. Raises InputError without a database, AuditStoreError."""
    database = record(arguments).database
    if database is None:
        raise InputError(
            "No database is named.",
            next_step="Give --audit-store postgresql://ADMIN@HOST/DATABASE, or set its variable.",
        )
    require_driver()
    from fallback_audit.stores.postgres_roles import init_postgres as make

    roles = make(database.get_secret_value())._asdict()
    grants = (f"  GRANT {roles[name]} TO …;  -- {use}" for name, use in _FOR.items())
    message = "The chain is set up. Grant these roles to users:"
    return print_result(arguments, RolesMade(roles=ChainRoles(**roles)), message, *grants)
