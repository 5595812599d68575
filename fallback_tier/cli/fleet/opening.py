"""What the fleet's commands open: its list, and the record."""

import argparse
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from fallback_tier.cli.options import FLEET_STORE, record, state_dir
from fallback_tier.fleet.record import FleetRecord
from fallback_tier.fleet.store.store import FleetStore, open_store


def store_url(arguments: argparse.Namespace) -> str | None:
    """Of the list in PostgreSQL; None: it is in the state folder."""
    return arguments.fleet_store or os.environ.get(FLEET_STORE) or None


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[tuple[FleetStore, FleetRecord]]:
    """Both, closed at the end. Raises FleetStoreError."""
    place = state_dir(arguments)
    with (
        open_store(place, store_url(arguments)) as store,
        closing(FleetRecord(place, record(arguments))) as facts,
    ):
        yield store, facts
