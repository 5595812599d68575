"""What tests in a real Chromium share: one browser, and one server with all that pages can show."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.wiring import audit_db, evidence_dir
from tests.browser.driver import Browser, chromium
from tests.browser.hostile import LINES, spy, write_hostile, write_hostile_campaigns
from tests.service.portal import QUEUE, write_trails
from tests.service.running import Running, served
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import Record


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("portal")


@pytest.fixture(scope="package")
def server(place: Path) -> Iterator[Running]:
    """Every kind of question, hostile fixes, and a queue of two hundred."""
    state = place / "state"
    write_hostile(state, LINES)
    write_hostile_campaigns(state, LINES)
    write_trails(state)
    with closing(SqliteAuditStore(audit_db(state))) as store:
        record = Record(store, FileEvidenceStore(evidence_dir(state)))
        for number in range(QUEUE + 10):  # other tests decide some
            scope = Scope(fix_id=f"fix-{number:03}", gate_transition_id="t")
            record.write(t.infrastructure_failed(), scope)
    config = (
        '[limits]\nrequests_per_key = "100000/minute"\nrequests_per_address = "100000/minute"\n'
    )
    with served(state, config, options=("--keys", str(place / "keys"))) as running:
        yield running


@pytest.fixture(scope="package")
def driver(place: Path) -> Iterator[Browser]:
    with chromium(place) as started:
        spy(started)
        started.resize(1280, 900)
        yield started


@pytest.fixture
def browser(driver: Browser, server: Running) -> Browser:
    """Signed in, with nothing in the log."""
    driver.sign_in(server.address, server.key)
    driver.log()
    return driver
