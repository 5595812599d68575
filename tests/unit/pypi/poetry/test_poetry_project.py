"""Poetry's lock, edited exactly: against a registry of our own and the real uv; Poetry never runs."""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import BlockerKind, LadderStep, ProofLevel, RefusalReason
from fallback_plugins.pypi.poetry.project import PoetryProject
from fallback_plugins.pypi.recipe import apply
from fallback_plugins.shared.ladder import ProjectFix, combined
from fallback_tier.outcome import Selected
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Universe
from tests.unit.shared.locks_support import poetry_block, poetry_lock, real_uv
from tests.unit.shared.recipes import advisory, repository

ADVISORY = advisory("PyPI", "leaf", [("0", "1.2")])

UNIVERSE = (
    Universe()
    .pypi("leaf", "1.0", ["base>=1"])
    .pypi("leaf", "1.2", ["base>=1"], extras={"x": ["other>=2,!=2.1"]})
    .pypi("leaf", "1.3", ["base>=2,<3 ; python_version < '3.13'"], requires_python=">=3.9")
    .pypi("leaf", "1.4", ["nowhere"])
    .pypi("base", "1.0")
    .pypi("base", "2.0")
    .pypi("base", "2.1")
    .pypi("parent", "1.0", ["leaf<1.2"])
    .pypi("parent", "1.1", ["leaf<1.2"])
    .pypi("parent", "1.2", ["leaf<2"])
    .pypi("stuck", "1.0", ["leaf<1.2"])
    .pypi("other", "2.0")
    .pypi("source-only", "1.0")
    .pypi("source-only", "1.1", sdist_only=True)
)


@pytest.fixture(scope="module")
def clients() -> Iterator[SubprocessClients]:
    with real_uv(UNIVERSE) as found:
        yield found


def _block(name: str, version: str, *asks: str) -> str:
    sections = "[package.dependencies]\n" + "".join(f"{ask}\n" for ask in asks) if asks else ""
    return poetry_block(UNIVERSE, name, version, sections=sections)


BASE = _block("base", "1.0")
LEAF = _block("leaf", "1.0", 'base = ">=1"')


def _resolve(
    clients: SubprocessClients,
    folder: Path,
    lock: str,
    manifest: str | None = None,
    fixed: str = "1.2",
) -> ProjectFix:
    files = {"poetry.lock": lock, **({"pyproject.toml": manifest} if manifest else {})}
    project = PoetryProject(repository(folder, files), clients, "poetry.lock")
    record = advisory("PyPI", "leaf", [("0", fixed)])
    fix = project.resolve(record)
    assert fix is not None
    if fix.moves:
        combined("PyPI", record, project.repo, [fix])
    return fix


def _manifest(spec: str) -> str:
    return (
        '[tool.poetry]\nname = "app"\n\n[tool.poetry.dependencies]\npython = "^3.9"\n'
        f'leaf = "{spec}" # why\n'
    )


def _hash(manifest: str) -> str:
    poetry = tomllib.loads(manifest)["tool"]["poetry"]
    relevant = {
        key: poetry.get(key) for key in ("dependencies", "source", "extras", "dev-dependencies")
    }
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()


