"""[tool.fallback-tier]: what it may say, and where it is read from."""

import json
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import JsonValue

from fallback_tier.configured import (
    DEFAULT_TIMEOUT_S,
    MAX_GATES,
    MAX_SETTINGS_BYTES,
    SETTING_KEYS,
    GateSettings,
    OwnSettings,
    SettingsFile,
    Source,
    check_names,
    decide,
    of_base,
    of_file,
    read_base,
    schema,
    variable_of,
)
from fallback_tier.errors import ConfigurationError, RepositoryError, SettingError
from fallback_tier.inspection import look_at
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


IGNORE = '[[tool.fallback-tier.ignore]]\nid = "CVE-2026-1"\nreason = "why"\nuntil = 2026-12-31\n'

OURS = "tool.fallback-tier"
TABLE = f"[{OURS}]\n"


@pytest.mark.parametrize(
    ("text", "kind", "key", "line"),
    [
        (LINT + "shell = true\n", "unknown_key", f"{OURS}.gates.0.shell", 4),
        (TABLE + 'proof = ["x"]\n', "unknown_key", f"{OURS}.proof", 2),
        ('[[gates]]\nname = "lint"\n', "unknown_key", "gates", 1),
        ("[tool.fallback_tier]\n", "unknown_key", "tool.fallback_tier", 1),
        ("tool = 1\n", "bad_value", "tool", 1),
        ("[tool]\nfallback-tier = []\n", "bad_value", OURS, 2),
        ("[[tool.fallback-tier.gates]]\nname = 'x'\n", "missing", f"{OURS}.gates.0.command", 1),
        (LINT.replace('"ruff", "check", "."', ""), "bad_value", f"{OURS}.gates.0.command", 3),
        (LINT.replace('["ruff", "check", "."]', '"x"'), "bad_value", f"{OURS}.gates.0.command", 3),
        (LINT.replace('"."', "1"), "bad_value", f"{OURS}.gates.0.command.2", 3),
        (LINT.replace('"."', '""'), "bad_value", f"{OURS}.gates.0.command.2", 3),
        (LINT.replace('"."', '"\\u0000"'), "bad_value", f"{OURS}.gates.0.command.2", 3),
        (LINT.replace('"lint"', '"Lint it"'), "bad_value", f"{OURS}.gates.0.name", 2),
        (LINT.replace('"lint"', '"lint\\n"'), "bad_value", f"{OURS}.gates.0.name", 2),
        *(
            (LINT + f"timeout_s = {value}\n", "bad_value", f"{OURS}.gates.0.timeout_s", 4)
            for value in ("0", "86400", "inf", "nan", '"60"')
        ),
        (LINT + "required = 1\n", "bad_value", f"{OURS}.gates.0.required", 4),
        (LINT + DOCS + "\n\nrequired = 1\n", "bad_value", f"{OURS}.gates.1.required", 9),
        (LINT + 'compare_base = "no"\n', "bad_value", f"{OURS}.gates.0.compare_base", 4),
        (LINT * (MAX_GATES + 1), "bad_value", f"{OURS}.gates", 1),
        (TABLE + "test_command = 1\n", "bad_value", f"{OURS}.test_command", 2),
        (TABLE + "test_command = ' '\n", "bad_value", f"{OURS}.test_command.0", 2),
        (TABLE + "test_timeout_s = 0\n", "bad_value", f"{OURS}.test_timeout_s", 2),
        (TABLE + 'max_usd = "lots"\n', "bad_value", f"{OURS}.max_usd", 2),
        (TABLE + "max_usd = true\n", "bad_value", f"{OURS}.max_usd", 2),
        (TABLE + "max_usd = -1\n", "bad_value", f"{OURS}.max_usd", 2),
        (TABLE + "max_tokens = 1.5\n", "bad_value", f"{OURS}.max_tokens", 2),
        (TABLE + "release_age = 0\n", "bad_value", f"{OURS}.release_age", 2),
        (TABLE + "release_age = '7'\n", "bad_value", f"{OURS}.release_age", 2),
        (TABLE + "model = ''\n", "bad_value", f"{OURS}.model", 2),
        (TABLE + "severity = 'worst'\n", "bad_value", f"{OURS}.severity", 2),
        (TABLE + "severity = 'unknown'\n", "bad_value", f"{OURS}.severity", 2),
        (TABLE + "production = 1\n", "bad_value", f"{OURS}.production", 2),
        (TABLE + "ignore = ['CVE-2026-1']\n", "bad_value", f"{OURS}.ignore.0", 2),
        (IGNORE.replace("reason", "because"), "unknown_key", f"{OURS}.ignore.0.because", 3),
        (IGNORE.replace('reason = "why"\n', ""), "missing", f"{OURS}.ignore.0.reason", 1),
        (IGNORE.replace("why", ""), "bad_value", f"{OURS}.ignore.0.reason", 3),
        *(
            (IGNORE.replace("2026-12-31", value), "bad_value", f"{OURS}.ignore.0.until", 4)
            for value in ("0", '"soon"', "2026-12-31T00:00:00", "12:00:00", "true")
        ),
        ("\n= broken", "not_toml", "", 2),
    ],
)
def test_what_can_not_be_is_named(
    tmp_path: Path, text: str, kind: str, key: str, line: int
) -> None:
    """With file, line and key, and with an example that is right."""
    with pytest.raises(SettingError, check=OfKind(kind)) as caught:
        of_text(tmp_path, text)
    assert caught.value.source == str(tmp_path / "ours.toml")
    assert (caught.value.key, caught.value.line) == (key, line)
    assert f"{tmp_path / 'ours.toml'}:{line}: " in caught.value.problem


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        (TABLE + 'modle = "x"\n', "model"),
        (TABLE + 'test-command = "x"\n', "test_command"),
        (TABLE + "max_dollars = 1\n", ""),
        (LINT + "time_out_s = 1\n", "timeout_s"),
        (IGNORE.replace("reason", "reasn"), "reason"),
        ('model = "x"\n', f"{OURS}.model"),
        ("[tool.fallback_tier]\n", OURS),
        (LINT.replace("tool.fallback-tier.", ""), f"{OURS}.gates"),
    ],
)
def test_the_likely_intention_is_named(tmp_path: Path, text: str, nearest: str) -> None:
    with pytest.raises(SettingError, check=OfKind("unknown_key")) as caught:
        of_text(tmp_path, text)
    assert caught.value.nearest == nearest
    assert nearest in caught.value.next_step


