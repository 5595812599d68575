"""Recipes change versions and nothing else: line ends, indentation, the last line's end and a byte order
mark stay as they are found, in every kind of manifest and lock."""

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.npm import build_ecosystem as npm
from fallback_plugins.pypi import build_ecosystem as pypi
from fallback_tier.outcome import RecipeResult, Selected
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import Settings
from fallback_tier.sandbox.clients import SubprocessClients
from tests.choice import a_choice
from tests.registry import Universe, serve
from tests.unit.npm.world import at, project
from tests.unit.shared.locks_support import hashes_of, pipfile_lock, poetry_block, poetry_lock
from tests.unit.shared.recipes import FakeClients, advisory, repository

BOM = "\ufeff"

PEP_621 = (
    '[project]\nname = "app"\nversion = "3"\ndependencies = [\n  "other==3",\n'
    '  "left==1.0.0",  # why\n]\n\n[tool.x]\na = 1\n'
)
POETRY = (
    '# top\n[tool.poetry]\nname = "app"\n\n[tool.poetry.dependencies]\npython = "^3.9"\n'
    'left = "1.0.0"  # why\n'
)

#: Manifests that hold ``left`` at 1.0.0 once, with two spaces where one indents as one likes.
MANIFESTS: Mapping[str, tuple[str, str]] = {
    "package.json": (
        "npm",
        '{\n  "name": "app",\n  "dependencies": {\n    "left": "1.0.0",\n    "other": "3"\n  }\n}\n',
    ),
    "requirements.txt": ("PyPI", "left==1.0.0  # why\nother==3\n\n# end\n"),
    "constraints.txt": ("PyPI", "# top\nother==3\nleft==1.0.0 ; \\\n    python_version >= '3'\n"),
    "pyproject.toml": ("PyPI", PEP_621),
    "poetry/pyproject.toml": ("PyPI", POETRY),
    "groups/pyproject.toml": (
        "PyPI",
        '[project]\nname = "app"\nversion = "3"\n\n[dependency-groups]\ndev = ["left==1.0.0"]\n',
    ),
    "setup.cfg": (
        "PyPI",
        "[metadata]\nname = app\n\n[options]\ninstall_requires =\n  left==1.0.0\n  other==3\n",
    ),
    "Pipfile": ("PyPI", '[packages]\nleft = "==1.0.0"\nother = {version = "==3"}\n'),
}

PLUGINS: Mapping[str, EcosystemPlugin] = {
    "npm": npm(FakeClients()),
    "PyPI": pypi(FakeClients()),
}


@st.composite
def written(draw: st.DrawFn, text: str) -> str:
    """The text as somebody else would have written it."""
    unit = draw(st.sampled_from(["  ", "    ", "\t", " "]))
    ends = draw(
        st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]])
    )  # the last: a file of two editors
    made = []
    for line in text.splitlines():
        bare = line.lstrip(" ")
        depth = (len(line) - len(bare)) // 2
        made.append(unit * depth + bare + draw(st.sampled_from(ends)))
    whole = "".join(made) + draw(st.sampled_from(["", "", ends[0]]))
    if draw(st.booleans()):
        whole = whole.rstrip("\r\n")
    return (BOM if draw(st.booleans()) else "") + whole


def raised(
    plugin: EcosystemPlugin, root: Path, files: Mapping[str, str], **facts: object
) -> RecipeResult:
    record = advisory(plugin.name, "left", [("0", "2.0.0")])
    repo = repository(root, files).model_copy(update={"settings": Settings(**facts)})  # type: ignore[arg-type]
    selection = plugin.select(record, repo)
    assert isinstance(selection, Selected), selection
    return plugin.apply(selection, record, repo)


