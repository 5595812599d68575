"""Feeds: what is read of them, and what is refused."""

import gzip
import json
from pathlib import Path

import pytest

from fallback_tier.advisory.osv import advisory_from
from fallback_tier.fleet.campaign_list import Risk
from fallback_tier.fleet.campaign_planner import Feeds, read_feeds, severity
from fallback_tier.fleet.errors import CampaignError
from tests.kinds import OfKind

EPSS = (
    "#model_version:v2026.01.01,score_date:2026-11-25\ncve,epss,percentile\nCVE-2026-1,0.25,0.9\n"
)
KEV = {
    "title": "Known Exploited",
    "vulnerabilities": [{"cveID": "CVE-2026-1", "vendorProject": "x"}],
}
RECORD = {
    "id": "GHSA-x",
    "aliases": ["CVE-2026-1"],
    "affected": [{"package": {"ecosystem": "npm", "name": "x"}, "versions": ["1.0.0"]}],
    "severity": [
        {"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"},
        {
            "type": "CVSS_V4",
            "score": "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:L/VI:N/VA:N/SC:N/SI:N/SA:N",
        },
        {"type": "CVSS_V2", "score": "AV:N/AC:L/Au:N/C:P/I:P/A:P"},
        {"type": "Ubuntu", "score": "high"},
    ],
}


def test_a_risk_is_the_worst_of_what_is_known(tmp_path: Path) -> None:
    epss, kev = tmp_path / "epss.csv", tmp_path / "kev.json"
    epss.write_text(EPSS)
    kev.write_text(json.dumps(KEV))
    advisory = advisory_from(RECORD, "test")
    assert read_feeds(epss, kev).risk(advisory) == Risk(severity=9.8, epss=0.25, kev=True)
    assert Feeds().risk(advisory) == Risk(severity=9.8)


def test_what_has_no_vector_has_no_severity() -> None:
    assert (
        severity(advisory_from({**RECORD, "severity": [{"type": "x", "score": "high"}]}, "t"))
        is None
    )


def test_a_compressed_feed_is_read(tmp_path: Path) -> None:
    place = tmp_path / "epss.csv.gz"
    place.write_bytes(gzip.compress(EPSS.encode()))
    assert read_feeds(place, None).epss == {"CVE-2026-1": 0.25}


@pytest.mark.parametrize(
    ("epss", "kev", "kind", "row"),
    [
        (None, None, "unreadable", "No such file"),
        (b"a,b\n1,2\n", None, "no_epss", "cve.*epss"),
        (b"cve,epss\nCVE-1,much\n", None, "no_epss", "row 1 "),
        (b"cve,epss\nCVE-1,1.5\n", None, "no_epss", "row 1 "),
        (b"cve,epss\nCVE-1\n", None, "no_epss", "row 1 "),
        (b"\xff", None, "unreadable", "UTF-8"),
        (EPSS.encode(), b"[]", "no_kev", "kev.json"),
        (EPSS.encode(), b'{"vulnerabilities": [{}]}', "no_kev", "kev.json"),
        (EPSS.encode(), b"[" * 100_000, "no_kev", "kev.json"),
    ],
)
def test_another_file_is_said(
    epss: bytes | None, kev: bytes | None, kind: str, row: str, tmp_path: Path
) -> None:
    places = tmp_path / "epss.csv", tmp_path / "kev.json"
    for place, content in zip(places, (epss, kev), strict=True):
        if content is not None:
            place.write_bytes(content)
    with pytest.raises(CampaignError, check=OfKind(kind), match=row) as caught:
        read_feeds(places[0], None if kev is None else places[1])
    assert caught.value.next_step


def test_what_is_not_gzip_is_said(tmp_path: Path) -> None:
    place = tmp_path / "epss.csv.gz"
    place.write_text(EPSS)
    with pytest.raises(CampaignError, check=OfKind("unreadable")):
        read_feeds(place, None)
