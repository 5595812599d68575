"""A plan whose clients are stopped: what was resolved stays, the rest is not resolved, nothing is clean."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.pypi.manifests.requirements import unresolvable
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, StoppedError, ToolFailedError
from fallback_tier.outcome import (
    NOT_RESOLVED,
    Left,
    Outline,
    RecipeResult,
    RecipeSelection,
    Selected,
    not_resolved,
)
from fallback_tier.planning import RemediationPlan, ecosystem
from fallback_tier.repo import RepoContext
from tests.fakes.ecosystem import LadderEcosystem
from tests.unit.planning.test_planning import advisory, moves, planned
from tests.unit.planning.test_planning_unknown import LOCK, OneIsUnknown, TwoPlaces


def stopped() -> StoppedError:
    return StoppedError("Not resolved within 5 s.", next_step="More time.", kind="time_limit")


@dataclass
class StoppingEcosystem(LadderEcosystem):
    """Its clients are stopped at a resolution: its number. ``in_part``: that one ends with what it has: the
    first package. ``as_recipe``: what a single advisory's resolution raises then. ``at_once``: already
    what decides whether anything is affected needs a client."""

    at: int = 1
    in_part: bool = False
    as_recipe: bool = False
    at_once: bool = False

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        if self.at_once:
            raise stopped()
        return super().select(advisory, repo)

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        if len(self.resolved) + 1 < self.at:
            return super().apply(selection, advisory, repo)
        if self.as_recipe:
            raise not_resolved(stopped())
        if not self.in_part:
            raise stopped()
        result = super().apply(selection, advisory, repo)
        error = not_resolved(stopped())
        left = tuple(
            item.model_copy(
                update={"reason": error.reason, "sentence": error.problem, "kind": error.kind}
            )
            for item in self._moves(advisory, repo, frozenset(self._affected(advisory, repo)))[1][
                1:
            ]
        )
        return result.model_copy(update={"moves": result.moves[:1], "left": left})


def open_ones(plan: RemediationPlan) -> set[tuple[str, str]]:
    """Return (id, package) of what is not resolved."""
    return {
        (name, item.package)
        for item in plan.left
        for name in item.advisory_ids
        if item.is_not_resolved
    }


A, B = advisory("A", "left"), advisory("B", "right")


def test_what_was_not_resolved_is_left_and_is_not_clean(tmp_path: Path) -> None:
    plan = planned(tmp_path, A, B, pypi=StoppingEcosystem())
    assert plan.fixes == ()
    assert open_ones(plan) == {("A", "left"), ("B", "right")}
    assert (plan.not_affected, plan.undecided) == ((), ())


def test_a_resolution_that_ends_early_keeps_what_it_has(tmp_path: Path) -> None:
    plan = planned(tmp_path, A, B, pypi=StoppingEcosystem(in_part=True))
    assert moves(plan) == {"left": "2.0.0"}
    assert [fix.advisory_ids for fix in plan.fixes] == [("A",)]
    assert open_ones(plan) == {("B", "right")}


def test_the_moves_of_an_earlier_round_stay(tmp_path: Path) -> None:
    """C can't be fixed, so that A is resolved again without it; then there is no time left."""
    plugin = StoppingEcosystem(at=2)
    plan = planned(tmp_path, A, advisory("C", "middle@never"), pypi=plugin)
    assert moves(plan) == {"left": "2.0.0"}
    assert open_ones(plan) == set()
    assert [item.advisory_ids for item in plan.left] == [("C",)]
    assert plan.not_affected == ()


def test_what_was_found_alone_stays(tmp_path: Path) -> None:
    """No version clears both: each is asked alone, and the second is not any more."""
    given = (advisory("A", "left@1.5.0"), advisory("B", "left@3.0.0"))
    plugin = StoppingEcosystem(at=3, highest={"left": "1.5.0"})
    plan = planned(tmp_path, *given, pypi=plugin)
    assert moves(plan) == {"left": "1.5.0"}
    assert [fix.advisory_ids for fix in plan.fixes] == [("A",)]
    assert open_ones(plan) == {("B", "left")}


def test_steps_that_were_found_alone_do_not_contradict_each_other(tmp_path: Path) -> None:
    """C's client fails, so that each is asked alone; B's version clears A as well, A's not B."""
    failing = {"middle": ToolFailedError("It failed.", next_step="")}
    a, b, c = advisory("A", "left@1.5.0"), advisory("B", "left@3.0.0"), advisory("C", "middle")
    for given in ((a, b, c), (b, a, c)):
        plugin = StoppingEcosystem(at=4, failing=failing)
        plan = planned(tmp_path / given[0].id, *given, pypi=plugin)
        (move,) = (move for fix in plan.fixes for move in fix.moves)
        assert (move.after, set(move.advisory_ids)) == ("3.0.0", {"A", "B"})
        assert open_ones(plan) == {("C", "middle")}