def test_one_entry_is_written_anew_and_every_other_byte_stays(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    fix = _resolve(clients, tmp_path, poetry_lock(BASE, LEAF))
    sections = (
        '[package.dependencies]\nbase = ">=1"\n\n[package.extras]\nx = ["other (>=2,!=2.1)"]\n'
    )
    wanted = poetry_block(UNIVERSE, "leaf", "1.2", sections=sections)
    assert fix.texts == {"poetry.lock": poetry_lock(BASE, wanted)}
    assert fix.moves[0].step is LadderStep.LOCK_EDIT
    # What the project itself asks for could not be looked at.
    assert fix.proof_level is ProofLevel.PINS
    assert any("pyproject.toml is not in this repository" in note for note in fix.notes)
    assert [path.outcome for path in fix.cleared] == ["now leaf 1.2"]


def test_what_the_new_version_needs_moves_with_it(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    fix = _resolve(clients, tmp_path, poetry_lock(BASE, LEAF), fixed="1.3")
    document = tomllib.loads(fix.texts["poetry.lock"])
    held = {table["name"]: table for table in document["package"]}
    assert held["base"]["version"] == "2.0"
    assert held["leaf"]["python-versions"] == ">=3.9"
    assert held["leaf"]["dependencies"] == {
        "base": {"version": ">=2,<3", "markers": 'python_version < "3.13"'}
    }


def test_a_package_that_is_not_locked_is_named(clients: SubprocessClients, tmp_path: Path) -> None:
    (left,) = _resolve(clients, tmp_path, poetry_lock(BASE, LEAF), fixed="1.4").left
    assert left.reason is RefusalReason.MANIFEST_MISSING
    assert "leaf 1.4 requires nowhere, which poetry.lock does not hold" in left.sentence


def test_a_parent_in_the_way_moves_as_little_as_it_can(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    lock = poetry_lock(BASE, LEAF, _block("parent", "1.0", 'leaf = "<1.2"'))
    fix = _resolve(clients, tmp_path, lock)
    assert fix.moves[0].raised == ("parent 1.2",)
    assert 'leaf = "<2"' in fix.texts["poetry.lock"]


def test_a_parent_that_never_admits_it_is_named(clients: SubprocessClients, tmp_path: Path) -> None:
    lock = poetry_lock(BASE, LEAF, _block("stuck", "1.0", 'leaf = "<1.2"'))
    (left,) = _resolve(clients, tmp_path, lock).left
    assert left.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    assert "stuck 1.0 in poetry.lock requires leaf <1.2, which does not admit 1.2" in left.sentence


def test_a_declaration_that_admits_it_stays(clients: SubprocessClients, tmp_path: Path) -> None:
    fix = _resolve(clients, tmp_path, poetry_lock(BASE, LEAF), _manifest("^1.0"))
    assert list(fix.texts) == ["poetry.lock"]
    assert (fix.moves[0].step, fix.proof_level) == (
        LadderStep.LOCK_REFRESH,
        ProofLevel.RESOLVED_TREE,
    )


def test_a_declaration_is_raised_and_the_content_hash_with_it(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    manifest = _manifest("~1.0")
    fix = _resolve(
        clients, tmp_path, poetry_lock(BASE, LEAF, content_hash=_hash(manifest)), manifest
    )
    new = fix.texts["pyproject.toml"]
    assert new == _manifest("~1.2")
    assert tomllib.loads(fix.texts["poetry.lock"])["metadata"]["content-hash"] == _hash(new)
    assert fix.moves[0].step is LadderStep.DIRECT_BUMP


def test_a_content_hash_that_is_not_ours_stops_a_change_of_the_manifest(
    clients: SubprocessClients, tmp_path: Path
) -> None:
    lock = poetry_lock(BASE, LEAF, content_hash="f" * 64)
    fix = _resolve(clients, tmp_path, lock, _manifest("~1.0"))
    assert not fix.texts
    assert any("content-hash" in step.reason for step in fix.left[0].declined)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({'version = "2.0"\npython': 'version = "9.9"\npython'}, "lock-version '9.9'"),
        ({"\n[metadata]": f"\n{_block('leaf', '1.2')}\n[metadata]"}, "2 versions of leaf"),
        (
            {"\n[metadata]": '[package.source]\ntype = "git"\nurl = "u"\n\n[metadata]'},
            "takes leaf from a git source",
        ),
    ],
)
def test_what_is_not_edited_is_said_offline(
    tmp_path: Path, change: Mapping[str, str], message: str
) -> None:
    lock = poetry_lock(BASE, LEAF)
    for old, new in change.items():
        assert old in lock
        lock = lock.replace(old, new)
    repo = repository(tmp_path, {"poetry.lock": lock})
    (left,) = PoetryProject(repo, SubprocessClients({}), "poetry.lock").outline(ADVISORY).left
    assert message in left.sentence


def test_a_release_without_a_wheel_is_not_built(clients: SubprocessClients, tmp_path: Path) -> None:
    block = _block("source-only", "1.0")
    repo = repository(tmp_path, {"poetry.lock": poetry_lock(block)})
    fix = PoetryProject(repo, clients, "poetry.lock").resolve(
        advisory("PyPI", "source-only", [("0", "1.1")])
    )
    assert fix is not None
    (blocker,) = fix.left[0].declined[0].blockers
    assert (blocker.kind, blocker.package) == (BlockerKind.NOT_BUILT, "source-only 1.1")


@pytest.mark.parametrize(
    ("locked", "new"),
    [('"1.0"', '"1.2"'), ('{version = ">=1.0,<1.2"}', '{version = ">=1.2,<1.3"}')],
)
def test_a_folder_of_the_repository_is_raised_where_it_declares_the_package(
    clients: SubprocessClients, tmp_path: Path, locked: str, new: str
) -> None:
    """Poetry writes the same texts: its lock repeats what the folder declares."""
    source = '[package.source]\ntype = "directory"\nurl = "../lib"\n'
    member = (
        '[[package]]\nname = "lib"\nversion = "0.1.0"\ndescription = ""\noptional = false\n'
        'python-versions = "*"\nfiles = []\ndevelop = true\n\n'
        f"[package.dependencies]\nleaf = {locked}\n\n{source}"
    )
    files = {
        "app/poetry.lock": poetry_lock(BASE, LEAF, member),
        "lib/pyproject.toml": f"[tool.poetry.dependencies]\nleaf = {locked}  # ours\n",
    }
    repo = repository(tmp_path, files)
    fix = PoetryProject(repo, clients, "app/poetry.lock").resolve(ADVISORY)
    assert fix is not None
    assert "lib 0.1.0 in app/poetry.lock requires leaf" in fix.left[0].sentence  # as it stands
    result = apply(Selected(recipe="pypi-ladder", parameters={}), ADVISORY, repo, clients)
    made = {change.path: change.after for change in result.changes}
    assert made["lib/pyproject.toml"] == files["lib/pyproject.toml"].replace(locked, new)
    wanted = poetry_block(
        UNIVERSE,
        "leaf",
        "1.2",
        sections='[package.dependencies]\nbase = ">=1"\n\n[package.extras]\nx = ["other (>=2,!=2.1)"]\n',
    )
    assert made["app/poetry.lock"] == poetry_lock(BASE, wanted, member.replace(locked, new))
