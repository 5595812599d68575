"""Identifiers to records: aliases, merging, withdrawn records, kept answers, and every way to fail."""

import itertools
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.advisory import Advisory, OsvLookup, is_affected, load_advisories, load_advisory
from fallback_tier.advisory import lookup as lookup_module
from fallback_tier.advisory.bundles import merged
from fallback_tier.advisory.found import FoundAdvisory, Skipped
from fallback_tier.advisory.identifiers import identifier
from fallback_tier.advisory.osv_server import RETRY_DELAYS_S, OsvServer
from fallback_tier.errors import (
    AdvisoryError,
    AdvisoryIdError,
    AdvisoryNotFoundError,
    AdvisoryResponseError,
    AdvisoryUnreachableError,
    ConfigurationError,
    NoPackageError,
    WithdrawnError,
)
from tests.fakes.osv_api import OsvApi, osv_api
from tests.unit.advisory.osv_shape import OSV_SCHEMA

GHSA, CVE, PYSEC = "GHSA-jjg7-2v5v-x38h", "CVE-2024-3651", "PYSEC-2024-60"
COMMIT = "1d365e17e10d72d0b7876316fc7b9ca0eebdd38d"

#: The three public records of one vulnerability (idna), shortened: texts, most references and versions.
RECORDS: dict[str, dict[str, Any]] = {
    GHSA: {
        "schema_version": "1.7.3",
        "id": GHSA,
        "modified": "2025-02-21T05:28:31Z",
        "published": "2024-04-11T21:32:40Z",
        "aliases": [CVE, PYSEC],
        "summary": "Denial of service from specially crafted inputs to idna.encode",
        "affected": [
            {
                "package": {"name": "idna", "ecosystem": "PyPI", "purl": "pkg:pypi/idna"},
                "ranges": [
                    {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.7"}]}
                ],
                "database_specific": {"source": "https://github.com/github/advisory-database"},
            }
        ],
        "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:L/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H"}],
        "references": [{"type": "WEB", "url": f"https://github.com/kjd/idna/commit/{COMMIT}"}],
        "database_specific": {"cwe_ids": ["CWE-400"], "severity": "MODERATE"},
    },
    PYSEC: {
        "schema_version": "1.7.3",
        "id": PYSEC,
        "modified": "2024-07-08T14:22:11Z",
        "aliases": [CVE, GHSA],
        "details": "A vulnerability was identified in the kjd/idna library.",
        "affected": [
            {
                "package": {"name": "idna", "ecosystem": "PyPI", "purl": "pkg:pypi/idna"},
                "ranges": [
                    {
                        "type": "GIT",
                        "repo": "https://github.com/kjd/idna",
                        "events": [{"introduced": "0"}, {"fixed": COMMIT}],
                    },
                    {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.7"}]},
                ],
                "versions": ["3.5", "3.6"],
            }
        ],
    },
    CVE: {
        "schema_version": "1.7.3",
        "id": CVE,
        "modified": "2025-10-15T02:03:04Z",
        "aliases": [GHSA, PYSEC],
        "details": "A vulnerability was identified in the kjd/idna library.",
        "affected": [
            {
                "ranges": [
                    {
                        "type": "GIT",
                        "repo": "https://github.com/kjd/idna",
                        "events": [{"introduced": "0"}, {"fixed": COMMIT}],
                    }
                ]
            }
        ],
    },
}


def without(name: str, *keys: str, **more: Any) -> dict[str, Any]:
    return {**{key: value for key, value in RECORDS[name].items() if key not in keys}, **more}


@pytest.fixture
def api() -> Iterator[OsvApi]:
    with osv_api(RECORDS) as served:
        yield served


Opener = Callable[..., OsvLookup]


@pytest.fixture
def opened(tmp_path: Path, api: OsvApi) -> Opener:
    def make(url: str | None = None, *, offline: bool = False) -> OsvLookup:
        folder = tmp_path / "kept"
        server = OsvServer(url or api.url, pause=lambda _: None)
        return OsvLookup(server, lambda: folder, offline=offline)

    return make


