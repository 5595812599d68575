"""``postgres_url``: a chain of one's own on a real server, which a worker starts when first asked."""

import os
from collections.abc import Iterator
from itertools import count

import pytest

from tests.postgres.server import Server, missing, running

_schemas = map("chain_{}".format, count(1))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """In CI a missing server is a failure: skipped stores prove nothing."""
    if problem := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have a server: {problem}", pytrace=False)
        pytest.skip(problem)
    with running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Server) -> str:
    """The address of a schema that is not there yet, as the server's superuser."""
    return f"{postgres_server.url()}&schema={next(_schemas)}"
