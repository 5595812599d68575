"""A prompt that is more than the window or a cap has room for is asked once more with less code in it."""

from pathlib import Path

import pytest

from fallback_audit.events import ModelCalled, ModelFailed
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.limits import MAX_AUTHOR_CALLS
from fallback_tier.outcome import Applied, Refused
from fallback_tier.repo import Settings
from tests.integration.leaf_sequences import Case, LeafScenario

MORE = {f"more/m{number:02}.py": "x = 1\n" * 500 for number in range(20)}


def scenario(place: Path, *words: str, cap: int | None = None, space: int = 96_000) -> LeafScenario:
    made = LeafScenario(place, Case(words, None, ()), tokens_per_fix=cap)
    for path, text in MORE.items():
        (place / path).parent.mkdir(exist_ok=True)
        (place / path).write_text(text)
    tracked = tuple(sorted({*made.repo.tracked_files, *MORE}))
    settings = Settings(own_code_budget_bytes=space)
    made.repo = made.repo.model_copy(update={"tracked_files": tracked, "settings": settings})
    return made


def sizes(made: LeafScenario) -> list[int]:
    return [call.prompt_bytes for call in made.audit.of(ModelCalled)]


def test_a_window_that_is_too_small_is_asked_with_less(tmp_path: Path) -> None:
    made = scenario(tmp_path, "context_too_long", "plan 0")
    assert isinstance(made.run(), Applied)
    made.check()
    large, small = sizes(made)
    assert large > 60_000, "a part of what there is room for: the rank falls off"
    assert small < 25_000
    assert len(made.audit.of(ModelFailed)) == 1


def test_a_cap_holds_only_the_long_prompt_back(tmp_path: Path) -> None:
    made = scenario(tmp_path, "plan 0", cap=40_000)
    assert isinstance(made.run(), Applied)
    made.check()
    assert [size < 25_000 for size in sizes(made)] == [True]


@pytest.mark.parametrize(
    ("words", "cap", "space", "reason"),
    [
        (("context_too_long", "context_too_long"), None, 96_000, RefusalReason.CONTEXT_TOO_LONG),
        (("context_too_long", "plan 0"), None, 12_000, RefusalReason.CONTEXT_TOO_LONG),
        (("plan 0",), 10_000, 96_000, RefusalReason.BUDGET_EXHAUSTED),
        (("unreachable", "plan 0"), None, 96_000, RefusalReason.MODEL_UNAVAILABLE),
    ],
)
def test_once_and_for_these_reasons_alone(
    tmp_path: Path, words: tuple[str, ...], cap: int | None, space: int, reason: RefusalReason
) -> None:
    made = scenario(tmp_path, *words, cap=cap, space=space)
    application = made.run()
    made.check()
    assert isinstance(application, Refused)
    assert application.reason is reason


def test_a_cap_that_a_long_answer_alone_would_pass_gets_a_short_one(tmp_path: Path) -> None:
    made = scenario(tmp_path, "plan 0", cap=30_000, space=12_000)
    settings = made.repo.settings.model_copy(update={"max_output_tokens": 16_000})
    made.repo = made.repo.model_copy(update={"settings": settings})
    assert isinstance(made.run(), Applied)
    made.check()
    assert [call.reserved.tokens < 30_000 for call in made.audit.of(ModelCalled)] == [True]


def test_the_call_that_was_too_long_counts(tmp_path: Path) -> None:
    made = scenario(tmp_path, "context_too_long", *["no change"] * 5)
    made.run()
    made.check()
    assert len(sizes(made)) == MAX_AUTHOR_CALLS
