"""The help text names the service's roles without importing them: both lists are the same."""

from fallback_tier.cli.parsers import ROLES
from fallback_tier.service.roles import Role


def test_every_role_can_be_given() -> None:
    assert tuple(Role) == ROLES
