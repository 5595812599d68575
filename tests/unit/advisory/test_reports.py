"""Scanner reports as advisories: what each form states, and what it leaves unknown."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.advisory import (
    Advisory,
    AdvisorySet,
    compare_versions,
    fixed_versions,
    is_affected,
    load_advisories,
    lowest_fixed_version,
)
from fallback_tier.advisory.found import Reported, unstated
from fallback_tier.errors import AdvisoryError
from tests.unit.shared.recipes import advisory


def osv(name: str, package: str = "pkg", ecosystem: str = "npm", **more: Any) -> dict[str, Any]:
    events = [{"introduced": "0"}, {"fixed": "1.5.0"}]
    affected = {
        "package": {"ecosystem": ecosystem, "name": package},
        "ranges": [{"type": "SEMVER", "events": events}],
    }
    return {"id": name, "affected": [affected], **more}


def read(tmp_path: Path, document: Any) -> AdvisorySet:
    place = tmp_path / "report.txt"
    place.write_text(document if isinstance(document, str) else json.dumps(document))
    return load_advisories([place])


def only(found: AdvisorySet) -> Advisory:
    assert not found.skipped
    (record,) = found.advisories
    return record


# --- osv-scanner and OSV's API ----------------------------------------------------------------


def test_osv_scanner_holds_whole_records_each_once(tmp_path: Path) -> None:
    package = {
        "package": {"name": "pkg", "version": "1.0.0", "ecosystem": "npm"},
        "vulnerabilities": [osv("GHSA-1", aliases=["CVE-1"])],
        "groups": [{"ids": ["GHSA-1"]}],
    }
    source = {"path": "/src/package-lock.json", "type": "lockfile"}
    result = {"source": source, "packages": [package]}
    report = {"results": [result, result], "experimental_config": {}}
    record = only(read(tmp_path, report))
    assert (record.id, record.aliases) == ("GHSA-1", ("CVE-1",))
    assert len(record.affected) == 1
    assert lowest_fixed_version(record, "npm", "pkg", "1.0.0") == "1.5.0"


INSTALLED = {"name": "pkg", "version": "1.2.3", "ecosystem": "npm"}


@pytest.mark.parametrize(
    "record",
    [
        {"id": "CVE-2026-1", "aliases": ["GHSA-2222-3333-4444"]},
        osv("CVE-2026-1", "other", aliases=["GHSA-2222-3333-4444"]),
        {"id": "CVE-2026-1", "aliases": ["GHSA-2222-3333-4444"], "affected": [{"package": None}]},
    ],
)
def test_the_version_that_osv_scanner_found_is_affected_whatever_its_record_says(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    package = {"package": INSTALLED, "vulnerabilities": [record]}
    (found,) = read(tmp_path, {"results": [{"packages": [package]}]}).advisories
    assert found.ids_affecting("npm", "pkg", "1.2.3") == ("CVE-2026-1",)
    assert "GHSA-2222-3333-4444" in found.aliases


def test_a_group_of_osv_scanner_without_records_states_the_version(tmp_path: Path) -> None:
    package = {"package": INSTALLED, "groups": [{"ids": ["CVE-2026-1", "GHSA-2222-3333-4444"]}]}
    (found,) = read(tmp_path, {"results": [{"packages": [package]}]}).advisories
    assert found.ids_affecting("npm", "pkg", "1.2.3") == ("CVE-2026-1",)


def test_a_withdrawn_record_of_osv_scanner_states_nothing(tmp_path: Path) -> None:
    record = osv("CVE-2026-1", withdrawn="2026-01-01T00:00:00Z")
    package = {"package": INSTALLED, "vulnerabilities": [record]}
    found = read(tmp_path, {"results": [{"packages": [package]}]})
    assert (found.advisories, [it.unknown for it in found.skipped]) == ((), [False])


def test_osv_scanner_without_findings(tmp_path: Path) -> None:
    assert read(tmp_path, {"results": []}) == AdvisorySet()


def test_another_tools_results_are_not_called_clean(tmp_path: Path) -> None:
    found = read(tmp_path, {"results": [{"check_id": "x", "path": "a.py"}, 3], "errors": []})
    assert not found.advisories
    assert len(found.skipped) == 2


@pytest.mark.parametrize(
    "result",
    [
        {
            "packages": [{"name": "inflect", "version": "7.3.1"}],
            "vulnerabilities": [{"id": "CVE-1"}],
        },
        {"packages": [], "vulnerabilities": [{"id": "CVE-2026-1"}]},
        {"packages": [{"package": INSTALLED}]},
    ],
    ids=["Prisma Cloud", "Prisma Cloud without packages", "osv-scanner's input"],
)
def test_packages_that_osv_scanner_did_not_look_up_are_unknown(
    tmp_path: Path, result: dict[str, Any]
) -> None:
    found = read(tmp_path, {"results": [result]})
    assert (found.advisories, [it.unknown for it in found.skipped]) == ((), [True])


def test_all_packages_of_osv_scanner_without_a_vulnerability(tmp_path: Path) -> None:
    report = {"results": [{"packages": [{"package": INSTALLED}]}], "experimental_config": {}}
    assert read(tmp_path, report) == AdvisorySet()


@pytest.mark.parametrize("key", ["vulnerabilities", "advisories"])
def test_an_empty_object_is_no_audit(tmp_path: Path, key: str) -> None:
    assert [it.unknown for it in read(tmp_path, {key: {}}).skipped] == [True]


def test_answers_of_the_osv_api(tmp_path: Path) -> None:
    answer = {"vulns": [osv("OSV-1"), osv("OSV-2", withdrawn="2026-01-01T00:00:00Z")]}
    found = read(tmp_path, answer)
    assert [record.id for record in found.advisories] == ["OSV-1"]
    assert "withdrawn" in found.skipped[0].reason
    batch = {"results": [{"vulns": [{"id": "OSV-3", "modified": "2026"}]}, {}]}
    (skipped,) = read(tmp_path, batch).skipped
    assert "OSV-3" in skipped.reason
    assert "fetch" in skipped.reason
    (more,) = read(tmp_path, {"vulns": [], "next_page_token": "x"}).skipped
    assert more.unknown


# --- pip-audit ----------------------------------------------------------------------------------


def dependency(version: str, *fixes: str, **more: Any) -> dict[str, Any]:
    flaw = {"id": "PYSEC-2026-1", "fix_versions": fixes, "aliases": ["CVE-2026-1"], **more}
    return {"name": "some-pkg", "version": version, "vulns": [flaw]}


def test_pip_audit_states_a_version_and_its_fixes(tmp_path: Path) -> None:
    report = {"dependencies": [dependency("3.1.2", "3.1.4", "2.11.3", description="Bad.")]}
    record = only(read(tmp_path, {**report, "fixes": []}))
    assert (record.id, record.aliases, record.text) == ("PYSEC-2026-1", ("CVE-2026-1",), "Bad.")
    assert is_affected(record, "PyPI", "Some_Pkg", "3.1.2")
    assert lowest_fixed_version(record, "PyPI", "some-pkg", "3.1.2") == "3.1.4"
    assert not is_affected(record, "PyPI", "some-pkg", "2.11.3")
    assert is_affected(record, "PyPI", "some-pkg", "3.0"), "unknown is not safe"
    assert is_affected(record, "PyPI", "some-pkg", "3.2"), "nothing is said of this line"


def test_each_reported_version_goes_to_the_fix_of_its_own_line(tmp_path: Path) -> None:
    dependencies = [dependency(v, "2.11.3", "3.1.4") for v in ("2.10", "3.1.2")]
    record = only(read(tmp_path, {"dependencies": dependencies}))
    assert lowest_fixed_version(record, "PyPI", "some-pkg", "2.10") == "2.11.3"
    assert lowest_fixed_version(record, "PyPI", "some-pkg", "3.1.2") == "3.1.4"


def test_pip_audit_without_a_fix(tmp_path: Path) -> None:
    record = only(read(tmp_path, {"dependencies": [dependency("1.0")]}))
    assert is_affected(record, "PyPI", "some-pkg", "99")
    assert lowest_fixed_version(record, "PyPI", "some-pkg", "1.0") is None


def test_what_pip_audit_skipped_is_unknown(tmp_path: Path) -> None:
    dependencies = [
        {"name": "private", "skip_reason": "not found on the index"},
        {"name": "odd", "version": "1"},
        {"name": "clean", "version": "1.0", "vulns": []},
    ]
    for report in ({"dependencies": dependencies}, [dependencies[0], dependencies[2]]):
        found = read(tmp_path, report)
        assert not found.advisories
        assert "private" in found.skipped[0].reason
        assert "not found on the index" in found.skipped[0].reason
    assert len(read(tmp_path, {"dependencies": dependencies}).skipped) == 2


def test_the_array_of_an_older_pip_audit(tmp_path: Path) -> None:
    assert only(read(tmp_path, [dependency("1.0", "1.1")])).id == "PYSEC-2026-1"


versions = st.builds("{}.{}".format, st.integers(0, 4), st.integers(0, 4))


@given(versions, st.lists(versions, max_size=4), versions)
def test_a_report_without_ranges_is_read_cautiously(
    version: str, fixes: list[str], other: str
) -> None:
    """Affected is all but the named fixes. (Each of these versions is a release line of its own.)"""
    record = ranged_by(version, fixes)
    above = [fix for fix in fixes if compare_versions("PyPI", fix, version) > 0]
    fix = lowest_fixed_version(record, "PyPI", "pkg", version)
    assert (fix is None) == (not above)
    expected = other not in fixes or other == version
    assert is_affected(record, "PyPI", "pkg", other) == expected


def ranged_by(version: str, fixes: list[str]) -> Advisory:
    """The record of a report's version and fixes alone."""
    found = Reported("X-1", "PyPI", "pkg", versions=(version,), fixes=fixes).record()
    ranges = [unstated("PyPI", [found])]
    return advisory("PyPI", "pkg", ranges=ranges, versions=[version])


