"""Ranges are read as their clients read them, in every kind of manifest."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_plugins.pypi.strategies.direct import affected_places, places_of
from fallback_tier.advisory import is_affected
from tests.registry import Universe, serve
from tests.unit.pypi.pypi_files import offline
from tests.unit.shared.recipes import FakeClients, advisory

UV = str(Path(sys.executable).with_name("uv"))

#: Published releases, and one that no record names.
VERSIONS = (
    *("0.9", "1.0", "1.0.0.post1", "1.0.5", "1.1a1", "1.1", "1.1.1", "1.2", "2.0rc1", "2.0", "2.1"),
    *("3.0", "1!1.0", "1!1.1"),
)
#: Others, which may be published between these.
BETWEEN = ("0.9.0.7", "0.9.9", "1.0.9", "1.1.9", "1.2.0.7", "2.0.9", "1!1.0.9")


def _clause(operator: str, version: str) -> str:
    if operator.endswith("*"):
        parsed = Version(version)
        epoch = f"{parsed.epoch}!" if parsed.epoch else ""
        return f"{operator[:2]}{epoch}{'.'.join(map(str, parsed.release))}.*"
    return f"{operator}{version}"


_OPERATORS = ("==", "!=", ">=", "<=", ">", "<", "~=", "==*", "!=*", "===")
SPECIFIERS = st.lists(
    st.builds(_clause, st.sampled_from(_OPERATORS), st.sampled_from(VERSIONS)),
    min_size=1,
    max_size=3,
).map(",".join)
INTERVALS = st.lists(st.sampled_from(VERSIONS), min_size=2, max_size=4, unique=True)


def _parsed(specifier: str) -> SpecifierSet:
    try:
        return SpecifierSet(specifier)
    except InvalidSpecifier:
        assume(False)
        raise


@settings(
    max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(SPECIFIERS, INTERVALS)
def test_a_range_is_affected_as_packaging_reads_it(specifier: str, bounds: list[str]) -> None:
    """If every release that it may admit is affected, it is; if none is, it is not. Which of these are
    published only a resolution tells."""
    parsed = _parsed(specifier)
    bounds = sorted(bounds[: len(bounds) // 2 * 2], key=Version)
    record = advisory("PyPI", "left", list(zip(bounds[::2], bounds[1::2], strict=True)))
    places = places_of({"requirements.txt": f"Left{specifier}\n"}, "left")
    (declaration,) = (place.declaration for place in places)
    assert declaration is not None
    for version in (*VERSIONS, *BETWEEN):
        assert declaration.admits(version) == parsed.contains(version, prereleases=True), version

    def affected(version: str) -> bool:
        return is_affected(record, "PyPI", "left", version)

    found = bool(affected_places(record, places, "left"))
    admitted = [*parsed.filter([*VERSIONS, *BETWEEN, "99.0"], prereleases=True)]
    if admitted and all(map(affected, admitted)):
        assert found
    named = (*declaration.floors, *filter(None, [declaration.pin]))
    sensible = all(declaration.admits(clause.version) for clause in named)
    if sensible and not any(map(affected, parsed.filter([*VERSIONS, *BETWEEN], prereleases=True))):
        assert not found


@pytest.fixture(scope="module")
def registry() -> Iterator[Mapping[str, str]]:
    universe = Universe()
    for version in VERSIONS:
        universe.pypi("left", version)
    with serve(universe) as served:
        yield served.environ


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(specifier=SPECIFIERS, version=st.sampled_from(VERSIONS))
def test_a_range_admits_what_uv_admits(
    registry: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    specifier: str,
    version: str,
) -> None:
    _parsed(specifier)
    path = tmp_path_factory.mktemp("uv") / "requirements.in"
    path.write_text(f"left{specifier}\nleft=={version}\n")
    command = [UV, "pip", "compile", "--quiet", "--prerelease=allow", path.name]
    environ = {**os.environ, **{name: value for name, value in registry.items() if value}}
    run = subprocess.run(command, cwd=path.parent, env=environ, capture_output=True, check=False)
    (first, _) = places_of({"requirements.txt": path.read_text()}, "left")
    assert first.declaration is not None
    assert first.declaration.admits(version) == (run.returncode == 0), run.stderr.decode()


#: Manifests with a place for a specifier.
LINES = {
    "requirements.txt": "LEFT[x] {} ; python_version > '3'\n",
    "setup.cfg": "[options]\ninstall_requires =\n    left{}\n",
    "setup.py": "setup(name='app', install_requires=[\"left{}\"])\n",
    "Pipfile": '[docs]\nLeft = "{}"\n',
    "pyproject.toml": '[project]\nname = "app"\ndependencies = ["left{}"]\n',
}
POETRY = "[tool.poetry.dependencies]\npython = '^3.9'\nleft = \"{}\"\n"
LISTED = (
    "[tool.poetry.dependencies]\nleft = [{{version = '1.1.0', python = '<3.9'}},"
    " {{version = '{}', python = '>=3.9'}}]\n"
)

#: Is a range affected by [0, 1.1.0)?
PEP440 = {
    "==1.0.*": True,
    "~=1.0.0": True,
    "~=1.0": True,
    "===1.0.0": True,
    "<1.1": True,
    "<=1.0.9": True,
    "<1.1,!=1.0.5": True,
    "==1.0.0+cpu": True,
    "==1.0.0.post1": True,
    ">=1.0,!=1.0.5": True,
    "<2": False,
    "!=1.0.5": False,
    "!=1.0.*": False,
    "==1.1.*": False,
    "==1!1.0": False,
    "==1.1.0+cpu": False,
    ">=1.1": False,
}
POETRYS = {
    "^1.0": True,
    "~1.0": True,
    "1.0.*": True,
    "1.0.0": True,
    ">=1.0 <1.1": True,
    "^1.0 || ^2.0": True,
    "<1.1 || ~1.0": True,
    "^1.1 || ^2.0": False,
    "*": False,
    "1.*": False,
    "<0.1 || >=1.2": True,
    "1.1.* | ^3": False,
    "^1.2": False,
}


def _is_affected(root: Path, name: str, text: str) -> bool:
    record = advisory("PyPI", "left", [("0", "1.1.0")])
    outline = build_ecosystem(FakeClients()).outline(record, offline(root, {name: text}))
    return bool(
        outline.moves or [it for it in outline.left if it.reason is not RefusalReason.UNKNOWN]
    )


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize(("specifier", "affected"), PEP440.items())
def test_pep440_ranges_in_every_manifest(
    tmp_path: Path, name: str, specifier: str, affected: bool
) -> None:
    assert _is_affected(tmp_path, name, LINES[name].format(specifier)) is affected


@pytest.mark.parametrize("text", [POETRY, LISTED])
@pytest.mark.parametrize(("specifier", "affected"), POETRYS.items())
def test_poetrys_ranges(tmp_path: Path, text: str, specifier: str, affected: bool) -> None:
    assert _is_affected(tmp_path, "pyproject.toml", text.format(specifier)) is affected


def test_a_pin_keeps_its_local_label(tmp_path: Path) -> None:
    files = {"requirements.txt": "left==1.0.0+cpu\n"}
    plugin, repo = build_ecosystem(FakeClients()), offline(tmp_path, files)
    record = advisory("PyPI", "left", [("0", "1.1.0")])
    selected = plugin.select(record, repo)
    (change,) = plugin.apply(selected, record, repo).changes
    assert change.after == "left==1.1.0+cpu\n"