@pytest.mark.parametrize("name", MANIFESTS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_of_a_manifest_one_version_changes(
    name: str, draw: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ecosystem, text = MANIFESTS[name]
    before = draw.draw(written(text))
    root = tmp_path_factory.mktemp("repo")
    result = raised(PLUGINS[ecosystem], root, {name: before}, offline=True)
    (change,) = result.changes
    assert (change.path, change.before) == (name, before)
    assert change.after == before.replace("1.0.0", "2.0.0")


# --- locks, written by the real clients or exactly edited ------------------------------------------

UNIVERSE = Universe()
for _name in ("left", "other"):
    for _version in ("1.0.0", "1.5.0", "2.0.0"):
        UNIVERSE.pypi(_name, _version).npm(_name, _version)
UNIVERSE.npm("stuck", "1.0.0", {"left": "1.0.0"})

#: Line end, indentation of JSON, whether the last line has an end, byte order mark.
STYLES = [
    ("\n", "  ", True, False),
    ("\r\n", "  ", True, False),
    ("\n", "\t", False, False),
    ("\n", "    ", True, True),
    ("\r\n", "    ", False, True),
]
Style = tuple[str, str, bool, bool]


def styled(text: str, style: Style) -> str:
    end, unit, ended, marked = style
    lines = []
    for line in text.splitlines():
        bare = line.lstrip(" ")
        lines.append(unit * ((len(line) - len(bare)) // 2) + bare)
    whole = end.join(lines) + (end if ended else "")
    return (BOM if marked else "") + whole


def assert_style(text: str, style: Style) -> None:
    end, unit, ended, marked = style
    assert text.startswith(BOM) == marked
    assert text.endswith(("\n", "\r")) == ended
    assert text.count("\n") == text.count(end)
    assert text.count("\r") == (text.count(end) if end == "\r\n" else 0)
    indents = [line[: len(line) - len(line.lstrip())] for line in text.split(end)]
    assert all(indent == unit * (len(indent) // len(unit)) for indent in indents)


@pytest.fixture(scope="module")
def clients() -> Iterator[SubprocessClients]:
    with serve(UNIVERSE) as registry:
        yield SubprocessClients({**os.environ, **registry.environ})


@pytest.mark.parametrize(("version", "style"), a_choice(product([1, 2, 3], STYLES), step=4))
def test_npm_and_its_lock(
    clients: SubprocessClients, tmp_path: Path, style: Style, version: int
) -> None:
    files = project(
        {"left": "1.0.0", "other": "1.0.0"}, {"left": at("1.0.0"), "other": at("1.0.0")}
    )
    lock = json.loads(files["package-lock.json"]) | {"lockfileVersion": version}
    if version < 3:
        lock["dependencies"] = {name: {"version": "1.0.0"} for name in ("left", "other")}
    if version == 1:
        del lock["packages"]
    files["package-lock.json"] = json.dumps(lock, indent=2) + "\n"
    found = {path: styled(text, style) for path, text in files.items()}
    result = raised(npm(clients), tmp_path, found)
    assert {change.path for change in result.changes} == set(found)
    for change in result.changes:
        assert change.after is not None
        assert_style(change.after, style)
        assert "2.0.0" in change.after


@pytest.mark.parametrize("style", a_choice(((style,) for style in STYLES), step=3))
def test_an_override_that_is_added(
    clients: SubprocessClients, tmp_path: Path, style: Style
) -> None:
    files = project({"stuck": "1.0.0"}, {"stuck": at("1.0.0", left="1.0.0"), "left": at("1.0.0")})
    found = {path: styled(text, style) for path, text in files.items()}
    record = advisory("npm", "left", [("0", "1.5.0")])
    repo = repository(tmp_path, found)
    plugin = npm(clients)
    selection = plugin.select(record, repo)
    assert isinstance(selection, Selected)
    result = plugin.apply(selection, record, repo)
    assert [move.step for move in result.moves] == [LadderStep.OVERRIDE]
    for change in result.changes:
        assert change.after is not None
        assert_style(change.after, style)


def assert_ends(text: str, style: Style) -> None:
    """As ``assert_style``, of a file whose indentation is its writer's own."""
    end, _, ended, marked = style
    assert text.startswith(BOM) == marked
    assert text.endswith(("\n", "\r")) == ended
    assert text.count("\n") == text.count(end)


def with_ends(text: str, style: Style) -> str:
    end, _, ended, marked = style
    whole = end.join(text.splitlines()) + (end if ended else "")
    return (BOM if marked else "") + whole


PIPFILE = '[packages]\nleft = "==1.0.0"\nother = "*"\n\n[dev-packages]\n'


def pipenv_entry(name: str) -> dict[str, object]:
    hashes = [digest for _, digest in hashes_of(UNIVERSE, name, "1.0.0")]
    return {name: {"hashes": hashes, "version": "==1.0.0"}}


def uv_locked(clients: SubprocessClients, place: Path) -> dict[str, str]:
    files = {"pyproject.toml": PEP_621.replace("other==3", "other==1.0.0")}
    repository(place, files)
    done = clients.run("uv", ["lock"], cwd=place, timeout_s=60)
    assert done.ok, done.output
    return {**files, "uv.lock": (place / "uv.lock").read_text()}


def locked_files(kind: str, clients: SubprocessClients, place: Path) -> dict[str, str]:
    """A project with a lock of this kind, both as their writers write them."""
    if kind == "uv":
        return uv_locked(clients, place)
    if kind == "Poetry":
        poetry = tomllib.loads(POETRY)["tool"]["poetry"]
        keys = ("dependencies", "source", "extras", "dev-dependencies")
        hashed = json.dumps({key: poetry.get(key) for key in keys}, sort_keys=True)
        digest = hashlib.sha256(hashed.encode()).hexdigest()
        block = poetry_block(UNIVERSE, "left", "1.0.0")
        return {"pyproject.toml": POETRY, "poetry.lock": poetry_lock(block, content_hash=digest)}
    entries = pipenv_entry("left") | pipenv_entry("other")
    lock = pipfile_lock({"default": entries, "develop": {}}, pipfile=tomllib.loads(PIPFILE))
    return {"Pipfile": PIPFILE, "Pipfile.lock": lock}


@pytest.mark.parametrize(
    ("kind", "style"), a_choice(product(["uv", "Poetry", "pipenv"], STYLES), step=2)
)
def test_python_locks(clients: SubprocessClients, tmp_path: Path, kind: str, style: Style) -> None:
    files = locked_files(kind, clients, tmp_path / "made")
    found = {path: with_ends(text, style) for path, text in files.items()}
    result = raised(pypi(clients), tmp_path / "repo", found)
    assert {change.path for change in result.changes} == set(found)
    for change in result.changes:
        assert change.after is not None
        assert_ends(change.after, style)
        assert "2.0.0" in change.after
