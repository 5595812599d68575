"""Every format of input, with a document of its kind, shortened from its tool's documentation or output.

Formats that older tests have (OSV, osv-scanner, pip-audit, npm audit, SARIF) are in test_reports.py and
test_sarif.py; here are the others, and what all of them have in common.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.advisory import (
    Advisory,
    AdvisorySet,
    OsvLookup,
    fixed_versions,
    is_affected,
    load_advisories,
)
from fallback_tier.advisory.osv_server import OsvServer
from fallback_tier.advisory.reports import FORMATS, OSV_RECORD, supported
from fallback_tier.errors import AdvisoryError
from tests.fakes.osv_api import osv_api
from tests.unit.advisory.test_lookup import CVE, GHSA, PYSEC, RECORDS

CVSS = "CVSS:3.1/AV:L/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H"

#: GET /advisories/{ghsa_id} (https://docs.github.com/en/rest/security-advisories/global-advisories).
GITHUB: dict[str, Any] = {
    "ghsa_id": GHSA,
    "cve_id": CVE,
    "url": f"https://api.github.com/advisories/{GHSA}",
    "html_url": f"https://github.com/advisories/{GHSA}",
    "repository_advisory_url": None,
    "summary": "Denial of service from specially crafted inputs to idna.encode",
    "description": "A specially crafted argument consumes significant resources.",
    "type": "reviewed",
    "severity": "medium",
    "source_code_location": "https://github.com/kjd/idna",
    "identifiers": [{"value": GHSA, "type": "GHSA"}, {"value": CVE, "type": "CVE"}],
    "references": ["https://nvd.nist.gov/vuln/detail/CVE-2024-3651"],
    "published_at": "2024-04-11T21:32:40Z",
    "updated_at": "2025-02-21T05:28:31Z",
    "github_reviewed_at": "2024-04-11T21:32:40Z",
    "withdrawn_at": None,
    "vulnerabilities": [
        {
            "package": {"ecosystem": "pip", "name": "idna"},
            "vulnerable_version_range": "< 3.7",
            "first_patched_version": "3.7",
            "vulnerable_functions": ["idna.encode"],
        }
    ],
    "cvss": {"vector_string": CVSS, "score": 5.5},
    "cvss_severities": {
        "cvss_v3": {"vector_string": CVSS, "score": 5.5},
        "cvss_v4": {"vector_string": None, "score": 0.0},
    },
    "cwes": [{"cwe_id": "CWE-400", "name": "Uncontrolled Resource Consumption"}],
    "credits": [],
}

#: GET /repos/{owner}/{repo}/dependabot/alerts/{alert_number}: first_patched_version is an object there.
ALERT: dict[str, Any] = {
    "number": 2,
    "state": "open",
    "dependency": {
        "package": {"ecosystem": "pip", "name": "idna"},
        "manifest_path": "requirements.txt",
        "scope": "runtime",
    },
    "security_advisory": {
        **{key: GITHUB[key] for key in ("ghsa_id", "cve_id", "summary", "description", "severity")},
        **{key: GITHUB[key] for key in ("identifiers", "cvss", "cvss_severities", "cwes")},
        **{key: GITHUB[key] for key in ("published_at", "updated_at", "withdrawn_at")},
        "references": [{"url": "https://nvd.nist.gov/vuln/detail/CVE-2024-3651"}],
        "vulnerabilities": [
            {
                "package": {"ecosystem": "pip", "name": "idna"},
                "severity": "medium",
                "vulnerable_version_range": "< 3.7",
                "first_patched_version": {"identifier": "3.7"},
            }
        ],
    },
    "security_vulnerability": {
        "package": {"ecosystem": "pip", "name": "idna"},
        "severity": "medium",
        "vulnerable_version_range": "< 3.7",
        "first_patched_version": {"identifier": "3.7"},
    },
    "url": "https://api.github.com/repos/octocat/hello-world/dependabot/alerts/2",
    "html_url": "https://github.com/octocat/hello-world/security/dependabot/2",
    "created_at": "2024-04-12T07:43:03Z",
    "dismissed_at": None,
    "fixed_at": None,
}

#: `trivy fs --format json` (SchemaVersion 2).
TRIVY: dict[str, Any] = {
    "SchemaVersion": 2,
    "ArtifactName": ".",
    "ArtifactType": "filesystem",
    "Results": [
        {
            "Target": "requirements.txt",
            "Class": "lang-pkgs",
            "Type": "pip",
            "Vulnerabilities": [
                {
                    "VulnerabilityID": CVE,
                    "VendorIDs": [GHSA],
                    "PkgName": "idna",
                    "PkgIdentifier": {"PURL": "pkg:pypi/idna@3.6", "UID": "4f3f0bd3f1b7ae8"},
                    "InstalledVersion": "3.6",
                    "FixedVersion": "3.7",
                    "Status": "fixed",
                    "SeveritySource": "ghsa",
                    "PrimaryURL": f"https://avd.aquasec.com/nvd/{CVE.lower()}",
                    "Title": "python-idna: potential DoS via resource consumption",
                    "Description": "A vulnerability was identified in the kjd/idna library.",
                    "Severity": "MEDIUM",
                    "CweIDs": ["CWE-400"],
                    "CVSS": {"ghsa": {"V3Vector": CVSS, "V3Score": 5.5}},
                }
            ],
        },
        {"Target": "package-lock.json", "Class": "lang-pkgs", "Type": "npm"},
    ],
}

#: `grype dir:. -o json`.
GRYPE: dict[str, Any] = {
    "matches": [
        {
            "vulnerability": {
                "id": GHSA,
                "dataSource": f"https://github.com/advisories/{GHSA}",
                "namespace": "github:language:python",
                "severity": "Medium",
                "description": "Denial of service from specially crafted inputs to idna.encode",
                "cvss": [{"type": "Secondary", "version": "3.1", "vector": CVSS}],
                "cwes": [{"cve": CVE, "cwe": "CWE-400", "source": "nvd", "type": "Secondary"}],
                "fix": {"versions": ["3.7"], "state": "fixed"},
                "advisories": [],
            },
            "relatedVulnerabilities": [{"id": CVE, "namespace": "nvd:cpe"}],
            "matchDetails": [{"type": "exact-direct-match", "matcher": "python-matcher"}],
            "artifact": {
                "id": "1c1cf2b5d5d7a1a1",
                "name": "idna",
                "version": "3.6",
                "type": "python",
                "language": "python",
                "purl": "pkg:pypi/idna@3.6",
            },
        }
    ],
    "source": {"type": "directory", "target": "."},
    "descriptor": {"name": "grype", "version": "0.92.0"},
}

#: `uv audit --output-format json` (schema "preview").
UV_AUDIT: dict[str, Any] = {
    "schema": {"version": "preview"},
    "summary": {"audited_packages": 12, "vulnerabilities": 1, "adverse_statuses": 1},
    "vulnerabilities": [
        {
            "dependency": {"name": "idna", "version": "3.6"},
            "id": PYSEC,
            "display_id": PYSEC,
            "aliases": [CVE, GHSA],
            "summary": None,
            "description": "A vulnerability was identified in the kjd/idna library.",
            "link": f"https://osv.dev/vulnerability/{PYSEC}",
            "fix_versions": ["3.7"],
            "published": "2024-07-07T18:15:00Z",
            "modified": "2024-07-08T14:22:11Z",
        }
    ],
    "adverse_statuses": [{"name": "old", "status": "archived", "reason": None}],
}

#: CycloneDX 1.5 with a vulnerability, as scanners write it: a component's reference, and no fixed version.
CYCLONEDX: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "serialNumber": "urn:uuid:3e671687-395b-41f5-a30f-a58921a69b79",
    "version": 1,
    "components": [
        {
            "bom-ref": "idna-ref",
            "type": "library",
            "name": "idna",
            "version": "3.6",
            "purl": "pkg:pypi/idna@3.6",
        }
    ],
    "dependencies": [{"ref": "idna-ref", "dependsOn": []}],
    "vulnerabilities": [
        {
            "bom-ref": "urn:uuid:5c0d8b8e-0b5f-4d3c-9a3e-0d4b5a7d7c11",
            "id": CVE,
            "source": {"name": "NVD", "url": f"https://nvd.nist.gov/vuln/detail/{CVE}"},
            "references": [{"id": GHSA, "source": {"name": "GitHub Advisories"}}],
            "ratings": [{"severity": "medium", "method": "CVSSv31", "vector": CVSS}],
            "cwes": [400],
            "description": "Denial of service from specially crafted inputs to idna.encode",
            "affects": [
                {"ref": "idna-ref", "versions": [{"version": "3.6", "status": "affected"}]}
            ],
        }
    ],
}

DOCUMENTS = {
    "GitHub": GITHUB,
    "Dependabot": ALERT,
    "Trivy": TRIVY,
    "Grype": GRYPE,
    "uv audit": UV_AUDIT,
}


def read(tmp_path: Path, document: Any, lookup: OsvLookup | None = None) -> AdvisorySet:
    place = tmp_path / "given.txt"
    place.write_text(document if isinstance(document, str) else json.dumps(document))
    return load_advisories([place], lookup)


def only(found: AdvisorySet) -> Advisory:
    assert not [item for item in found.skipped if item.unknown]
    (record,) = found.advisories
    return record


def edited(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {**document, **change}


def ranged(stated: str | None, patched: Any = None, ecosystem: str = "pip") -> dict[str, Any]:
    """GitHub's advisory with this range."""
    entry = {
        "package": {"ecosystem": ecosystem, "name": "idna"},
        "vulnerable_version_range": stated,
        "first_patched_version": patched,
    }
    return edited(GITHUB, {"vulnerabilities": [entry]})


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_each_kind_gives_its_advisory(tmp_path: Path, name: str) -> None:
    record = only(read(tmp_path, DOCUMENTS[name]))
    assert {GHSA, CVE} <= {record.id, *record.aliases}
    assert is_affected(record, "PyPI", "idna", "3.6")
    assert not is_affected(record, "PyPI", "idna", "3.7")
    assert fixed_versions(record, "PyPI", "idna") == ("3.7",)


