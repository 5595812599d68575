"""The verb of ``fallback-tier audit`` that sets a PostgreSQL database up."""

from fallback_tier.cli import arguments


def add_init_postgres(verbs: "arguments.Verbs") -> None:
    """``audit init-postgres``."""
    init = verbs.add_parser(
        "init-postgres",
        help="make a chain's tables and roles in PostgreSQL",
        description="Make the schema, its tables and four roles in the database that --audit-store names:\n"
        "an owner, a writer (appends), a reader, a keeper (redacts and seals). The user of the\n"
        "URL must be an administrator. May be run again. See docs/postgresql.md.",
    )
    arguments.finish(init, "audit.postgres:init_postgres")
