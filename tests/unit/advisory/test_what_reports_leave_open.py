"""A report states what is installed, and the fix of that release line: the rest is not called safe."""

import json
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.advisory import (
    Advisory,
    OsvLookup,
    is_affected,
    load_advisories,
    lowest_fixed_version,
)
from fallback_tier.advisory.osv_server import OsvServer
from tests.fakes.osv_api import osv_api

GHSA = "GHSA-p64x-8rxx-wf6q"


def grype(*matches: tuple[str, str], purl: str = "pkg:pypi/django") -> dict[str, Any]:
    return {
        "matches": [
            {
                "vulnerability": {"id": GHSA, "fix": {"versions": [fix] if fix else []}},
                "artifact": {"purl": f"{purl}@{version}"},
            }
            for version, fix in matches
        ]
    }


def trivy(version: str, fixed: str) -> dict[str, Any]:
    flaw = {
        "VulnerabilityID": GHSA,
        "PkgName": "django",
        "InstalledVersion": version,
        "FixedVersion": fixed,
    }
    return {"Results": [{"Type": "pip", "Vulnerabilities": [flaw]}]}


def pip_audit(version: str, *fixes: str) -> dict[str, Any]:
    flaw = {"id": GHSA, "fix_versions": fixes}
    return {"dependencies": [{"name": "django", "version": version, "vulns": [flaw]}]}


def uv_audit(version: str, *fixes: str) -> dict[str, Any]:
    flaw = {
        "id": GHSA,
        "fix_versions": fixes,
        "dependency": {"name": "django", "version": version},
    }
    return {"vulnerabilities": [flaw], "summary": {"audited_packages": 1}}


def sarif(version: str, fixed: str) -> dict[str, Any]:
    message = f"Package: django\nInstalled Version: {version}\nVulnerability {GHSA}\nFixed Version: {fixed}"
    result = {"ruleId": GHSA, "message": {"text": message}, "properties": {}}
    result["properties"] = {"purl": f"pkg:pypi/django@{version}"}
    return {"version": "2.1.0", "runs": [{"tool": {"driver": {}}, "results": [result]}]}


def npm_audit(*ranges: str) -> dict[str, Any]:
    via = [
        {"name": "semver", "range": it, "url": f"https://x.test/advisories/{GHSA}"} for it in ranges
    ]
    return {"vulnerabilities": {"semver": {"via": via}}}


def only(tmp_path: Path, *documents: dict[str, Any], lookup: OsvLookup | None = None) -> Advisory:
    for number, document in enumerate(documents):
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
    paths = [tmp_path / f"{number}.json" for number in range(len(documents))]
    (record,) = load_advisories(paths, lookup).advisories
    return record


@pytest.mark.parametrize(
    "report",
    [
        grype(("3.2.1", "3.2.13")),
        trivy("3.2.1", "3.2.13"),
        pip_audit("3.2.1", "3.2.13"),
        uv_audit("3.2.1", "3.2.13"),
        sarif("3.2.1", "3.2.13"),
    ],
)
def test_a_fix_clears_its_own_release_line_alone(tmp_path: Path, report: dict[str, Any]) -> None:
    record = only(tmp_path, report)
    assert lowest_fixed_version(record, "PyPI", "django", "3.2.1") == "3.2.13"
    for version in ("3.2.13", "3.2.25"):
        assert not is_affected(record, "PyPI", "django", version), version
    for version in ("2.2.28", "3.2.12", "3.3", "4.0.1", "5.0", "4.0rc1"):
        assert is_affected(record, "PyPI", "django", version), version


def test_a_fix_of_an_older_line_says_nothing_of_a_newer_one(tmp_path: Path) -> None:
    record = only(tmp_path, grype(("2.2.0", "2.2.28")))
    assert is_affected(record, "PyPI", "django", "3.2.1")
    assert lowest_fixed_version(record, "PyPI", "django", "2.2.0") == "2.2.28"


@pytest.mark.parametrize(
    "reports",
    [
        [grype(("2.2.0", "2.2.28"), ("3.2.1", "3.2.13"))],
        [grype(("2.2.0", "2.2.28")), trivy("3.2.1", "3.2.13")],
        [trivy("3.2.1", "2.2.28, 3.2.13"), grype(("2.2.0", "2.2.28"))],
    ],
)
def test_what_reports_call_safe_adds_up(tmp_path: Path, reports: list[dict[str, Any]]) -> None:
    """Each of them states one line: together they don't unsay each other."""
    record = only(tmp_path, *reports)
    assert lowest_fixed_version(record, "PyPI", "django", "2.2.0") == "2.2.28"
    assert lowest_fixed_version(record, "PyPI", "django", "3.2.1") == "3.2.13"
    assert is_affected(record, "PyPI", "django", "4.0.1")
    assert is_affected(record, "PyPI", "django", "3.0")