@pytest.mark.parametrize("name", ["GitHub", "Dependabot", "Trivy", "Grype"])
def test_severity_and_weakness_are_read(tmp_path: Path, name: str) -> None:
    record = only(read(tmp_path, DOCUMENTS[name]))
    assert [(one.type, one.score) for one in record.severity] == [("CVSS_V3", CVSS)]
    assert record.cwe == ("CWE-400",)


def test_all_documents_of_one_vulnerability_are_one_advisory(tmp_path: Path) -> None:
    for name, document in DOCUMENTS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    assert len(load_advisories([tmp_path]).advisories) == 1


@pytest.mark.parametrize(
    "several",
    [
        [
            GITHUB,
            edited(GITHUB, {"ghsa_id": "GHSA-2222-3333-4444", "cve_id": None, "identifiers": []}),
        ],
        [[GITHUB], [RECORDS[PYSEC]], [ALERT]],
        "\n".join(map(json.dumps, [ALERT, GITHUB])),
    ],
)
def test_arrays_pages_and_lines(tmp_path: Path, several: Any) -> None:
    found = read(tmp_path, several)
    assert not found.skipped
    ids = {record.id for record in found.advisories}
    assert GHSA in ids or PYSEC in ids


# --- GitHub ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "patched", "affected", "safe"),
    [
        ("< 3.7", "3.7", ["0.1", "3.7rc1"], ["3.7", "3.8"]),
        (">= 2.0, < 2.5", "2.5", ["2.0", "2.4.9"], ["1.9", "2.5"]),
        (">=2.0,<2.5", None, ["2.0", "2.4.9"], ["1.9", "2.5"]),
        ("> 2.0, <= 2.5", None, ["2.0.1", "2.5"], ["2.0", "2.5.1"]),
        ("<= 2.5", "2.6", ["2.5", "2.5.1"], ["2.6"]),
        ("<= 2.5", "2.4", ["2.4", "2.5"], ["2.5.1"]),
        ("= 2.5", None, ["2.5"], ["2.4", "2.6"]),
        (">= 2.0", "2.6", ["2.0", "2.6", "99"], ["1.9"]),
        (">= 0", None, ["0.0.1", "99"], []),
        ("", None, ["0.0.1", "99"], []),
        (None, "2.6", ["0.0.1", "2.6", "99"], []),
    ],
)
def test_ranges_of_github(
    tmp_path: Path, stated: str | None, patched: Any, affected: list[str], safe: list[str]
) -> None:
    record = only(read(tmp_path, ranged(stated, patched)))
    assert [it for it in affected if not is_affected(record, "PyPI", "idna", it)] == []
    assert [it for it in safe if is_affected(record, "PyPI", "idna", it)] == []


