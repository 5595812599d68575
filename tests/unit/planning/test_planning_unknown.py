"""What a plan may not call safe: records without versions, and what something left affects."""

from pathlib import Path

import pytest

from fallback_audit.vocabulary import LadderStep, ProofLevel, RefusalReason
from fallback_tier.advisory import Advisory, AdvisorySet
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.plan import exit_code
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import (
    FileChange,
    Left,
    Move,
    NotApplicable,
    RecipeResult,
    RecipeSelection,
    Selected,
    UnreadItem,
)
from fallback_tier.planning import Remaining, divisible_plan, whose_code
from fallback_tier.planning.ecosystem import MAX_ALONE
from fallback_tier.planning.recipe_choice import ask_recipe
from fallback_tier.repo import RepoContext
from tests.fakes.ecosystem import LadderEcosystem
from tests.fakes.repository import context
from tests.unit.planning.test_planning import advisory, left, moves, planned


def commits_only(name: str, *packages: str, also: Advisory | None = None) -> Advisory:
    """A record with ``GIT`` ranges, and what another one says besides."""
    entries = [
        {
            "package": {"name": package, "ecosystem": "PyPI"},
            "ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}],
        }
        for package in packages
    ]
    reported = [entry.model_dump() for entry in also.affected] if also else []
    return Advisory.model_validate({"id": name, "affected": [*entries, *reported]})


def test_a_record_without_versions_is_not_called_unaffected(tmp_path: Path) -> None:
    repo = context(tmp_path, {"pypi.txt": "left 1.0.0\n"})
    repo = repo.model_copy(update={"manifests": ("pypi.txt",)})
    reported = ask_recipe(LadderEcosystem(), commits_only("G", "left"), repo)
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.NO_FIXED_VERSION
    assert "names no version of left" in reported.sentence
    assert reported.reason.ends_chain, "no gate could tell that it is mended"


def test_own_code_needs_no_versions(tmp_path: Path) -> None:
    repo = context(tmp_path, {"pypi.txt": "left 1.0.0\n"})
    plugin, record = LadderEcosystem(own="left"), commits_only("G", "left")
    decided = repo.model_copy(update={"affected": whose_code(plugin, record, repo)})
    reported = ask_recipe(plugin, record, decided)
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.OWN_CODE


def test_what_is_not_locked_stays_unknown_too(tmp_path: Path) -> None:
    repo = context(tmp_path, {"pypi.txt": "right 1.0.0\n"})
    reported = ask_recipe(LadderEcosystem(unlocked=True), commits_only("G", "left"), repo)
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.NO_FIXED_VERSION


@pytest.mark.parametrize("resolve", [True, False])
def test_a_package_without_versions_is_left(tmp_path: Path, resolve: bool) -> None:
    half = commits_only("G", "left", also=advisory("G", "absent"))
    result = planned(tmp_path, half, advisory("B", "right"), resolve=resolve)
    assert left(result) == {("G",): RefusalReason.NO_FIXED_VERSION}
    assert moves(result) == {"right": "2.0.0"}
    assert result.not_affected == ()


def test_a_package_without_versions_that_is_not_here_is_no_concern(tmp_path: Path) -> None:
    half = commits_only("G", "elsewhere", also=advisory("G", "absent"))
    assert planned(tmp_path, half).not_affected == ("G",)


class TwoPlaces(LadderEcosystem):
    """``left`` stands in a second project too, which can't be raised out of the reach of L."""

    def _moves(
        self, advisory: Advisory, repo: RepoContext, blocked: frozenset[str]
    ) -> tuple[tuple[Move, ...], tuple[Left, ...]]:
        found, left = super()._moves(advisory, repo, blocked)
        ids = advisory.ids_affecting("PyPI", "left", "1.2.0")
        kept = Left(
            package="left",
            manifest="other.txt",
            advisory_ids=ids,
            reason=RefusalReason.BLOCKED_BY_CONSTRAINT,
            sentence="It is blocked there.",
        )
        return found, (*left, kept) if ids else left


def test_no_fix_brings_in_what_something_left_affects(tmp_path: Path) -> None:
    fixed_by_1_1 = advisory("A", "left@1.1.0")
    stays = advisory("L", "left@1.1.0..3.0.0")
    result = planned(tmp_path, fixed_by_1_1, stays, pypi=TwoPlaces())
    assert moves(result) == {}, "1.1.0 is affected by L, which 1.0.0 was not"
    assert {name for item in result.left for name in item.advisory_ids} == {"A", "L"}


