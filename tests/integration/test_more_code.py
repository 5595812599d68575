"""A model that declines for want of code is shown what it names: once, within its calls, on record."""

from pathlib import Path

import pytest

from fallback_audit.events import ModelCalled, MoreCodeShown
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.outcome import Applied, Refused
from tests.integration.leaf_sequences import UNSEEN, Case, LeafScenario


def scenario(place: Path, *words: str, judge: tuple[str, ...] | None = None) -> LeafScenario:
    return LeafScenario(place, Case(words, judge, ()))


def test_it_is_shown_and_answers(tmp_path: Path) -> None:
    made = scenario(tmp_path, "ask", "plan 0")
    assert isinstance(made.run(), Applied)
    made.check()
    (shown,) = made.audit.of(MoreCodeShown)
    assert (shown.call, shown.files) == (1, tuple(UNSEEN))
    first, second = made.audit.of(ModelCalled)
    assert second.prompt_bytes > first.prompt_bytes + shown.byte_count


def test_what_it_was_shown_may_be_edited_and_cited_and_is_judged_by(tmp_path: Path) -> None:
    made = scenario(tmp_path, "ask", "plan of what was unseen", judge=("supported",))
    application = made.run()
    made.check()
    assert isinstance(application, Applied)
    assert "tools/guards.py" in application.diff


@pytest.mark.parametrize(
    ("words", "judge"),
    [
        (("ask", "ask"), None),  # once an attempt
        (("no change", "nothing", "ask"), None),  # no call is left
        (("plan 0", "ask"), ("doubted",)),  # under the strict instruction
        (("refuse",), None),  # it names nothing
        (("ask", "context_too_long"), None),  # more code than there is room for
    ],
)
def test_else_it_has_declined(
    tmp_path: Path, words: tuple[str, ...], judge: tuple[str, ...] | None
) -> None:
    made = scenario(tmp_path, *words, judge=judge)
    application = made.run()
    made.check()
    assert isinstance(application, Refused)
    assert application.reason is RefusalReason.MODEL_REFUSED
    assert len(made.audit.of(ModelCalled)) >= len(words)


def test_a_cap_without_room_for_more_code_stops_and_a_raised_one_goes_on(tmp_path: Path) -> None:
    made = LeafScenario(tmp_path, Case(("ask", "plan 0"), None, ()), tokens_per_fix=13_000)
    application = made.run()
    made.check()
    assert isinstance(application, Refused)
    assert application.reason is RefusalReason.BUDGET_EXHAUSTED
    assert made.author.heard == ["ask"]
    made.tokens_per_fix = 10**9
    assert isinstance(made.run(), Applied)
    made.check()
    assert made.author.heard == ["ask", "plan 0"]


def test_an_answer_that_was_paid_for_is_found_again(tmp_path: Path) -> None:
    made = scenario(tmp_path, "ask", "plan 0")
    kinds = [event.kind for event in LeafScenario(tmp_path / "whole", made.case).stream()]
    made.stream(leave_after=kinds.index("MoreCodeShown") + 1)
    assert isinstance(made.run(), Applied)
    made.check()
    assert len(made.author.heard) == 2
