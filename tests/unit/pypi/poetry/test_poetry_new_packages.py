"""A new release asks for what a poetry.lock does not hold: the lock gains it as Poetry would write it."""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.poetry.project import PoetryProject
from fallback_plugins.shared.ladder import ProjectFix, combined
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Universe
from tests.unit.shared.locks_support import hashes_of, poetry_block, poetry_lock, real_uv
from tests.unit.shared.recipes import advisory, repository

UNIVERSE = (
    Universe()
    .pypi("leaf", "1.0", ["old>=1"])
    .pypi("leaf", "1.1", ["middle>=1", 'win ; sys_platform == "win32"'])
    .pypi("leaf", "1.2", ["base[fast]>=1"])
    .pypi("leaf", "1.3", ["narrow"])
    .pypi("leaf", "1.4", ["base"])
    .pypi("leaf", "1.5", ["split", "bound"])
    .pypi("leaf", "1.6", ["stone", "zeta"])
    .pypi("stone", "1.0", sdist_only=True)
    .pypi("old", "1.0", ["older"])
    .pypi("older", "1.0")
    .pypi("middle", "1.0", ["Base>=1", "zeta>=1"])
    .pypi("middle", "1.5", ["Base>=1", "zeta>=1"])
    .pypi("middle", "2.0", ["base>=2", "zeta>=1"])
    .pypi("zeta", "1.0", requires_python=">=3.7")
    .pypi("win", "1.0")
    .pypi("base", "1.0", extras={"fast": ["quick>=1"]})
    .pypi("base", "2.0")
    .pypi("quick", "1.0")
    .pypi("narrow", "1.0", requires_python=">=3.8")
    .pypi("narrow", "2.0", requires_python=">=3.8,<3.12")
    .pypi("split", "1.0", ["bound<2"])
    .pypi("bound", "1.0")
    .pypi("bound", "2.0")
)


@pytest.fixture(scope="module")
def clients() -> Iterator[SubprocessClients]:
    with real_uv(UNIVERSE) as found:
        yield found


def _block(name: str, version: str, *asks: str, more: str = "", extras: str = "") -> str:
    sections = "[package.dependencies]\n" + "".join(f"{ask}\n" for ask in asks) if asks else ""
    if extras:
        sections += ("\n" if sections else "") + f"[package.extras]\n{extras}\n"
    return poetry_block(UNIVERSE, name, version, more=more, sections=sections)


BASE = _block("base", "1.0", extras='fast = ["quick (>=1)"]')
OLD = _block("old", "1.0", 'older = "*"')
OLDER = _block("older", "1.0")
LEAF = _block("leaf", "1.0", 'old = ">=1"')

MANIFEST = (
    '[tool.poetry]\nname = "app"\n\n[tool.poetry.dependencies]\npython = "^3.9"\nleaf = "^1.0"\n'
)
WITH_BASE = f'{MANIFEST}base = "*"\n'


def _resolve(
    clients: SubprocessClients, folder: Path, lock: str, manifest: str | None, fixed: str
) -> ProjectFix:
    files = {"poetry.lock": lock, **({"pyproject.toml": manifest} if manifest else {})}
    project = PoetryProject(repository(folder, files), clients, "poetry.lock")
    record = advisory("PyPI", "leaf", [("0", fixed)])
    fix = project.resolve(record)
    assert fix is not None
    if fix.moves:
        combined("PyPI", record, project.repo, [fix])
    return fix


def _held(text: str) -> Mapping[str, Mapping[str, Any]]:
    return {table["name"]: table for table in tomllib.loads(text)["package"]}


