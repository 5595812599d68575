"""The process of a fix whose steps do nothing: ``python -m tests.campaigns.bench.fleet_process``."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import fallback_tier.engines.temporal.fix_process  # noqa: F401 (what a real one imports)
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.engines.temporal.fix_process import serve_standard_input
from tests.campaigns.bench.empty_fix import EmptyFix


@contextmanager
def opened(order: bytes) -> Iterator[EmptyFix]:
    record, fix_id = order.decode().split("\t")
    with closing(SqliteAuditStore(Path(record))) as store:
        yield EmptyFix(store, fix_id)


if __name__ == "__main__":
    serve_standard_input(opened)
