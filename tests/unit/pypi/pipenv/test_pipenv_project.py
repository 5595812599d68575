"""pipenv's lock, edited exactly: against a registry of our own and the real uv; pipenv never runs."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import LadderStep, ProofLevel, RefusalReason
from fallback_plugins.pypi.locks.pipfile_lock import PipfileLock
from fallback_plugins.pypi.pipenv import PipenvProject
from fallback_plugins.shared.ladder import ProjectFix, combined
from fallback_tier.errors import RecipeError
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Universe
from tests.unit.shared.locks_support import hashes_of, pipfile_lock, real_uv
from tests.unit.shared.recipes import advisory, repository

ADVISORY = advisory("PyPI", "leaf", [("0", "1.2")])

UNIVERSE = (
    Universe()
    .pypi("leaf", "1.0")
    .pypi("leaf", "1.2", requires_python=">=3.8")
    .pypi("leaf", "1.3", ["nowhere"])
    .pypi("nowhere", "1.0", ["deep>=1", 'old ; python_version < "3.5"'])
    .pypi("deep", "1.0")
    .pypi("deep", "1.5", requires_python=">=3.8")
    .pypi("leaf", "1.4", ['win ; sys_platform == "win32"'])
    .pypi("leaf", "1.5", ["capped"])
    .pypi("win", "1.0")
    .pypi("capped", "1.0", requires_python=">=3.8,!=3.9.0")
    .pypi("parent", "1.0", ["leaf<1.2"])
    .pypi("parent", "1.1", ["leaf<2"])
    .pypi("stuck", "1.0", ["leaf<1.2"])
    .pypi("source-only", "1.0", sdist_only=True)
)

PIPFILE = '[packages]\nleaf = "{}" # why\n\n[dev-packages]\n'


@pytest.fixture(scope="module")
def clients() -> Iterator[SubprocessClients]:
    with real_uv(UNIVERSE) as found:
        yield found


def _entry(name: str, version: str, **more: Any) -> dict[str, Any]:
    hashes = sorted(digest for _, digest in hashes_of(UNIVERSE, name, version))
    return {
        name: {
            "hashes": hashes,
            "index": "pypi",
            "markers": "python_version >= '3.7'",
            "version": f"=={version}",
            **more,
        }
    }


def _lock(entries: Mapping[str, Any], pipfile: str | None = None) -> str:
    parsed = tomllib.loads(pipfile) if pipfile else None
    return pipfile_lock({"default": entries, "develop": {}}, pipfile=parsed)


def _resolve(
    clients: SubprocessClients, folder: Path, lock: str, pipfile: str = "", fixed: str = "1.2"
) -> ProjectFix:
    files = {"Pipfile.lock": lock, **({"Pipfile": pipfile} if pipfile else {})}
    repo = repository(folder, files)
    record = advisory("PyPI", "leaf", [("0", fixed)])
    fix = PipenvProject(repo, clients, "Pipfile.lock").resolve(record)
    assert fix is not None
    if fix.moves:
        combined("PyPI", record, repo, [fix])
    return fix


def test_the_entry_alone_is_written_anew(clients: SubprocessClients, tmp_path: Path) -> None:
    fix = _resolve(clients, tmp_path, _lock(_entry("leaf", "1.0")))
    wanted = _lock(_entry("leaf", "1.2", markers="python_version >= '3.8'"))
    assert fix.texts == {"Pipfile.lock": wanted}
    assert (fix.moves[0].step, fix.proof_level) == (LadderStep.LOCK_EDIT, ProofLevel.PINS)
    assert any("Pipfile is not in this repository" in note for note in fix.notes)


def test_a_pipfile_that_admits_it_stays(clients: SubprocessClients, tmp_path: Path) -> None:
    pipfile = PIPFILE.format("*")
    fix = _resolve(clients, tmp_path, _lock(_entry("leaf", "1.0"), pipfile), pipfile)
    assert list(fix.texts) == ["Pipfile.lock"]
    assert fix.moves[0].step is LadderStep.LOCK_REFRESH


def test_a_pipfile_is_raised_and_its_hash_with_it(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    pipfile = PIPFILE.format("==1.0")
    fix = _resolve(clients, tmp_path, _lock(_entry("leaf", "1.0"), pipfile), pipfile)
    new = PIPFILE.format("==1.2")
    wanted = _lock(_entry("leaf", "1.2", markers="python_version >= '3.8'"), new)
    assert fix.texts == {"Pipfile": new, "Pipfile.lock": wanted}
    assert fix.moves[0].step is LadderStep.DIRECT_BUMP


def test_a_stale_lock_stops_a_change_of_the_pipfile(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    lock = _lock(_entry("leaf", "1.0"), PIPFILE.format("==0.9"))
    fix = _resolve(clients, tmp_path, lock, PIPFILE.format("==1.0"))
    assert not fix.texts
    assert any("Pipfile.lock" in step.reason for step in fix.left[0].declined)


def test_a_parent_in_the_way_moves_too(clients: SubprocessClients, tmp_path: Path) -> None:
    lock = _lock(_entry("leaf", "1.0") | _entry("parent", "1.0"))
    document = json.loads(_resolve(clients, tmp_path, lock).texts["Pipfile.lock"])
    held = {name: entry["version"] for name, entry in document["default"].items()}
    assert held == {"leaf": "==1.2", "parent": "==1.1"}


def test_a_parent_that_never_admits_it_is_named(clients: SubprocessClients, tmp_path: Path) -> None:
    lock = _lock(_entry("leaf", "1.0") | _entry("stuck", "1.0"))
    (left,) = _resolve(clients, tmp_path, lock).left
    assert left.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    assert "stuck 1.0 in Pipfile.lock requires leaf <1.2" in left.sentence


def test_what_the_new_release_needs_comes_in_beside_it(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    pipfile = PIPFILE.format("*")
    entries = _entry("leaf", "1.0") | _entry("parent", "1.1")
    fix = _resolve(clients, tmp_path, _lock(entries, pipfile), pipfile, fixed="1.3")

    def new(name: str, version: str, **more: str) -> dict[str, Any]:
        entry = _entry(name, version)[name]
        return {name: {"hashes": entry["hashes"], **more, "version": entry["version"]}}

    wanted = (
        new("deep", "1.5", markers="python_version >= '3.8'")
        | _entry("leaf", "1.3")
        | new("nowhere", "1.0")
        | _entry("parent", "1.1")
    )
    assert fix.texts == {"Pipfile.lock": _lock(wanted, pipfile)}
    assert "Pipfile.lock gains what the new releases need: deep 1.5, nowhere 1.0." in fix.notes


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ("1.4", 'win is needed where sys_platform == "win32"'),
        ("1.5", "it is not known how pipenv writes that into Pipfile.lock"),
    ],
)
def test_what_pipenv_would_write_in_a_way_that_cannot_be_told_is_refused(
    clients: SubprocessClients, tmp_path: Path, fixed: str, message: str
) -> None:
    (left,) = _resolve(clients, tmp_path, _lock(_entry("leaf", "1.0")), fixed=fixed).left
    assert message in left.sentence


def test_what_is_new_would_come_from_one_of_several_indexes(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    sources = "".join(f'[[source]]\nname = "{it}"\nurl = "https://{it}.b"\n' for it in "xy")
    pipfile = sources + PIPFILE.format("*")
    lock = _lock(_entry("leaf", "1.0"), pipfile)
    (left,) = _resolve(clients, tmp_path, lock, pipfile, fixed="1.3").left
    assert "Pipfile names several indexes" in left.sentence


def test_pins_that_only_a_build_could_judge_are_said_to_be_unchecked(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    lock = _lock(_entry("leaf", "1.0") | _entry("source-only", "1.0"))
    fix = _resolve(clients, tmp_path, lock)
    assert fix.moves[0].after == "1.2"
    assert any("could not be checked against each other" in note for note in fix.notes)


def test_a_lock_that_a_formatter_wrote_keeps_its_form(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    def formatted(text: str) -> str:
        return text.replace('": {', '" : {').replace("    ", "\t").replace("\n", "\r\n").rstrip()

    fix = _resolve(clients, tmp_path, formatted(_lock(_entry("leaf", "1.0"))))
    wanted = _lock(_entry("leaf", "1.2", markers="python_version >= '3.8'"))
    assert fix.texts == {"Pipfile.lock": formatted(wanted)}


#: What the real pipenv says of this Pipfile: 2026.10.3, which normalises names, and 2025.0.4.
NAMES = """[[source]]
url = "https://index.test/simple"
verify_ssl = true
name = "index"

