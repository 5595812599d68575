"""Our reading of Poetry's constraints, held against Poetry's own (poetry-core)."""

import re
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from poetry.core.constraints.version import Version, parse_constraint

from fallback_plugins.pypi.manifests.markers import admits, alternatives

CASES = Path(__file__).parents[5] / "shared" / "data" / "recipe-cases.tar.xz"

#: What is asked of each version that a constraint names: the version itself and its neighbours.
ENDINGS = ("", ".0", ".1", ".99", ".dev0", "a1", "rc1", "+local")

_RELEASES = st.builds(".".join, st.lists(st.integers(0, 3).map(str), min_size=1, max_size=3))
_OPERATORS = st.sampled_from(["^", "~", "=", "", ">=", ">", "<", "<=", "==", "~="])
_CLAUSES = st.builds(
    "{}{}".format, _OPERATORS, _RELEASES.filter(lambda release: "." in release)
) | st.builds("{}{}.*".format, st.sampled_from(["", "==", "!=", ">=", "<"]), _RELEASES)
_RANGES = st.lists(_CLAUSES, min_size=1, max_size=2).map(",".join)
_CONSTRAINTS = st.lists(_RANGES, min_size=1, max_size=2).map(" || ".join)


def neighbours(constraint: str) -> Iterator[str]:
    for named in re.findall(r"\d+(?:\.\d+)*", constraint):
        yield from (f"{named}{ending}" for ending in ENDINGS)


def differing(constraint: str) -> list[str]:
    """The versions of which the two don't say the same."""
    theirs = parse_constraint(constraint)
    return [
        version
        for version in neighbours(constraint)
        if admits(constraint, version) != theirs.allows(Version.parse(version))
    ]


@given(_CONSTRAINTS)
def test_it_reads_what_poetry_reads(constraint: str) -> None:
    assert alternatives(constraint) is not None
    assert differing(constraint) == []


@pytest.mark.parametrize(
    "constraint", [">=3.5.*", ">=3.*, !=3.0.*, !=3.1.*", "^1.2|^2.1", ">=1,<2 || >=3.1", "<2.*"]
)
def test_old_ways_of_writing_are_read_too(constraint: str) -> None:
    assert alternatives(constraint) is not None
    assert differing(constraint) == []


def test_every_constraint_of_real_locks_and_manifests() -> None:
    if not CASES.exists():
        pytest.skip("the shared recipe cases are not here")
    found = set(constraints_of_cases())
    assert len(found) > 500
    assert {it for it in found if alternatives(it) is None} == set()
    assert {it: differing(it) for it in found if differing(it)} == {}


def constraints_of_cases() -> Iterator[str]:
    with tarfile.open(CASES) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and member.name.endswith(("/poetry.lock", "/pyproject.toml")):
                document = tomllib.loads(file.read().decode())
                poetry = document.get("tool", {}).get("poetry", {})
                yield from map(str, asked_in(poetry.get("dependencies", {})))
                for package in document.get("package", ()):
                    yield package.get("python-versions", "*")
                    yield from map(str, asked_in(package.get("dependencies", {})))


def asked_in(table: dict[str, Any]) -> Iterator[Any]:
    for entry in table.values():
        for one in entry if isinstance(entry, list) else [entry]:
            if isinstance(one, str) or "version" in one:
                yield one if isinstance(one, str) else one["version"]
