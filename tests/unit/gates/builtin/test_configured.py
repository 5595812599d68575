"""[tool.fallback-tier]: what it may say, and where it is read from."""

from pathlib import Path

import pytest

from fallback_tier.errors import ConfigurationError, RepositoryError
from fallback_tier.gates.builtin.configured import (
    DEFAULT_TIMEOUT_S,
    MAX_GATES,
    GateSettings,
    check_names,
    of_base,
    of_file,
)
from fallback_tier.installed import look_at
from fallback_tier.patch.policy import forbidden_reason, recipe_only_reason
from fallback_tier.repo import RepoContext, Settings
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.repository import commit_all, git, write
from tests.kinds import OfKind

LINT = '[[tool.fallback-tier.gates]]\nname = "lint"\ncommand = ["ruff", "check", "."]\n'
DOCS = LINT.replace("lint", "docs")


def based(root: Path, files: dict[str, str]) -> RepoContext:
    write(root, {"app.py": "", **files})
    commit = commit_all(root)
    return RepoContext(
        root=root,
        base_commit=commit,
        tracked_files=(),  # a list that was cut must hide no gate
        manifests=(),
        fix_id="fix-1",
        gate_transition_id="gate-1",
    )


def at_base(root: Path, files: dict[str, str]) -> list[str]:
    return [gate.name for gate in of_base(based(root, files), SubprocessClients()).gates]


def of_text(tmp_path: Path, text: str) -> tuple[GateSettings, ...]:
    place = tmp_path / "ours.toml"
    place.write_text(text)
    return of_file(place).gates


def test_defaults_are_the_strict_ones(tmp_path: Path) -> None:
    assert of_text(tmp_path, LINT) == (
        GateSettings(
            name="lint",
            command=("ruff", "check", "."),
            timeout_s=DEFAULT_TIMEOUT_S,
            required=True,
            compare_base=True,
        ),
    )


def test_everything_can_be_said(tmp_path: Path) -> None:
    more = "timeout_s = 60\nrequired = false\ncompare_base = false\n"
    (gate,) = of_text(tmp_path, LINT + more)
    assert (gate.timeout_s, gate.required, gate.compare_base) == (60, False, False)


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        (LINT + "shell = true\n", "tool.fallback-tier.gates.0.shell", "Extra inputs"),
        ('[tool.fallback-tier]\nproof = ["x"]\n', "tool.fallback-tier.proof", "Extra inputs"),
        ('[[gates]]\nname = "lint"\n', "gates", "unknown key"),
        ("[tool.fallback_tier]\n", "tool.fallback_tier", "unknown key"),
        ("tool = 1\n", "tool", "not a table"),
        ("[tool]\nfallback-tier = []\n", "tool.fallback-tier", "not a table"),
        ("[[tool.fallback-tier.gates]]\nname = 'x'\n", "gates.0.command", "Field required"),
        (LINT.replace('"ruff", "check", "."', ""), "gates.0.command", "at least 1"),
        (LINT.replace('["ruff", "check", "."]', '"ruff check"'), "gates.0.command", "valid tuple"),
        (LINT.replace('"."', "1"), "gates.0.command.2", "valid string"),
        (LINT.replace('"."', '""'), "gates.0.command.2", "at least 1 character"),
        (LINT.replace('"."', '"\\u0000"'), "gates.0.command.2", "should match pattern"),
        (LINT.replace('"lint"', '"Lint it"'), "gates.0.name", "should match pattern"),
        (LINT.replace('"lint"', '"lint\\n"'), "gates.0.name", "should match pattern"),
        (LINT + "timeout_s = 0\n", "gates.0.timeout_s", "greater than 0"),
        (LINT + "timeout_s = 86400\n", "gates.0.timeout_s", "less than or equal"),
        (LINT + "timeout_s = inf\n", "gates.0.timeout_s", "finite number"),
        (LINT + "timeout_s = nan\n", "gates.0.timeout_s", "finite number"),
        (LINT + 'timeout_s = "60"\n', "gates.0.timeout_s", "valid number"),
        (LINT + "required = 1\n", "gates.0.required", "valid boolean"),
        (LINT + 'compare_base = "no"\n', "gates.0.compare_base", "valid boolean"),
        (LINT * (MAX_GATES + 1), "tool.fallback-tier.gates", f"at most {MAX_GATES}"),
        ("[tool.fallback-tier]\ntest_command = 1\n", "tool.fallback-tier.test_command", "tuple"),
        ("[tool.fallback-tier]\ntest_command = ' '\n", "test_command.0", "should match pattern"),
        ("[tool.fallback-tier]\ntest_timeout_s = 0\n", "test_timeout_s", "greater than 0"),
        ("= broken", "the file", "not TOML"),
    ],
)
def test_what_can_not_be_is_named(tmp_path: Path, text: str, key: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        of_text(tmp_path, text)
    assert str(tmp_path / "ours.toml") in caught.value.problem
    assert key in caught.value.problem
    assert reason in caught.value.problem
    assert "[[tool.fallback-tier.gates]]" in caught.value.next_step


@pytest.mark.parametrize("content", [None, b"\xff", b"#" * (16 * 1024 * 1024 + 1)])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    place = tmp_path / "ours.toml"
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"ours\.toml: "):
        of_file(place)