@pytest.mark.parametrize("key", SETTING_KEYS)
def test_the_example_of_each_key_is_right(tmp_path: Path, key: str) -> None:
    """As messages print it."""
    place = tmp_path / "ours.toml"
    place.write_text(f"{TABLE}{key} = 1979-05-27\n")
    with pytest.raises(SettingError, check=OfKind("bad_value")) as caught:
        of_file(place)
    place.write_text(TABLE + caught.value.next_step.partition(": ")[2])
    assert of_file(place).model_fields_set == {key}


def test_no_value_is_in_a_message(tmp_path: Path) -> None:
    """It may be an address with a password."""
    for line in ('base_url = ["http://u:hunter2@host/"]\n', 'bas_url = "http://u:hunter2@host/"\n'):
        with pytest.raises(SettingError) as caught:
            of_text(tmp_path, TABLE + line)
        assert "hunter2" not in str(caught.value)


TRICKY = """\
# [tool.fallback-tier]
[tool.other]
text = \'\'\'
[tool.fallback-tier]
model = "not a key"
\'\'\'
more = {a = "# no comment", b = [
  1,
]}
"quoted = key" = 1

[tool."fallback-tier"]  # the table
test_command = [
  "a", # "b
  "[c]",
]
test_timeout_s = 5
gates = [
  {name = "lint", command = ["x"]},
]
"""


def test_lines_are_those_of_the_text(tmp_path: Path) -> None:
    """Strings, comments, lists over several lines and quoted names don't mislead."""
    repo = based(tmp_path, {"pyproject.toml": TRICKY})
    file = read_base(repo, SubprocessClients())
    assert file is not None
    assert file.lines == {"test_command": 13, "test_timeout_s": 17, "gates": 18}


# A repository's file is others' text.


