"""The settings of files and variables, as commands take them (ADR-0135)."""

import argparse
from pathlib import Path
from typing import get_args

import pytest

from fallback_tier.cli.arguments import SEVERITIES
from fallback_tier.cli.main import build_parser
from fallback_tier.cli.options import (
    USERS_FILE,
    configuration,
    resolved_settings,
    settings,
    users_file,
)
from fallback_tier.configured import (
    SETTING_KEYS,
    GateSettings,
    SeverityFloor,
    Source,
    destination_of,
)
from fallback_tier.errors import SettingError
from fallback_tier.scan.document import Level, ScanRules
from tests.kinds import OfKind

EVERYTHING = """\
[tool.fallback-tier]
model = "m"
base_url = "http://127.0.0.1:1"
judge_model = "j"
judge_base_url = "http://127.0.0.1:2"
max_usd = 2.5
max_usd_per_day = 20
max_tokens = 1000
max_tokens_per_day = 2000
release_age = 7
test_command = "make test"
test_timeout_s = 60
severity = "high"
production = true

[[tool.fallback-tier.ignore]]
id = "CVE-2026-1"
reason = "why"
until = 2026-12-31

[[tool.fallback-tier.gates]]
name = "lint"
command = ["ruff", "check", "."]
"""


def parsed(*words: str, verb: str = "fix") -> argparse.Namespace:
    options = ("--advisory", "FILE") if verb in ("fix", "plan") else ()
    return build_parser().parse_args([verb, "REPO", *options, *words])


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "users.toml"
    path.write_text(EVERYTHING)
    monkeypatch.setenv(USERS_FILE, str(path))
    return path


@pytest.mark.usefixtures("users")
def test_each_key_does_something() -> None:
    """Each is where its option would put it."""
    made = configuration(parsed())
    assert (made.model, made.base_url) == ("m", "http://127.0.0.1:1")
    assert (made.judge_model, made.judge_base_url) == ("j", "http://127.0.0.1:2")
    assert (made.budget.usd_per_fix, made.budget.usd_per_day) == ("2.5", "20")
    assert (made.budget.tokens_per_fix, made.budget.tokens_per_day) == (1000, 2000)
    assert made.settings.release_age_days == 7
    assert (made.settings.test_commands, made.settings.test_timeout_s) == (("make test",), 60)
    assert made.gates == (GateSettings(name="lint", command=("ruff", "check", ".")),)
    assert not made.settings.has_own_file  # the repository's file still counts for other keys


@pytest.mark.parametrize("key", [key for key in SETTING_KEYS if destination_of(key)])
def test_each_option_of_a_key_is_one_of_its_command(key: str) -> None:
    assert hasattr(parsed(verb=SETTING_KEYS[key].command), destination_of(key))
    assert f"--{destination_of(key).replace('_', '-')}" == SETTING_KEYS[key].option


@pytest.mark.usefixtures("users")
def test_an_option_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLBACK_TIER_MODEL", "v")
    assert configuration(parsed()).model == "v"
    made = configuration(parsed("--model", "o", "--max-usd", "0.10", "--test-command", "tox"))
    assert (made.model, made.budget.usd_per_fix) == ("o", "0.10")
    assert made.settings.test_commands == ("tox",)


def test_a_file_that_is_given_wins_over_the_users(users: Path, tmp_path: Path) -> None:
    given = tmp_path / "given.toml"
    given.write_text('[tool.fallback-tier]\nmodel = "given"\n')
    made = configuration(parsed("--config", str(given)))
    assert (made.model, made.judge_model) == ("given", "j")
    assert made.settings.has_own_file
    users.write_text("")
    assert configuration(parsed("--config", str(given))).gates == ()  # not the repository's


@pytest.mark.usefixtures("users")
def test_a_scan_takes_its_rules() -> None:
    rules = ScanRules.of(resolved_settings(parsed(verb="scan")))
    assert (rules.severity, rules.production) == (Level.HIGH, True)
    assert [it.id for it in rules.ignore] == ["CVE-2026-1"]
    assert [it.key for it in rules.settings] == ["severity", "production", "ignore"]
    words = ("--severity", "none", "--no-production", "--ignore", "CVE-2026-2,2027-01-01,why")
    rules = ScanRules.of(resolved_settings(parsed(*words, verb="scan")))
    assert (rules.severity, rules.production) == (Level.NONE, False)
    assert [it.id for it in rules.ignore] == ["CVE-2026-2"]
    assert {it.source for it in rules.settings} == {Source.OPTION}


@pytest.mark.usefixtures("users")
def test_a_plan_takes_what_it_has_options_for() -> None:
    made = settings(parsed(verb="plan"))
    assert (made.release_age_days, made.test_commands) == (7, ("make test",))


def test_doctor_looks_at_the_model_of_the_users_file(users: Path) -> None:
    from fallback_tier.cli.health import configuration as of_health

    assert of_health(parsed(verb="doctor")).model == "m"
    users.write_text("")
    assert of_health(parsed(verb="doctor")).model is None


def test_the_severities_of_the_option_are_those_of_the_key() -> None:
    assert get_args(SeverityFloor) == SEVERITIES
    assert {*SEVERITIES} == {*Level} - {Level.UNKNOWN}


def test_a_default_cap_is_kept_if_no_file_has_one(users: Path) -> None:
    users.write_text('[tool.fallback-tier]\nmodel = "claude-sonnet-4-5"\n')
    assert configuration(parsed()).budget.usd_per_fix is not None


def test_an_empty_variable_means_no_file_and_a_wrong_path_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(USERS_FILE, "")
    assert users_file() is None
    assert configuration(parsed()).model is None
    monkeypatch.setenv(USERS_FILE, str(tmp_path / "none.toml"))
    with pytest.raises(SettingError, check=OfKind("unreadable")):
        configuration(parsed())
    monkeypatch.delenv(USERS_FILE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert users_file() == tmp_path / "fallback-tier" / "config.toml"
    assert configuration(parsed()).model is None
