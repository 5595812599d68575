"""Batches of queries: how many requests, in which order the answers are, and when one is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_tier.advisory import OsvLookup
from fallback_tier.advisory import query as query_module
from fallback_tier.advisory.osv_server import OsvServer
from fallback_tier.advisory.query import MAX_QUERIES, PackageVersion, affecting
from fallback_tier.errors import AdvisoryResponseError, AdvisoryUnreachableError
from tests.fakes.osv_api import OsvApi, osv_api

PACKAGES = [PackageVersion("npm", f"p{number}", "1.0.0") for number in range(2 * MAX_QUERIES + 1)]


@pytest.fixture
def api() -> Iterator[OsvApi]:
    with osv_api({}) as served:
        yield served


def lookup(api: OsvApi, place: Path, *, offline: bool = False) -> OsvLookup:
    return OsvLookup(OsvServer(api.url, pause=lambda _: None), lambda: place, offline=offline)


def test_many_packages_take_several_requests_and_keep_their_order(
    api: OsvApi, tmp_path: Path
) -> None:
    for place in (0, MAX_QUERIES - 1, MAX_QUERIES, 2 * MAX_QUERIES):
        api.affected[PACKAGES[place]] = [f"CVE-2026-{10_000 + place}"]
    found = affecting(lookup(api, tmp_path), PACKAGES)
    assert sorted(map(len, api.batches)) == [1, MAX_QUERIES, MAX_QUERIES]
    by_place = {place: ids for place, ids in enumerate(found.ids) if ids}
    assert by_place == {
        place: (f"CVE-2026-{10_000 + place}",)
        for place in (0, MAX_QUERIES - 1, MAX_QUERIES, 2 * MAX_QUERIES)
    }
    assert not found.kept


def test_one_batch_without_an_answer_leaves_none(api: OsvApi, tmp_path: Path) -> None:
    """Nor is the rest kept, as if it were the answer on all."""
    api.batch_failures = [403]
    with pytest.raises(AdvisoryUnreachableError):
        affecting(lookup(api, tmp_path), PACKAGES)
    assert not [*tmp_path.rglob("*.json")]


def test_an_answer_is_kept_for_just_these_packages(api: OsvApi, tmp_path: Path) -> None:
    api.affected[PACKAGES[0]] = ["CVE-2026-10000"]
    first = affecting(lookup(api, tmp_path), PACKAGES[:3])
    again = affecting(lookup(api, tmp_path, offline=True), PACKAGES[:3])
    assert (again.ids, again.kept) == (first.ids, True)
    with pytest.raises(AdvisoryUnreachableError):
        affecting(lookup(api, tmp_path, offline=True), PACKAGES[:4])


def test_a_server_that_does_not_answer_leaves_the_kept_answer(api: OsvApi, tmp_path: Path) -> None:
    affecting(lookup(api, tmp_path), PACKAGES[:3])
    api.batch_failures = [403]
    assert affecting(lookup(api, tmp_path), PACKAGES[:3]).kept


def test_pages_without_end_are_refused(
    api: OsvApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_module, "MAX_PAGES", 3)
    api.affected[PACKAGES[0]] = [f"CVE-2026-{10_000 + number}" for number in range(4)]
    api.page = 1
    with pytest.raises(AdvisoryResponseError):
        affecting(lookup(api, tmp_path), PACKAGES[:1])


@pytest.mark.parametrize(
    "result",
    [
        '{"code": 13, "message": "internal"}',
        '{"error": "try again"}',
        '{"next_page_token": 7}',
        '{"vulns": [], "next_page_token": null}',
        "[]",
    ],
)
def test_an_error_in_the_place_of_an_answer_is_none(
    result: str, api: OsvApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = f'{{"results": [{result}]}}'.encode()
    monkeypatch.setattr(api, "answer_batch", lambda _: (200, answer))
    with pytest.raises(AdvisoryResponseError):
        affecting(lookup(api, tmp_path), PACKAGES[:1])
    assert not [*tmp_path.rglob("*.json")]


def test_no_package_is_no_request(api: OsvApi, tmp_path: Path) -> None:
    assert affecting(lookup(api, tmp_path), []).ids == ()
    assert api.batches == []