[packages]
My_Leaf = "==1.0"

[dev-packages]
"Zope.Thing" = {version = "*", extras = ["a"]}

[docs]
Leaf_Docs = "*"

[pipenv]
allow_prereleases = false
"""
HASHES = (
    "8497209b5d3b684520a57c8c9e5f2e4162ed63390df634b19aa586d6a337645b",
    "076d51ae0a12d39ecc4ea26868474064754f9138741bd46d3be855b836b1d87a",
)


@pytest.mark.parametrize("stated", HASHES)
def test_the_hash_is_that_of_the_pipenv_that_wrote_the_lock(stated: str) -> None:
    lock = PipfileLock("Pipfile.lock", json.dumps({"_meta": {"hash": {"sha256": stated}}}))
    assert lock.is_of("Pipfile", NAMES)
    assert not lock.is_of("Pipfile", NAMES.replace("1.0", "1.1"))
    # Another spelling of a name is another hash to the older pipenv alone.
    respelt = NAMES.replace("My_Leaf", "my-leaf")
    assert lock.is_of("Pipfile", respelt) is (stated == HASHES[0])
    raised = lock.with_pipfile_hash("Pipfile", NAMES, NAMES.replace("1.0", "1.1"))
    assert raised.with_pipfile_hash("Pipfile", NAMES.replace("1.0", "1.1"), NAMES) == lock


def test_categories_with_other_lines_go_to_their_own_fixes(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    """pipenv locks categories apart with use_default_constraints = false."""
    pipfile = '[packages]\nleaf = "*"\n\n[docs]\nleaf = "==1.2"  # docs\n'
    document = tomllib.loads(pipfile)
    sections = {"default": _entry("leaf", "1.0"), "develop": {}, "docs": _entry("leaf", "1.2")}
    lock = pipfile_lock(sections, pipfile=document)
    files = {"Pipfile": pipfile, "Pipfile.lock": lock}
    ranges = [("0", "1.1"), ("1.2", "1.4")]
    universe = Universe()
    for version in ("1.0", "1.1", "1.2", "1.4"):
        universe.pypi("leaf", version)
    with real_uv(universe) as real:
        repo = repository(tmp_path, files)
        fix = PipenvProject(repo, real, "Pipfile.lock").resolve(advisory("PyPI", "leaf", ranges))
    assert fix is not None
    assert not fix.left
    moved = {(move.before, move.after) for move in fix.moves}
    assert moved == {(("1.0",), "1.1"), (("1.2",), "1.4")}
    assert fix.texts["Pipfile"] == pipfile.replace('"==1.2"', '"==1.4"')
    held = json.loads(fix.texts["Pipfile.lock"])
    assert [held[it]["leaf"]["version"] for it in ("default", "docs")] == ["==1.1", "==1.4"]


def test_another_index_and_no_json_are_refused_offline(tmp_path: Path) -> None:
    document = json.loads(_lock(_entry("leaf", "1.0", index="private")))
    document["_meta"]["sources"] = [{"name": "pypi", "url": "u", "verify_ssl": True}]
    for lock, message in ((json.dumps(document), "from the index 'private'"), ("{", "is not JSON")):
        repo = repository(tmp_path, {"Pipfile.lock": lock})
        project = PipenvProject(repo, SubprocessClients({}), "Pipfile.lock")
        try:
            sentence = project.outline(ADVISORY).left[0].sentence
        except RecipeError as error:
            sentence = error.problem
        assert message in sentence
