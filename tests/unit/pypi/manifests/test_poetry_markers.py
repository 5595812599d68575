"""Environment markers of a poetry.lock: when they can hold, and how they go together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker

from fallback_plugins.pypi.manifests.markers import (
    ALWAYS,
    NEVER,
    Condition,
    both,
    can_hold,
    either,
    same,
    supported,
    without_extras,
    written,
)

OLD, NEW = 'python_version < "3.11"', 'python_version >= "3.11"'
WINDOWS, APPLE = 'sys_platform == "win32"', 'sys_platform == "darwin"'


@pytest.mark.parametrize(
    ("marker", "wanted"),
    [
        ('python_version < "3.9"', False),
        ('python_version < "3.10"', True),
        ('python_full_version < "3.9.2"', True),
        ('python_full_version < "3.9.0"', False),
        # No platform is ruled out, however rare.
        ('sys_platform == "emscripten"', True),
        ('platform_machine in "ppc64le s390x"', True),
        ('sys_platform == "win32" and sys_platform == "darwin"', False),
        ('platform_release >= "20.0" and os_name != "nt"', True),
        ('python_version < "3.9" or implementation_name == "pypy"', True),
    ],
)
def test_a_marker_can_hold_where_the_project_runs(marker: str, wanted: bool) -> None:
    assert can_hold(marker, "^3.9") is wanted


def test_a_marker_that_nobody_can_read_may_hold() -> None:
    assert can_hold("nonsense", "^3.9")


def test_the_pythons_of_a_project_are_those_that_it_admits() -> None:
    assert supported(">=3.8.1,<3.10") == ("3.8.99", "3.9.0", "3.9.99")


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [
        ([OLD, ""], ALWAYS),
        ([OLD, NEW], ALWAYS),
        ([WINDOWS, APPLE, WINDOWS], (WINDOWS, APPLE)),
        ([f"{WINDOWS} and {OLD}", WINDOWS], (WINDOWS,)),
        ([WINDOWS, f"{WINDOWS} and {OLD}"], (WINDOWS,)),
        (['python_version < "3.9"', WINDOWS], (WINDOWS,)),
        ([], NEVER),
    ],
)
def test_of_several_conditions_what_another_covers_is_left_out(
    terms: list[str], wanted: Condition
) -> None:
    assert either(terms, "^3.9") == wanted


@pytest.mark.parametrize(
    ("condition", "marker", "wanted"),
    [
        (ALWAYS, "", ALWAYS),
        (ALWAYS, f'python_version >= "3.7" and {WINDOWS}', (WINDOWS,)),
        (ALWAYS, 'python_full_version < "3.11.2"', ('python_full_version < "3.11.2"',)),
        ((OLD,), WINDOWS, (f"{OLD} and {WINDOWS}",)),
        ((OLD,), 'python_version < "3.12"', (OLD,)),
        ((OLD,), 'python_version < "3.10"', ('python_version < "3.10"',)),
        ((OLD,), NEW, NEVER),
        ((OLD,), f"{WINDOWS} or {APPLE}", (f"{OLD} and ({WINDOWS} or {APPLE})",)),
    ],
)
def test_a_condition_and_a_marker_beside_it(
    condition: Condition, marker: str, wanted: Condition
) -> None:
    assert both(condition, marker, "^3.9") == wanted


_ATOMS = st.sampled_from(
    [OLD, NEW, WINDOWS, APPLE, 'python_version < "3.13"', 'os_name == "nt"', '"x" in os_name']
)
_MARKERS = st.lists(_ATOMS, min_size=1, max_size=2).map(" and ".join)


@given(st.lists(_MARKERS, min_size=1, max_size=3), _MARKERS)
def test_what_is_written_says_what_was_meant(terms: list[str], marker: str) -> None:
    whole = " or ".join(f"({term}) and ({marker})" for term in terms)
    found = both(either(terms, "^3.9"), marker, "^3.9")
    assert same(found, (whole,) if can_hold(whole, "^3.9") else NEVER, "^3.9")
    assert found == NEVER or not written(found) or Marker(written(found))


@pytest.mark.parametrize(
    ("marker", "wanted"),
    [
        ('extra == "socks"', ""),
        (f'{OLD} and extra == "socks"', OLD),
        (f'({OLD} or {WINDOWS}) and extra == "a"', ""),
        (OLD, OLD),
    ],
)
def test_an_extra_is_no_word_about_the_environment(marker: str, wanted: str) -> None:
    assert without_extras(marker) == wanted
