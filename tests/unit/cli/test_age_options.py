"""--release-age, its variable, and --age-exception with its reason (ADR-0110)."""

import argparse

import pytest

from fallback_audit.event_types import AgeException
from fallback_tier.cli.main import build_parser
from fallback_tier.cli.options import settings
from fallback_tier.configured import variable_of
from fallback_tier.errors import ConfigurationError, SettingError
from tests.kinds import OfKind

RELEASE_AGE = variable_of("release_age")


def parsed(*options: str, verb: str = "fix") -> argparse.Namespace:
    return build_parser().parse_args([verb, "REPO", "--advisory", "FILE", *options])


@pytest.mark.parametrize("verb", ["fix", "plan"])
def test_the_option_wins_over_the_variable(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RELEASE_AGE, raising=False)
    assert settings(parsed(verb=verb)).release_age_days is None
    monkeypatch.setenv(RELEASE_AGE, "3")
    assert settings(parsed(verb=verb)).release_age_days == 3
    assert settings(parsed("--release-age", "7", verb=verb)).release_age_days == 7


@pytest.mark.parametrize("days", ["0", "-1", "a week", "3651", "1.5"])
def test_what_is_no_number_of_days_is_refused(days: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--release-age={days}")
    monkeypatch.setenv(RELEASE_AGE, days)
    with pytest.raises(SettingError, check=OfKind("bad_value")) as caught:
        settings(parsed())
    assert (caught.value.source, caught.value.key) == (RELEASE_AGE, "release_age")


def test_an_exception_has_a_reason() -> None:
    words = ("--age-exception", "left", "--age-exception", "right", "--because", "exploited")
    assert settings(parsed(*words)).age_exceptions == (
        AgeException(package="left", reason="exploited"),
        AgeException(package="right", reason="exploited"),
    )
    for words in (("--age-exception", "left"), ("--because", "exploited")):
        with pytest.raises(ConfigurationError, check=OfKind("age_exception_incomplete")):
            settings(parsed(*words))
