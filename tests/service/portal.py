"""The portal in this process: a browser without scripts that has signed in, and questions on record."""

import html
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from fastapi.testclient import TestClient

from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.advisory import Advisory
from fallback_tier.service.roles import Role
from fallback_tier.wiring import audit_db, evidence_dir
from tests.service.scenario import ServiceScenario, service_scenario
from tests.unit.audit import human_trails as h
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import Record

#: Every kind of question, and fixes that ask nothing.


def _delivered() -> t.Events:
    return [*t.verified_on_retry(), h.delivered(2)]


TRAILS = {
    "fix-cap": t.cap_reached,
    "fix-same": t.same_failure_three_times,
    "fix-gates": t.infrastructure_failed,
    "fix-budget": m.stopped_at_budget,
    "fix-model": t.model_unavailable,
    "fix-verified": _delivered,
    "fix-raised": m.raised_and_verified,
    "fix-refused": t.not_affected,
}

#: What these fixes are about.
ADVISORY = Advisory.model_validate(
    {
        "id": "GHSA-xxxx-yyyy-zzzz",
        "aliases": ["CVE-2026-12345"],
        "summary": "shop evaluates the text of a setting",
        "details": "`shop.read(text)` hands its argument to eval, so that a file of settings runs code.\n\n"
        "Upgrade to 1.2.4, which reads literals only.",
        "affected": [
            {
                "package": {"ecosystem": "PyPI", "name": "shop"},
                "ranges": [
                    {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.2.4"}]},
                    {"type": "ECOSYSTEM", "events": [{"introduced": "2.0.0"}, {"fixed": "2.0.3"}]},
                ],
            }
        ],
        "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}],
        "references": [
            {"type": "ADVISORY", "url": "https://example.org/advisories/GHSA-xxxx-yyyy-zzzz"},
            {"type": "WEB", "url": "javascript:alert(1)"},
        ],
        "database_specific": {"cwe_ids": ["CWE-95"]},
    }
)

#: Fixes that solved examples had an influence on: ``e1`` and ``e2``.
WITH_EXAMPLES = {"fix-examples": t.model_with_examples, "fix-replayed": t.replayed}

#: Of these, what waits for an answer, the newest first.
WAITING = ("fix-model", "fix-budget", "fix-gates", "fix-same", "fix-cap")

#: Questions in the queue of the server that browsers are tested with.
QUEUE = 200

#: What a browser sends with a form of a page that it has open.
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


def write_trails(state: Path, names: tuple[str, ...] = tuple(TRAILS)) -> None:
    """Put them on record, each as a fix of its own, with its evidence."""
    state.mkdir(parents=True, exist_ok=True)
    with closing(SqliteAuditStore(audit_db(state))) as store:
        evidence = FileEvidenceStore(evidence_dir(state))
        record = Record(store, evidence, advisory=ADVISORY)
        for name in names:
            scope = Scope(fix_id=name, gate_transition_id=f"gate-of-{name}")
            record.write((TRAILS | WITH_EXAMPLES)[name](), scope)


@dataclass
class Visitor:
    """A browser's requests, without its scripts."""

    client: TestClient

    def get(self, path: str, status: int = 200) -> str:
        """A page's text."""
        answer = self.client.get(f"/portal{path}")
        assert answer.status_code == status, (answer.status_code, answer.text[:2_000])
        return answer.text

    def send(self, path: str, page: str, **fields: str) -> httpx2.Response:
        """A form of this page, without following where it leads."""
        token = form_token(page)
        return self.client.post(
            f"/portal{path}",
            data={"form_token": token, **fields},
            headers=SAME_ORIGIN,
            follow_redirects=False,
        )

    def decide(
        self, fix_id: str, verdict: str, because: str = "read it", **more: str
    ) -> httpx2.Response:
        page = self.get(f"/fixes/{fix_id}/triage")
        path = f"/fixes/{fix_id}/decisions"
        return self.send(path, page, verdict=verdict, because=because, **more)


def form_token(page: str) -> str:
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    assert found is not None, page[:2_000]
    return found[1]


def text_of(page: str) -> str:
    """What is read of a page: no tags, one space."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def visit(opened: ServiceScenario, *roles: Role) -> Visitor:
    """A browser that has signed in with a new key of these roles; without any: nobody has."""
    client = TestClient(opened.portal, raise_server_exceptions=False)
    if roles:
        answer = client.post(
            "/portal/sign-in",
            data={"key": opened.key(*roles)},
            headers=SAME_ORIGIN,
            follow_redirects=False,
        )
        assert answer.status_code == 303, answer.text
    return Visitor(client)


@contextmanager
def portal_scenario(place: Path) -> Iterator[ServiceScenario]:
    """A service whose record asks every kind of question."""
    with service_scenario(place) as opened:
        write_trails(opened.service.state_dir)
        yield opened
