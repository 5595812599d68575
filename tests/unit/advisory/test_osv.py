"""Reading OSV records: what is kept, and one clear sentence for what can't be used."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fallback_tier.advisory import load_advisory, parse_advisory
from fallback_tier.errors import AdvisoryError
from fallback_tier.limits import MAX_ADVISORY_BYTES
from tests.kinds import OfKind

RECORD: dict[str, Any] = {
    "schema_version": "1.7.3",
    "id": "OSV-1",
    "aliases": ["CVE-2026-1"],
    "summary": "Short.",
    "details": "Long.",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "Some.Thing", "purl": "pkg:pypi/some-thing"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2"}]}],
            "ecosystem_specific": {"new": ["field"]},
        },
        {"package": {"ecosystem": "npm", "name": "some-thing"}, "versions": ["1.0.0"]},
        {"package": {"ecosystem": "npm", "name": "some-thing"}, "ranges": None},
    ],
    "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N"}],
    "references": [{"type": "FIX", "url": "https://example.com/fix"}],
    "database_specific": {"cwe_ids": ["CWE-79"], "other": {}},
}


def test_what_we_use_is_kept() -> None:
    advisory = parse_advisory(json.dumps(RECORD).encode(), "a.json")
    assert advisory.id == "OSV-1"
    assert advisory.ecosystems == ("PyPI", "npm")
    assert advisory.packages("PyPI") == ("some-thing",)
    assert advisory.packages("npm") == ("some-thing",)
    assert advisory.packages("Go") == ()
    assert advisory.text == "Short.\n\nLong."
    assert advisory.cwe == ("CWE-79",)
    with pytest.raises(ValidationError):
        advisory.id = "changed"


@pytest.mark.parametrize("value", [None, [], {"cwe_ids": "CWE-1"}, {"cwe_ids": None}, "text"])
def test_other_databases_fields_are_not_ours_to_refuse(value: Any) -> None:
    advisory = parse_advisory(json.dumps(RECORD | {"database_specific": value}).encode(), "a")
    assert advisory.cwe == ()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"not json", "is not JSON"),
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is not an OSV record"),
        (b'{"id": "X", "affected": [], "id": "Y"}', "an object has the key 'id' twice"),
        (b'{"ghsa_id": "GHSA-x", "vulnerabilities": []}', "is not an OSV record: id"),
        (b'{"id": "X", "affected": "all"}', "is not an OSV record: affected"),
        (b'{"id": "X", "affected": []}', "names no affected package"),
        (b'{"id": "X", "affected": [{"ranges": []}]}', "names no affected package"),
        (json.dumps(RECORD | {"withdrawn": "2026-01-01T00:00:00Z"}).encode(), "was withdrawn"),
        (b" " * (MAX_ADVISORY_BYTES + 1), "is larger than"),
    ],
)
def test_unusable_records_name_file_and_reason(data: bytes, reason: str) -> None:
    with pytest.raises(AdvisoryError) as caught:
        parse_advisory(data, "some/file.json")
    assert reason in caught.value.problem
    assert "some/file.json" in caught.value.problem
    assert caught.value.next_step


def test_a_file_that_cant_be_read(tmp_path: Path) -> None:
    with pytest.raises(AdvisoryError, match=r"nowhere\.json.*No such file"):
        load_advisory(tmp_path / "nowhere.json")
    with pytest.raises(AdvisoryError, check=OfKind("unreadable")):
        load_advisory(tmp_path)


def test_an_endless_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(AdvisoryError, match="it is a device, not a regular file"):
        load_advisory(Path("/dev/zero"))
    place = tmp_path / "a.json"
    with place.open("wb") as file:
        file.truncate(MAX_ADVISORY_BYTES + 1)
    with pytest.raises(AdvisoryError, check=OfKind("too_large")):
        load_advisory(place)
    place.write_text(json.dumps(RECORD))
    assert load_advisory(place).id == "OSV-1"


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_end_typed(data: bytes) -> None:
    with pytest.raises(AdvisoryError):
        parse_advisory(data, "x")
