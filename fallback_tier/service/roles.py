"""Roles, and the callers who have them (ADR-0081)."""

from datetime import datetime
from enum import StrEnum

from fallback_audit.frozen import Frozen


class Role(StrEnum):
    """Each is asked for alone; ``admin`` has them all, and what no other has (raw prompts, keys)."""

    SUBMIT = "submit"
    READ = "read"
    DECIDE = "decide"
    ADMIN = "admin"


class Caller(Frozen):
    """The caller of a request: an API key by its name (``key:NAME``), a person of this machine
    (``person:NAME``) or of an issuer (``oidc:ISSUER#NAME``).

    ``name`` goes on record and identifies the owner of an idempotency token: a rotated key keeps it.
    """

    name: str
    roles: frozenset[Role]
    is_person: bool = False
    expires_at: datetime | None = None

    def may(self, role: Role) -> bool:
        """Return whether the caller has this role, or is an admin."""
        return role in self.roles or Role.ADMIN in self.roles