def test_of_two_steps_that_exclude_each_other_one_is_shown(tmp_path: Path) -> None:
    failing = {"middle": ToolFailedError("It failed.", next_step="")}
    both = (advisory("A", "left@1.5.0", "left@2.5.0..4.0.0"), advisory("B", "left@3.0.0"))
    plugin = StoppingEcosystem(at=4, failing=failing)
    plan = planned(tmp_path, *both, advisory("C", "middle"), pypi=plugin)
    assert plugin.resolved[1:] == [("A",), ("B",)]
    (move,) = (move for fix in plan.fixes for move in fix.moves)
    assert (move.after, move.advisory_ids) == ("3.0.0", ("B",))
    assert open_ones(plan) == {("A", "left"), ("C", "middle")}


def test_a_step_that_brings_in_what_another_advisory_is_about_is_none(tmp_path: Path) -> None:
    """A is asked alone, since C's client fails: its 1.1.0 is affected by L, which 1.0.0 was not."""

    class Stopping(StoppingEcosystem, TwoPlaces):
        pass

    failing = {"middle": ToolFailedError("It failed.", next_step="")}
    given = (advisory("A", "left@1.1.0"), advisory("L", "left@1.1.0..3.0.0"))
    plugin = Stopping(at=3, failing=failing)
    plan = planned(tmp_path, *given, advisory("C", "middle"), pypi=plugin)
    assert plugin.resolved[-1] == ("A",)
    assert moves(plan) == {}
    assert {name for name, _ in open_ones(plan)} >= {"A", "C"}


def test_a_stop_in_the_last_round_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ecosystem, "MAX_ROUNDS", 1)
    failing = {"middle": ToolFailedError("It failed.", next_step="")}
    plugin = StoppingEcosystem(at=2, failing=failing)
    plan = planned(tmp_path, A, advisory("C", "middle"), pypi=plugin)
    assert open_ones(plan) == {("A", "left"), ("C", "middle")}


def test_what_the_files_alone_leave_unread_is_said(tmp_path: Path) -> None:
    class Vendored(StoppingEcosystem):
        def outline(self, advisory: Advisory, repo: RepoContext) -> Outline:
            return super().outline(advisory, repo).model_copy(update={"unread": (LOCK,)})

    for at_once in (False, True):
        given = (A, advisory("C", "absent"))
        plan = planned(tmp_path / str(at_once), *given, pypi=Vendored(at_once=at_once))
        assert plan.unread == (LOCK,)
        assert ("A", "left") in open_ones(plan)


def test_what_was_stopped_alone_is_not_refused_for_all(tmp_path: Path) -> None:
    """Answers that are kept are given after the stop, too: no refusal follows from these."""

    class Once(StoppingEcosystem):
        def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
            if len(self.resolved) + 1 != self.at:
                return LadderEcosystem.apply(self, selection, advisory, repo)
            self.at = 0
            raise stopped()

    given = (advisory("A", "left@1.5.0"), advisory("B", "left@3.0.0"))
    plan = planned(tmp_path, *given, pypi=Once(at=3, highest={"left": "1.5.0"}))
    assert moves(plan) == {"left": "1.5.0"}
    assert open_ones(plan) == {("B", "left")}


@pytest.mark.parametrize("as_recipe", [True, False])
def test_a_single_advisory_is_not_refused(tmp_path: Path, as_recipe: bool) -> None:
    plan = planned(tmp_path, A, pypi=StoppingEcosystem(as_recipe=as_recipe))
    assert plan.fixes == ()
    assert open_ones(plan) == {("A", "left")}


def test_what_only_resolving_tells_is_not_called_clean(tmp_path: Path) -> None:
    absent = advisory("C", "absent")
    for plugin in (StoppingEcosystem(unlocked=True), StoppingEcosystem(at_once=True)):
        plan = planned(tmp_path / str(plugin.at_once), A, absent, pypi=plugin)
        assert plan.not_affected == ()
        assert {name for name, _ in open_ones(plan)} == {"A", "C"}


class StoppedLater(OneIsUnknown):
    """As its base, but from the second resolution on its clients are stopped."""

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        if self.resolved:
            raise stopped()
        return super().apply(selection, advisory, repo)