@pytest.mark.parametrize("stated", ["~> 2.0", "2.0 - 2.5", "< 2.5 || > 3", "!= 2.0", "< latest"])
def test_a_range_that_cant_be_read_is_unknown(tmp_path: Path, stated: str) -> None:
    found = read(tmp_path, ranged(stated, "2.6"))
    assert found.advisories == ()
    assert found.skipped
    assert all(item.unknown for item in found.skipped)


def test_other_ecosystems_of_a_github_advisory_stay_in_its_record(tmp_path: Path) -> None:
    both = [*GITHUB["vulnerabilities"], *ranged("< 1.2", "1.2", "rubygems")["vulnerabilities"]]
    record = only(read(tmp_path, edited(GITHUB, {"vulnerabilities": both})))
    assert record.ecosystems == ("PyPI", "RubyGems")


def test_what_github_withdrew_is_withdrawn(tmp_path: Path) -> None:
    found = read(tmp_path, edited(GITHUB, {"withdrawn_at": "2026-02-01T00:00:00Z"}))
    assert found.advisories == ()
    assert [item.unknown for item in found.skipped] == [False]


def test_a_github_advisory_without_a_package_is_looked_up(tmp_path: Path) -> None:
    """Advisories that nobody reviewed name none."""
    unreviewed = edited(GITHUB, {"vulnerabilities": [], "type": "unreviewed"})
    assert [item.unknown for item in read(tmp_path, unreviewed).skipped] == [True]
    with osv_api(RECORDS) as api:
        record = only(read(tmp_path, unreviewed, lookup_at(api.url, tmp_path)))
    assert record.packages("PyPI") == ("idna",)


