"""One screen, one decision: what is shown, and that a decision is the event that JSON makes."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.events import BudgetRaised, ReviewDecided, TransitionReopened
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.service.roles import Role
from fallback_tier.wiring import audit_db
from tests.service.portal import WAITING, Visitor, portal_scenario, text_of, visit
from tests.service.scenario import ServiceScenario
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import Record
from tests.unit.fix.journal.test_review import retry_without_a_model

ANSWERS = (ReviewDecided, TransitionReopened, BudgetRaised)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    with portal_scenario(tmp_path) as opened:
        yield opened


@pytest.fixture
def operator(service: ServiceScenario) -> Visitor:
    return visit(service, Role.READ, Role.DECIDE)


def answers(service: ServiceScenario, fix_id: str) -> list[Any]:
    events = [stored.payload for stored in service.service.record.events(fix_id)]
    return [event for event in events if isinstance(event, ANSWERS)]


def test_the_queue_is_what_json_lists(service: ServiceScenario, operator: Visitor) -> None:
    page = operator.get("/queue")
    at = [page.index(f'id="row-{fix_id}"') for fix_id in WAITING]
    assert at == sorted(at)
    assert page.count('class="row"') == len(service.service.reviews.questions()) == len(WAITING)
    assert "5 questions to answer" in page


def test_the_screen_tells_all_that_a_decision_needs(operator: Visitor) -> None:
    message = text_of(operator.get("/fixes/fix-cap/triage"))
    for words in (
        "retry cap reached Every attempt failed its gates, and no retry is left.",
        "Not proved: that the flaw is gone and that the tests pass.",
        "1 llm initial LLM run tests failed at tests 1,000 tokens · $0.01",
        "2 llm fresh LLM run, no RAG tests failed at tests",
        "What the model was given in place of examples gate tests failed expected 1, got 4",
        "Patch of attempt 4 1 file, +1 \N{MINUS SIGN}1",
        "Gates on attempt 4 tests failed",
        "unsigned no checkpoint covers this fix yet",
        "author 4",
        "a Approve r Reject o Try again g Run the gates again",
    ):
        assert words in message, words
    assert message.index("Gates on attempt 4 tests failed") < message.index("applies passed")


@pytest.mark.parametrize(
    ("fix_id", "keys"),
    [
        ("fix-cap", "arog"),
        ("fix-same", "arog"),
        ("fix-gates", "arg"),
        ("fix-model", "ro"),
        ("fix-budget", "br"),
    ],
)
def test_only_what_can_be_decided_is_offered(operator: Visitor, fix_id: str, keys: str) -> None:
    page = operator.get(f"/fixes/{fix_id}/triage")
    offered = "".join(key for key in "arogb" if f'data-key="{key}"' in page)
    assert sorted(offered) == sorted(keys)


@pytest.mark.parametrize(
    ("fix_id", "verdict", "more", "kind"),
    [
        ("fix-cap", "approve", {}, ReviewDecided),
        ("fix-cap", "reject", {}, ReviewDecided),
        ("fix-cap", "reopen", {}, TransitionReopened),
        ("fix-same", "gates_again", {}, TransitionReopened),
        ("fix-model", "reopen", {}, TransitionReopened),
        ("fix-budget", "raise_budget", {"usd_per_fix": "0.50"}, BudgetRaised),
        ("fix-budget", "reject", {"usd_per_fix": "0.10"}, ReviewDecided),
    ],
)
def test_a_decision_is_one_event_in_the_keys_name(
    service: ServiceScenario,
    operator: Visitor,
    fix_id: str,
    verdict: str,
    more: dict[str, str],
    kind: type,
) -> None:
    answer = operator.decide(fix_id, verdict, "read <b>it</b>", **more)
    assert answer.status_code == 303, answer.text
    (event,) = answers(service, fix_id)
    assert type(event) is kind
    assert event.by.startswith("key:")
    assert event.reason == "read <b>it</b>"
    assert fix_id not in [one.fix_id for one in service.service.reviews.questions()]


def test_what_is_offered_for_a_budget_is_taken(service: ServiceScenario, operator: Visitor) -> None:
    page = operator.get("/fixes/fix-budget/triage")
    assert 'name="usd_per_fix" value="0.10"' in page
    assert operator.decide("fix-budget", "raise_budget", usd_per_fix="0.10").status_code == 303


def test_and_on_to_the_next(operator: Visitor) -> None:
    answer = operator.decide("fix-gates", "reject")
    assert answer.headers["location"].startswith("/portal/fixes/fix-same/triage?done=fix-gates.")
    assert "fix-gates: rejected." in operator.client.get(answer.headers["location"]).text
    answer = operator.decide("fix-cap", "reject")  # the last in the list: on from its top
    assert answer.headers["location"].startswith("/portal/fixes/fix-model/triage")
    for fix_id in ("fix-model", "fix-same"):
        operator.decide(fix_id, "reject")
    answer = operator.decide("fix-budget", "raise_budget", usd_per_fix="1")
    assert answer.headers["location"].startswith("/portal/queue")
    assert "No fix waits for a person" in operator.get("/queue")


def test_what_lets_it_go_on_names_the_command_for_a_fix_of_a_terminal(operator: Visitor) -> None:
    answer = operator.decide("fix-cap", "reopen")
    message = operator.client.get(answer.headers["location"]).text
    assert "To go on with it: fallback-tier resume fix-cap" in message


def test_who_comes_second_sees_the_first_decision(
    service: ServiceScenario, operator: Visitor
) -> None:
    other = visit(service, Role.READ, Role.DECIDE)
    page = other.get("/fixes/fix-cap/triage")
    operator.decide("fix-cap", "reject")
    answer = other.send(
        "/fixes/fix-cap/decisions", page, verdict="approve", because="looks right to me"
    )
    assert answer.status_code == 409
    message = text_of(answer.text)
    (first,) = answers(service, "fix-cap")
    assert f"was answered already: rejected by {first.by}" in message
    assert f"Answered: rejected by {first.by}" in message
    assert 'name="verdict"' not in answer.text


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"verdict": "approve", "because": ""}, 422),
        ({"verdict": "approve", "because": " \n"}, 422),
        ({"verdict": "approve", "because": "x" * 2_001}, 422),
        ({"verdict": "merge", "because": "x"}, 422),
        ({"verdict": "raise_budget", "because": "x", "usd_per_fix": "lots"}, 422),
        ({"verdict": "raise_budget", "because": "x"}, 422),
    ],
)
def test_what_is_no_decision_records_nothing(
    service: ServiceScenario, operator: Visitor, fields: dict[str, str], status: int
) -> None:
    page = operator.get("/fixes/fix-cap/triage")
    answer = operator.send("/fixes/fix-cap/decisions", page, **fields)
    assert answer.status_code == status
    assert 'role="alert"' in answer.text
    assert answers(service, "fix-cap") == []


def test_a_reason_is_kept_where_the_decision_is_not(operator: Visitor) -> None:
    page = operator.get("/fixes/fix-cap/triage")
    answer = operator.send(
        "/fixes/fix-cap/decisions", page, verdict="raise_budget", because="long & thought out"
    )
    assert "long &amp; thought out</textarea>" in answer.text


def test_who_may_read_is_offered_no_decision(service: ServiceScenario) -> None:
    reader = visit(service, Role.READ)
    page = reader.get("/fixes/fix-cap/triage")
    assert 'name="verdict"' not in page
    fields = {"verdict": "reject", "because": "no"}
    answer = reader.send("/fixes/fix-cap/decisions", page, **fields)
    assert answer.status_code == 403
    assert "does not have the role decide" in text_of(answer.text)


def test_a_fix_that_asks_nothing_says_so(operator: Visitor) -> None:
    assert "asks nothing" in operator.get("/fixes/fix-verified/triage", 422)
    assert "There is no fix" in operator.get("/fixes/no-such/triage", 404)


def test_the_vulnerability_why_it_waits_and_what_to_do_come_first(operator: Visitor) -> None:
    message = text_of(operator.get("/fixes/fix-model/triage"))
    parts = (
        "critical 9.8 shop evaluates the text of a setting",
        "Affected shop PyPI < 1.2.4 or ≥ 2.0.0, < 2.0.3",
        "Fixed in 1.2.4, 2.0.3",
        "Weakness CWE-95 eval injection",
        "CVSS V3 CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H",
        "model unavailable The model gave no answer.",
        "What to do: Check that its server answers",
    )
    places = [message.index(one) for one in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "path",
    [
        "/queue",
        "/fixes/fix-cap/triage",
        "/advisory?id=GHSA-xxxx-yyyy-zzzz",
        "/fixes/fix-cap/export.html",
    ],
)
def test_every_page_of_a_fix_links_to_its_advisory_safely(operator: Visitor, path: str) -> None:
    page = operator.get(path)
    link = 'href="https://example.org/advisories/GHSA-xxxx-yyyy-zzzz" rel="noopener noreferrer"'
    assert link in page
    assert "javascript:alert" not in page
    for words in ("shop evaluates the text of a setting", "critical 9.8", "CWE-95", "1.2.4"):
        assert words in page


def test_the_queue_names_the_cause_of_a_refused_retry(
    service: ServiceScenario, operator: Visitor
) -> None:
    with closing(SqliteAuditStore(audit_db(service.service.state_dir))) as store:
        record = Record(store, service.service.record.evidence)
        record.write(retry_without_a_model(), Scope(fix_id="fix-retry", gate_transition_id="g"))
    for path in ("/queue", "/fixes/fix-retry/triage"):
        message = text_of(operator.get(path))
        assert "A retry needs a model, and no model is configured." in message
        assert "Configure a model, then try again" in message
        assert "The retry was refused." not in message


def test_the_words_of_a_retry_are_explained_where_they_are_read(operator: Visitor) -> None:
    message = text_of(operator.get("/fixes/fix-cap/triage"))
    assert (
        "fresh LLM run, no RAG A retry: the model is asked again from an empty context." in message
    )
    assert "A retry: the model" not in text_of(operator.get("/fixes/fix-gates/triage"))


def test_a_fix_without_its_advisory_on_record_is_shown(
    service: ServiceScenario, operator: Visitor
) -> None:
    with closing(SqliteAuditStore(audit_db(service.service.state_dir))) as store:
        record = Record(store, service.service.record.evidence)
        record.write(t.cap_reached(), Scope(fix_id="fix-old", gate_transition_id="g"))
    message = "The record does not have the text of this advisory."
    assert message in operator.get("/fixes/fix-old/triage")
    assert 'id="row-fix-old"' in operator.get("/queue")
    assert message not in operator.get("/fixes/fix-cap/triage")
