"""Any input, told by its content: nothing is lost silently, and every error names the input."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.advisory import is_affected, load_advisories, sources
from fallback_tier.advisory.sources import AdvisorySet
from fallback_tier.errors import AdvisoryError
from tests.kinds import OfKind
from tests.unit.advisory.test_reports import VIA, dependency, osv

GIT_ONLY = {
    "id": "OSV-GIT",
    "affected": [
        {
            "package": {"ecosystem": "npm", "name": "pkg"},
            "ranges": [{"type": "GIT", "repo": "r", "events": [{"introduced": "0"}]}],
        }
    ],
}


def write(place: Path, document: Any) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(document if isinstance(document, str) else json.dumps(document))
    return place


def ids(found: AdvisorySet) -> list[str]:
    return [record.id for record in found.advisories]


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "OSV-0", ' + json.dumps(osv("OSV-1"))[1:],
        json.dumps([osv("OSV-1")]).replace('"affected"', '"affected": [], "affected"', 1),
        json.dumps(osv("OSV-1")) + '\n{"id": "a", "id": "b"}\n',
        '{"version": "2.1.0", "version": "2.1.0", "runs": []}',
    ],
)
def test_a_key_twice_is_refused_by_name(tmp_path: Path, text: str) -> None:
    """One reader takes the first, another the last: a review may have seen another range."""
    place = write(tmp_path / "a.json", text)
    with pytest.raises(
        AdvisoryError, match=r"a\.json' is ambiguous: an object has the key '\w+' twice"
    ):
        load_advisories([place])
    assert "twice" in load_advisories([tmp_path]).skipped[0].reason


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(
        AdvisoryError, match="can't be read: it is a named pipe, not a regular file"
    ):
        load_advisories([tmp_path / "pipe.json"])


@pytest.mark.parametrize(
    "document",
    [
        osv("OSV-1"),
        [osv("OSV-1")],
        json.dumps(osv("OSV-1")) + "\n" + json.dumps(osv("OSV-1")) + "\n",
        '{"id": "OSV-9", "affected": [], "summary": "\u2028"}\r\n' + json.dumps(osv("OSV-1")),
        json.dumps(osv("OSV-1"), indent=1),
        {"vulns": [osv("OSV-1")]},
        {"results": [{"packages": [{"vulnerabilities": [osv("OSV-1")]}]}]},
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_form_is_told_by_content(tmp_path: Path, document: Any, encoding: str) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    place = tmp_path / "package-lock.json"
    place.write_bytes(text.encode(encoding))
    assert ids(load_advisories([place])) == ["OSV-1"]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("not json", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1}\n{broken', "is not JSON"),
        ("9" * 5_000, "is not JSON"),
        ("{}", "no report that we know"),
        ("3", "no report that we know"),
        ('{"name": "app", "dependencies": {"a": "1"}}', "no report that we know"),
        ('{"error": {"code": "ENOLOCK", "summary": "This needs a lock"}}', "This needs a lock"),
        ('{"message": "405 Method Not Allowed", "statusCode": 405}', "405 Method Not Allowed"),
        ('{"version": "2.0.0", "runs": []}', "SARIF '2.0.0'"),
        ('{"id": "X", "affected": "all"}', "not an OSV record: affected"),
        ('{"id": "X", "affected": []}', "names no affected package"),
    ],
)
def test_unusable_inputs_name_file_reason_and_next_step(
    tmp_path: Path, document: str, reason: str
) -> None:
    with pytest.raises(AdvisoryError) as caught:
        load_advisories([write(tmp_path / "input.json", document)])
    assert reason in caught.value.problem
    assert "input.json" in caught.value.problem
    assert caught.value.next_step


def test_in_a_folder_what_is_no_advisory_is_skipped_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path / "a" / "OSV-2.json", osv("OSV-2"))
    write(tmp_path / "OSV-1.json", osv("OSV-1"))
    write(tmp_path / "report.json", {"dependencies": [dependency("1.0", "1.1")]})
    write(tmp_path / "old.json", osv("OSV-3", withdrawn="2026-01-01T00:00:00Z"))
    write(tmp_path / "package.json", {"name": "app"})
    write(tmp_path / "broken.json", "{")
    write(tmp_path / "README.md", "# not looked at")
    (tmp_path / "link.json").symlink_to(tmp_path / "OSV-1.json")
    found = load_advisories([tmp_path])
    assert ids(found) == ["OSV-1", "PYSEC-2026-1", "OSV-2"]
    reasons = {Path(it.source).name: it.reason for it in found.skipped}
    assert reasons.keys() == {"old.json", "package.json", "broken.json", "link.json"}
    assert "withdrawn" in reasons["old.json"]
    assert "link" in reasons["link.json"]


def test_folders_that_cant_be_used(tmp_path: Path) -> None:
    with pytest.raises(AdvisoryError, match=r"holds no \.json"):
        load_advisories([tmp_path])
    with pytest.raises(AdvisoryError, check=OfKind("unreadable"), match="nowhere"):
        load_advisories([tmp_path / "nowhere"])


def test_a_file_of_a_folder_that_cant_be_read_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "OSV-1.json", osv("OSV-1"))
    (tmp_path / "folder.json").mkdir()
    assert ids(load_advisories([tmp_path])) == ["OSV-1"]
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(AdvisoryError, check=OfKind("not_a_file"), match=r"pipe\.json"):
        load_advisories([tmp_path])


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.json", osv(f"OSV-{number}"))
    size = (tmp_path / "0.json").stat().st_size
    monkeypatch.setattr(sources, "MAX_FOLDER_FILES", 3)
    monkeypatch.setattr(sources, "MAX_FOLDER_BYTES", 3 * size)
    monkeypatch.setattr(sources, "MAX_REPORT_BYTES", size)
    assert len(load_advisories([tmp_path]).advisories) == 3
    monkeypatch.setattr(sources, "MAX_FOLDER_FILES", 2)
    with pytest.raises(AdvisoryError, match="more than 2 files"):
        load_advisories([tmp_path])
    monkeypatch.setattr(sources, "MAX_FOLDER_FILES", 3)
    monkeypatch.setattr(sources, "MAX_FOLDER_BYTES", 3 * size - 1)
    with pytest.raises(AdvisoryError, check=OfKind("folder_too_large"), match=f"{3 * size - 1} "):
        load_advisories([tmp_path])
    monkeypatch.setattr(sources, "MAX_REPORT_BYTES", size - 1)
    with pytest.raises(AdvisoryError, check=OfKind("too_large"), match=r"0\.json"):
        load_advisories([tmp_path / "0.json"])


def test_a_whole_record_wins_over_what_a_report_says_of_the_same_flaw(tmp_path: Path) -> None:
    report = {"vulnerabilities": {"minimist": {"via": [VIA | {"range": "*"}]}}}
    place = write(tmp_path / "audit.json", report)
    whole = osv("OSV-1", package="minimist", aliases=["GHSA-xvch-5gv4-984h"])
    whole_place = write(tmp_path / "osv.json", whole)
    for paths in ([place, whole_place], [whole_place, place]):
        (record,) = load_advisories(paths).advisories
        assert record.id == "OSV-1"
        assert not is_affected(record, "npm", "minimist", "1.5.0")
    elsewhere = write(tmp_path / "osv.json", osv("OSV-1", aliases=["GHSA-xvch-5gv4-984h"]))
    (record,) = load_advisories([place, elsewhere]).advisories
    assert is_affected(record, "npm", "minimist", "1.5.0"), "it is about another package"


def test_a_record_of_commits_only_is_unknown_not_clean(tmp_path: Path) -> None:
    found = load_advisories([write(tmp_path / "a.json", [GIT_ONLY, osv("OSV-1")])])
    assert ids(found) == ["OSV-1"]
    (skipped,) = found.skipped
    assert skipped.source == "OSV-GIT"
    assert "commits" in skipped.reason


def test_one_record_may_be_unusable_by_itself(tmp_path: Path) -> None:
    found = load_advisories(
        [write(tmp_path / "a.json", [osv("OSV-1"), 3, {"id": ""}, osv("X" * 201)])]
    )
    assert ids(found) == ["OSV-1"]
    assert [it.source.removeprefix(str(tmp_path)) for it in found.skipped] == [
        "/a.json[1]",
        "/a.json[2]",
        "/a.json[3]",
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "affected",
                    "runs",
                    "results",
                    "rules",
                    "message",
                    "text",
                    "locations",
                    "vulns",
                    "packages",
                    "package",
                    "name",
                    "vulnerabilities",
                    "via",
                    "range",
                    "advisories",
                    "dependencies",
                    "version",
                    "fix_versions",
                    "ruleId",
                    "tool",
                    "driver",
                    "properties",
                    "suppressions",
                    "kind",
                    "physicalLocation",
                    "region",
                    "startLine",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["runs", "results", "vulns", "vulnerabilities", "advisories", "dependencies", "id"]
        ),
        json_values,
        min_size=1,
    ).map(lambda it: it | {"version": "2.1.0"})
    | json_values
)
def test_any_json_is_read_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, document: Any
) -> None:
    place = tmp_path_factory.getbasetemp() / "any.json"
    try:
        found = load_advisories([write(place, document)])
    except AdvisoryError as error:
        assert "any.json" in error.problem  # noqa: PT017 - both ways are right
    else:
        assert all(it.reason for it in found.skipped)