@pytest.mark.parametrize(
    ("state", "is_read"),
    [("open", True), ("fixed", True), ("dismissed", False), ("auto_dismissed", False)],
)
def test_states_of_an_alert(tmp_path: Path, state: str, is_read: bool) -> None:
    """*fixed* is about the default branch; what is checked out may be another."""
    found = read(tmp_path, [edited(ALERT, {"state": state})])
    assert (len(found.advisories), len(found.skipped)) == ((1, 0) if is_read else (0, 1))


def test_the_alert_of_a_webhook(tmp_path: Path) -> None:
    event = {
        "action": "created",
        "alert": ALERT,
        "repository": {"full_name": "octocat/hello-world"},
    }
    assert only(read(tmp_path, event)).id == GHSA


# --- Trivy, Grype, uv -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", [{"Class": "lang-pkgs", "Type": "npm"}, {"Type": "pipenv"}])
def test_a_trivy_report_is_clean_if_it_has_a_target_with_packages(
    tmp_path: Path, target: dict[str, str]
) -> None:
    other = {"Target": "Dockerfile", "Class": "config", "Type": "dockerfile"}
    found = read(tmp_path, edited(TRIVY, {"Results": [other, {"Target": "x", **target}]}))
    assert found == AdvisorySet()


@pytest.mark.parametrize(
    "results",
    [
        None,
        [],
        [
            {
                "Target": "Dockerfile",
                "Class": "config",
                "Type": "dockerfile",
                "Misconfigurations": [],
            }
        ],
        [{"Target": "app.py", "Class": "secret", "Secrets": [{"RuleID": "aws"}]}],
        [{"Target": "package-lock.json", "Class": "license", "Licenses": []}],
        [{"Target": "alpine", "Class": "os-pkgs", "Type": "alpine"}],
        [{"Target": "app", "Class": "lang-pkgs", "Type": "gobinary"}],
        [{"Name": "deployment", "Namespace": "default", "Results": {}}],
    ],
)
def test_a_trivy_report_that_looked_at_no_packages_is_unknown(tmp_path: Path, results: Any) -> None:
    found = read(tmp_path, edited(TRIVY, {"Results": results}))
    assert [it.unknown for it in found.skipped] == [True]