def test_names_are_unique_and_no_built_in_gates(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("name_taken"), match="'lint'"):
        of_text(tmp_path, LINT + LINT)
    with pytest.raises(ConfigurationError, check=OfKind("built_in_name"), match="'lint'"):
        check_names(of_text(tmp_path, LINT), {"lint"})


@pytest.mark.parametrize("name", [".fallback-tier.toml", "pyproject.toml"])
def test_the_base_commit_has_them_in_either_file(tmp_path: Path, name: str) -> None:
    assert at_base(tmp_path / "plain", {name: LINT}) == ["lint"]
    assert at_base(tmp_path / "marked", {name: "\ufeff" + LINT}) == ["lint"]


def test_the_working_tree_decides_nothing(tmp_path: Path) -> None:
    """Neither an uncommitted file nor a change that `git status` is told not to see."""
    repo = based(tmp_path, {"pyproject.toml": LINT})
    git(tmp_path, "update-index", "--assume-unchanged", "pyproject.toml")
    write(tmp_path, {"pyproject.toml": "", ".fallback-tier.toml": DOCS})
    assert git(tmp_path, "status", "--porcelain", "-uno") == ""
    assert [gate.name for gate in of_base(repo, SubprocessClients()).gates] == ["lint"]


def test_gates_in_two_places_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("two_files"), match=r"pyproject\.toml"):
        at_base(tmp_path, {".fallback-tier.toml": LINT, "pyproject.toml": DOCS})


def test_a_project_without_any_has_none(tmp_path: Path) -> None:
    assert at_base(tmp_path, {"pyproject.toml": "[tool.ruff]\nline-length = 100\n"}) == []
    assert at_base(tmp_path / "none", {}) == []


TESTS = '[tool.fallback-tier]\ntest_command = "make test"\ntest_timeout_s = 1200\n'


@pytest.mark.parametrize("name", [".fallback-tier.toml", "pyproject.toml"])
def test_the_base_commit_says_how_it_is_tested(tmp_path: Path, name: str) -> None:
    based(tmp_path, {name: TESTS})
    found = look_at(tmp_path, SubprocessClients(), Settings()).settings
    assert (found.test_commands, found.test_timeout_s) == (("make test",), 1200)
    stated = Settings(test_commands=("tox -e py",), test_timeout_s=60)
    found = look_at(tmp_path, SubprocessClients(), stated).settings
    assert (found.test_commands, found.test_timeout_s) == (("tox -e py",), 60)
    own = Settings(has_own_file=True)
    assert look_at(tmp_path, SubprocessClients(), own).settings == own


def test_test_commands_may_be_a_list(tmp_path: Path) -> None:
    place = tmp_path / "ours.toml"
    place.write_text('[tool.fallback-tier]\ntest_command = ["make unit", "make more"]\n')
    assert of_file(place).test_command == ("make unit", "make more")


def test_a_broken_pyproject_that_says_nothing_of_us_is_no_trouble(tmp_path: Path) -> None:
    assert at_base(tmp_path, {"pyproject.toml": "<<<<<<< ours\n"}) == []


@pytest.mark.parametrize("name", [".fallback-tier.toml", "pyproject.toml"])
def test_a_broken_one_of_ours_is_an_error_that_names_the_commit(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        ConfigurationError, check=OfKind("not_toml"), match=rf"^{name} .* [0-9a-f]{{12}}: "
    ):
        at_base(tmp_path, {name: f"{LINT}\n<<<<<<<"})


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.toml").write_text(LINT)
    root = tmp_path / "repo"
    root.mkdir()
    (root / ".fallback-tier.toml").symlink_to("../elsewhere.toml")
    with pytest.raises(RepositoryError, check=OfKind("not_a_file")):
        at_base(root, {})


def test_no_plan_and_no_recipe_may_change_where_they_stand() -> None:
    for path in (".fallback-tier.toml", ".Fallback-Tier.TOML", "deep/.fallback-tier.toml"):
        assert "gates" in (forbidden_reason(path) or "")
    assert recipe_only_reason("pyproject.toml") is not None
