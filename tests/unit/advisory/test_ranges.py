"""OSV's range algorithm, against a brute force that never looks at events."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.advisory import (
    Advisory,
    compare_versions,
    fixed_versions,
    is_affected,
    lowest_fixed_version,
    lowest_safe,
)
from tests.unit.shared.recipes import advisory

#: Numbers whose order as text differs from their order as versions.
UNIVERSE = range(14)


def spelled(ecosystem: str, number: int) -> str:
    return f"1.{number}.0" if ecosystem == "npm" else f"1.{number}"


@st.composite
def intervals(draw: st.DrawFn) -> list[tuple[int, str, int | None]]:
    """Ascending, disjoint: (introduced, how it ends, end)."""
    cuts = draw(st.lists(st.sampled_from(UNIVERSE), min_size=1, max_size=6, unique=True))
    cuts.sort()
    drawn = []
    for start, end in zip(cuts[::2], [*cuts[1::2], None], strict=False):
        kind = "open" if end is None else draw(st.sampled_from(["fixed", "last_affected"]))
        drawn.append((start, kind, end))
    return drawn


def holds(interval: tuple[int, str, int | None], number: int) -> bool:
    start, kind, end = interval
    if number < start:
        return False
    return end is None or (number < end if kind == "fixed" else number <= end)


@st.composite
def records(draw: st.DrawFn) -> tuple[str, Advisory, set[int]]:
    ecosystem = draw(st.sampled_from(["npm", "PyPI"]))
    ranges: list[dict[str, Any]] = []
    affected: set[int] = set()
    for drawn in draw(st.lists(intervals(), max_size=3)):
        events: list[dict[str, str]] = []
        for start, kind, end in drawn:
            events.append({"introduced": "0" if start == 0 else spelled(ecosystem, start)})
            if end is not None:
                events.append({kind: spelled(ecosystem, end)})
        limit = draw(st.none() | st.sampled_from(UNIVERSE))
        if limit is not None:
            events.append({"limit": spelled(ecosystem, limit)})
        affected |= {
            number
            for number in UNIVERSE
            if any(holds(interval, number) for interval in drawn)
            and (limit is None or number < limit)
        }
        kind_of_range = draw(st.sampled_from(["ECOSYSTEM", "SEMVER"]))
        ranges.append({"type": kind_of_range, "events": draw(st.permutations(events))})
    listed = draw(st.sets(st.sampled_from(UNIVERSE), max_size=3))
    ranges.append({"type": "GIT", "events": [{"introduced": "0"}]})
    record = advisory(
        ecosystem, "pkg", ranges=ranges, versions=[spelled(ecosystem, it) for it in listed]
    )
    return ecosystem, record, affected | listed


@given(records())
def test_against_brute_force(drawn: tuple[str, Advisory, set[int]]) -> None:
    ecosystem, record, affected = drawn
    reported = {
        number
        for number in UNIVERSE
        if is_affected(record, ecosystem, "pkg", spelled(ecosystem, number))
    }
    assert reported == affected


@given(records(), st.sampled_from(UNIVERSE))
def test_lowest_fixed_version_is_a_safe_upgrade(
    drawn: tuple[str, Advisory, set[int]], current: int
) -> None:
    ecosystem, record, affected = drawn
    now = spelled(ecosystem, current)
    version = lowest_fixed_version(record, ecosystem, "pkg", now)
    candidates = [
        number
        for number in UNIVERSE
        if number > current
        and number not in affected
        and spelled(ecosystem, number) in fixed_versions(record, ecosystem, "pkg")
    ]
    assert version == (spelled(ecosystem, candidates[0]) if candidates else None)


def test_build_metadata_of_an_affected_version_is_affected() -> None:
    record = advisory("npm", "pkg", [("1.0.0", "1.0.1")])
    assert is_affected(record, "npm", "pkg", "1.0.0+b")
    local = advisory("PyPI", "torch", ranges=_last_affected("1.13.0"))
    assert is_affected(local, "PyPI", "torch", "1.13.0+cu117")


def test_zero_is_below_every_version() -> None:
    assert is_affected(advisory("npm", "pkg", [("0", "1.0.0")]), "npm", "pkg", "0.0.0-alpha")
    assert is_affected(advisory("PyPI", "pkg", [("0", "1.0")]), "PyPI", "pkg", "0.dev1")


def test_touching_intervals_leave_no_gap() -> None:
    record = advisory("npm", "pkg", [("0", "1.0.0"), ("1.0.0", "2.0.0")])
    assert is_affected(record, "npm", "pkg", "1.0.0")
    assert fixed_versions(record, "npm", "pkg") == ("1.0.0", "2.0.0")
    assert lowest_fixed_version(record, "npm", "pkg", "0.5.0") == "2.0.0"


@pytest.mark.parametrize("odd", ["git+ssh://host/x.git#abc", "latest", "1.2.3.4"])
def test_what_cant_be_ordered_is_never_called_safe(odd: str) -> None:
    record = advisory("npm", "pkg", [("1.0.0", "1.0.1")])
    assert is_affected(record, "npm", "pkg", odd)
    assert lowest_fixed_version(record, "npm", "pkg", odd) is None
    assert not is_affected(record, "npm", "other", odd)


def test_a_bound_that_cant_be_ordered_closes_nothing() -> None:
    events = [{"introduced": "0"}, {"fixed": "the next one"}]
    record = advisory("npm", "pkg", ranges=[{"type": "SEMVER", "events": events}])
    assert is_affected(record, "npm", "pkg", "99.0.0")
    assert fixed_versions(record, "npm", "pkg") == ()


def test_names_fold_per_ecosystem() -> None:
    record = advisory("PyPI", "Zope.Interface", [("0", "2.0")])
    assert is_affected(record, "PyPI", "zope_interface", "1.0")
    assert not is_affected(record, "npm", "zope-interface", "1.0.0")


def test_several_fixed_lines_never_downgrade() -> None:
    record = advisory("npm", "acorn", [("5.5.0", "5.7.4"), ("6.0.0", "6.4.1"), ("7.0.0", "7.1.1")])
    assert lowest_fixed_version(record, "npm", "acorn", "6.3.0") == "6.4.1"
    assert lowest_fixed_version(record, "npm", "acorn", "7.1.0") == "7.1.1"
    assert lowest_fixed_version(record, "npm", "acorn", "7.1.1") is None
    assert compare_versions("npm", "5.7.4", "6.3.0") == -1


def _last_affected(version: str) -> list[dict[str, Any]]:
    events = [{"introduced": "0"}, {"last_affected": version}]
    return [{"type": "ECOSYSTEM", "events": events}]


@given(records(), st.sampled_from(UNIVERSE), st.sets(st.sampled_from(UNIVERSE)))
def test_lowest_safe_is_the_lowest_published_one_that_is_not_affected(
    drawn: tuple[str, Advisory, set[int]], current: int, published: set[int]
) -> None:
    ecosystem, record, affected = drawn
    texts = [spelled(ecosystem, number) for number in published]
    version = lowest_safe(record, ecosystem, "pkg", spelled(ecosystem, current), texts)
    safe = sorted(it for it in published if it > current and it not in affected)
    assert version == (spelled(ecosystem, safe[0]) if safe else None)


def test_above_last_affected_the_next_published_version_is_safe() -> None:
    record = advisory("PyPI", "pkg", ranges=_last_affected("1.5"))
    assert lowest_fixed_version(record, "PyPI", "pkg", "1.4") is None
    published = ["1.6rc1", "not a version", "1.7", "1.6", "1.5", "1.0"]
    assert lowest_safe(record, "PyPI", "pkg", "1.4", published) == "1.6"
    assert lowest_safe(record, "PyPI", "pkg", "1.5rc1", published) == "1.6rc1"
    assert lowest_safe(record, "PyPI", "pkg", "1.4", ["1.3", "1.5"]) is None
    assert lowest_safe(record, "PyPI", "pkg", "a branch", published) is None


def test_beyond_its_limit_a_range_says_nothing() -> None:
    events = [{"introduced": "1.0.0"}, {"limit": "2.0.0"}]
    record = advisory("npm", "pkg", ranges=[{"type": "SEMVER", "events": events}])
    assert is_affected(record, "npm", "pkg", "1.9.9")
    assert not is_affected(record, "npm", "pkg", "2.0.0")
    assert lowest_safe(record, "npm", "pkg", "1.0.0", ["1.5.0", "2.1.0"]) == "2.1.0"
    several = [*events, {"limit": "3.0.0"}]
    record = advisory("npm", "pkg", ranges=[{"type": "SEMVER", "events": several}])
    assert is_affected(record, "npm", "pkg", "2.5.0")


@pytest.mark.parametrize("same", ["2.0", "v2.0.0", "02.0", "0!2.0.0", "2.0.0.0+local"])
def test_a_listed_version_is_found_however_it_is_spelled(same: str) -> None:
    record = advisory("PyPI", "pkg", versions=["1.0", "2.0", "20.0"])
    assert is_affected(record, "PyPI", "pkg", same)
    assert not is_affected(record, "PyPI", "pkg", "2.1")
    assert is_affected(advisory("PyPI", "pkg", versions=[same]), "PyPI", "pkg", "2")


@pytest.mark.parametrize(
    "entries",
    [
        {"ranges": [{"type": "GIT", "events": [{"introduced": "0"}, {"fixed": "a" * 40}]}]},
        {"ranges": []},
        {"ranges": [{"type": "SEMVER", "events": []}]},
    ],
)
def test_commits_alone_say_nothing_of_versions(entries: dict[str, Any]) -> None:
    record = advisory("npm", "pkg", **entries)
    assert record.says_nothing
    assert not is_affected(record, "npm", "pkg", "1.0.0")
    assert not advisory("npm", "pkg", **entries, versions=["1.0.0"]).says_nothing
    assert not advisory("npm", "pkg", [("0", None)]).says_nothing


@pytest.mark.parametrize(
    ("spans", "foreign"),
    [
        ([("0", "2024-05-r1-final")], ("2024-05-r1-final",)),
        ([("abcdef", "deadbeef"), ("0", None)], ("abcdef", "deadbeef")),
        ([("0", "deadbeef"), ("1.0", "1.1")], ()),
        ([("0", "1.1")], ()),
        ([("0", None)], ()),
    ],
)
def test_bounds_in_another_numbering_say_nothing_of_versions(
    spans: list[tuple[str, str | None]], foreign: tuple[str, ...]
) -> None:
    record = advisory("PyPI", "pkg", spans)
    matcher = record.matcher("PyPI", "pkg")
    assert matcher is not None
    assert (matcher.foreign, record.says_nothing) == (foreign, bool(foreign))
    unserved = advisory("crates.io", "pkg", spans)
    assert not unserved.says_nothing