def test_trivys_array_before_schema_version_2(tmp_path: Path) -> None:
    flaw = {"VulnerabilityID": CVE, "PkgName": "idna", "InstalledVersion": "3.6"}
    target = {"Target": "Pipfile.lock", "Type": "pipenv", "Vulnerabilities": [flaw]}
    found = read(tmp_path, [{"Target": "alpine", "Type": "alpine"}, target])
    assert not found.skipped
    assert only(found).ids_affecting("PyPI", "idna", "3.6") == (CVE,)
    assert read(tmp_path, [target | {"Vulnerabilities": None}]) == AdvisorySet()


def test_packages_of_the_system_are_unknown(tmp_path: Path) -> None:
    flaw = {"VulnerabilityID": "CVE-2019-3822", "PkgName": "curl", "InstalledVersion": "7.61.0-r0"}
    result = {"Target": "alpine", "Class": "os-pkgs", "Type": "alpine", "Vulnerabilities": [flaw]}
    found = read(tmp_path, edited(TRIVY, {"Results": [result]}))
    assert [item.unknown for item in found.skipped] == [True]


def test_without_a_package_url_the_type_says_the_ecosystem(tmp_path: Path) -> None:
    flaw = {
        k: v for k, v in TRIVY["Results"][0]["Vulnerabilities"][0].items() if k != "PkgIdentifier"
    }
    for kind in ("pip", "poetry", "pipenv", "uv", "python-pkg"):
        result = {"Target": "x", "Type": kind, "Vulnerabilities": [flaw]}
        assert only(read(tmp_path, edited(TRIVY, {"Results": [result]}))).ecosystems == ("PyPI",)
    for kind in ("npm", "yarn", "pnpm", "node-pkg"):
        result = {"Target": "x", "Type": kind, "Vulnerabilities": [flaw]}
        assert only(read(tmp_path, edited(TRIVY, {"Results": [result]}))).ecosystems == ("npm",)


def test_several_fixed_versions_clear_their_release_lines(tmp_path: Path) -> None:
    flaw = {**TRIVY["Results"][0]["Vulnerabilities"][0], "FixedVersion": "2.2.28, 3.2.13"}
    flaw |= {"InstalledVersion": "2.2.1", "PkgIdentifier": {"PURL": "pkg:pypi/idna@2.2.1"}}
    result = {"Target": "x", "Type": "pip", "Vulnerabilities": [flaw]}
    record = only(read(tmp_path, edited(TRIVY, {"Results": [result]})))
    affected = [
        it
        for it in ("2.2.27", "2.2.28", "3.1", "3.2.13")
        if is_affected(record, "PyPI", "idna", it)
    ]
    assert affected == ["2.2.27", "3.1"]


def test_what_grype_ignores_is_named(tmp_path: Path) -> None:
    report = edited(GRYPE, {"matches": [], "ignoredMatches": GRYPE["matches"]})
    (skipped,) = read(tmp_path, report).skipped
    assert GHSA in skipped.reason


def test_another_tool_with_grypes_form_is_not_grype(tmp_path: Path) -> None:
    with pytest.raises(AdvisoryError):
        read(tmp_path, edited(GRYPE, {"matches": [], "descriptor": {"name": "xeol"}}))


def test_a_uv_audit_of_nothing_is_unknown(tmp_path: Path) -> None:
    summary = {"audited_packages": 0, "vulnerabilities": 0, "adverse_statuses": 0}
    clean = edited(UV_AUDIT, {"vulnerabilities": [], "adverse_statuses": []})
    nothing = edited(clean, {"summary": summary})
    for document in (nothing, {"schema": {"version": "preview"}, "tools": []}):
        assert [it.unknown for it in read(tmp_path, document).skipped] == [True]
    assert read(tmp_path, clean) == AdvisorySet()


def test_the_report_of_uv_tools(tmp_path: Path) -> None:
    body = {key: UV_AUDIT[key] for key in ("summary", "vulnerabilities", "adverse_statuses")}
    report = {"schema": {"version": "preview"}, "tools": [{"name": "httpie", **body}]}
    assert only(read(tmp_path, report)).id == PYSEC


def test_a_project_that_is_archived_is_no_vulnerability(tmp_path: Path) -> None:
    found = read(tmp_path, edited(UV_AUDIT, {"vulnerabilities": []}))
    assert found.advisories == ()
    assert [item.unknown for item in found.skipped] == [False]


