"""A service in this process, without workers: for what is decided before one is started."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from fallback_tier.portal.mounting import open_portal
from fallback_tier.service import people
from fallback_tier.service.http.app import create_app
from fallback_tier.service.opening import Service, open_service
from fallback_tier.service.roles import Role
from fallback_tier.service.settings import Secrets, ServiceSettings
from tests import database_files

#: scrypt's cost of a password of these services: a thousandth. What ours cost: unit/service/test_people.py.
_CHEAP = 2**5


@dataclass(frozen=True)
class ServiceScenario:
    """The service, and clients for its application: one, as in a process of its own."""

    service: Service

    @cached_property
    def app(self) -> FastAPI:
        return create_app(self.service)

    @cached_property
    def portal(self) -> FastAPI:
        """The application with its pages."""
        return create_app(self.service, pages=open_portal(self.service))

    def key(self, *roles: Role) -> str:
        """A new key with these roles."""
        name = f"key {len(self.service.keys.all())}"
        return self.service.keys.new(name, roles).secret

    def client(self, *roles: Role) -> TestClient:
        """With a key that has these roles; without any: no key."""
        headers = {"X-API-Key": self.key(*roles)} if roles else {}
        return TestClient(self.app, headers=headers, raise_server_exceptions=False)


@contextmanager
def service_scenario(
    place: Path,
    settings: ServiceSettings | None = None,
    repositories: Sequence[Path] = (),
    secrets: Secrets | None = None,
) -> Iterator[ServiceScenario]:
    """Its state is below ``place``; each repository is named after its folder."""
    facts = (settings or ServiceSettings()).model_dump(exclude_none=True)
    facts["repositories"] = {path.name: {"path": path} for path in repositories}
    given = ServiceSettings.model_validate(facts)
    with (
        pytest.MonkeyPatch.context() as patching,
        open_service(given, place / "state", secrets or Secrets()) as service,
    ):
        patching.setattr(people, "_COST", _CHEAP)
        with database_files.watched():
            yield ServiceScenario(service)
