"""What the direct bump changes in Python's manifests, by text alone."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fallback_audit.vocabulary import LadderStep, ProofLevel, RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_plugins.pypi.strategies.direct import plan_raise
from fallback_tier.advisory import bundle
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import RecipeResult
from fallback_tier.repo import RepoContext
from tests.kinds import OfKind
from tests.unit.pypi.pypi_files import RECORD, offline, pyproject
from tests.unit.shared.recipes import FakeClients, advisory, after, fix


def apply(repo: RepoContext) -> RecipeResult:
    return fix(build_ecosystem(FakeClients()), RECORD, repo)


def test_every_place_of_a_set_is_raised_to_one_version(tmp_path: Path) -> None:
    files = {
        "requirements.in": "-r base.in-requirements.in\nidna>=3.0,<4\n",
        "base.in-requirements.in": "idna<3.5  # not yet\n",
        "requirements.txt": "-c constraints.txt\r\n# six\r\nidna==3.1 # why\r\n",
        "constraints.txt": "idna==2.8\nsix==1.0",
        "pyproject.toml": pyproject("idna==3.2"),
        "other/requirements.txt": "idna==3.9\n",
    }
    repo = offline(tmp_path, files)
    result = apply(repo)
    assert {change.path: change.after for change in result.changes} == {
        "requirements.in": "-r base.in-requirements.in\nidna>=3.7,<4\n",
        "base.in-requirements.in": "idna<3.8  # not yet\n",
        "requirements.txt": "-c constraints.txt\r\n# six\r\nidna==3.7 # why\r\n",
        "constraints.txt": "idna==3.7\nsix==1.0",
        "pyproject.toml": pyproject("idna==3.7"),
    }
    assert result.proof_level is ProofLevel.PINS
    assert {(move.manifest, move.before, move.after) for move in result.moves} == {
        ("base.in-requirements.in", ("<3.5",), "3.7"),
        ("requirements.in", ("3.0",), "3.7"),
        ("requirements.txt", ("3.1",), "3.7"),
        ("constraints.txt", ("2.8",), "3.7"),
        ("pyproject.toml", ("3.2",), "3.7"),
    }
    assert {move.step for move in result.moves} == {LadderStep.DIRECT_BUMP}
    cleared = {(item.path, item.outcome) for item in result.cleared}
    assert (("requirements.txt", "idna 3.1"), "now idna 3.7") in cleared
    assert all(repo.read_text(change.path) == change.before for change in result.changes)


COMPILED = "idna==3.1\n    # via\n    #   app (pyproject.toml)\n    #   six\n"


@pytest.mark.parametrize(
    ("asked", "compiled", "stays"),
    [
        pytest.param("idna~=3.0", COMPILED, True, id="compiled from it"),
        pytest.param("idna~=3.0", "app==1\nidna==3.1\n    # via app\n", True, id="itself pinned"),
        pytest.param("idna~=3.0", "idna==3.1\n    # via six\n", False, id="compiled from another"),
        pytest.param("idna~=3.0", "idna==3.1\n", False, id="written by hand"),
        pytest.param("idna>=3.0,<3.5", COMPILED, False, id="does not admit what is fixed"),
    ],
)
def test_a_range_stays_where_what_is_compiled_from_it_decides(
    tmp_path: Path, asked: str, compiled: str, stays: bool
) -> None:
    files = {"pyproject.toml": pyproject(asked), "install/requirements.txt": compiled}
    result = apply(offline(tmp_path, files))
    changed = {change.path for change in result.changes}
    assert changed == {"install/requirements.txt", *(() if stays else ("pyproject.toml",))}
    assert "idna==3.7" in after(result, "install/requirements.txt")


def test_the_lowest_fix_of_its_own_line(tmp_path: Path) -> None:
    files = {"requirements.txt": "idna==2.8\n", "requirements-dev.txt": "idna==3.1\n"}
    result = apply(offline(tmp_path, files))
    assert after(result, "requirements.txt") == "idna==2.9\n"
    assert after(result, "requirements-dev.txt") == "idna==3.7\n"


def test_conditions_have_versions_of_their_own(tmp_path: Path) -> None:
    text = "idna==2.8; python_version < '3.9'\nidna==3.1; python_version >= '3.9'\n"
    result = apply(offline(tmp_path, {"requirements.txt": text}))
    assert after(result, "requirements.txt") == text.replace("2.8", "2.9").replace("3.1", "3.7")


def test_an_excluded_fix_is_passed_over(tmp_path: Path) -> None:
    record = advisory("PyPI", "idna", [("0", "3.7"), ("3.8", "3.9")])
    repo = offline(tmp_path, {"requirements.txt": "idna>=3.1,!=3.7\n"})
    result = fix(build_ecosystem(FakeClients()), record, repo)
    assert after(result, "requirements.txt") == "idna>=3.9,!=3.7\n"


TABLES = """\
[project]
name = "app"
dependencies = ["idna>=3.0"]