def test_a_chain_of_new_packages_stands_where_poetry_puts_it(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    lock = poetry_lock(BASE, LEAF, OLD, OLDER)
    fix = _resolve(clients, tmp_path, lock, WITH_BASE, "1.1")
    leaf = _block("leaf", "1.1", 'middle = ">=1"', WIN)
    # The highest that goes with what is locked: middle 2.0 would move base.
    middle = _block("middle", "1.5", 'Base = ">=1"', 'zeta = ">=1"')
    zeta = _block("zeta", "1.0").replace('python-versions = "*"', 'python-versions = ">=3.7"')
    new = poetry_lock(BASE, leaf, middle, _block("win", "1.0"), zeta)
    assert fix.texts == {"poetry.lock": new}
    assert fix.notes == (
        "poetry.lock gains what the new releases need: middle 1.5, win 1.0, zeta 1.0.",
        "poetry.lock no longer holds what nothing requires any more: old, older.",
    )


WIN = 'win = {version = "*", markers = "sys_platform == \\"win32\\""}'


def test_without_a_manifest_nothing_is_taken_away(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    fix = _resolve(clients, tmp_path, poetry_lock(BASE, LEAF, OLD, OLDER), None, "1.1")
    assert {"old", "older", "middle"} <= _held(fix.texts["poetry.lock"]).keys()


def test_windows_line_ends_stay(clients: SubprocessClients, tmp_path: Path) -> None:
    lock = poetry_lock(BASE, LEAF, OLD, OLDER)
    plain = _resolve(clients, tmp_path / "a", lock, WITH_BASE, "1.1").texts["poetry.lock"]
    crlf = lock.replace("\n", "\r\n")
    fix = _resolve(clients, tmp_path / "b", crlf, WITH_BASE, "1.1")
    assert fix.texts["poetry.lock"] == plain.replace("\n", "\r\n")


def test_a_release_that_a_python_of_the_project_lacks_is_passed_over(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    fix = _resolve(clients, tmp_path, poetry_lock(LEAF, OLD, OLDER), MANIFEST, "1.3")
    assert _held(fix.texts["poetry.lock"])["narrow"]["version"] == "1.0"


def test_a_new_package_goes_with_the_other_new_ones(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    fix = _resolve(clients, tmp_path, poetry_lock(LEAF, OLD, OLDER), MANIFEST, "1.5")
    assert _held(fix.texts["poetry.lock"])["bound"]["version"] == "1.0"


def test_a_locked_package_without_a_wheel_is_in_nobodys_way(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    lock = poetry_lock(LEAF, OLD, OLDER, _block("stone", "1.0"))
    fix = _resolve(clients, tmp_path, lock, f'{MANIFEST}stone = "*"\n', "1.6")
    assert _held(fix.texts["poetry.lock"]).keys() == {"leaf", "stone", "zeta"}


def test_more_extras_of_a_locked_package_bring_in_what_they_need(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    lock = poetry_lock(BASE, LEAF, OLD, OLDER)
    held = _held(_resolve(clients, tmp_path, lock, WITH_BASE, "1.2").texts["poetry.lock"])
    assert held["leaf"]["dependencies"] == {"base": {"version": ">=1", "extras": ["fast"]}}
    assert held["base"]["dependencies"] == {
        "quick": {"version": ">=1", "optional": True, "markers": 'extra == "fast"'}
    }
    assert held["quick"]["version"] == "1.0"


def _in_2_1(block: str, groups: str, markers: str = "") -> str:
    lines = f"groups = [{groups}]\n" + (f"markers = {markers}\n" if markers else "")
    return block.replace("files = [", f"{lines}files = [", 1)


def _lock_2_1(*blocks: str) -> str:
    return poetry_lock(*blocks).replace('"2.0"', '"2.1"')


def test_groups_and_conditions_come_down_from_who_asks(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    only = '"python_version < \\"3.11\\""'
    lock = _lock_2_1(
        _in_2_1(BASE, '"dev"'),
        _in_2_1(LEAF, '"main"', only),
        _in_2_1(OLD, '"main"', only),
        _in_2_1(OLDER, '"main"', only),
    )
    manifest = MANIFEST.replace('"^1.0"', '{version = "^1.0", python = "<3.11"}') + (
        '\n[tool.poetry.group.dev.dependencies]\nbase = "*"\n'
    )
    held = _held(_resolve(clients, tmp_path, lock, manifest, "1.1").texts["poetry.lock"])
    assert (held["zeta"]["groups"], held["zeta"]["markers"]) == (
        ["main"],
        'python_version < "3.11"',
    )
    assert held["win"]["markers"] == 'python_version < "3.11" and sys_platform == "win32"'
    # What only development needed is needed by the application too, if only on some Pythons.
    assert held["base"]["groups"] == ["main", "dev"]
    assert held["base"]["markers"] == {"main": 'python_version < "3.11"'}


def test_an_option_that_is_needed_now_is_none_any_more(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    option = BASE.replace("optional = false", "optional = true")
    manifest = f'{MANIFEST}base = {{version = "*", optional = true}}\n'
    fix = _resolve(clients, tmp_path, poetry_lock(option, LEAF, OLD, OLDER), manifest, "1.4")
    assert _held(fix.texts["poetry.lock"])["base"]["optional"] is False


def _oldest(text: str) -> str:
    """A lock of format 2.0 in format 1.1, where categories stand and files don't."""
    document = tomllib.loads(text)
    lines = text.replace('"2.0"', '"1.1"').splitlines(keepends=True)
    kept, inside = [], False
    for line in lines:
        inside = inside or line.startswith("files = [")
        if not inside:
            kept.append(line)
            if line.startswith("description"):
                kept.append('category = "main"\n')
        inside = inside and line not in {"]\n", "files = []\n"}
    files = [
        f"{table['name']} = [\n"
        + "".join(
            f'    {{file = "{file["file"]}", hash = "{file["hash"]}"}},\n'
            for file in table["files"]
        )
        + "]\n"
        for table in document["package"]
    ]
    return "".join([*kept, "\n[metadata.files]\n", *files])


def test_the_oldest_format_gains_an_entry_and_its_files(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    lock = _oldest(poetry_lock(BASE, LEAF, OLD, OLDER))
    new = _resolve(clients, tmp_path, lock, WITH_BASE, "1.1").texts["poetry.lock"]
    document = tomllib.loads(new)
    assert list(document["metadata"]["files"]) == ["base", "leaf", "middle", "win", "zeta"]
    assert _held(new)["zeta"] == {
        "name": "zeta",
        "version": "1.0",
        "description": "",
        "category": "main",
        "optional": False,
        "python-versions": ">=3.7",
    }
    assert document["metadata"]["files"]["zeta"] == [
        {"file": file, "hash": digest} for file, digest in hashes_of(UNIVERSE, "zeta", "1.0")
    ]


def test_a_project_with_an_index_of_its_own_gains_nothing_from_another(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    manifest = f'{MANIFEST}\n[[tool.poetry.source]]\nname = "ours"\nurl = "https://pypi.invalid"\n'
    (left,) = _resolve(clients, tmp_path, poetry_lock(LEAF, OLD, OLDER), manifest, "1.3").left
    assert left.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert "pyproject.toml names an index of its own" in left.sentence


def test_a_declaration_is_raised_and_the_lock_gains_what_that_needs(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    manifest = MANIFEST.replace("^1.0", "1.0")
    poetry = tomllib.loads(manifest)["tool"]["poetry"]
    relevant = {
        key: poetry.get(key) for key in ("dependencies", "source", "extras", "dev-dependencies")
    }
    digest = hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()
    lock = poetry_lock(LEAF, OLD, OLDER, content_hash=digest)
    fix = _resolve(clients, tmp_path, lock, manifest, "1.3")
    assert fix.texts["pyproject.toml"] == manifest.replace('"1.0"', '"1.3"')
    assert "narrow" in _held(fix.texts["poetry.lock"])
