"""SARIF: dependencies as osv-scanner, Trivy and Grype write them; findings in source code."""

import json
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import (
    AdvisorySet,
    CodeFinding,
    is_affected,
    load_advisories,
    lowest_fixed_version,
)
from fallback_tier.advisory.found import MAX_MESSAGE_LENGTH


def place(uri: str, line: int | None = None, **more: Any) -> dict[str, Any]:
    region = {"region": {"startLine": line, **more}} if line is not None else {}
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, **region}}


def run(*results: dict[str, Any], rules: Any = (), **more: Any) -> dict[str, Any]:
    return {
        "tool": {"driver": {"name": "x", "rules": list(rules)}},
        "results": list(results),
        **more,
    }


def read(tmp_path: Path, *runs: Any) -> AdvisorySet:
    path = tmp_path / "log.sarif"
    path.write_text(json.dumps({"version": "2.1.0", "$schema": "s", "runs": list(runs)}))
    return load_advisories([path])


# --- Dependencies -----------------------------------------------------------------------------


def osv_scanner(lock: str = "file:///src/app/package-lock.json") -> dict[str, Any]:
    table = (
        "### Fixed Versions\n\n| Vulnerability ID | Package Name | Fixed Version |\n"
        "| --- | --- | --- |\n| GHSA-aaaa-bbbb-cccc | @s/pkg | 1.5.0 |\n"
        "| GHSA-aaaa-bbbb-cccc | @s/pkg | 2.1.0 |\n| GHSA-aaaa-bbbb-cccc | other | 1.2.0 |\n"
    )
    rule = {
        "id": "CVE-2026-1234",
        "shortDescription": {"text": "CVE-2026-1234: bad"},
        "fullDescription": {"text": "Very bad.", "markdown": "*Very* bad."},
        "help": {"text": f"### Affected Packages\n\n| a | @s/pkg | 1.1.0 |\n\n{table}"},
    }
    known = "(also known as 'PYSEC-2026-9', 'GHSA-aaaa-bbbb-cccc')"
    words = f"Package '@s/pkg@1.1.0' is vulnerable to 'CVE-2026-1234' {known}."
    result = {
        "ruleId": "CVE-2026-1234",
        "ruleIndex": 0,
        "message": {"text": words},
        "locations": [place(lock)],
    }
    return run(result, result, rules=[rule])


def test_osv_scanner(tmp_path: Path) -> None:
    found = read(tmp_path, osv_scanner())
    assert not found.skipped
    (record,) = found.advisories
    assert record.id == "CVE-2026-1234"
    assert record.aliases == ("PYSEC-2026-9", "GHSA-aaaa-bbbb-cccc")
    assert record.text == "CVE-2026-1234: bad\n\nVery bad."
    assert lowest_fixed_version(record, "npm", "@s/pkg", "1.1.0") == "1.5.0"


def trivy(name: str, version: str, fixed: str, lock: str) -> dict[str, Any]:
    words = (
        f"Package: {name}\nInstalled Version: {version}\nVulnerability CVE-2026-2\n"
        f"Severity: HIGH\nFixed Version: {fixed}\nLink: [CVE-2026-2](https://example.org/x)"
    )
    rule = {
        "id": "CVE-2026-2",
        "name": "LanguageSpecificPackageVulnerability",
        "help": {"text": f"Vulnerability CVE-2026-2\nPackage: {name}\nFixed Version: 0.0.1\n"},
        "helpUri": "https://example.org/x",
    }
    result = {
        "ruleId": "CVE-2026-2",
        "ruleIndex": 0,
        "message": {"text": words},
        "locations": [place(lock, 12, endLine=16), place(lock, 40)],
    }
    return run(result, rules=[rule])


@pytest.mark.parametrize("lock", ["uv.lock", "app/requirements-dev.txt", "a%20b/Pipfile.lock"])
def test_trivy(tmp_path: Path, lock: str) -> None:
    found = read(tmp_path, trivy("jinja2", "3.1.2", "2.11.3, 3.1.4", lock))
    assert (found.skipped, found.findings) == ((), ())
    (record,) = found.advisories
    assert lowest_fixed_version(record, "PyPI", "Jinja2", "3.1.2") == "3.1.4"
    assert record.references[0].url == "https://example.org/x"