# --- Identifiers in reports -----------------------------------------------------------------------


def lookup_at(url: str, tmp_path: Path) -> OsvLookup:
    return OsvLookup(OsvServer(url, pause=lambda _: None), lambda: tmp_path / "kept")


def test_an_npm_advisory_without_a_package_is_looked_up_by_its_ids(tmp_path: Path) -> None:
    advisory = {"module_name": None, "github_advisory_id": GHSA}
    with osv_api(RECORDS) as api:
        found = read(tmp_path, {"advisories": {"1": advisory}}, lookup_at(api.url, tmp_path))
    assert is_affected(only(found), "PyPI", "idna", "3.6")


def test_cyclonedx_is_looked_up(tmp_path: Path) -> None:
    with osv_api(RECORDS) as api:
        found = read(tmp_path, CYCLONEDX, lookup_at(api.url, tmp_path))
    record = only(found)
    assert fixed_versions(record, "PyPI", "idna") == ("3.7",)
    assert not is_affected(record, "PyPI", "idna", "3.7")
    assert {source.id for source in found.sources} == {GHSA, PYSEC}


@pytest.mark.parametrize("asks", [True, False])
def test_without_its_record_every_version_is_affected(tmp_path: Path, asks: bool) -> None:
    with osv_api({}) as api:
        found = read(tmp_path, CYCLONEDX, lookup_at(api.url, tmp_path) if asks else None)
    assert [item.unknown for item in found.skipped] == [True]
    (record,) = found.advisories
    assert is_affected(record, "PyPI", "idna", "3.6")
    assert is_affected(record, "PyPI", "idna", "99")


def test_the_version_that_a_report_calls_affected_is(tmp_path: Path) -> None:
    """The record's ranges end below it; one of the two is wrong, and nothing here says which."""
    component = {**CYCLONEDX["components"][0], "purl": "pkg:pypi/idna@3.8"}
    with osv_api(RECORDS) as api:
        bom = edited(CYCLONEDX, {"components": [component]})
        record = only(read(tmp_path, bom, lookup_at(api.url, tmp_path)))
    affected = [
        it for it in ("3.6", "3.7", "3.8", "3.9") if is_affected(record, "PyPI", "idna", it)
    ]
    assert affected == ["3.6", "3.8"]


def test_a_package_that_the_record_does_not_name_stays_affected(tmp_path: Path) -> None:
    """The report found another package than the record names: neither is dropped."""
    component = {**CYCLONEDX["components"][0], "purl": "pkg:pypi/idna-copy@3.6"}
    with osv_api(RECORDS) as api:
        bom = edited(CYCLONEDX, {"components": [component]})
        record = only(read(tmp_path, bom, lookup_at(api.url, tmp_path)))
    assert is_affected(record, "PyPI", "idna-copy", "99")
    assert is_affected(record, "PyPI", "idna", "3.6")


def test_bom_links_and_nested_components(tmp_path: Path) -> None:
    flaw = CYCLONEDX["vulnerabilities"][0]
    linked = "urn:cdx:3e671687-395b-41f5-a30f-a58921a69b79/1#idna-ref"
    outer = {"bom-ref": "app", "type": "application", "components": CYCLONEDX["components"]}
    change = {"components": [outer], "vulnerabilities": [{**flaw, "affects": [{"ref": linked}]}]}
    (record,) = read(tmp_path, edited(CYCLONEDX, change)).advisories
    assert record.packages("PyPI") == ("idna",)


@pytest.mark.parametrize("state", ["not_affected", "false_positive", "resolved"])
def test_what_an_analysis_settled_is_named(tmp_path: Path, state: str) -> None:
    flaw = {**CYCLONEDX["vulnerabilities"][0], "analysis": {"state": state}}
    found = read(tmp_path, edited(CYCLONEDX, {"vulnerabilities": [flaw]}))
    assert found.advisories == ()
    assert state in found.skipped[0].reason


def test_a_list_of_components_alone_is_unknown_whether_or_not_it_has_an_empty_list(
    tmp_path: Path,
) -> None:
    """Trivy writes the empty list where it was not told to look for vulnerabilities."""
    bom = {key: value for key, value in CYCLONEDX.items() if key != "vulnerabilities"}
    for document in (bom, edited(bom, {"vulnerabilities": []})):
        assert [item.unknown for item in read(tmp_path, document).skipped] == [True]


