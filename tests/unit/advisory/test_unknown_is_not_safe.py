"""Inputs that are odd, cut or hostile: what they leave unknown is said, and never called safe."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.advisory import is_affected, load_advisories, lowest_fixed_version
from tests.unit.advisory.test_reports import osv, ranged_by, read
from tests.unit.advisory.test_sarif import read as read_sarif
from tests.unit.advisory.test_sarif import run
from tests.unit.shared.recipes import advisory


def spans(*events: tuple[str, str]) -> dict[str, Any]:
    return {"type": "SEMVER", "events": [{kind: version} for kind, version in events]}


@pytest.mark.parametrize("end", ["fixed", "last_affected"])
@pytest.mark.parametrize("turned", [False, True])
def test_where_one_stretch_ends_and_the_next_begins_the_next_one_holds(
    end: str, turned: bool
) -> None:
    pairs = [[("introduced", "0"), (end, "1.0.0")], [("introduced", "1.0.0"), (end, "2.0.0")]]
    events = [event for pair in (reversed(pairs) if turned else pairs) for event in pair]
    record = advisory("npm", "pkg", ranges=[spans(*events)])
    assert is_affected(record, "npm", "pkg", "1.5.0")
    assert not is_affected(record, "npm", "pkg", "2.0.1")


def test_a_stretch_of_one_version_and_one_of_none() -> None:
    one = advisory(
        "npm", "pkg", ranges=[spans(("last_affected", "1.0.0"), ("introduced", "1.0.0"))]
    )
    assert is_affected(one, "npm", "pkg", "1.0.0")
    assert not is_affected(one, "npm", "pkg", "1.0.1")
    none = advisory("npm", "pkg", ranges=[spans(("introduced", "1.0.0"), ("fixed", "1.0.0"))])
    assert not is_affected(none, "npm", "pkg", "1.0.0")


def test_a_range_that_never_begins_says_nothing() -> None:
    unbegun: tuple[dict[str, str], ...] = ({}, {"fixed": "2.0.0"})
    for event in unbegun:
        record = advisory("npm", "pkg", ranges=[{"type": "SEMVER", "events": [event]}])
        assert record.says_nothing


@pytest.mark.parametrize("events", [[("fixed", "4.0.0")], [("last_affected", "4.0.0")], []])
def test_a_range_without_a_beginning_counts_beside_a_list(events: list[tuple[str, str]]) -> None:
    record = advisory("npm", "pkg", ranges=[spans(*events)], versions=["1.0.0"])
    assert is_affected(record, "npm", "pkg", "3.2.1")
    assert is_affected(record, "npm", "pkg", "5.0.0") == (not events)


@pytest.mark.parametrize("when", ["2999-01-01T00:00:00Z", "soon", "9", "2999-01-01"])
def test_a_date_that_is_to_come_withdraws_nothing(tmp_path: Path, when: str) -> None:
    found = read(tmp_path, osv("OSV-1", withdrawn=when))
    assert [it.id for it in found.advisories] == ["OSV-1"]


def test_a_report_outlives_a_record_that_names_commits_only(tmp_path: Path) -> None:
    package = {"name": "pkg", "ecosystem": "npm"}
    commits = [{"type": "GIT", "events": [{"introduced": "0"}]}]
    whole = {"id": "GHSA-xvch-5gv4-984h", "affected": [{"package": package, "ranges": commits}]}
    via = {"name": "pkg", "range": "<2.0.0", "url": "https://x.test/GHSA-xvch-5gv4-984h"}
    (tmp_path / "whole.json").write_text(json.dumps(whole))
    (tmp_path / "audit.json").write_text(json.dumps({"vulnerabilities": {"pkg": {"via": [via]}}}))
    found = load_advisories([tmp_path])
    assert not found.skipped
    (record,) = found.advisories
    assert is_affected(record, "npm", "pkg", "1.0.0")


def test_a_fix_of_one_release_line_says_nothing_of_the_next() -> None:
    record = ranged_by("2.2.1", ["2.2.28", "3.2.13", "3.2.15"])
    assert lowest_fixed_version(record, "PyPI", "pkg", "2.2.1") == "2.2.28"
    for safe in ("2.2.28", "2.2.29", "3.2.13", "3.2.15", "3.2.16"):
        assert not is_affected(record, "PyPI", "pkg", safe), safe
    for unknown in ("2.2.27", "2.3", "3.0", "3.2.12", "3.2.14", "3.3", "4.0"):
        assert is_affected(record, "PyPI", "pkg", unknown), unknown


@pytest.mark.parametrize(
    "report",
    [
        {"vulnerabilities": {"a": 5}},
        {"vulnerabilities": {"a": {"via": "x"}}},
        {"vulnerabilities": {"a": {"via": [1, 2]}}},
        {"vulnerabilities": {"a": {"via": []}}},
        {"vulnerabilities": {"a": {"via": ["b"]}}},
        {"advisories": {"1": 7}},
        {"vulns": [7]},
        {"results": [{"vulns": "x"}]},
        {"results": [{"packages": "x"}]},
        {"results": [{"packages": [1]}]},
        {"results": [{"packages": [{"package": {"name": "a"}, "vulnerabilities": "x"}]}]},
        {"dependencies": [{"name": "a", "version": "1", "vulns": ["x"]}]},
        {"results": [], "errors": [{"message": "timeout"}]},
        {"results": [{"vulns": [], "code": 13}]},
        {"vulns": [], "code": 13, "message": "x"},
        {"vulns": [], "error": {}},
        {"vulnerabilities": {}, "error": {"code": "ENOAUDIT"}},
        {"results": [], "paths": {"scanned": []}, "errors": []},
        {
            "results": [
                {"packages": [{"package": {"name": "a"}, "groups": [{"ids": ["CVE-2026-1234"]}]}]}
            ]
        },
        {"results": [{"packages": [{"package": {"name": "a"}, "groups": [{}]}]}]},
        {"vulnerabilities": {"a": {"via": ["b"]}, "b": {"via": ["a"]}}},
        {"vulnerabilities": {"a": {"via": ["a"]}}},
        {"vulnerabilities": {}, "metadata": {"vulnerabilities": {"high": 1, "total": 1}}},
        {"advisories": {}, "metadata": {"vulnerabilities": {"critical": 2}}},
        {"Results": [{"Type": "pip", "ExperimentalModifiedFindings": [{"Finding": {}}]}]},
        {"Results": [{"Type": "pip", "ExperimentalModifiedFindings": 5}]},
        {
            "version": "2.1.0",
            "runs": [
                {
                    "results": [],
                    "invocations": [{"toolExecutionNotifications": [{"level": "error"}]}],
                }
            ],
        },
        {"version": "2.1.0", "runs": [1]},
        {"version": "2.1.0", "runs": [{"results": [1]}]},
    ],
)
def test_what_has_not_the_form_that_it_should_have_is_not_clean(
    tmp_path: Path, report: Any
) -> None:
    found = read(tmp_path, report)
    assert found.skipped
    assert not found.advisories


def test_what_leads_to_an_advisory_is_known(tmp_path: Path) -> None:
    via = {"name": "c", "range": "<2.0.0", "url": "https://x.test/GHSA-xvch-5gv4-984h"}
    names: dict[str, list[Any]] = {"a": ["b"], "b": ["a", "c"], "c": [via]}
    found = read(tmp_path, {"vulnerabilities": {key: {"via": it} for key, it in names.items()}})
    assert not found.skipped
    assert len(found.advisories) == 1


def test_a_group_with_its_records_is_read_once(tmp_path: Path) -> None:
    groups = [{"ids": ["OSV-1"], "aliases": ["CVE-2026-1234", "OSV-1"]}]
    package = {"package": {"name": "pkg"}, "vulnerabilities": [osv("OSV-1")], "groups": groups}
    found = read(tmp_path, {"results": [{"packages": [package]}], "experimental_config": {}})
    assert not found.skipped
    assert len(found.advisories) == 1


def test_the_later_of_two_ends_counts() -> None:
    events = [("introduced", "0"), ("last_affected", "2.0.0"), ("fixed", "4.0.0")]
    record = advisory("npm", "pkg", ranges=[spans(*events)])
    assert is_affected(record, "npm", "pkg", "3.2.1")
    assert not is_affected(record, "npm", "pkg", "4.0.0")


@pytest.mark.parametrize(
    "ends",
    [
        [("fixed", "3.0.0"), ("last_affected", "3.2.1")],
        [("last_affected", "3.0.0"), ("last_affected", "3.2.1"), ("fixed", "3.3.0")],
    ],
)
def test_of_both_kinds_of_ends_the_last_one_counts(ends: list[tuple[str, str]]) -> None:
    events = [("introduced", "0"), *ends, ("introduced", "5.0.0"), ("fixed", "5.1.0")]
    record = advisory("npm", "pkg", ranges=[spans(*events)])
    for version, affected in (("3.1.0", True), ("3.2.1", True), ("3.3.0", False), ("5.0.1", True)):
        assert is_affected(record, "npm", "pkg", version) is affected, version


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path: Path) -> None:
    for name in ("a.json", "b.JSON", "c.ndjson"):
        (tmp_path / name).write_text(json.dumps(osv(f"OSV-{name[0].upper()}")))
    for name in ("d.yaml", "e.json.gz", "README.md", ".pre-commit.yaml"):
        (tmp_path / name).write_text("id: OSV-D\n")
    found = load_advisories([tmp_path])
    assert [it.id for it in found.advisories] == ["OSV-A", "OSV-B", "OSV-C"]
    assert [Path(it.source).name for it in found.skipped] == ["d.yaml", "e.json.gz"]


def test_a_number_of_thousands_of_digits_is_no_fix(tmp_path: Path) -> None:
    flaw = {"id": "X", "fix_versions": ["1.post" + "9" * 4_300]}
    report = {"dependencies": [{"name": "a", "version": "2.0", "vulns": [flaw]}]}
    (record,) = read(tmp_path, report).advisories
    assert is_affected(record, "PyPI", "a", "3.0")


def test_a_folder_that_is_a_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "given" / "a.json").write_text(json.dumps(osv("A")))
    (tmp_path / "given" / "link").symlink_to(tmp_path / "elsewhere")
    (skipped,) = load_advisories([tmp_path / "given"]).skipped
    assert (skipped.source, skipped.unknown) == (str(tmp_path / "given" / "link"), True)


def test_hostile_texts_of_a_sarif_log_cost_no_more_than_their_length(tmp_path: Path) -> None:
    """Each of them took minutes: the alias list was searched from each of its beginnings, the rules from
    the first one for each result."""
    message = "Package 'a@1.0.0' is vulnerable to 'X'"
    purl = {"purl": "pkg:npm/a@1.0.0"}
    count = 20_000
    results = [
        {"ruleId": f"r{n}", "message": {"text": message}, "properties": purl} for n in range(count)
    ]
    results[0]["message"] = {"text": message + " " + "(also known as " * 60_000}
    rules = [{"id": f"r{number}"} for number in range(count)]
    begun = time.monotonic()
    read_sarif(tmp_path, run(*results, rules=rules))
    assert time.monotonic() - begun < 60