def test_trivy_without_a_fix(tmp_path: Path) -> None:
    (record,) = read(tmp_path, trivy("lodash", "4.0.0", "", "yarn.lock")).advisories
    assert is_affected(record, "npm", "lodash", "99.0.0")


def grype(*purls: str) -> dict[str, Any]:
    rule = {
        "id": "GHSA-aaaa-bbbb-cccc-lodash",
        "help": {
            "text": "Package: lodash\nVersion: 4.17.20\nFix Version: 4.17.21,5.0.0\nType: npm"
        },
        "properties": {"purls": list(purls), "security-severity": "7.2"},
    }
    words = "A high vulnerability in npm package: lodash, version 4.17.20 was found at: /app/x"
    result = {
        "ruleId": rule["id"],
        "message": {"text": words},
        "locations": [place("/app/x", 1, endLine=1)],
    }
    return run(result, rules=[rule])


@pytest.mark.parametrize("purls", [(), ("pkg:npm/lodash@4.17.20", "pkg:npm/lodash@3.0.0")])
def test_grype(tmp_path: Path, purls: tuple[str, ...]) -> None:
    (record,) = read(tmp_path, grype(*purls)).advisories
    assert record.id == "GHSA-aaaa-bbbb-cccc"
    assert lowest_fixed_version(record, "npm", "lodash", "4.17.20") == "4.17.21"


@pytest.mark.parametrize(
    "properties",
    [
        {"purl": "pkg:npm/%40s/pkg@1.0.0?arch=x"},
        {"packageName": "@s/pkg", "package-version": "1.0.0", "ecosystem": "npm"},
    ],
)
def test_properties_name_a_package(tmp_path: Path, properties: dict[str, str]) -> None:
    result = {
        "ruleId": "CVE-2026-3",
        "message": {"text": "Old."},
        "properties": properties | {"fixedVersion": "1.0.1"},
    }
    (record,) = read(tmp_path, run(result)).advisories
    assert (record.id, record.packages("npm")) == ("CVE-2026-3", ("@s/pkg",))
    assert lowest_fixed_version(record, "npm", "@s/pkg", "1.0.0") == "1.0.1"


def test_grype_before_its_message_named_the_type_first(tmp_path: Path) -> None:
    words = "The path /app/x reports lodash at version 4.17.20  which would result in a vulnerable (npm)"
    result = {
        "ruleId": "CVE-2026-1234-lodash",
        "message": {"text": f"{words} package installed"},
        "locations": [place("app/x", 1)],
    }
    found = read(tmp_path, run(result))
    assert (found.skipped, found.findings) == ((), ())
    assert found.advisories[0].id == "CVE-2026-1234"
    assert found.advisories[0].ids_affecting("npm", "lodash", "4.17.20")


def snyk(
    uri: str = "package.json", manager: str = "npm", *, says_where: bool = True
) -> dict[str, Any]:
    logical = {"logicalLocations": [{"fullyQualifiedName": "@s/pkg@1.1.0"}]} if says_where else {}
    rule = {
        "id": "SNYK-JS-SPKG-1234567",
        "shortDescription": {"text": "High severity - Prototype Pollution vulnerability in @s/pkg"},
        "fullDescription": {"text": "(CVE-2026-1234,CVE-2026-1235) @s/pkg@1.1.0"},
        "help": {
            "text": "",
            "markdown": "# Overview\nUpgrade `other` to version 9.9.9 or higher.\n# Remediation\n"
            "Upgrade `@s/pkg` to version 2.0.1, `1.1.2` or higher.\n",
        },
        "properties": {"tags": ["security", "CWE-1321", manager]},
    }
    words = "This file introduces a vulnerable @s/pkg package with a high severity vulnerability."
    result = {
        "ruleId": rule["id"],
        "message": {"text": words},
        "locations": [place(uri, 1) | logical],
    }
    return run(result, rules=[rule])


