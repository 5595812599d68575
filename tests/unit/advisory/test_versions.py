"""Version order: the libraries', made total; names as the registries fold them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semantic_version import Version as SemVer

from fallback_tier.advisory import canonical_name, compare_versions, sort_key
from fallback_tier.advisory.versions import is_orderable, is_prerelease, successor
from fallback_tier.errors import AdvisoryError

numbers = st.integers(0, 30)
semver = st.builds(
    "{}{}.{}.{}{}{}".format,
    st.sampled_from(["", "v", "=", " "]),
    numbers,
    numbers,
    numbers,
    st.sampled_from(["", "-alpha", "-beta.2", "-rc.1"]),
    st.sampled_from(["", "+build.5"]),
)
pep440 = st.builds(
    "{}.{}{}{}{}".format,
    numbers,
    numbers,
    st.sampled_from(["", "a1", "rc2"]),
    st.sampled_from(["", ".post1", ".dev3"]),
    st.sampled_from(["", "+cu117"]),
)
versions = st.one_of(
    st.tuples(st.just("npm"), st.lists(semver | st.text(max_size=8), min_size=3, max_size=3)),
    st.tuples(st.just("PyPI"), st.lists(pep440 | st.text(max_size=8), min_size=3, max_size=3)),
)


@given(versions)
def test_order_is_total(drawn: tuple[str, list[str]]) -> None:
    ecosystem, (a, b, c) = drawn
    assert compare_versions(ecosystem, a, a) == 0
    assert compare_versions(ecosystem, a, b) == -compare_versions(ecosystem, b, a)
    low, middle, high = sorted((a, b, c), key=lambda version: sort_key(ecosystem, version))
    assert compare_versions(ecosystem, low, middle) <= 0
    assert compare_versions(ecosystem, middle, high) <= 0
    assert compare_versions(ecosystem, low, high) <= 0


@pytest.mark.parametrize(
    ("ecosystem", "lower", "higher"),
    [
        ("npm", "1.2.3-rc.1", "1.2.3"),
        ("npm", "1.9.0", "1.10.0"),
        ("npm", "1.2", "1.2.1"),
        ("npm", "git+ssh://host/x.git", "0.0.1"),
        ("PyPI", "1.0rc1", "1.0"),
        ("PyPI", "1.0", "1.0.post1"),
        ("PyPI", "2021.11.23", "2022.1.8"),
        ("PyPI", "2004d", "0.0.1"),
    ],
)
def test_lower_and_higher(ecosystem: str, lower: str, higher: str) -> None:
    assert compare_versions(ecosystem, lower, higher) == -1


@pytest.mark.parametrize(
    ("ecosystem", "one", "other"),
    [
        ("npm", "1.0.0+b", "1.0.0"),
        ("npm", "v1.0.0", "=1.0.0"),
        ("npm", "1.2", "1.2.0"),
        ("PyPI", "1.13.0+cu117", "1.13.0"),
        ("PyPI", "1.0", "1.0.0"),
    ],
)
def test_same_place_in_the_order(ecosystem: str, one: str, other: str) -> None:
    assert compare_versions(ecosystem, one, other) == 0


def test_four_numbers_are_no_semver() -> None:
    assert not is_orderable("npm", "1.2.3.4")
    assert is_orderable("PyPI", "1.2.3.4")


def test_unknown_ecosystem_is_a_typed_error() -> None:
    with pytest.raises(AdvisoryError, match="crates"):
        sort_key("crates.io", "1.0.0")


@pytest.mark.parametrize(
    ("ecosystem", "version", "expected"),
    [
        ("npm", "1.0.0-rc.1", True),
        ("npm", "1.0.0", False),
        ("PyPI", "1.0.dev3", True),
        ("PyPI", "1.0", False),
        ("PyPI", "nonsense", False),
    ],
)
def test_prereleases(ecosystem: str, version: str, expected: bool) -> None:
    assert is_prerelease(ecosystem, version) is expected


def test_names() -> None:
    assert canonical_name("PyPI", "Zope.Interface__x") == "zope-interface-x"
    assert canonical_name("npm", "@Scope/Some.Thing") == "@Scope/Some.Thing"


plain_or_not = semver | st.from_regex(
    r"[0-9]{1,3}\.[0-9]\.[0-9](-[0-9a-b.-]{0,5})?", fullmatch=True
)


@given(plain_or_not, plain_or_not)
def test_our_semver_keys_order_as_the_library_does(left: str, right: str) -> None:
    if not is_orderable("npm", left) or not is_orderable("npm", right):
        return
    theirs = [SemVer.coerce(it.lstrip(" =v")).truncate("prerelease") for it in (left, right)]
    expected = (theirs[0] > theirs[1]) - (theirs[0] < theirs[1])
    assert compare_versions("npm", left, right) == expected


@given(
    st.one_of(st.tuples(st.just("npm"), semver, semver), st.tuples(st.just("PyPI"), pep440, pep440))
)
def test_nothing_lies_between_a_version_and_its_successor(drawn: tuple[str, str, str]) -> None:
    ecosystem, version, other = drawn
    after = successor(ecosystem, version)
    assert compare_versions(ecosystem, version, after) == -1
    assert compare_versions(ecosystem, other, version) <= 0 or (
        compare_versions(ecosystem, other, after) >= 0
    )


@pytest.mark.parametrize(
    ("ecosystem", "version", "expected"),
    [
        ("npm", "1.2.3", "1.2.4-0"),
        ("npm", "1.2.3-rc+b", "1.2.3-rc.0"),
        ("PyPI", "1.0", "1.0.post0.dev0"),
        ("PyPI", "1.0rc1", "1.0rc1.post0.dev0"),
        ("PyPI", "1!1.0.post2+local", "1!1.0.post3.dev0"),
        ("PyPI", "1.0.post1.dev4", "1.0.post1.dev5"),
    ],
)
def test_successors(ecosystem: str, version: str, expected: str) -> None:
    assert successor(ecosystem, version) == expected


def test_what_is_no_version_has_no_successor() -> None:
    with pytest.raises(AdvisoryError, match="latest"):
        successor("npm", "latest")