[tool.poetry.dependencies]
python = "^3.9"
idna = {extras = ["all"], version = "^3.1"}  # "^3.1"
other = "^3.1"

[tool.poetry.group.dev.dependencies]
idna = [
  {version = "~2.8", python = "<3"},
  {version = "3.1", python = ">=3"},
]

[tool.uv]
constraint-dependencies = ["idna<3.5"]
override-dependencies = ['idna==3.1']
dev-dependencies = ["idna~=3.1"]
"""


def test_poetry_and_uv_tables(tmp_path: Path) -> None:
    result = apply(offline(tmp_path, {"pyproject.toml": TABLES}))
    assert after(result, "pyproject.toml") == TABLES.replace(">=3.0", ">=3.7").replace(
        'version = "^3.1"', 'version = "^3.7"'
    ).replace("~2.8", "~2.9").replace('version = "3.1"', 'version = "3.7"').replace(
        "<3.5", "<3.8"
    ).replace("==3.1", "==3.7").replace("~=3.1", "~=3.7")


def test_a_pipfile(tmp_path: Path) -> None:
    text = '[packages]\nidna = "==3.1"  # "==3.1"\nsix = "==3.1"\n[dev-packages]\nidna = "*"\n'
    result = apply(offline(tmp_path, {"Pipfile": text}))
    assert after(result, "Pipfile") == text.replace('idna = "==3.1"', 'idna = "==3.7"')


def test_a_setup_cfg(tmp_path: Path) -> None:
    text = (
        "[metadata]\nname = app\n[options]\ninstall_requires =\n  six\n  idna>=3.1  ; os_name=='a'\n"
        "[options.extras_require]\ndev = \n\tidna ==3.2\n"
    )
    result = apply(offline(tmp_path, {"setup.cfg": text}))
    assert after(result, "setup.cfg") == text.replace("3.1", "3.7").replace("3.2", "3.7")


def test_a_broken_file_that_doesnt_name_the_package_blocks_nothing(tmp_path: Path) -> None:
    files = {"requirements.txt": "idna==3.1\n", "sub/pyproject.toml": "[[["}
    result = apply(offline(tmp_path, files))
    assert [change.path for change in result.changes] == ["requirements.txt"]


def test_a_partial_fix_is_none(tmp_path: Path) -> None:
    files = {"requirements.txt": "idna==3.1\n", "sub/requirements.txt": "idna @ git+x\n"}
    plugin, repo = build_ecosystem(FakeClients()), offline(tmp_path, files)
    selection = plugin.bump("idna", "3.7")
    with pytest.raises(RecipeError, match="sub/requirements"):
        plugin.apply(selection.model_copy(update={"parameters": {}}), RECORD, repo)
    # Of several advisories, what can be fixed is; the rest is said.
    both = bundle([RECORD, advisory("PyPI", "six").model_copy(update={"id": "OTHER"})])
    result = fix(plugin, both, repo)
    assert after(result, "requirements.txt") == "idna==3.7\n"
    assert [(item.manifest, item.reason) for item in result.left] == [
        ("sub/requirements.txt", RefusalReason.RECIPE_UNSUPPORTED),
        ("requirements.txt", RefusalReason.UNKNOWN),  # idna may bring in six
    ]


# --- Hashes ---------------------------------------------------------------------------------------

ONE = "sha256:" + "1" * 64
TWO = "sha256:" + "2" * 64


def hashing(tool: str, args: Sequence[str], cwd: Path) -> tuple[int, str]:
    """A uv that knows the hashes of one release."""
    assert "--generate-hashes" in args
    assert (cwd / "requirements.in").read_text() == "idna==3.7\n"
    return 0, f"idna==3.7 \\\n    --hash={TWO} \\\n    --hash={ONE}\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "idna==3.1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n    # via app\nsix==1\n",
            f"idna==3.7 \\\n    --hash={ONE} \\\n    --hash={TWO}\n    # via app\nsix==1\n",
        ),
        (
            "idna==3.1 --hash=sha256:aa  --hash=sha256:bb --hash=sha256:cc # x\r\n",
            f"idna==3.7 --hash={ONE}  --hash={TWO} # x\r\n",
        ),
        (
            "idna==3.1 \\\r\n\t--hash=sha256:aa",
            f"idna==3.7 \\\r\n\t--hash={ONE} \\\r\n\t--hash={TWO}",
        ),
    ],
)
def test_hashes_are_made_anew_in_the_layout_found(tmp_path: Path, old: str, new: str) -> None:
    repo = offline(tmp_path, {"requirements.txt": old})
    result = fix(build_ecosystem(FakeClients(hashing)), RECORD, repo)
    assert after(result, "requirements.txt") == new


def test_without_new_hashes_there_is_no_fix(tmp_path: Path) -> None:
    repo = offline(tmp_path, {"requirements.txt": "idna==3.1 --hash=sha256:aa\n"})
    clients = FakeClients(lambda tool, args, cwd: (1, "error: no such release\n"))
    with pytest.raises(RecipeError, match="no such release") as caught:
        fix(build_ecosystem(clients), RECORD, repo)
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED


# --- A version that someone else chose ------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "kind"),
    [("3.6", "affected"), ("2.9", "downgrade"), ("three", "not_a_version")],
)
def test_apply_checks_a_version_that_someone_else_chose(
    tmp_path: Path, version: str, kind: str
) -> None:
    repo = offline(tmp_path, {"requirements.txt": "idna>=3.1,<4\n"})
    plugin = build_ecosystem(FakeClients())
    with pytest.raises(RecipeError, check=OfKind(kind)):
        plugin.apply(plugin.bump("idna", version), RECORD, repo)


def test_a_chosen_version_is_taken_exactly(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "idna>=3.1,<4\n",
        "sub/requirements.txt": "idna==2.9\n",
        "low/requirements.txt": "idna==2.8\n",
    }
    plugin, repo = build_ecosystem(FakeClients()), offline(tmp_path, files)
    result = plugin.apply(plugin.bump("idna", "5.0"), RECORD, repo)
    assert {change.path: change.after for change in result.changes} == {
        "requirements.txt": "idna>=5.0,<6\n",
        "low/requirements.txt": "idna==5.0\n",
    }


def test_apply_without_anything_to_raise(tmp_path: Path) -> None:
    repo = offline(tmp_path, {"requirements.txt": "idna==3.8\n"})
    plugin = build_ecosystem(FakeClients())
    with pytest.raises(RecipeError) as caught:
        plugin.apply(plugin.bump("idna", "3.9"), RECORD, repo)
    assert caught.value.reason is RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize(
    ("other", "raised"),
    [
        ("idna==3.9; python_version >= '3.9'", False),
        ("idna>=3.8,<4; python_version >= '3.9'", False),
        ("idna==3.2; python_version >= '3.9'", True),
        ("idna<3.5; python_version >= '3.9'", True),
    ],
)
def test_a_raise_lowers_no_place(other: str, raised: bool) -> None:
    text = f"idna==3.1; python_version < '3.9'\n{other}\n"
    targets = plan_raise({"requirements.txt": text}, "idna", "3.7")
    assert set(targets.values()) == {"3.7"}
    assert len(targets) == 1 + raised
