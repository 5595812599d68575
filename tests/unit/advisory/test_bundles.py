"""Several advisories as one: the union of what they cover, each flaw named once."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.advisory import Advisory, AdvisoryBundle, bundle, is_affected, one_per_flaw
from fallback_tier.errors import AdvisoryError
from tests.kinds import OfKind


def record(
    name: str, *aliases: str, fixed: str = "2.0.0", package: str = "pkg", modified: str = ""
) -> Advisory:
    events = [{"introduced": "0"}, {"fixed": fixed}]
    return Advisory.model_validate(
        {
            "id": name,
            "aliases": aliases,
            "summary": f"About {name}.",
            "modified": modified,
            "affected": [
                {
                    "package": {"ecosystem": "npm", "name": package},
                    "ranges": [{"type": "SEMVER", "events": events}],
                }
            ],
        }
    )


def test_one_flaw_in_two_databases_is_named_once_and_covers_both() -> None:
    ghsa, other = record("GHSA-1", "CVE-1"), record("OSV-9", "CVE-1", fixed="2.1.0")
    one = bundle([ghsa, record("GHSA-2", package="b"), other])
    assert isinstance(one, AdvisoryBundle)
    assert one.ids_affecting("npm", "pkg", "1.0.0") == ("GHSA-1",)
    assert one.ids_affecting("npm", "pkg", "2.0.5") == ("GHSA-1",)
    assert one.ids_affecting("npm", "b", "1.0.0") == ("GHSA-2",)
    assert one.ids_affecting("npm", "c", "1.0.0") == ()
    assert one.members[0].aliases == ("CVE-1", "OSV-9")
    assert one.members[0].text == "About GHSA-1."


def test_a_single_flaw_is_no_bundle() -> None:
    alone = record("GHSA-1")
    assert bundle([alone]) is alone
    merged = bundle([record("PYSEC-1", "CVE-1"), record("CVE-1"), record("GHSA-1", "PYSEC-1")])
    assert not isinstance(merged, AdvisoryBundle)
    assert (merged.id, merged.aliases) == ("PYSEC-1", ("CVE-1", "GHSA-1"))


def test_a_later_version_of_the_same_record_replaces_the_earlier() -> None:
    old = record("GHSA-1", fixed="3.0.0", modified="2026-01-01T00:00:00Z")
    new = record("GHSA-1", fixed="2.0.0", modified="2026-02-01T00:00:00Z")
    for order in itertools.permutations([old, new]):
        (one,) = one_per_flaw(order)
        assert not is_affected(one, "npm", "pkg", "2.5.0")
    undated = record("GHSA-1", fixed="3.0.0")
    (one,) = one_per_flaw([undated, new])
    assert is_affected(one, "npm", "pkg", "2.5.0")


def test_a_later_record_that_is_about_other_packages_replaces_nothing() -> None:
    """Under one identifier a repository's own advisory stands beside the database's record."""
    old = record("GHSA-1", modified="2026-01-01T00:00:00Z")
    new = record("GHSA-1", package="other", modified="2026-02-01T00:00:00Z")
    for order in itertools.permutations([old, new]):
        (one,) = one_per_flaw(order)
        assert is_affected(one, "npm", "pkg", "1.0.0")
        assert is_affected(one, "npm", "other", "1.0.0")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2024-06-01T01:00:00+09:00", "2024-05-31T17:00:00Z"),
        ("2024-05-31T17:00:00Z", "2024-05-31T17:00:00.5Z"),
    ],
)
def test_the_later_record_is_so_by_the_time(earlier: str, later: str) -> None:
    old = record("GHSA-1", fixed="2.0.0", modified=earlier)
    new = record("GHSA-1", fixed="3.0.0", modified=later)
    for order in itertools.permutations([old, new]):
        (one,) = one_per_flaw(order)
        assert is_affected(one, "npm", "pkg", "2.5.0")


def test_nothing_is_no_bundle() -> None:
    with pytest.raises(AdvisoryError, check=OfKind("none")):
        bundle([])


def test_long_ids_still_make_an_id() -> None:
    one = bundle([record(f"{number:04}{'X' * 196}") for number in range(2_000)])
    assert len(one.id) <= 200
    assert one.id.endswith("+1997-more")


names = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(0, 12), max_size=3)), min_size=1, max_size=12
)


@given(names)
def test_flaws_are_the_connected_parts(drawn: list[tuple[int, list[int]]]) -> None:
    """Against a closure by repetition; and nothing that was covered is lost."""
    given_records = [
        record(f"N{name}", *(f"N{it}" for it in others), package=f"p{place}")
        for place, (name, others) in enumerate(drawn)
    ]
    parts: list[set[str]] = [{it.id, *it.aliases} for it in given_records]
    flaws = one_per_flaw(given_records)
    reported = sorted(sorted({flaw.id, *flaw.aliases}) for flaw in flaws)
    assert reported == sorted(map(sorted, {frozenset(part) for part in _closed(parts)}))
    for place in range(len(drawn)):
        assert sum(is_affected(flaw, "npm", f"p{place}", "1.0.0") for flaw in flaws) == 1


def _closed(parts: list[set[str]]) -> list[set[str]]:
    changed = True
    while changed:
        changed = False
        for part, other in itertools.permutations(parts, 2):
            if part & other and part != other:
                part |= other
                changed = True
    return parts