def test_a_component_whose_versions_are_unaffected_is_named(tmp_path: Path) -> None:
    flaw = CYCLONEDX["vulnerabilities"][0]
    affects = {**flaw["affects"][0], "versions": [{"version": "3.6", "status": "unaffected"}]}
    found = read(tmp_path, edited(CYCLONEDX, {"vulnerabilities": [{**flaw, "affects": [affects]}]}))
    assert (found.advisories, [item.unknown for item in found.skipped]) == ((), [True])
    mixed = [*affects["versions"], {"version": "3.5", "status": "affected"}]
    flaw = {**flaw, "affects": [{**affects, "versions": mixed}]}
    assert read(tmp_path, edited(CYCLONEDX, {"vulnerabilities": [flaw]})).advisories


def test_offline_the_address_and_the_file_are_in_the_reason(tmp_path: Path) -> None:
    with osv_api(RECORDS) as api:
        lookup = OsvLookup(OsvServer(api.url), lambda: tmp_path / "kept", offline=True)
        found = read(tmp_path, CYCLONEDX, lookup)
        assert api.requests == []
    (skipped,) = found.skipped
    assert f"{api.url}/v1/vulns/{CVE}" in skipped.reason
    assert str(tmp_path / "kept") in skipped.reason


def test_an_osv_batch_answer_is_looked_up(tmp_path: Path) -> None:
    batch = {"results": [{"vulns": [{"id": GHSA, "modified": "2025-02-21T05:28:31Z"}]}, {}]}
    with osv_api(RECORDS) as api:
        assert only(read(tmp_path, batch, lookup_at(api.url, tmp_path))).id == GHSA


def test_a_sarif_result_without_a_package_is_looked_up(tmp_path: Path) -> None:
    place = {"physicalLocation": {"artifactLocation": {"uri": "requirements.txt"}}}
    result = {"ruleId": CVE, "message": {"text": "vulnerable"}, "locations": [place]}
    run = {"tool": {"driver": {"name": "a scanner"}}, "results": [result]}
    log = {"version": "2.1.0", "runs": [run]}
    with osv_api(RECORDS) as api:
        record = only(read(tmp_path, log, lookup_at(api.url, tmp_path)))
    assert {record.id, *record.aliases} == set(RECORDS)


def test_an_identifier_of_a_report_that_names_no_package_is_unknown(tmp_path: Path) -> None:
    batch = {"results": [{"vulns": [{"id": CVE}]}]}
    with osv_api({CVE: RECORDS[CVE]}) as api:
        found = read(tmp_path, batch, lookup_at(api.url, tmp_path))
    assert found.advisories == ()
    assert [item.unknown for item in found.skipped] == [True]


# --- What all formats have in common --------------------------------------------------------------


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(AdvisoryError) as caught:
        read(tmp_path, {"kind": "something else"})
    for one in (*FORMATS, OSV_RECORD):
        assert one.name in caught.value.next_step
        assert one.name in supported()