def test_a_version_that_is_found_affected_above_a_fix_is_not_cleared_by_it(tmp_path: Path) -> None:
    record = only(tmp_path, grype(("3.2.1", "3.2.13"), ("3.2.15", "3.2.17")))
    assert lowest_fixed_version(record, "PyPI", "django", "3.2.1") == "3.2.13"
    assert lowest_fixed_version(record, "PyPI", "django", "3.2.15") == "3.2.17"
    for version in ("3.2.14", "3.2.15", "3.2.16"):
        assert is_affected(record, "PyPI", "django", version), version
    contradicted = only(tmp_path, grype(("3.2.13", "3.2.13")))
    assert is_affected(contradicted, "PyPI", "django", "3.2.13")
    assert is_affected(contradicted, "PyPI", "django", "3.2.14")


def test_npm_audit_states_the_lines_that_are_installed(tmp_path: Path) -> None:
    record = only(tmp_path, npm_audit("<5.7.2", ">=7.0.0 <7.5.2"))
    for version in ("5.7.2", "5.7.9", "7.5.2", "7.5.3"):
        assert not is_affected(record, "npm", "semver", version), version
    for version in ("5.7.1", "6.2.0", "7.0.0", "7.6.0", "8.0.0", "5.8.0"):
        assert is_affected(record, "npm", "semver", version), version
    assert lowest_fixed_version(record, "npm", "semver", "5.7.1") == "5.7.2"


def test_a_last_affected_version_clears_what_follows_in_its_line(tmp_path: Path) -> None:
    record = only(tmp_path, npm_audit(">=7.0.0 <=7.5.1"))
    assert is_affected(record, "npm", "semver", "7.5.1")
    assert not is_affected(record, "npm", "semver", "7.5.2")
    assert is_affected(record, "npm", "semver", "7.6.0")


@pytest.mark.parametrize(
    "report", [grype(("3.2.1", "3.2.13")), trivy("3.2.1", "3.2.13"), pip_audit("3.2.1", "3.2.13")]
)
def test_the_record_states_the_other_lines(tmp_path: Path, report: dict[str, Any]) -> None:
    events = [
        *({"introduced": "0"}, {"fixed": "2.2.28"}),
        *({"introduced": "3.0"}, {"fixed": "3.2.13"}),
    ]
    package = {"name": "django", "ecosystem": "PyPI"}
    ranges = [{"type": "ECOSYSTEM", "events": events}]
    whole = {"id": GHSA, "affected": [{"package": package, "ranges": ranges}]}
    with osv_api({GHSA: whole}) as api:
        lookup = OsvLookup(OsvServer(api.url), lambda: tmp_path / "kept")
        record = only(tmp_path, report, lookup=lookup)
        assert [it.id for it in lookup.sources] == [GHSA]
    assert is_affected(record, "PyPI", "django", "3.2.1")
    assert is_affected(record, "PyPI", "django", "3.1")
    assert not is_affected(record, "PyPI", "django", "4.0.1")
    assert not is_affected(record, "PyPI", "django", "2.2.28")


def test_without_the_record_the_report_still_suffices_and_it_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(grype(("3.2.1", "3.2.13"), ("2.2", "2.2.28"))))
    with osv_api({}) as api:
        lookup = OsvLookup(OsvServer(api.url), lambda: tmp_path / "kept")
        found = load_advisories([tmp_path / "report.json"], lookup)
    (record,), (note,) = found.advisories, found.skipped
    assert not note.unknown
    assert lowest_fixed_version(record, "PyPI", "django", "3.2.1") == "3.2.13"
    assert is_affected(record, "PyPI", "django", "4.0.1")


@pytest.mark.parametrize("listed", [None, [], ["other"]])
def test_an_alert_that_its_advisory_does_not_list_states_one_range(
    tmp_path: Path, listed: list[str] | None
) -> None:
    def alert(low: str, fixed: str) -> dict[str, Any]:
        stated = {
            "package": {"ecosystem": "pip", "name": "django"},
            "vulnerable_version_range": f">= {low}, < {fixed}",
            "first_patched_version": {"identifier": fixed},
        }
        return {
            "state": "open",
            "security_advisory": {"ghsa_id": GHSA, **others},
            "security_vulnerability": stated,
        }

    others: dict[str, Any] = {}
    if listed is not None:
        package = {"ecosystem": "pip", "name": "other"}
        entry = {"package": package, "vulnerable_version_range": "< 1"}
        others = {"vulnerabilities": [entry for _ in listed]}
    record = only(tmp_path, alert("2.2", "2.2.28"))
    for version in ("2.2.1", "3.2.1", "4.0.1"):
        assert is_affected(record, "PyPI", "django", version), version
    assert not is_affected(record, "PyPI", "django", "2.2.28")
    both = only(tmp_path, alert("2.2", "2.2.28"), alert("3.2", "3.2.13"))
    assert lowest_fixed_version(both, "PyPI", "django", "3.2.1") == "3.2.13"
    assert not is_affected(both, "PyPI", "django", "2.2.28")


def test_an_ecosystem_without_a_plugin_keeps_its_ranges(tmp_path: Path) -> None:
    stated = {
        "package": {"ecosystem": "go", "name": "example.org/a"},
        "vulnerable_version_range": "< 1.2.3",
    }
    alert = {"security_advisory": {"ghsa_id": GHSA}, "security_vulnerability": stated}
    record = only(tmp_path, alert)
    assert record.ecosystems == ("Go",)