def test_what_an_unread_source_may_hold_is_not_called_clean(tmp_path: Path) -> None:
    """Whether H and N concern the repository was to be asked for each: nobody could."""
    given = (advisory("A", "left"), advisory("H", "hidden"), advisory("N", "absent"))
    plan = planned(tmp_path, *given, pypi=StoppedLater())
    assert moves(plan) == {"left": "2.0.0"}
    assert {name for name, _ in open_ones(plan)} == {"H", "N"}
    assert plan.not_affected == ()
    assert plan.unread == (LOCK,)


@dataclass
class FixedBefore(StoppedLater):
    """Its first resolution moves all, its second one ``left`` alone; then its clients are stopped."""

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        if len(self.resolved) >= 2:
            raise stopped()
        result = OneIsUnknown.apply(self, selection, advisory, repo)
        if len(self.resolved) == 2:
            return result.model_copy(update={"moves": result.moves[:1]})
        blocked = Left(
            package="middle",
            manifest="pypi.txt",
            advisory_ids=("C",),
            reason=RefusalReason.BLOCKED_BY_CONSTRAINT,
            sentence="It stays.",
        )
        return result.model_copy(update={"left": (blocked,)})


def test_what_only_an_earlier_resolution_moved_is_not_called_clean(tmp_path: Path) -> None:
    given = (advisory("A", "left"), advisory("B", "right"), advisory("C", "middle"))
    plan = planned(tmp_path, *given, pypi=FixedBefore())
    named = {name for fix in plan.fixes for name in fix.advisory_ids}
    named |= {name for item in plan.left for name in item.advisory_ids}
    assert named == {"A", "B", "C"}
    assert plan.not_affected == ()


@dataclass
class MovedInPart(LadderEcosystem):
    """Its clients are stopped at once: ``left`` is moved in one place, and still there in another one.
    ``level``: of what was resolved."""

    level: ProofLevel = ProofLevel.RESOLVED_TREE

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        if self.resolved:
            raise stopped()
        result = super().apply(selection, advisory, repo)
        error = not_resolved(stopped())
        still = Left(
            package="left",
            manifest="other.txt",
            reason=error.reason,
            sentence=error.problem,
            kind=error.kind,
        )
        return result.model_copy(
            update={
                "left": (still,),
                "proof_level": self.level,
                "unread": (LOCK,),
                "notes": ("a note",),
            }
        )


@pytest.mark.parametrize("level", [ProofLevel.RESOLVED_TREE, ProofLevel.PINS])
def test_a_package_that_is_moved_in_one_place_is_open_in_others(
    tmp_path: Path, level: ProofLevel
) -> None:
    given = (advisory("A", "left"), advisory("B", "right"))
    plan = planned(tmp_path, *given, pypi=MovedInPart(level=level))
    assert moves(plan) == {"left": "2.0.0", "right": "2.0.0"}
    assert open_ones(plan) == {("A", "left")}
    (fix,) = plan.fixes
    assert (fix.in_part, fix.proof_level) == (("A",), level)
    assert (fix.unread, fix.notes) == ((LOCK,), ("a note",))


def test_what_was_not_read_is_said_without_a_fix_too(tmp_path: Path) -> None:
    class Nothing(MovedInPart):
        def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
            result = super().apply(selection, advisory, repo)
            return result.model_copy(update={"moves": ()})

    plan = planned(tmp_path, A, B, pypi=Nothing())
    assert (plan.fixes, plan.unread) == ((), (LOCK,))
    assert {name for name, _ in open_ones(plan)} == {"A", "B"}


def test_other_ecosystems_are_as_ever(tmp_path: Path) -> None:
    other = advisory("C", "center", ecosystem="npm")
    files = {"pypi.txt": "left 1.0.0\n", "npm.txt": "center 1.0.0\n"}
    plan = planned(tmp_path, A, other, pypi=StoppingEcosystem(), files=files)
    assert moves(plan) == {"center": "2.0.0"}
    assert open_ones(plan) == {("A", "left")}


def test_a_line_that_no_resolver_is_given_is_a_refusal(tmp_path: Path) -> None:
    """Its kind reads alike, and no client was stopped: the others are fixed without it."""
    error = unresolvable("requirements.txt", "git+https://example.org/a")
    assert error.kind != NOT_RESOLVED
    plugin = LadderEcosystem(failing={"right": error})
    plan = planned(tmp_path, A, B, pypi=plugin)
    assert moves(plan) == {"left": "2.0.0"}
    assert {item.reason for item in plan.left} == {RefusalReason.RECIPE_UNSUPPORTED}
    assert open_ones(plan) == set()


def test_the_refusal_names_its_kind() -> None:
    error = not_resolved(stopped())
    assert isinstance(error, RecipeError)
    assert (error.kind, error.problem) == (NOT_RESOLVED, "Not resolved within 5 s.")
