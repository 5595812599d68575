"""How much own code a prompt may show, how long an answer may be, and what a fix may cost."""

import argparse

import pytest

from fallback_tier.cli.arguments import EFFORTS
from fallback_tier.cli.main import build_parser
from fallback_tier.cli.options import cap_in_words, configuration, settings
from fallback_tier.errors import ConfigurationError
from fallback_tier.repo import Effort
from tests.kinds import OfKind


def parsed(*options: str) -> argparse.Namespace:
    return build_parser().parse_args(["fix", "REPO", "--advisory", "FILE", *options])


@pytest.mark.parametrize(
    ("options", "space"),
    [
        ((), 192_000),
        (("--model", "claude"), 192_000),
        (("--model", "local:small.gguf"), 12_000),
        (("--model", "local:small.gguf", "--code-room", "24"), 24_000),
        (("--code-room", "1000"), 1_000_000),
    ],
)
def test_the_room_is_what_the_window_has(options: tuple[str, ...], space: int) -> None:
    assert settings(parsed(*options)).own_code_budget_bytes == space


@pytest.mark.parametrize("room", ["0", "-4", "1001"])
def test_another_room_is_refused_by_name(room: str) -> None:
    with pytest.raises(
        ConfigurationError,
        check=OfKind("bad_code_room"),
        match=f"--code-room {room}: .* 1 .* 1000 ",
    ):
        settings(parsed("--code-room", room))


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ((), 16_000),
        (("--model", "local:small.gguf"), 2_048),
        (("--model", "local:small.gguf", "--max-output-tokens", "4096"), 4_096),
    ],
)
def test_a_model_that_may_think_first_has_room_for_it(
    options: tuple[str, ...], tokens: int
) -> None:
    assert settings(parsed(*options)).max_output_tokens == tokens


@pytest.mark.parametrize("tokens", ["0", "128001"])
def test_another_length_is_refused_by_name(tokens: str) -> None:
    with pytest.raises(
        ConfigurationError,
        check=OfKind("bad_output_tokens"),
        match=f"--max-output-tokens {tokens}: ",
    ):
        settings(parsed("--max-output-tokens", tokens))


def test_effort_is_passed_on_where_it_is_given() -> None:
    assert settings(parsed()).effort is None
    assert settings(parsed("--effort", "high")).effort is Effort.HIGH
    assert tuple(Effort) == EFFORTS


@pytest.mark.parametrize(
    ("options", "cap", "words"),
    [
        (("--model", "claude-sonnet-5"), "2.00", "may use $2.00 of model calls (--max-usd)"),
        (("--model", "claude-sonnet-5", "--max-usd", "7"), "7", "may use $7 of"),
        (("--model", "mine", "--base-url", "http://x", "--price", "1:2"), "2.00", "may use $2.00"),
        (
            ("--model", "claude-sonnet-5", "--max-tokens", "9000"),
            None,
            "9,000 tokens (--max-tokens)",
        ),
        (("--model", "mine", "--base-url", "http://x"), None, "price of a model is not known"),
        (("--model", "local:small.gguf"), None, ""),
        ((), None, ""),
    ],
)
def test_a_fix_has_a_cap_in_dollars_unless_another_is_named(
    options: tuple[str, ...], cap: str | None, words: str
) -> None:
    configured = configuration(parsed(*options))
    assert configured.budget.usd_per_fix == cap
    assert words in (cap_in_words(configured) or "")
    assert bool(words) == (cap_in_words(configured) is not None)


def test_an_unknown_price_of_the_judge_leaves_no_cap_in_dollars() -> None:
    options = (
        "--model",
        "claude-sonnet-5",
        "--judge-model",
        "mine",
        "--judge-base-url",
        "http://x",
    )
    configured = configuration(parsed(*options))
    assert configured.budget.usd_per_fix is None
