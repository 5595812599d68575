"""Folders and imports: no cycle, not even for types; tests where their sources are."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

from tests.unit.test_layout import ROOT, committed

#: Where each package is.
PACKAGES = {
    "fallback_tier": "",
    "fallback_plugins": "plugins/",
    "fallback_eval": "plugins/",
    "fallback_audit": "audit/",
}

#: Where the sources of a folder of tests are: below one of these.
_MIRRORED = ("fallback_tier/", "plugins/fallback_plugins/")

#: Folders of tests that are called otherwise than their sources.
_CALLED_OTHERWISE = {
    "audit": "audit/fallback_audit",
    "evaluation": "plugins/fallback_eval",
}

#: Tests of an interface, whoever serves it.
_OF_NO_FOLDER = {"audit/stores/conformance"}


def modules() -> dict[str, str]:
    """Every module of ours: its name, and its file."""
    foreign = ("fallback_tier/demo/projects/", "fallback_tier/demo/proofs/")
    found = {}
    for path in committed():
        for package, place in PACKAGES.items():
            if path.startswith(f"{place}{package}/") and path.endswith(".py"):
                name = path.removeprefix(place).removesuffix(".py").replace("/", ".")
                if not path.startswith(foreign):
                    found[name.removesuffix(".__init__")] = path
    return found


def imported(text: str, known: set[str]) -> set[str]:
    """Modules of ours that a text imports: at its top, in a function, or for types alone."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str() as module, names=names, level=0):
                whole = {f"{module}.{alias.name}" for alias in names}
                found |= whole & known or {module}
    return found & known


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one cycle, in order; none where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        members: list[str] = error.args[1]
        return members
    return []


def test_no_import_goes_in_a_circle() -> None:
    files = modules()
    assert len(files) > 500
    known = set(files)
    graph = {name: imported((ROOT / path).read_text(), known) for name, path in files.items()}
    assert cycle(graph) == []


@pytest.mark.parametrize(
    "back",
    [
        "from a import b",
        "import a.b",
        "def f():\n    from a.b import C",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.b import C",
    ],
)
def test_a_circle_would_be_found(back: str) -> None:
    known = {"a", "a.b", "a.c"}
    graph = {"a.b": imported("from a.c import D", known), "a.c": imported(back, known)}
    assert set(cycle(graph)) == {"a.b", "a.c"}


def test_unit_tests_stand_where_their_sources_do() -> None:
    folders = {
        str(PurePosixPath(path).parent.relative_to("tests/unit"))
        for path in committed()
        if path.startswith("tests/unit/") and path.endswith(".py")
    } - {".", *_OF_NO_FOLDER}
    assert len(folders) > 40
    assert {folder for folder in folders if not any(map(_is_there, _sources(folder)))} == set()


def _is_there(source: Path) -> bool:
    """A folder, or the module that it has become."""
    return source.is_dir() or source.with_suffix(".py").is_file()


def _sources(folder: str) -> list[Path]:
    top, _, rest = folder.partition("/")
    if top in _CALLED_OTHERWISE:
        return [ROOT / _CALLED_OTHERWISE[top] / rest]
    return [ROOT / place / folder for place in _MIRRORED]