@pytest.mark.parametrize(
    "log",
    [
        snyk(),
        snyk(says_where=False),
        snyk("registry.example/app", "npm"),
    ],
)
def test_snyk(tmp_path: Path, log: dict[str, Any]) -> None:
    found = read(tmp_path, log)
    assert (found.skipped, found.findings) == ((), ())
    (record,) = found.advisories
    assert (record.id, record.cwe) == ("SNYK-JS-SPKG-1234567", ("CWE-1321",))
    assert record.aliases == ("CVE-2026-1234", "CVE-2026-1235")
    assert lowest_fixed_version(record, "npm", "@s/pkg", "1.1.0") == "1.1.2"
    assert is_affected(record, "npm", "@s/pkg", "9.9.9")


def uv(**more: Any) -> dict[str, Any]:
    logical = {"fullyQualifiedName": "idna@3.6", "kind": "package", "name": "idna"}
    return {
        "ruleId": "GHSA-jjg7-2v4v-x38h",
        "kind": "fail",
        "message": {"text": "idna 3.6 is vulnerable to PYSEC-2024-60: Denial of service"},
        "locations": [place("uv.lock", 1) | {"logicalLocations": [logical]}],
        "properties": {
            "uv/id": "GHSA-jjg7-2v4v-x38h",
            "uv/displayId": "PYSEC-2024-60",
            "uv/aliases": ["CVE-2024-3651"],
            "uv/package": "idna",
            "uv/version": "3.6",
            "uv/fixVersions": ["3.7"],
        },
        **more,
    }


def test_uv(tmp_path: Path) -> None:
    found = read(tmp_path, run(uv()))
    assert (found.skipped, found.findings) == ((), ())
    (record,) = found.advisories
    assert record.id == "PYSEC-2024-60"
    assert set(record.aliases) == {"GHSA-jjg7-2v4v-x38h", "CVE-2024-3651"}
    assert lowest_fixed_version(record, "PyPI", "idna", "3.6") == "3.7"


def test_a_project_that_uv_calls_archived_is_no_vulnerability(tmp_path: Path) -> None:
    properties = {"uv/package": "idna", "uv/status": "archived"}
    (note,) = read(
        tmp_path, run(uv(ruleId="uv/project-status/archived", properties=properties))
    ).skipped
    assert not note.unknown


def test_a_package_url_of_a_logical_location(tmp_path: Path) -> None:
    logical = {"logicalLocations": [{"fullyQualifiedName": "pkg:npm/%40s/pkg@1.0.0?a=b"}]}
    (record,) = read(tmp_path, run({"ruleId": "INT-1", "locations": [logical]})).advisories
    assert record.ids_affecting("npm", "@s/pkg", "1.0.0") == ("INT-1",)


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("CVE-2026-1-some-java-package", "lib/some.jar"),
        ("GO-2026-4864", "go.mod"),
        ("[MEDIUM] CVE-2026-1", "Dockerfile"),
        ("SNYK-LINUX-BZIP2-106947", "Dockerfile"),
        ("npm:ms:20170412", "src/app.js"),
    ],
)
def test_an_advisory_is_never_a_finding_in_own_code(tmp_path: Path, rule: str, path: str) -> None:
    found = read(tmp_path, run({"ruleId": rule, "locations": [place(path, 1)]}))
    assert (found.advisories, found.findings, len(found.skipped)) == ((), (), 1)
    assert found.skipped[0].unknown