# --- npm audit -----------------------------------------------------------------------------------

VIA = {
    "source": 1097679,
    "name": "minimist",
    "dependency": "minimist",
    "title": "Prototype Pollution in minimist",
    "url": "https://example.org/advisories/GHSA-xvch-5gv4-984h",
    "severity": "critical",
    "cwe": ["CWE-1321"],
    "cvss": {"score": 9.8, "vectorString": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"},
    "range": "<0.2.4 || >=1.0.0 <1.2.6",
}


def test_npm_audit(tmp_path: Path) -> None:
    built_on_it = {"name": "mkdirp", "via": ["minimist"], "range": "0.4.1 - 0.5.1"}
    affected = {"name": "minimist", "via": [VIA], "nodes": ["node_modules/minimist"]}
    vulnerabilities = {"minimist": affected, "mkdirp": built_on_it}
    record = only(read(tmp_path, {"auditReportVersion": 2, "vulnerabilities": vulnerabilities}))
    assert record.id == "GHSA-xvch-5gv4-984h"
    assert record.packages("npm") == ("minimist",)
    assert record.summary == "Prototype Pollution in minimist"
    assert record.cwe == ("CWE-1321",)
    assert record.severity[0].score.startswith("CVSS:3.1/")
    assert fixed_versions(record, "npm", "minimist") == ("0.2.4", "1.2.6")
    assert lowest_fixed_version(record, "npm", "minimist", "0.0.8") == "0.2.4"


def test_npm_audit_without_a_database_id_or_a_range(tmp_path: Path) -> None:
    via = {"source": 7, "name": "evil", "url": None, "title": "Malware"}
    record = only(read(tmp_path, {"vulnerabilities": {"evil": {"via": [via]}}}))
    assert record.id == "npm-advisory-7"
    assert is_affected(record, "npm", "evil", "1.0.0")


def test_a_range_that_is_none_is_skipped(tmp_path: Path) -> None:
    found = read(tmp_path, {"vulnerabilities": {"a": {"via": [VIA | {"range": "soon"}]}}})
    assert not found.advisories
    assert "'soon'" in found.skipped[0].reason


@pytest.mark.parametrize("cwe", ["CWE-400", ["CWE-400"]])
def test_npm_6_and_pnpm(tmp_path: Path, cwe: Any) -> None:
    advisory_6 = {
        "id": 118,
        "module_name": "minimatch",
        "vulnerable_versions": "<=3.0.1",
        "patched_versions": ">=3.0.2",
        "title": "ReDoS",
        "overview": "Slow.",
        "cves": ["CVE-2016-10540"],
        "cwe": cwe,
        "findings": [{"version": "2.0.10", "paths": ["gulp>minimatch"]}, {"paths": []}],
        "url": "https://example.org/advisories/118",
    }
    report = {"actions": [], "advisories": {"118": advisory_6}, "muted": [], "metadata": {}}
    record = only(read(tmp_path, report))
    assert (record.id, record.aliases) == ("npm-advisory-118", ("CVE-2016-10540",))
    assert record.cwe == ("CWE-400",)
    assert is_affected(record, "npm", "minimatch", "3.0.1")
    assert not is_affected(record, "npm", "minimatch", "3.0.2")


def test_composers_audit_is_not_npms(tmp_path: Path) -> None:
    with pytest.raises(AdvisoryError):
        read(tmp_path, {"advisories": {"vendor/pkg": [{"cve": "CVE-2026-1"}]}, "abandoned": []})


def test_a_pip_audit_of_nothing_is_unknown(tmp_path: Path) -> None:
    found = read(tmp_path, {"dependencies": [], "fixes": []})
    assert [it.unknown for it in found.skipped] == [True]


@pytest.mark.parametrize("audited", [{"total": 0}, 0])
def test_an_npm_audit_of_nothing_is_unknown(tmp_path: Path, audited: object) -> None:
    counts = {"vulnerabilities": {"total": 0}, "dependencies": audited}
    report = {"auditReportVersion": 2, "vulnerabilities": {}, "metadata": counts}
    assert [it.unknown for it in read(tmp_path, report).skipped] == [True]


def test_an_npm_audit_of_packages_without_a_finding_is_clean(tmp_path: Path) -> None:
    counts = {"vulnerabilities": {"total": 0}, "dependencies": {"total": 7}}
    report = {"auditReportVersion": 2, "vulnerabilities": {}, "metadata": counts}
    assert read(tmp_path, report).skipped == ()


def yarn_line(path: str) -> dict[str, Any]:
    advisory = {
        "id": 1179,
        "module_name": "minimist",
        "vulnerable_versions": "<0.2.1 || >=1.0.0 <1.2.3",
        "findings": [{"version": "0.0.10", "paths": ["a>minimist"]}],
        "github_advisory_id": "GHSA-2222-3333-4444",
    }
    data = {"resolution": {"id": 1179, "path": path}, "advisory": advisory}
    return {"type": "auditAdvisory", "data": data}


SUMMARY = {"type": "auditSummary", "data": {"vulnerabilities": {"low": 1}}}


def test_the_lines_of_yarn_1(tmp_path: Path) -> None:
    found = read(tmp_path, [yarn_line("a>minimist"), yarn_line("b>minimist"), SUMMARY])
    assert not found.skipped
    record = only(found)
    versions = ("0.2.0", "0.2.1", "1.2.2", "1.2.3")
    affected = [it for it in versions if is_affected(record, "npm", "minimist", it)]
    assert (record.id, affected) == ("GHSA-2222-3333-4444", ["0.2.0", "1.2.2"])


def test_the_lines_of_yarn_4(tmp_path: Path) -> None:
    flaw = {
        "ID": 1096536,
        "Issue": "Prototype Pollution",
        "URL": "https://github.com/advisories/GHSA-2222-3333-4444",
        "Severity": "low",
        "Vulnerable Versions": "<1.2.3",
        "Tree Versions": ["1.0.0"],
    }
    deprecated = {**flaw, "ID": "@s/old (deprecation)", "Vulnerable Versions": "7.18.6"}
    line = {"value": "@s/pkg", "children": flaw}
    found = read(tmp_path, [line, {"value": "@s/old", "children": deprecated}])
    assert [it.unknown for it in found.skipped] == [False]
    (record,) = found.advisories
    assert record.id == "GHSA-2222-3333-4444"
    assert is_affected(record, "npm", "@s/pkg", "1.0.0")
    assert not is_affected(record, "npm", "@s/pkg", "1.2.3")
    assert only(read(tmp_path, line)) == record


@pytest.mark.parametrize(
    "lines",
    [
        [yarn_line("a")],
        [yarn_line("a"), {"type": "error", "data": "network"}, SUMMARY],
        [SUMMARY],
        SUMMARY,
    ],
)
def test_a_yarn_report_that_is_not_whole_is_unknown(tmp_path: Path, lines: Any) -> None:
    assert any(it.unknown for it in read(tmp_path, lines).skipped)


def test_clean_audits(tmp_path: Path) -> None:
    clean = {"type": "auditSummary", "data": {"vulnerabilities": {"low": 0}}}
    assert read(tmp_path, clean) == AdvisorySet()
    assert read(tmp_path, [{"type": "info", "data": "x"}, clean]) == AdvisorySet()
    assert read(tmp_path, {"auditReportVersion": 2, "vulnerabilities": {}}) == AdvisorySet()
    assert read(tmp_path, {"advisories": {}, "actions": []}) == AdvisorySet()