class Unlocked(LadderEcosystem):
    """Nothing is locked, and resolving shows something that no target is about."""

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        return Selected(recipe="ladder")

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        move = Move(
            package="other",
            manifest="pypi.txt",
            step=LadderStep.DIRECT_BUMP,
            before=("1",),
            after="2",
        )
        change = FileChange(path="pypi.txt", before="left\n", after="other\n")
        return RecipeResult(changes=(change,), proof_level=ProofLevel.PINS, moves=(move,))


def test_a_resolution_that_concerns_no_advisory_is_no_fix(tmp_path: Path) -> None:
    repo = context(tmp_path, {"pypi.txt": "left 3.0.0\n"})
    given = AdvisorySet(advisories=(advisory("A", "left"),))
    result = divisible_plan(given, repo, {"PyPI": Unlocked()}).plan
    assert (result.fixes, result.left, result.not_affected) == ((), (), ("A",))


LOCK = UnreadItem(path="lib/poetry.lock", reason="It is empty.", next_step="Make it anew.")


class OneIsUnknown(LadderEcosystem):
    """A lock that can't be read may hold ``hidden``, and holds nothing else; nothing else is locked."""

    def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
        return Selected(recipe="ladder")

    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        if self._affected(advisory, repo):
            result = super().apply(selection, advisory, repo)
            return result.model_copy(update={"unread": (LOCK,)})
        if "hidden" in advisory.packages("PyPI"):
            raise RecipeError(
                RefusalReason.UNKNOWN, LOCK.reason, next_step=LOCK.next_step, unread=(LOCK,)
            )
        raise RecipeError(RefusalReason.NOT_AFFECTED, "Nothing is.", next_step="")


def test_what_an_unread_source_may_hold_is_unknown_and_the_rest_is_fixed(tmp_path: Path) -> None:
    """A resolution in which nothing is about an advisory shows nothing of what was not read."""
    given = (advisory("A", "left"), advisory("H", "hidden"), advisory("N", "absent"))
    result = planned(tmp_path, *given, pypi=OneIsUnknown())
    assert moves(result) == {"left": "2.0.0"}
    assert left(result) == {("H",): RefusalReason.UNKNOWN}
    assert result.not_affected == ("N",)
    assert result.unread == (LOCK,)
    assert exit_code(result) == exit_codes.UNKNOWN


def test_too_many_to_ask_one_by_one_are_all_unknown(tmp_path: Path) -> None:
    others = [advisory(f"N{n}", f"absent{n}") for n in range(MAX_ALONE + 1)]
    result = planned(tmp_path, advisory("A", "left"), *others, pypi=OneIsUnknown())
    assert moves(result) == {"left": "2.0.0"}
    assert result.not_affected == ()
    assert {item.reason for item in result.left} == {RefusalReason.UNKNOWN}


@pytest.mark.parametrize(
    ("reasons", "code"),
    [
        ((RefusalReason.UNKNOWN,), exit_codes.UNKNOWN),
        ((RefusalReason.UNKNOWN, RefusalReason.NO_FIXED_VERSION), exit_codes.REFUSED),
        ((RefusalReason.UNKNOWN, RefusalReason.TOOL_MISSING), exit_codes.ENVIRONMENT),
        ((), exit_codes.OK),
    ],
)
def test_unknown_counts_more_than_a_fix_and_less_than_what_is_left(
    tmp_path: Path, reasons: tuple[RefusalReason, ...], code: int
) -> None:
    items = [
        Remaining(ecosystem="PyPI", package="x", advisory_ids=("X",), reason=it, sentence=".")
        for it in reasons
    ]
    result = planned(tmp_path, advisory("A", "left"))
    assert exit_code(result.model_copy(update={"left": tuple(items)})) == code


def test_files_alone_that_do_not_decide_end_as_unknown(tmp_path: Path) -> None:
    plugin = LadderEcosystem(unlocked=True)
    files = {"pypi.txt": "absent 9.0.0\n"}
    result = planned(tmp_path, advisory("A", "absent"), pypi=plugin, files=files, resolve=False)
    assert result.undecided == ("A",)
    assert exit_code(result) == exit_codes.UNKNOWN
    assert "--no-resolve" in result.unread[0].next_step