@pytest.mark.parametrize(
    "document",
    [
        {"bomFormat": "CycloneDX", "vulnerabilities": [None, {"affects": 3}, {"id": 7}]},
        {"bomFormat": "CycloneDX", "vulnerabilities": {}},
        {"matches": [3, {"artifact": []}, {"vulnerability": {"fix": 3}}]},
        {"Results": [None, {"Vulnerabilities": [{}], "Type": 3}]},
        {"Results": [{"Vulnerabilities": {}}]},
        {"schema": {}, "tools": [{"vulnerabilities": [3]}]},
        {"ghsa_id": GHSA, "vulnerabilities": [{"package": None}]},
        {"security_advisory": {"vulnerabilities": 3}},
    ],
)
def test_what_has_not_the_expected_form_is_unknown_and_never_clean(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    found = read(tmp_path, document)
    assert found.advisories == ()
    assert any(item.unknown for item in found.skipped)


@pytest.mark.parametrize(
    "stated",
    [">= 1.0, < 1.2, >= 2.0, < 2.2", "= 1.0.0, = 1.0.1", "< 2.2, < 1.2", "> 1.0, >= 1.1"],
)
def test_two_ranges_in_one_are_unknown(tmp_path: Path, stated: str) -> None:
    """Which bounds belong together is not stated, so that none may replace another."""
    document = ranged(stated)
    entries = [*document["vulnerabilities"], *ranged("< 0.5")["vulnerabilities"]]
    found = read(tmp_path, edited(document, {"vulnerabilities": entries}))
    assert [item for item in found.skipped if item.unknown]


@pytest.mark.parametrize("name", ["../../victim", "/etc/victim", "a/b", "..", "GHSA-x/../y"])
def test_a_report_names_no_file(tmp_path: Path, name: str) -> None:
    bom = edited(CYCLONEDX, {"vulnerabilities": [{**CYCLONEDX["vulnerabilities"][0], "id": name}]})
    bom["vulnerabilities"][0]["references"] = []
    with osv_api(RECORDS) as api:
        found = read(tmp_path, bom, lookup_at(api.url, tmp_path))
        assert api.requests == []
    assert [item for item in found.skipped if item.unknown]
    assert {it.name for it in tmp_path.rglob("*")} <= {"given.txt", "kept"}


def test_a_scanners_version_stays_affected_beside_a_whole_record(tmp_path: Path) -> None:
    """The record's ranges end below it."""
    package = {
        **TRIVY["Results"][0]["Vulnerabilities"][0],
        "PkgIdentifier": {"PURL": "pkg:pypi/idna@3.8"},
        "FixedVersion": "3.9",
    }
    results = [{**TRIVY["Results"][0], "Vulnerabilities": [package]}]
    (tmp_path / "trivy.json").write_text(json.dumps(edited(TRIVY, {"Results": results})))
    (tmp_path / "record.json").write_text(json.dumps(RECORDS[GHSA]))
    record = only(load_advisories([tmp_path / "trivy.json", tmp_path / "record.json"]))
    affected = [it for it in ("3.6", "3.7", "3.8") if is_affected(record, "PyPI", "idna", it)]
    assert affected == ["3.6", "3.8"]


def test_a_newer_record_of_the_same_id_is_not_replaced_by_an_alias_that_is_newer_still(
    tmp_path: Path,
) -> None:
    later = {**RECORDS[GHSA], "modified": "2024-07-01T00:00:00Z"}
    later["affected"] = json.loads(json.dumps(later["affected"]).replace('"3.7"', '"3.9"'))
    (tmp_path / "later.json").write_text(json.dumps(later))
    older = {
        GHSA: {**RECORDS[GHSA], "modified": "2024-06-01T00:00:00Z"},
        PYSEC: {**RECORDS[PYSEC], "modified": "2024-08-01T00:00:00Z"},
    }
    with osv_api(older) as api:
        lookup = lookup_at(api.url, tmp_path)
        record = only(load_advisories([tmp_path / "later.json", Path(PYSEC)], lookup))
    assert is_affected(record, "PyPI", "idna", "3.8")


@pytest.mark.parametrize("spelled", [str.lower, str.upper, str])
def test_a_reports_spelling_of_an_id_joins_the_databases_record(
    tmp_path: Path, spelled: Callable[[str], str]
) -> None:
    """Otherwise the report's range ("everything, for lack of a fix") stays, and nothing fixes it."""
    flaw = {**CYCLONEDX["vulnerabilities"][0], "id": spelled(GHSA), "references": []}
    with osv_api(RECORDS) as api:
        lookup = OsvLookup(OsvServer(api.url), lambda: tmp_path / "kept")
        record = only(read(tmp_path, edited(CYCLONEDX, {"vulnerabilities": [flaw]}), lookup))
    assert record.id == GHSA
    assert is_affected(record, "PyPI", "idna", "3.6")
    assert not is_affected(record, "PyPI", "idna", "3.7")


def test_a_report_in_small_letters_and_a_record_are_one_flaw(tmp_path: Path) -> None:
    report = json.loads(json.dumps(TRIVY).replace(CVE, CVE.lower()).replace(GHSA, GHSA.lower()))
    (tmp_path / "report.json").write_text(json.dumps(report))
    (tmp_path / "record.json").write_text(json.dumps(RECORDS[GHSA]))
    found = load_advisories([tmp_path / "report.json", tmp_path / "record.json"])
    assert [it.id for it in found.advisories] == [GHSA]
