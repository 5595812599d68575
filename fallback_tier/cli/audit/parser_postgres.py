"""The verb of ``fallback-tier audit`` that sets a PostgreSQL database up."""

from fallback_tier.cli.arguments import finish

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    import argparse

    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]


def add_init_postgres(verbs: "Verbs") -> None:
    """``audit init-postgres``."""
    init = verbs.add_parser(
        "init-postgres",
        help="make a chain's tables and roles in PostgreSQL",
        description="Make the schema, its tables and four roles in the database that --audit-store names:\n"
        "an owner, a writer (appends), a reader, a keeper (redacts and seals). The user of the\n"
        "URL must be an administrator. May be run again. See docs/postgresql.md.",
    )
    finish(init, "audit.postgres:init_postgres")
