"""The record over HTTP: pages, an export that verifies elsewhere, a verification that finds damage."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.service.opening import open_service
from fallback_tier.service.roles import Role
from fallback_tier.service.settings import Secrets, ServiceSettings
from fallback_tier.wiring import audit_db
from tests.e2e.command import run as command
from tests.integration.service.test_requests import problem
from tests.service.scenario import ServiceScenario, service_scenario
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import FIX, Record


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    with service_scenario(tmp_path) as opened:
        with closing(SqliteAuditStore(audit_db(opened.service.state_dir))) as store:
            Record(store, opened.service.record.evidence).write(t.cap_reached())
        yield opened


def test_pages_have_every_event_once_and_in_order(service: ServiceScenario) -> None:
    client = service.client(Role.READ)
    seen, cursor = [], ""
    while True:
        page = client.get(f"/v1/audit/events?limit=7{cursor}").json()
        seen += [event["seq"] for event in page["events"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(seen) > 14
    assert seen == list(range(1, len(seen) + 1))


def test_events_are_chosen(service: ServiceScenario) -> None:
    client = service.client(Role.READ)

    def kinds(query: str) -> set[str]:
        events = client.get(f"/v1/audit/events?{query}").json()["events"]
        return {event["kind"] for event in events}

    assert kinds("kind=AttemptFailed&kind=FixEscalated") == {"AttemptFailed", "FixEscalated"}
    assert "FixStarted" in kinds(f"fix_id={FIX}")
    assert kinds("fix_id=other") == set()
    assert kinds("since=2199-01-01T00:00:00Z") == set()
    assert "FixStarted" in kinds("since=2000-01-01T00:00:00%2B02:00")


def test_an_export_that_is_cut_off_leaves_nothing(service: ServiceScenario) -> None:
    """The file has no name: it ends with whoever reads it, here, in a dead process, in a killed one."""
    folder = service.service.state_dir / "service" / "exports"
    with service.service.audits.export(with_evidence=True) as file:
        assert file.read(1)
        assert list(folder.iterdir()) == []


def test_what_an_earlier_version_left_of_its_exports_is_removed(tmp_path: Path) -> None:
    (folder := tmp_path / "service" / "exports").mkdir(parents=True)
    (folder / "of-an-earlier-version").write_bytes(b"x")
    with open_service(ServiceSettings(), tmp_path, Secrets()):
        assert not folder.exists()


def test_an_export_verifies_elsewhere(service: ServiceScenario, tmp_path: Path) -> None:
    client = service.client(Role.READ)
    for query in ("", "?evidence=true", f"?fix_id={FIX}&evidence=true"):
        answer = client.get(f"/v1/audit/export{query}")
        assert answer.headers["content-disposition"].startswith("attachment")
        (file := tmp_path / "it.export").write_bytes(answer.content)
        report = command("audit", "verify", file, "--json")
        assert report.json["integrity_problem_count"] == 0
    assert not list((service.service.state_dir / "service" / "exports").iterdir())


def test_a_verification_says_what_is_damaged(service: ServiceScenario) -> None:
    client = service.client(Role.READ)
    assert client.post("/v1/audit/verify").json()["integrity_problem_count"] == 0
    with closing(sqlite3.connect(audit_db(service.service.state_dir))) as db:
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE audit_payload SET payload = x'7b7d' WHERE seq = 3")
        db.commit()
    reported = client.post("/v1/audit/verify").json()
    assert reported["first_bad"]["seq"] == 3
    assert not reported["ok"]


def test_one_reads_all_of_it_at_a_time(service: ServiceScenario) -> None:
    with service.service.audits._alone():
        problem(service.client(Role.READ).post("/v1/audit/verify"), 503)
        problem(service.client(Role.READ).get("/v1/audit/export"), 503)


def test_evidence_is_what_the_fix_names_and_private_is_for_admins(service: ServiceScenario) -> None:
    inner = service.service
    prompt = inner.record.evidence.put(b"word for word")
    named = inner.record.evidence.put(b"a log")
    stranger = inner.record.evidence.put(b"of another fix")
    items = {"private": (prompt, True), "log": (named, False)}
    fixes = inner.fixes
    from fallback_tier.service.operations.fixes import EvidenceItem, Fixes

    found = tuple(
        EvidenceItem(sha256=digest, seq=1, kind="ModelCalled", private=private)
        for digest, private in items.values()
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Fixes, "evidence_of", lambda self, fix_id: found)
        assert fixes is not None
        reader, admin = service.client(Role.READ), service.client(Role.ADMIN)
        path = f"/v1/fixes/{FIX}/evidence"
        answer = reader.get(f"{path}/{named}")
        assert answer.content == b"a log"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "admins alone" in problem(reader.get(f"{path}/{prompt}"), 403)["detail"]
        assert admin.get(f"{path}/{prompt}").content == b"word for word"
        problem(admin.get(f"{path}/{stranger}"), 404)
