"""An attacker with the file: changes behind the triggers, which are put back afterwards."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fallback_audit.events import AuditEvent
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.verify import verify
from tests.unit.audit.trails import SCOPE


def fixed_clock() -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def build(path: Path, *trails: Sequence[AuditEvent]) -> Path:
    """A closed store with one fix a trail, their events interleaved in blocks."""
    store = SqliteAuditStore(path, clock=fixed_clock)
    with closing(store):
        for number, events in enumerate(trails, start=1):
            scope = SCOPE if number == 1 else Scope(fix_id=f"fix-{number}", gate_transition_id="t")
            for event in events:
                store.append(scope, event)
    return path


@contextmanager
def behind_the_triggers(path: Path) -> Iterator[sqlite3.Connection]:
    """Safeguards off, then on again as they were, so that only the change itself can be noticed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, sql in triggers:
            connection.execute(sql)


def tampered(path: Path, change: Callable[[sqlite3.Connection], object]) -> VerificationReport:
    """Verify after a change behind the triggers."""
    with behind_the_triggers(path) as connection:
        change(connection)
    return report(path)


def report(path: Path) -> VerificationReport:
    with closing(open_readonly(path)) as reader:
        return verify(reader, checkpoints=None)
