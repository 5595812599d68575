"""Every test in this folder runs over every store."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.audit.stores.conformance.backends import (
    Backend,
    PostgresBackend,
    SqliteBackend,
    Store,
)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "state" / "audit.db")
    return PostgresBackend(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    with closing(backend.store()) as opened:
        yield opened
