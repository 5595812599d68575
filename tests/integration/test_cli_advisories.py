"""`fix` and `plan` by identifier, from standard input and from alerts: what is named, kept, and refused."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import Ended, osv, repository, run
from tests.fakes.osv_api import OsvApi, osv_api
from tests.registry import Universe, serve
from tests.unit.advisory.osv_shape import OSV_SCHEMA

GHSA, CVE = "GHSA-2222-3333-4444", "CVE-2026-1234"


def record(name: str, **facts: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(osv("left", id=name, fixed="1.5.0", **facts))
    jsonschema.validate(document, OSV_SCHEMA)
    return document


@pytest.fixture(scope="module")
def registry() -> Iterator[Mapping[str, str]]:
    universe = Universe()
    for version in ("1.0.0", "1.5.0", "1.9.0"):
        universe.pypi("left", version)
    with serve(universe) as served:
        yield served.environ


@pytest.fixture
def api() -> Iterator[OsvApi]:
    cve = {"id": CVE, "modified": "2026-01-02T00:00:00Z", "aliases": [GHSA]}
    with osv_api({GHSA: record(GHSA, aliases=[CVE]), CVE: cve}) as served:
        yield served


class Scenario:
    """A repository with an affected pin, a state folder, and an OSV API."""

    def __init__(self, place: Path, env: Mapping[str, str], api: OsvApi) -> None:
        self.place, self.env, self.api = place, env, api
        self.repo = repository(
            place / "repo", {"requirements.txt": "left==1.0.0\n", "app.py": "import left\n"}
        )

    def __call__(self, command: str, *more: str, stdin: str = "", by_option: bool = True) -> Ended:
        url = ["--advisory-url", self.api.url] if by_option else []
        state = str(self.place / "state")
        words = [command, str(self.repo), *url, "--state-dir", state, *more]
        env = {**self.env, "FALLBACK_TIER_ADVISORY_URL": "" if by_option else self.api.url}
        return run(*words, env=env, stdin=stdin)


@pytest.fixture
def scenario(tmp_path: Path, registry: Mapping[str, str], api: OsvApi) -> Scenario:
    return Scenario(tmp_path, registry, api)


def error_of(ended: Ended) -> str:
    assert ended.code == exit_codes.BAD_INPUT, ended
    assert ended.json["error"]["next_step"] == ended.next_step
    code: str = ended.json["error"]["code"]
    return code


def test_an_identifier_is_fixed_with_proof_and_its_source_is_on_record(scenario: Scenario) -> None:
    ended = scenario("fix", "--advisory", GHSA, "--json")
    assert ended.code == exit_codes.OK, ended
    assert (scenario.repo / "requirements.txt").read_text() == "left==1.5.0\n"
    (source,) = ended.json["advisory_sources"]
    address = f"{scenario.api.url}/v1/vulns/{GHSA}"
    assert (source["id"], source["url"], source["kept"]) == (GHSA, address, False)
    assert source["modified"] == "2026-01-01T00:00:00Z"
    # The evidence of the audit trail holds the record, with its address and its date.
    evidence = scenario.place / "state" / "evidence"
    texts = [path.read_bytes() for path in evidence.rglob("*") if path.is_file()]
    assert any(address.encode() in text and b"2026-01-01T00:00:00Z" in text for text in texts)


@pytest.mark.parametrize("asked", [GHSA, CVE, GHSA.lower()])
def test_every_name_of_it_is_planned(scenario: Scenario, asked: str) -> None:
    ended = scenario("plan", "--advisory", asked, "--json", by_option=False)
    assert ended.code == exit_codes.OK, ended
    (fix,) = ended.json["fixes"]
    assert fix["advisory_ids"] == [GHSA]
    assert sorted(scenario.api.requests) == [CVE, GHSA]


def test_a_person_is_told_the_source(scenario: Scenario) -> None:
    ended = scenario("plan", "--advisory", GHSA)
    first = ended.out.splitlines()[0]
    assert all(part in first for part in (GHSA, scenario.api.url, "2026-01-01", "fetched"))


def test_offline_uses_what_was_kept_and_says_so(scenario: Scenario) -> None:
    scenario("plan", "--advisory", GHSA, "--no-resolve")
    asked = len(scenario.api.requests)
    ended = scenario("plan", "--advisory", GHSA, "--no-resolve", "--offline", "--json")
    assert ended.code == exit_codes.OK, ended
    sources = ended.json["advisory_sources"]
    assert {one["id"]: one["kept"] for one in sources} == {GHSA: True, CVE: True}
    assert len(scenario.api.requests) == asked


def test_offline_without_a_kept_answer(scenario: Scenario) -> None:
    ended = scenario("plan", "--advisory", GHSA, "--offline", "--json")
    assert error_of(ended) == "advisory_unreachable"
    assert f"{scenario.api.url}/v1/vulns/{GHSA}" in ended.next_step
    file = Path(
        next(word for word in ended.next_step.split() if word.endswith(".json;")).rstrip(";")
    )
    for name in (GHSA, CVE):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(f"{name}.json").write_text(json.dumps(scenario.api.records[name]))
    again = scenario("plan", "--advisory", GHSA, "--offline", "--no-resolve", "--json")
    assert again.code == exit_codes.OK, again


@pytest.mark.parametrize(
    ("name", "answer", "code"),
    [
        ("GHSA-1234", None, "advisory_id"),
        ("CVE-1999-0001", None, "advisory_not_found"),
        ("CVE-2026-1", None, "advisory_id"),
        ("CVE-2026-5678", {"id": "CVE-2026-5678", "affected": []}, "advisory_no_package"),
        (GHSA, b"<html>", "advisory_response"),
    ],
)
@pytest.mark.parametrize("command", ["fix", "plan"])
def test_each_failure_has_its_own_code(
    scenario: Scenario, command: str, name: str, answer: Any, code: str
) -> None:
    if answer is not None:
        scenario.api.records[name] = answer
    ended = scenario(command, "--advisory", name, "--json")
    assert error_of(ended) == code
    assert "No such file" not in ended.problem


def test_a_withdrawn_identifier_affects_nothing(scenario: Scenario) -> None:
    scenario.api.records = {GHSA: record(GHSA, withdrawn="2026-02-01T00:00:00Z")}
    ended = scenario("plan", "--advisory", GHSA, "--json")
    assert ended.code == exit_codes.NOT_AFFECTED
    assert [one["unknown"] for one in ended.json["skipped"]] == [False]


def test_an_address_that_is_none(scenario: Scenario) -> None:
    ended = scenario("plan", "--advisory", GHSA, "--advisory-url", "localhost", "--json")
    assert error_of(ended) == "configuration"


def test_standard_input(scenario: Scenario) -> None:
    alert = {
        "number": 1,
        "state": "open",
        "security_advisory": {
            "ghsa_id": GHSA,
            "cve_id": CVE,
            "vulnerabilities": [
                {
                    "package": {"ecosystem": "pip", "name": "left"},
                    "vulnerable_version_range": "< 1.5.0",
                    "first_patched_version": {"identifier": "1.5.0"},
                }
            ],
        },
    }
    ended = scenario("fix", "--advisory", "-", "--json", stdin=json.dumps([alert]))
    assert ended.code == exit_codes.OK, ended
    assert (scenario.repo / "requirements.txt").read_text() == "left==1.5.0\n"
    assert scenario.api.requests == []
    assert "advisory_sources" not in ended.json


def test_standard_input_that_is_no_advisory(scenario: Scenario) -> None:
    for text in ("", "{}", "no JSON"):
        ended = scenario("plan", "--advisory", "-", "--json", stdin=text)
        assert error_of(ended) == "advisory"
        assert "Dependabot" in ended.next_step


def test_a_report_of_identifiers_becomes_several_fixes(scenario: Scenario) -> None:
    """An OSV batch answer holds identifiers alone; one of them is not in the database."""
    batch = {"results": [{"vulns": [{"id": GHSA}, {"id": "GHSA-5555-6666-7777"}]}]}
    ended = scenario("plan", "--advisory", "-", "--json", stdin=json.dumps(batch))
    assert ended.code == exit_codes.OK, ended
    assert [fix["advisory_ids"] for fix in ended.json["fixes"]] == [[GHSA]]
    assert [one["unknown"] for one in ended.json["skipped"]] == [True]


def test_a_record_of_commits_is_for_the_own_source_alone(scenario: Scenario) -> None:
    git = [{"type": "GIT", "repo": "https://example.com/left", "events": [{"introduced": "0"}]}]
    package = {"ecosystem": "PyPI", "name": "left"}
    scenario.api.records = {GHSA: {"id": GHSA, "affected": [{"package": package, "ranges": git}]}}
    assert error_of(scenario("plan", "--advisory", GHSA, "--json")) == "advisory"
    ended = scenario("fix", "--advisory", GHSA, "--json")
    assert ended.code not in (exit_codes.OK, exit_codes.NOT_AFFECTED), ended
