"""A recipe's next candidate is another patch, or there is none."""

from collections.abc import Sequence

from fallback_audit.vocabulary import LadderStep, ProofLevel, RefusalReason
from fallback_plugins.shared.plugin_base import next_candidate
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import FileChange, Move, RecipeResult, Selected

LADDER = (LadderStep.DIRECT_BUMP, LadderStep.PARENT_BUMP, LadderStep.OVERRIDE)


def move(step: LadderStep, *raised: str, after: str = "2.0") -> Move:
    return Move(
        package="leaf", manifest="lock", step=step, before=("1.0",), after=after, raised=raised
    )


class Steps:
    """A ladder in which each step leads to a move, or nowhere."""

    def __init__(self, *moves: Move, text: str | None = None) -> None:
        self.moves, self.text = {one.step: one for one in moves}, text
        self.tried: list[tuple[LadderStep, ...]] = []

    def __call__(self, selection: Selected) -> RecipeResult:
        self.tried.append(selection.left_out)
        for step in LADDER:
            if step not in selection.left_out and step in self.moves:
                change = FileChange(path="lock", before="", after=self.text or step)
                found = (self.moves[step],)
                return RecipeResult(changes=(change,), proof_level=ProofLevel.PINS, moves=found)
        raise RecipeError(RefusalReason.RESOLVER_FAILED, "No rung is left.", next_step="")

    def after(self, *moves: Move) -> Selected | None:
        return next_candidate(Selected(recipe="ladder"), moves, self)


def steps(selected: Selected | None) -> Sequence[LadderStep]:
    assert selected is not None
    return selected.left_out


def test_it_does_without_the_step_that_was_refused() -> None:
    ladder_steps = Steps(move(LadderStep.PARENT_BUMP, "mid 2.0"), move(LadderStep.OVERRIDE))
    assert steps(ladder_steps.after(move(LadderStep.PARENT_BUMP, "mid 2.0"))) == (
        LadderStep.PARENT_BUMP,
    )


def test_the_same_by_another_step_is_no_other() -> None:
    direct, same = move(LadderStep.DIRECT_BUMP), move(LadderStep.PARENT_BUMP)
    assert Steps(direct, same).after(direct) is None
    found = Steps(direct, same, move(LadderStep.OVERRIDE, after="2.1")).after(direct)
    assert steps(found) == (LadderStep.DIRECT_BUMP, LadderStep.PARENT_BUMP)


def test_the_same_files_by_moves_of_other_names_are_no_other() -> None:
    """Of several packages one may raise another: the moves tell it, and the patch is the same."""
    direct, other = move(LadderStep.DIRECT_BUMP), move(LadderStep.PARENT_BUMP, "twig 2.0")
    assert Steps(direct, other, text="one").after(direct) is None
    assert Steps(direct, other).after(direct) is not None


def test_where_nothing_is_left_there_is_none() -> None:
    assert Steps(move(LadderStep.OVERRIDE)).after(move(LadderStep.OVERRIDE)) is None
