"""What the pypi direct bump changes, and what its client's answer must hold."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_tier.errors import RecipeError
from tests.unit.recipes.pypi_files import RECORD, lock, locked, locking, pyproject
from tests.unit.recipes.support import (
    FakeClients,
    after,
    fix,
    repository,
)

# --- Pins -----------------------------------------------------------------------------------------


def test_every_place_is_raised_to_one_version(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "# six\r\nidna==3.1 # why\r\n",
        "requirements/dev.txt": "idna==2.8\nsix==1.0",
        "requirements.in": "idna>=3.0,<4\n",
        "pyproject.toml": pyproject("idna==3.2"),
        "other/requirements.txt": "idna==3.9\n",
    }
    repo = repository(tmp_path, files)
    result = fix(build_ecosystem(FakeClients()), RECORD, repo)
    assert result.after_version == "3.7"
    assert result.before_versions == ("2.8", "3.0", "3.1", "3.2")
    assert result.proof_level is ProofLevel.PINS
    assert {change.path: change.after for change in result.changes} == {
        "requirements.txt": "# six\r\nidna==3.7 # why\r\n",
        "requirements/dev.txt": "idna==3.7\nsix==1.0",
        "requirements.in": "idna>=3.7,<4\n",
        "pyproject.toml": pyproject("idna==3.7"),
    }
    assert all(repo.read_text(change.path) == change.before for change in result.changes)


def test_the_lowest_fix_of_its_own_line(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"requirements.txt": "idna==2.8\n"})
    result = fix(build_ecosystem(FakeClients()), RECORD, repo)
    assert after(result, "requirements.txt") == "idna==2.9\n"


def test_a_broken_file_that_doesnt_name_the_package_blocks_nothing(tmp_path: Path) -> None:
    files = {"requirements.txt": "idna==3.1\n", "sub/pyproject.toml": "[[["}
    result = fix(build_ecosystem(FakeClients()), RECORD, repository(tmp_path, files))
    assert [change.path for change in result.changes] == ["requirements.txt"]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("3.6", "itself affected"),
        ("2.9", "downgrade"),
        ("three", "not a version"),
        ("5.0", "does not admit"),
    ],
)
def test_apply_checks_a_version_that_someone_else_chose(
    tmp_path: Path, version: str, words: str
) -> None:
    repo = repository(tmp_path, {"requirements.txt": "idna>=3.1,<4\n"})
    plugin = build_ecosystem(FakeClients())
    with pytest.raises(RecipeError, match=words):
        plugin.apply(plugin.bump("idna", version), RECORD, repo)


def test_apply_without_anything_to_raise(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"requirements.txt": "idna==3.8\n"})
    plugin = build_ecosystem(FakeClients())
    with pytest.raises(RecipeError) as caught:
        plugin.apply(plugin.bump("idna", "3.9"), RECORD, repo)
    assert caught.value.reason is RefusalReason.NOT_AFFECTED


# --- With uv.lock: what uv answers is checked -------------------------------------------------------


def test_an_in_range_fix_changes_the_lock_only(tmp_path: Path) -> None:
    clients = locking(lock(("idna", "3.7"), ("six", "1.16")))
    result = fix(build_ecosystem(clients), RECORD, locked(tmp_path))
    assert [change.path for change in result.changes] == ["uv.lock"]
    assert result.proof_level is ProofLevel.RESOLVED_TREE
    (call,) = clients.calls
    assert {"--upgrade-package=idna==3.7", "--no-build", "--no-python-downloads"} <= set(call)
    assert clients.folders[0] != tmp_path
    assert not clients.folders[0].exists()


def test_a_pin_and_its_lock_are_raised_together(tmp_path: Path) -> None:
    clients = locking(lock(("idna", "3.7")))
    result = fix(build_ecosystem(clients), RECORD, locked(tmp_path, "idna==3.1"))
    assert after(result, "pyproject.toml") == pyproject("idna==3.7")
    assert after(result, "uv.lock") == lock(("idna", "3.7"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lock(("idna", "3.6"), ("six", "1.16")), "still locks idna 3.6"),
        (lock(("six", "1.16")), "dropped idna"),
        (lock(("idna", "3.7"), ("six", "1.15")), "six would go down from 1.16 to 1.15"),
    ],
)
def test_a_bad_answer_of_uv_is_no_fix(tmp_path: Path, answer: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        fix(build_ecosystem(locking(answer)), RECORD, locked(tmp_path))
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED


def test_uv_own_words_are_repeated(tmp_path: Path) -> None:
    said = "Using CPython\nerror: No solution\n  because of six\n"
    clients = FakeClients(lambda tool, args, cwd: (1, said))
    with pytest.raises(RecipeError, match="it said: No solution because of six") as caught:
        fix(build_ecosystem(clients), RECORD, locked(tmp_path))
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED


def test_the_scratch_manifest_names_nothing_that_a_build_would_run(tmp_path: Path) -> None:
    seen: list[str] = []

    def act(tool: str, args: Sequence[str], cwd: Path) -> tuple[int, str]:
        assert sorted(path.name for path in cwd.iterdir()) == ["pyproject.toml", "uv.lock"]
        seen.append((cwd / "pyproject.toml").read_text())
        (cwd / "uv.lock").write_text(lock(("idna", "3.7"), ("six", "1.16")))
        return 0, ""

    more = (
        '[build-system]\nrequires = ["evil"]\nbuild-backend = "evil"\nbackend-path = ["."]\n'
        '[tool.uv]\nextra-build-dependencies = { app = ["evil"] }\n'
    )
    files = {
        "pyproject.toml": pyproject("idna>=3.0", more=more),
        "uv.lock": lock(("idna", "3.1"), ("six", "1.16")),
        "evil.py": "",
    }
    fix(build_ecosystem(FakeClients(act)), RECORD, repository(tmp_path, files))
    assert "evil" not in seen[0]
    assert 'dependencies = [\n    "idna>=3.0",\n]' in seen[0]