@pytest.mark.parametrize("rule", ["SNYK-CC-K8S-6", "js/sql-injection", "custom.CVE-2026-1"])
def test_a_rule_about_code_or_configuration_stays_a_finding(tmp_path: Path, rule: str) -> None:
    logical = {"logicalLocations": [{"fullyQualifiedName": "run@2"}]}
    found = read(tmp_path, run({"ruleId": rule, "locations": [place("a.yaml", 3) | logical]}))
    assert (found.skipped, found.findings[0].rule_id) == ((), rule)


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (osv_scanner("file:///src/Cargo.lock")["results"][:1], "can't be determined"),
        ([{"ruleId": "R", "locations": [place("package-lock.json", 3)]}], "names no package"),
        ([{"ruleId": "R", "message": {"text": "?"}}], "neither a package nor a line"),
        ([{"ruleId": "R", "locations": [place("a.py")]}], "neither a package nor a line"),
        ([{"ruleId": "R", "locations": [place("../a.py", 1)]}], "leaves the repository"),
        ([{"kind": "pass", "locations": [place("a.py", 1)]}], "'pass'"),
        ([{"baselineState": "absent", "locations": [place("a.py", 1)]}], "is fixed"),
        (
            [{"suppressions": [{"kind": "inSource"}], "locations": [place("a.py", 1)]}],
            "suppressed",
        ),
    ],
)
def test_what_gives_no_advisory_says_why(tmp_path: Path, results: Any, reason: str) -> None:
    found = read(tmp_path, run(*results))
    assert (found.advisories, found.findings) == ((), ())
    assert reason in found.skipped[0].reason
    assert "runs[0].results[0]" in found.skipped[0].source


def test_a_run_that_was_not_carried_out_is_not_clean(tmp_path: Path) -> None:
    assert read(tmp_path, run()) == AdvisorySet()
    assert [it.unknown for it in read(tmp_path).skipped] == [True]
    failed = run(invocations=[{"executionSuccessful": False}])
    broken: list[dict[str, Any]] = [{"tool": {}}, run() | {"results": None}, failed]
    for bad in broken:
        assert len(read(tmp_path, bad).skipped) == 1


# --- Source code ------------------------------------------------------------------------------


def test_codeql_finding(tmp_path: Path) -> None:
    extension = {
        "name": "codeql/javascript-queries",
        "rules": [
            {"id": "js/other"},
            {"id": "js/xss", "properties": {"tags": ["external/cwe/cwe-079"]}},
        ],
    }
    result = {
        "ruleId": "js/xss",
        "rule": {"id": "js/xss", "index": 1, "toolComponent": {"index": 0}},
        "message": {"text": "Cross-site scripting."},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"index": 1}, "region": {"startLine": 7}}}
        ],
    }
    tool = {"driver": {"name": "CodeQL", "rules": []}, "extensions": [extension]}
    artifacts = [{"location": {"uri": "a.js"}}, {"location": {"uri": "src/b%20c.js"}}]
    found = read(tmp_path, {"tool": tool, "artifacts": artifacts, "results": [result, result]})
    assert found.findings == (
        CodeFinding(
            path="src/b c.js",
            start_line=7,
            end_line=7,
            rule_id="js/xss",
            message="Cross-site scripting.",
            cwe=("CWE-79",),
        ),
    )
    assert (found.advisories, found.skipped) == ((), ())
    assert found.findings[0].reason is RefusalReason.OWN_CODE
    assert "src/b c.js, line 7" in found.findings[0].sentence


@pytest.mark.parametrize(
    "rule",
    [
        {"properties": {"tags": ["CWE-89: SQL injection", "OWASP"]}},
        {"properties": {"cwe": "CWE-089"}},
        {"relationships": [{"target": {"id": "89", "toolComponent": {"name": "CWE"}}}]},
    ],
)
def test_weaknesses_of_a_rule(tmp_path: Path, rule: dict[str, Any]) -> None:
    result = {
        "ruleId": "sql",
        "message": {"markdown": "x" * (MAX_MESSAGE_LENGTH + 1)},
        "locations": [place("./app.py", 3, endLine=5)],
    }
    (finding,) = read(tmp_path, run(result, rules=[{"id": "other"}, {"id": "sql"} | rule])).findings
    assert finding.cwe == ("CWE-89",)
    assert (finding.path, finding.start_line, finding.end_line) == ("app.py", 3, 5)
    assert len(finding.message) == MAX_MESSAGE_LENGTH


def test_text_that_utf8_cant_hold_is_replaced(tmp_path: Path) -> None:
    result = {"ruleId": "r", "message": {"text": "\ud800"}, "locations": [place("a.py", 1)]}
    (finding,) = read(tmp_path, run(result)).findings
    assert finding.message == "?"