@pytest.mark.parametrize("name", [".fallback-tier.toml", "pyproject.toml"])
@pytest.mark.parametrize("key", SETTING_KEYS)
def test_a_repository_sets_only_what_it_may(tmp_path: Path, name: str, key: str) -> None:
    """Not where data and money go: model, judge, their servers, and what a fix may use."""
    example = (OwnSettings.model_fields[key].examples or [None])[0]
    line = f"{key} = " + ("[]" if key in ("gates", "ignore") else json.dumps(example))
    repo = based(tmp_path, {name: f"# a comment\n{TABLE}{line}\n"})
    allowed = {"release_age", "test_command", "test_timeout_s", "gates"}
    allowed |= {"severity", "production", "ignore", "paths"}  # what they hide is named, or counted
    if key in allowed:
        file = read_base(repo, SubprocessClients())
        assert file is not None
        assert file.lines == {key: 3}
        return
    with pytest.raises(SettingError, check=OfKind("not_for_repositories")) as caught:
        look_at(tmp_path, SubprocessClients(), Settings())
    assert (caught.value.key, caught.value.line) == (f"{OURS}.{key}", 3)
    assert caught.value.source.startswith(name)


@pytest.mark.parametrize(
    "key", ["api_key", "no_sandbox", "allow_host", "age_exception", "require_tests", "config"]
)
def test_safeguards_are_no_keys_at_all(key: str) -> None:
    assert key not in SETTING_KEYS


def test_a_repositorys_release_age_counts_if_nobody_else_says_one(tmp_path: Path) -> None:
    based(tmp_path, {".fallback-tier.toml": TABLE + "release_age = 3\n"})
    assert look_at(tmp_path, SubprocessClients(), Settings()).settings.release_age_days == 3
    stated = Settings(release_age_days=7)
    assert look_at(tmp_path, SubprocessClients(), stated).settings.release_age_days == 7


@pytest.mark.parametrize("name", [".fallback-tier.toml", "pyproject.toml"])
def test_a_committed_file_has_a_size(tmp_path: Path, name: str) -> None:
    repo = based(tmp_path, {name: f"{TESTS}{'#' * MAX_SETTINGS_BYTES}"})
    with pytest.raises(SettingError, check=OfKind("too_large")):
        read_base(repo, SubprocessClients())


def test_what_a_hostile_file_can_say_is_bounded(tmp_path: Path) -> None:
    """Neither a long name nor a deep one is repeated in a message."""
    for key, kind in (("k" * 500_000, "unknown_key"), (".".join(["k" * 100] * 4_000), "not_toml")):
        with pytest.raises(SettingError, check=OfKind(kind)) as caught:
            of_text(tmp_path, f"{TABLE}{key} = 1\n")
        assert len(str(caught.value)) < 1_000
        assert caught.value.line == 2


# Which one counts.


def file_of(source: Source, **own: Any) -> SettingsFile:
    settings = OwnSettings.model_validate(own)
    return SettingsFile(name=source.value, source=source, own=settings, lines=dict.fromkeys(own, 7))


def test_the_first_source_that_has_a_key_counts() -> None:
    """Taken away one by one, from the strongest."""
    files = [
        file_of(source, release_age=days)
        for days, source in enumerate(
            (Source.REPOSITORY, Source.USERS_FILE, Source.GIVEN_FILE), start=1
        )
    ]
    options, environment = {"release_age": 5}, {"FALLBACK_TIER_RELEASE_AGE": "4"}
    seen = [_release_age(options, environment, files), _release_age({}, environment, files)]
    seen += [_release_age({}, {}, files[:count]) for count in (3, 2, 1, 0)]
    assert seen == [
        (5, "option", "--release-age"),
        (4, "variable", "FALLBACK_TIER_RELEASE_AGE"),
        (3, "given_file", "given_file:7"),
        (2, "users_file", "users_file:7"),
        (1, "repository", "repository:7"),
        (None, "default", ""),
    ]


def _release_age(
    options: dict[str, int], environment: dict[str, str], files: list[SettingsFile]
) -> tuple[JsonValue, str, str]:
    of = decide(options, environment, *files)
    (setting,) = (it for it in of.settings if it.key == "release_age")
    assert of.own.release_age == setting.value
    assert of.has("release_age") is (setting.source is not Source.DEFAULT)
    return setting.value, setting.source.value, setting.where


