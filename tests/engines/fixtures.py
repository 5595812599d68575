"""The real Temporal server and a worker on it, each started once a process of the test run, for whoever
asks first. Registered in ``tests/conftest.py``: a fixture that modules import is made once for each.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fallback_tier.engines.temporal.dev import dev_server, free_port, server_binary
from fallback_tier.errors import ConfigurationError
from tests.places import fast_place

if TYPE_CHECKING:
    from tests.engines.in_process import TemporalHere


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[str]:
    """Its address. Skipped where its wheel is not installed."""
    pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")
    try:
        server_binary()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with (
        tempfile.TemporaryDirectory(prefix="temporal-", dir=fast_place()) as folder,
        dev_server(Path(folder) / "data", free_port()) as server,
    ):
        yield server.address


@pytest.fixture(scope="session")
def temporal_here(temporal_server: str) -> "Iterator[TemporalHere]":
    """A worker in this process."""
    from tests.engines.in_process import TemporalHere

    here = TemporalHere(temporal_server)
    try:
        yield here
    finally:
        here.close()