@pytest.fixture
def closed_port() -> str:
    """An address where nothing listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def advisory_of(lookup: OsvLookup, *names: str) -> Advisory:
    found = list(lookup.find(names))
    return merged([item.advisory for item in found if isinstance(item, FoundAdvisory)])


@pytest.mark.parametrize("name", RECORDS)
def test_the_served_records_have_the_published_shape(name: str) -> None:
    jsonschema.validate(RECORDS[name], OSV_SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(without(name, "modified"), OSV_SCHEMA)


# --- What is an identifier ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (GHSA, GHSA),
        ("ghsa-JJG7-2v5v-x38h", GHSA),
        ("cve-2024-3651", CVE),
        ("PYSEC-2024-60", PYSEC),
        ("MAL-2024-1234", "MAL-2024-1234"),
        ("RUSTSEC-2023-0001", "RUSTSEC-2023-0001"),
        ("advisory.json", None),
        (f"{GHSA}.json", None),
        (f"advisories/{GHSA}", None),
        ("advisories", None),
        ("my-advisories-2024", None),
        ("README", None),
    ],
)
def test_what_is_an_identifier(text: str, name: str | None) -> None:
    assert identifier(text) == name


@pytest.mark.parametrize("text", ["GHSA-1234", "CVE-24-1", "CVE-2024", "pysec-x", "MAL-"])
def test_a_wrong_identifier_is_refused_and_nothing_is_requested(
    text: str, opened: Opener, api: OsvApi
) -> None:
    with pytest.raises(AdvisoryIdError) as caught:
        load_advisories([Path(text)], opened())
    assert text in caught.value.problem
    assert "No such file" not in caught.value.problem
    assert api.requests == []


@pytest.mark.parametrize("read", [load_advisory, lambda path: load_advisories([path])])
def test_without_a_lookup_an_identifier_is_no_missing_file(read: Callable[[Path], object]) -> None:
    with pytest.raises(AdvisoryIdError):
        read(Path(GHSA))


def test_a_file_of_that_name_wins(
    tmp_path: Path, opened: Opener, api: OsvApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(GHSA).write_text(json.dumps(RECORDS[PYSEC]))
    (record,) = load_advisories([Path(GHSA)], opened()).advisories
    assert (record.id, api.requests) == (PYSEC, [])


# --- Aliases --------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [GHSA, CVE, PYSEC])
def test_every_name_leads_to_all_records_that_name_a_package(
    asked: str, opened: Opener, api: OsvApi
) -> None:
    lookup = opened()
    record = advisory_of(lookup, asked)
    assert sorted(api.requests) == sorted(RECORDS)
    assert {record.id, *record.aliases} == set(RECORDS)
    assert is_affected(record, "PyPI", "idna", "3.6")
    assert not is_affected(record, "PyPI", "idna", "3.7")
    assert {source.id for source in lookup.sources} == {GHSA, PYSEC}
    dates = {source.id: source.modified for source in lookup.sources}
    assert dates == {name: RECORDS[name]["modified"] for name in (GHSA, PYSEC)}
    assert not any(source.kept for source in lookup.sources)


def test_what_the_audit_trail_keeps_has_source_and_date(opened: Opener, api: OsvApi) -> None:
    record = advisory_of(opened(), GHSA)
    urls = {link.url for link in record.references}
    assert {f"{api.url}/v1/vulns/{name}" for name in (GHSA, PYSEC)} <= urls
    assert record.modified == RECORDS[GHSA]["modified"]


def test_two_identifiers_of_one_vulnerability_are_one_advisory(opened: Opener) -> None:
    found = load_advisories([Path(GHSA), Path(CVE)], opened())
    assert len(found.advisories) == 1
    assert {source.id for source in found.sources} == {GHSA, PYSEC}


def test_aliases_without_a_record_are_none(opened: Opener, api: OsvApi) -> None:
    api.records[GHSA] = without(GHSA, aliases=[CVE, PYSEC, "SNYK-PYTHON-IDNA-6597975", "no id"])
    del api.records[CVE], api.records[PYSEC]
    record = advisory_of(opened(), GHSA)
    assert record.aliases == (CVE, PYSEC, "SNYK-PYTHON-IDNA-6597975", "no id")


@pytest.mark.parametrize(
    "alias", ["CVE-2022-283", "bit-django-2022-1", "openSUSE-SU-2024:1-1", "pysec-2024-60x"]
)
def test_an_alias_of_any_form_is_requested(opened: Opener, api: OsvApi, alias: str) -> None:
    wider = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.9"}]}]
    package = RECORDS[PYSEC]["affected"][0]["package"]
    api.records = {
        GHSA: without(GHSA, aliases=[alias]),
        alias: {"id": alias, "affected": [{"package": package, "ranges": wider}]},
    }
    assert is_affected(advisory_of(opened(), GHSA), "PyPI", "idna", "3.8")


@pytest.mark.parametrize(
    "alias", ["no id", "../x", "https://example.org/a", "a?b", "", ".", "a" * 500]
)
def test_an_alias_that_no_address_can_have_is_unknown(
    opened: Opener, api: OsvApi, alias: str
) -> None:
    api.records = {GHSA: without(GHSA, aliases=[alias])}
    (skipped,) = load_advisories([Path(GHSA)], opened()).skipped
    assert skipped.unknown
    assert api.requests == [GHSA]


@pytest.mark.parametrize("status", [200, 404])
def test_an_error_that_holds_more_is_no_missing_record(
    opened: Opener, api: OsvApi, status: int
) -> None:
    api.failures[PYSEC] = [status]
    api.failure_body = b'{"code": 5, "message": "Bug not found.", "affected": []}'
    with pytest.raises(AdvisoryError):
        advisory_of(opened(), GHSA)


def test_the_error_with_the_status_of_a_record_is_no_missing_record(
    opened: Opener, api: OsvApi, tmp_path: Path
) -> None:
    api.failures[PYSEC], api.failure_body = [200], b'{"code": 5, "message": "Bug not found."}'
    with pytest.raises(AdvisoryResponseError):
        advisory_of(opened(), GHSA)
    assert not list(tmp_path.rglob(f"{PYSEC}.json"))


def test_a_record_that_will_be_withdrawn_counts(opened: Opener, api: OsvApi) -> None:
    api.records = {GHSA: without(GHSA, withdrawn="2999-01-01T00:00:00Z", aliases=[])}
    assert is_affected(advisory_of(opened(), GHSA), "PyPI", "idna", "3.6")


@pytest.mark.parametrize(
    ("ecosystem", "name"), [("pypi", "idna"), ("PyPI ", "idna"), ("PyPI", " IDNA\t")]
)
def test_records_that_spell_a_package_otherwise_are_merged(
    opened: Opener, api: OsvApi, ecosystem: str, name: str
) -> None:
    wider = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.9"}]}]
    package = {"ecosystem": ecosystem, "name": name}
    api.records[PYSEC] = without(PYSEC, affected=[{"package": package, "ranges": wider}])
    record = advisory_of(opened(), GHSA)
    assert record.ecosystems == ("PyPI",)
    assert is_affected(record, "PyPI", "idna", "3.8")


@pytest.mark.parametrize("affected", ["", {}, False, 0, [{"package": 1}]])
def test_an_alias_with_something_else_as_affected_is_an_error(
    affected: object, opened: Opener, api: OsvApi
) -> None:
    """It is no record that is about other software."""
    api.records[PYSEC] = without(PYSEC, affected=affected)
    with pytest.raises(AdvisoryResponseError):
        advisory_of(opened(), GHSA)


def test_an_alias_of_an_alias_counts(opened: Opener, api: OsvApi) -> None:
    """Records need not list each other: what only the last one calls affected stays affected."""
    wider = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.9"}]}]
    package = RECORDS[PYSEC]["affected"][0]["package"]
    api.records[GHSA] = without(GHSA, aliases=[CVE])
    api.records[CVE] = without(CVE, aliases=[PYSEC])
    api.records[PYSEC] = without(
        PYSEC, aliases=[], affected=[{"package": package, "ranges": wider}]
    )
    record = advisory_of(opened(), GHSA)
    assert is_affected(record, "PyPI", "idna", "3.8")
    assert not is_affected(record, "PyPI", "idna", "3.9")


def test_aliases_without_end_are_refused(
    opened: Opener, api: OsvApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "MAX_RECORDS", 5)
    names = [f"CVE-2024-{10_000 + number}" for number in range(7)]
    for name, following in itertools.pairwise(names):
        api.records[name] = without(CVE, id=name, aliases=[following])
    with pytest.raises(AdvisoryResponseError):
        advisory_of(opened(), names[0])


def spans() -> st.SearchStrategy[list[tuple[int, int, str]]]:
    bounds = st.tuples(
        st.integers(0, 12), st.integers(1, 6), st.sampled_from(["fixed", "last_affected"])
    )
    return st.lists(bounds, min_size=1, max_size=3)


def record_of(
    number: int, bounds: Sequence[tuple[int, int, str]], listed: Sequence[int]
) -> Advisory:
    ranges = [
        {"type": "ECOSYSTEM", "events": [{"introduced": f"{low}"}, {end: f"{low + length}"}]}
        for low, length, end in bounds
    ]
    affected = {
        "package": {"ecosystem": "PyPI", "name": "pkg"},
        "ranges": ranges,
        "versions": [f"{version}" for version in listed],
    }
    document = {"id": f"OSV-{number}", "affected": [affected], "modified": f"2026-01-0{number + 1}"}
    return Advisory.model_validate(document)


@given(
    st.lists(st.tuples(spans(), st.lists(st.integers(0, 20), max_size=3)), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_a_merge_is_the_union_whatever_the_order(
    stated: list[tuple[list[tuple[int, int, str]], list[int]]], random: Any
) -> None:
    records = [record_of(number, *one) for number, one in enumerate(stated)]
    shuffled = list(records)
    random.shuffle(shuffled)
    joined = merged(shuffled)
    for version in (f"{major}{minor}" for major in range(20) for minor in ("", ".1", ".1rc1")):
        by_any = any(is_affected(record, "PyPI", "pkg", version) for record in records)
        assert is_affected(joined, "PyPI", "pkg", version) == by_any, version


# --- Withdrawn records, and records of no use -----------------------------------------------------


def test_a_withdrawn_record_is_refused(opened: Opener, api: OsvApi) -> None:
    for name in RECORDS:
        api.records[name] = without(name, "affected", withdrawn="2026-02-01T00:00:00Z")
        jsonschema.validate(api.records[name], OSV_SCHEMA)
    with pytest.raises(WithdrawnError) as caught:
        list(opened().find((GHSA,)))
    assert "2026-02-01" in caught.value.problem
    found = load_advisories([Path(GHSA)], opened())
    assert found.advisories == ()
    assert [item.unknown for item in found.skipped] == [False]


@pytest.mark.parametrize("gone", [GHSA, PYSEC])
def test_what_other_records_state_outlives_a_withdrawn_one(
    gone: str, opened: Opener, api: OsvApi
) -> None:
    """A duplicate that was withdrawn must not hide the record that replaced it."""
    api.records[gone] = without(gone, withdrawn="2026-02-01T00:00:00Z")
    found = list(opened().find((gone,)))
    (skipped,) = (item for item in found if isinstance(item, Skipped))
    assert (gone in skipped.source, skipped.unknown) == (True, False)
    (record,) = (item.advisory for item in found if isinstance(item, FoundAdvisory))
    assert record.id == (PYSEC if gone == GHSA else GHSA)
    assert is_affected(record, "PyPI", "idna", "3.6")


def test_no_record_that_names_a_package_is_an_error(opened: Opener, api: OsvApi) -> None:
    api.records = {CVE: RECORDS[CVE]}
    with pytest.raises(NoPackageError):
        load_advisories([Path(CVE)], opened())


def test_an_identifier_that_the_database_does_not_have(opened: Opener, api: OsvApi) -> None:
    with pytest.raises(AdvisoryNotFoundError) as caught:
        load_advisories([Path("CVE-1999-0001")], opened())
    assert api.url in caught.value.problem


@pytest.mark.parametrize(
    "answer",
    [b"<html>sign in</html>", b"[]", b"{}", RECORDS[PYSEC] | {"id": "PYSEC-2020-1", "aliases": []}],
)
def test_an_answer_that_is_no_record_of_it(opened: Opener, api: OsvApi, answer: Any) -> None:
    api.records[GHSA] = answer
    with pytest.raises(AdvisoryResponseError):
        load_advisories([Path(GHSA)], opened())


def test_an_answer_without_end(
    opened: Opener, api: OsvApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "MAX_ADVISORY_BYTES", 200)
    with pytest.raises(AdvisoryResponseError):
        load_advisories([Path(GHSA)], opened())


# --- The network, and kept answers ----------------------------------------------------------------


def test_a_failure_that_passes_is_retried(opened: Opener, api: OsvApi) -> None:
    api.failures[GHSA] = [503, 429]
    assert advisory_of(opened(), GHSA).id == GHSA
    assert api.requests.count(GHSA) == 3


def test_an_alias_that_does_not_answer_is_an_error(opened: Opener, api: OsvApi) -> None:
    """Its record may call more affected than the ones in hand."""
    api.failures[PYSEC] = [503] * (len(RETRY_DELAYS_S) + 1)
    with pytest.raises(AdvisoryUnreachableError) as caught:
        load_advisories([Path(GHSA)], opened())
    assert caught.value.url.endswith(PYSEC)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_not_retried(opened: Opener, api: OsvApi, status: int) -> None:
    api.failures[GHSA] = [status]
    with pytest.raises(AdvisoryUnreachableError):
        load_advisories([Path(GHSA)], opened())
    assert api.requests == [GHSA]


def test_without_a_network_the_address_and_the_file_are_named(opened: Opener, api: OsvApi) -> None:
    """What a person writes there by hand is read: each error names the next file until all are there."""
    written = []
    for _ in RECORDS:
        with pytest.raises(AdvisoryUnreachableError) as caught:
            load_advisories([Path(GHSA)], opened(offline=True))
        url, file, next_step = caught.value.url, caught.value.file, caught.value.next_step
        name = url.rpartition("/")[2]
        assert url == f"{api.url}/v1/vulns/{name}"
        assert url in next_step
        assert str(file) in next_step
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(api.answer(f"/v1/vulns/{name}")[1])
        written.append(name)
    found = load_advisories([Path(GHSA)], opened(offline=True))
    assert sorted(written) == sorted(RECORDS)
    assert [record.id for record in found.advisories] == [GHSA]
    assert all(source.kept for source in found.sources)


@pytest.mark.parametrize("offline", [True, False])
def test_kept_answers_are_used_with_their_date(opened: Opener, api: OsvApi, offline: bool) -> None:
    """Also that there is no such record: an alias without one is needed offline, too."""
    del api.records[PYSEC]
    before = load_advisories([Path(GHSA)], opened())
    api.requests.clear()
    api.failures[GHSA] = [403]
    after = load_advisories([Path(GHSA)], opened(offline=offline))
    assert after.advisories == before.advisories
    assert sorted(api.requests) == ([] if offline else sorted(RECORDS))
    source, first = (next(it for it in one.sources if it.id == GHSA) for one in (after, before))
    assert source.kept
    assert source.fetched == first.fetched
    # The other kept answers have dates too: that there is no record may no longer be so.
    kept = {it.id: it.missing for it in after.sources if it.kept}
    assert kept == ({GHSA: False, CVE: False, PYSEC: True} if offline else {GHSA: False})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", source.fetched)


def test_a_server_that_is_down_is_asked_once(opened: Opener, closed_port: str) -> None:
    pauses: list[float] = []
    lookup = opened(closed_port)
    lookup.server.pause = pauses.append
    for name in (GHSA, CVE):
        with pytest.raises(AdvisoryUnreachableError):
            advisory_of(lookup, name)
    assert pauses == list(RETRY_DELAYS_S)


def test_answers_of_another_server_are_not_used(
    opened: Opener, api: OsvApi, closed_port: str
) -> None:
    advisory_of(opened(), GHSA)
    with pytest.raises(AdvisoryUnreachableError):
        advisory_of(opened(closed_port, offline=True), GHSA)


def test_a_kept_answer_that_is_damaged_is_named(opened: Opener, tmp_path: Path) -> None:
    advisory_of(opened(), GHSA)
    (file,) = tmp_path.rglob(f"{GHSA}.json")
    file.write_text("{")
    with pytest.raises(AdvisoryResponseError) as caught:
        advisory_of(opened(offline=True), GHSA)
    assert str(file) in caught.value.problem


@pytest.mark.parametrize(
    "url",
    ["", "api.osv.dev", "ftp://localhost", "https://me:secret@localhost", "http://[", "http://a?b"],
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigurationError):
        OsvServer(url)


def test_two_servers_never_share_a_kept_answer(tmp_path: Path) -> None:
    addresses = ("http://h.example/a/b", "http://h.example/a-b", "http://h.example/a%2Fb")
    files = {OsvLookup(OsvServer(it), lambda: tmp_path)._file(GHSA) for it in addresses}
    assert len(files) == len(addresses)
    assert {file.parent.parent for file in files} == {tmp_path}


# --- What is no answer ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"<html>blocked by the gateway</html>", b"{}", b"", b'{"code":7}', b'{"code":"5"}', b"[5]"],
)
def test_a_404_that_is_not_of_the_api_is_no_missing_record(
    opened: Opener, api: OsvApi, tmp_path: Path, body: bytes
) -> None:
    """An alias that a gateway hides may call more affected; nor is its page kept for the next run."""
    api.failures[PYSEC], api.failure_body = [404, 404], body
    with pytest.raises(AdvisoryUnreachableError) as caught:
        advisory_of(opened(), GHSA)
    assert caught.value.url.endswith(PYSEC)
    assert not list(tmp_path.rglob(f"{PYSEC}.json"))


@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_one_refused_record_leaves_the_server_usable(
    opened: Opener, api: OsvApi, status: int
) -> None:
    lookup = opened()
    api.failures["CVE-1999-0001"] = [status] * (len(RETRY_DELAYS_S) + 1)
    with pytest.raises(AdvisoryUnreachableError):
        advisory_of(lookup, "CVE-1999-0001")
    assert advisory_of(lookup, GHSA).id == GHSA


def test_a_kept_withdrawal_has_its_date(opened: Opener, api: OsvApi) -> None:
    """It ends as "nothing to fix"."""
    for name in RECORDS:
        api.records[name] = without(name, "affected", withdrawn="2026-02-01T00:00:00Z")
    load_advisories([Path(GHSA)], opened())
    found = load_advisories([Path(GHSA)], opened(offline=True))
    assert {it.id for it in found.sources if it.kept} == set(RECORDS)


def test_a_kept_answer_of_any_size_is_refused(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advisory_of(opened(), GHSA)
    monkeypatch.setattr(lookup_module, "MAX_ADVISORY_BYTES", 200)
    with pytest.raises(AdvisoryError):
        advisory_of(opened(offline=True), GHSA)


def test_records_of_a_report_are_requested_at_once(
    opened: Opener, api: OsvApi, tmp_path: Path
) -> None:
    """A request waits until the others are there: one after the other, they would time out."""
    names = [f"CVE-2024-{10_000 + number}" for number in range(4)]
    package = RECORDS[GHSA]["affected"]
    for name in names:
        api.records[name] = without(CVE, id=name, aliases=[], affected=package)
    api.together = threading.Barrier(len(names), timeout=20)
    report = tmp_path / "answer.json"
    report.write_text(json.dumps({"vulns": [{"id": name, "modified": ""} for name in names]}))
    found = load_advisories([report], opened())
    assert [it.id for it in found.advisories] == names
    assert not found.skipped