def test_keys_are_decided_one_by_one() -> None:
    users = file_of(Source.USERS_FILE, model="m", test_command="tox")
    repository = file_of(Source.REPOSITORY, test_command="make", test_timeout_s=5)
    own = decide({}, {"FALLBACK_TIER_MAX_USD": "1.50"}, repository, users).own
    assert (own.model, own.test_command, own.test_timeout_s, own.max_usd) == (
        "m",
        ("tox",),
        5,
        "1.50",
    )


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MAX_TOKENS", "many"),
        ("MAX_USD", "1e3"),
        ("RELEASE_AGE", "0"),
        ("TEST_COMMAND", " "),
        ("SEVERITY", "7"),
        ("PRODUCTION", "yes"),
        ("IGNORE", "CVE-2026-1,2026-12-31"),
        ("IGNORE", "CVE-2026-1,2026-12-31,fine\nCVE-2026-2"),
    ],
)
def test_a_variable_that_can_not_be_is_named(variable: str, text: str) -> None:
    with pytest.raises(SettingError, check=OfKind("bad_value")) as caught:
        decide({}, {f"FALLBACK_TIER_{variable}": text})
    assert (caught.value.source, caught.value.key) == (
        f"FALLBACK_TIER_{variable}",
        variable.lower(),
    )


@pytest.mark.parametrize("key", [key for key in SETTING_KEYS if variable_of(key)])
def test_the_example_of_each_variable_is_right(key: str) -> None:
    """As a message prints it, for a shell."""
    variable = variable_of(key)
    try:
        decide({}, {variable: " "})
    except SettingError as error:
        _, _, printed = error.next_step.partition(f"{variable}=")
        (text,) = shlex.split(printed)
        assert decide({}, {variable: text}).has(key)
    else:
        assert OwnSettings.model_fields[key].examples  # any text is one


def test_a_scans_rules_may_be_variables() -> None:
    own = decide(
        {},
        {
            "FALLBACK_TIER_SEVERITY": "high",
            "FALLBACK_TIER_PRODUCTION": "true",
            "FALLBACK_TIER_IGNORE": "CVE-2026-1,2026-12-31,one, and more\n\nCVE-2026-2,2027-01-01,two\n",
        },
    ).own
    assert (own.severity, own.production) == ("high", True)
    assert [(it.id, it.reason, it.until.year) for it in own.ignore] == [
        ("CVE-2026-1", "one, and more", 2026),
        ("CVE-2026-2", "two", 2027),
    ]


def test_a_repositorys_file_says_what_nothing_else_does() -> None:
    users = decide({}, {}, file_of(Source.USERS_FILE, severity="high"))
    assert users.over(None) == users
    both = users.over(file_of(Source.REPOSITORY, severity="low", production=True))
    assert (both.own.severity, both.own.production) == ("high", True)
    assert both.has("production")
    assert not both.has("ignore")
    sources = {it.key: it.source for it in both.settings if it.where}
    assert sources == {"severity": Source.USERS_FILE, "production": Source.REPOSITORY}


@pytest.mark.parametrize("until", ["2026-12-31", '"2026-12-31"'])
def test_a_day_is_a_date_or_a_text(tmp_path: Path, until: str) -> None:
    place = tmp_path / "ours.toml"
    place.write_text(IGNORE.replace("2026-12-31", until))
    (ignored,) = of_file(place).ignore
    assert (ignored.id, ignored.reason, ignored.until) == ("CVE-2026-1", "why", date(2026, 12, 31))


def test_an_empty_variable_is_not_set() -> None:
    assert decide({}, {"FALLBACK_TIER_MODEL": ""}).own.model is None


def test_the_schema_is_current(pytestconfig: pytest.Config) -> None:
    """And reads what the models read: ``--refresh-readme`` writes it."""
    page = Path(__file__).parents[2] / "docs" / "config.schema.json"
    current = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    if pytestconfig.getoption("refresh_readme"):
        page.write_text(current)
    assert page.read_text() == current


@pytest.mark.parametrize("key", SETTING_KEYS)
def test_the_schema_accepts_and_refuses_as_the_models_do(key: str) -> None:
    for example in OwnSettings.model_fields[key].examples or ():
        document = {"tool": {"fallback-tier": {key: example}}}
        jsonschema.validate(document, schema())
        OwnSettings.model_validate({key: example})
    for wrong in (
        {"tool": {"fallback-tier": {key: {}}}},
        {"tool": {"fallback-tier": {f"{key}x": 1}}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema())


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
        ConfigurationError, check=OfKind("not_toml"), match=rf"^{name} .* [0-9a-f]{{12}}:5: "
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
