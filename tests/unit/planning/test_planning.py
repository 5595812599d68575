"""Several advisories at once: what can be fixed of each is, and nothing is dropped silently."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import LadderStep, ProofLevel, RefusalReason
from fallback_tier.advisory import Advisory, AdvisorySet, Skipped, lets_stay, parse_advisory
from fallback_tier.cli.remediation import how
from fallback_tier.errors import FallbackError, RecipeError, ToolFailedError, ToolMissingError
from fallback_tier.outcome import Left, Move, NotApplicable, RecipeSelection
from fallback_tier.planning import RemediationPlan, divisible_plan
from fallback_tier.planning.ecosystem import MAX_ALONE
from fallback_tier.repo import RepoContext
from tests.e2e.command import osv
from tests.fakes.ecosystem import LadderEcosystem
from tests.fakes.repository import context

PINS = "left 1.0.0\nright 1.0.0\nmiddle 1.0.0\n"


def advisory(name: str, *affected: str, ecosystem: str = "PyPI", fixed: str = "2.0.0") -> Advisory:
    """``affected``: packages, each ``name``, ``name@FIXED``, ``name@INTRODUCED..FIXED``, ``name@never``."""
    entries = []
    for one in affected:
        package, _, versions = one.partition("@")
        introduced, _, end = versions.rpartition("..")
        end = end or fixed
        text = osv(
            package,
            ecosystem=ecosystem,
            introduced=introduced or "0",
            fixed=None if end == "never" else end,
        )
        entries += json.loads(text)["affected"]
    return parse_advisory(json.dumps({"id": name, "affected": entries}).encode(), name)


def both(name: str, pypi: str, npm: str) -> Advisory:
    """One record about packages of two ecosystems."""
    parts = (advisory(name, pypi), advisory(name, npm, ecosystem="npm"))
    affected = [entry.model_dump() for part in parts for entry in part.affected]
    return Advisory.model_validate({"id": name, "affected": affected})


def planned(
    root: Path,
    *advisories: Advisory,
    pypi: LadderEcosystem | None = None,
    npm: LadderEcosystem | None = None,
    files: Mapping[str, str] | None = None,
    resolve: bool = True,
) -> RemediationPlan:
    repo = context(root, dict(files or {"pypi.txt": PINS}))
    plugins = {"PyPI": pypi or LadderEcosystem(), "npm": npm or LadderEcosystem(name="npm")}
    given = AdvisorySet(advisories=advisories)
    return divisible_plan(given, repo, plugins, resolve=resolve).plan


def moves(result: RemediationPlan) -> dict[str, str | None]:
    return {move.package: move.after for fix in result.fixes for move in fix.moves}


def left(result: RemediationPlan) -> dict[tuple[str, ...], RefusalReason]:
    return {item.advisory_ids: item.reason for item in result.left}


@pytest.mark.parametrize("resolve", [True, False])
def test_advisories_of_an_ecosystem_are_fixed_together(tmp_path: Path, resolve: bool) -> None:
    given = (advisory("A", "left"), advisory("B", "right@1.5.0"), advisory("C", "absent"))
    result = planned(tmp_path, *given, resolve=resolve)
    assert moves(result) == {"left": "2.0.0", "right": "1.5.0"}
    (fix,) = result.fixes
    assert (fix.ecosystem, fix.advisory_ids, fix.files) == ("PyPI", ("A", "B"), ("pypi.txt",))
    assert [move.advisory_ids for move in fix.moves] == [("A",), ("B",)]
    assert fix.proof_level is (ProofLevel.PINS if resolve else None)
    assert (result.left, result.not_affected, result.resolved) == ((), ("C",), resolve)
    assert (tmp_path / "pypi.txt").read_text() == PINS


def test_two_advisories_on_one_package_take_the_version_that_clears_both(tmp_path: Path) -> None:
    result = planned(tmp_path, advisory("A", "left@1.5.0"), advisory("B", "left@3.0.0"))
    assert moves(result) == {"left": "3.0.0"}
    assert result.fixes[0].moves[0].advisory_ids == ("A", "B")


@pytest.mark.parametrize("resolve", [True, False])
def test_of_one_advisory_a_partial_fix_is_none(tmp_path: Path, resolve: bool) -> None:
    result = planned(tmp_path, advisory("B", "right", "middle@never"), resolve=resolve)
    assert result.fixes == ()
    assert left(result) == {("B",): RefusalReason.NO_FIXED_VERSION}


@pytest.mark.parametrize("resolve", [True, False])
def test_among_several_what_can_be_fixed_of_one_is(tmp_path: Path, resolve: bool) -> None:
    """B is fixed in one of its packages; the other one is left by name, and the fix says what stays."""
    plugin = LadderEcosystem()
    given = (advisory("A", "left"), advisory("B", "right", "middle@never"))
    result = planned(tmp_path, *given, pypi=plugin, resolve=resolve)
    assert moves(result) == {"left": "2.0.0", "right": "2.0.0"}
    assert left(result) == {("B",): RefusalReason.NO_FIXED_VERSION}
    (fix,) = result.fixes
    assert (fix.advisory_ids, fix.advisory.in_part, fix.in_part) == (("A", "B"), ("B",), ("B",))
    assert lets_stay(fix.advisory, "PyPI", "middle", ["B"])
    assert not lets_stay(fix.advisory, "PyPI", "middle", ["A", "B"])
    assert not lets_stay(fix.advisory, "PyPI", "right", ["B"])
    assert result.not_affected == ()
    assert len(plugin.resolved) == (2 if resolve else 0)


def test_an_advisory_of_which_nothing_can_be_fixed_is_left_whole(tmp_path: Path) -> None:
    given = (advisory("A", "left"), advisory("B", "middle@never"))
    result = planned(tmp_path, *given)
    assert (result.fixes[0].advisory_ids, result.fixes[0].advisory.in_part) == (("A",), ())
    assert left(result) == {("B",): RefusalReason.NO_FIXED_VERSION}


def test_a_copy_that_stays_for_one_advisory_does_not_stay_for_another(tmp_path: Path) -> None:
    """C is about nothing but the package that B leaves: it is not fixed, in part or otherwise."""
    given = (advisory("B", "right", "middle@never"), advisory("C", "middle@never"))
    result = planned(tmp_path, *given)
    (fix,) = result.fixes
    assert (fix.advisory_ids, fix.advisory.in_part) == (("B",), ("B",))
    assert left(result) == {("B", "C"): RefusalReason.NO_FIXED_VERSION} or left(result) == {
        ("B",): RefusalReason.NO_FIXED_VERSION,
        ("C",): RefusalReason.NO_FIXED_VERSION,
    }


def test_some_of_a_plan_is_planned_without_the_others(tmp_path: Path) -> None:
    repo = context(tmp_path, {"pypi.txt": PINS})
    given = (advisory("A", "left"), advisory("B", "right", "middle@never"))
    divisible = divisible_plan(
        AdvisorySet(advisories=given), repo, {"PyPI": LadderEcosystem()}, resolve=True
    )
    alone, _ = divisible.only("PyPI", ["A"])
    assert alone is not None
    assert [move.package for move in alone.moves] == ["left"]
    assert (alone.advisory.ids, alone.advisory.in_part) == (("A",), ())
    part, _ = divisible.only("PyPI", ["B"])
    assert part is not None
    assert ([move.package for move in part.moves], part.advisory.in_part) == (["right"], ("B",))


def test_what_waits_may_not_come_in(tmp_path: Path) -> None:
    """The lowest fix of A is a version that B covers: with both the next one is taken, and without B, which
    is not fixed now, A is not fixed by what B is about."""
    repo = context(tmp_path, {"pypi.txt": PINS})
    given = (advisory("A", "left@1.1.0"), advisory("B", "right", "left@1.1.0..1.2.0"))
    divisible = divisible_plan(
        AdvisorySet(advisories=given), repo, {"PyPI": LadderEcosystem()}, resolve=True
    )
    assert moves(divisible.plan) == {"left": "1.2.0", "right": "2.0.0"}
    alone, _ = divisible.only("PyPI", ["A"])
    assert alone is not None
    assert [move.after for move in alone.moves] == ["1.2.0"]


def test_what_only_resolving_shows_is_left_too(tmp_path: Path) -> None:
    plugin = LadderEcosystem(blocked=frozenset({"right"}))
    result = planned(tmp_path, advisory("A", "left"), advisory("B", "right"), pypi=plugin)
    assert moves(result) == {"left": "2.0.0"}
    assert left(result) == {("B",): RefusalReason.BLOCKED_BY_CONSTRAINT}
    assert result.left[0].next_step == "Look at it."


def test_no_fix_brings_in_what_another_advisory_covers(tmp_path: Path) -> None:
    """B doesn't concern the repository as it is, and the lowest fix for A would change that."""
    given = (advisory("A", "left@1.1.0"), advisory("A2", "left@1.3.0"))
    guard = advisory("B", "left@1.1.0..1.2.0")
    assert moves(planned(tmp_path / "1", given[0])) == {"left": "1.1.0"}
    result = planned(tmp_path / "2", given[0], guard)
    assert left(result) == {("A",): RefusalReason.NO_FIXED_VERSION} or moves(result) == {
        "left": "1.2.0"
    }
    assert result.not_affected == ("B",)
    assert moves(planned(tmp_path / "3", *given, guard)) == {"left": "1.3.0"}


def test_what_is_left_still_guards_its_other_packages(tmp_path: Path) -> None:
    """B can't be fixed in `right`; its part on `left` is nothing that a fix may bring in."""
    given = (advisory("A", "left@1.1.0"), advisory("B", "right@never", "left@1.1.0..1.2.0"))
    result = planned(tmp_path, *given)
    assert moves(result) == {"left": "1.2.0"}
    assert left(result) == {("B",): RefusalReason.NO_FIXED_VERSION}
    assert result.fixes[0].advisory.id == "A"


def test_one_gate_transition_an_ecosystem(tmp_path: Path) -> None:
    given = (advisory("A", "left"), advisory("N", "left", ecosystem="npm"))
    result = planned(tmp_path, *given, files={"pypi.txt": PINS, "npm.txt": PINS})
    assert [(fix.ecosystem, fix.advisory_ids) for fix in result.fixes] == [
        ("PyPI", ("A",)),
        ("npm", ("N",)),
    ]
    assert [fix.advisory.ecosystems for fix in result.fixes] == [("PyPI",), ("npm",)]


def test_one_advisory_of_two_ecosystems(tmp_path: Path) -> None:
    files = {"pypi.txt": PINS, "npm.txt": PINS}
    result = planned(tmp_path, both("A", "left", "right"), files=files)
    assert [(fix.ecosystem, fix.advisory_ids) for fix in result.fixes] == [
        ("PyPI", ("A",)),
        ("npm", ("A",)),
    ]
    assert [tuple(moved.package for moved in fix.moves) for fix in result.fixes] == [
        ("left",),
        ("right",),
    ]


def test_what_one_ecosystem_leaves_of_the_one_advisory_is_left_in_both(tmp_path: Path) -> None:
    files = {"pypi.txt": PINS, "npm.txt": PINS}
    npm = LadderEcosystem(name="npm", blocked=frozenset({"right"}))
    result = planned(tmp_path, both("A", "left", "right"), files=files, npm=npm)
    assert result.fixes == ()
    assert left(result) == {("A",): RefusalReason.BLOCKED_BY_CONSTRAINT}


def test_what_one_ecosystem_leaves_another_fixes_among_several(tmp_path: Path) -> None:
    files = {"pypi.txt": PINS, "npm.txt": PINS}
    npm = LadderEcosystem(name="npm", blocked=frozenset({"right"}))
    given = (both("A", "left", "right"), advisory("B", "middle"))
    result = planned(tmp_path, *given, files=files, npm=npm)
    assert [(fix.ecosystem, fix.advisory_ids) for fix in result.fixes] == [("PyPI", ("A", "B"))]
    assert moves(result) == {"left": "2.0.0", "middle": "2.0.0"}
    assert left(result) == {("A",): RefusalReason.BLOCKED_BY_CONSTRAINT}


def test_an_ecosystem_that_nobody_serves_is_named(tmp_path: Path) -> None:
    crate = advisory("A", "left").model_dump()
    crate["affected"][0]["package"]["ecosystem"] = "crates.io"
    result = planned(tmp_path, Advisory.model_validate(crate), advisory("B", "left"))
    assert left(result) == {("A",): RefusalReason.ECOSYSTEM_UNSUPPORTED}
    assert result.left[0].sentence == "A is about crates.io, and no plugin supports it."
    assert result.left[0].next_step == "Install a plugin for crates.io; supported are PyPI, npm."
    assert moves(result) == {"left": "2.0.0"}


def test_own_code_is_found_among_many_that_concern_nothing(tmp_path: Path) -> None:
    given = [advisory(f"X-{number}", f"absent-{number}") for number in range(9)]
    plugin = LadderEcosystem(own="this")
    result = planned(tmp_path, *given, advisory("A", "this"), pypi=plugin)
    assert left(result) == {("A",): RefusalReason.OWN_CODE}
    assert result.not_affected == tuple(one.id for one in given)


def test_a_bundle_that_fails_is_asked_one_by_one(tmp_path: Path) -> None:
    refusal = RecipeError(RefusalReason.RESOLVER_FAILED, "right is gone.", next_step="Ask.")
    plugin = LadderEcosystem(failing={"right": refusal})
    given = (advisory("A", "left"), advisory("B", "right"), advisory("C", "middle@never"))
    result = planned(tmp_path, *given, pypi=plugin)
    assert moves(result) == {"left": "2.0.0"}
    assert left(result) == {
        ("B",): RefusalReason.RESOLVER_FAILED,
        ("C",): RefusalReason.NO_FIXED_VERSION,
    }


def test_nothing_can_be_fixed_each_for_its_own_reason(tmp_path: Path) -> None:
    plugin = LadderEcosystem(blocked=frozenset({"left"}))
    result = planned(tmp_path, advisory("A", "left"), advisory("B", "right@never"), pypi=plugin)
    assert result.fixes == ()
    assert left(result) == {
        ("A",): RefusalReason.BLOCKED_BY_CONSTRAINT,
        ("B",): RefusalReason.NO_FIXED_VERSION,
    }


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ToolMissingError("No client.", next_step="Install."), RefusalReason.TOOL_MISSING),
        (ToolFailedError("It broke.", next_step="Look."), RefusalReason.RESOLVER_FAILED),
    ],
)
def test_a_client_that_fails_leaves_everything(
    tmp_path: Path, error: FallbackError, reason: RefusalReason
) -> None:
    plugin = LadderEcosystem(failing={"left": error, "right": error})
    result = planned(tmp_path, advisory("A", "left"), advisory("B", "right"), pypi=plugin)
    assert left(result) == {("A",): reason, ("B",): reason}
    # Another advisory would meet the same missing client: asked once.
    assert len(plugin.resolved) == (1 if reason is RefusalReason.TOOL_MISSING else 3)


def test_many_that_fail_together_are_not_resolved_one_by_one(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(MAX_ALONE + 1)]
    error = RecipeError(RefusalReason.RESOLVER_FAILED, "Down.", next_step="Wait.")
    plugin = LadderEcosystem(failing={"p0": error})
    files = {"pypi.txt": "".join(f"{name} 1.0.0\n" for name in names)}
    result = planned(tmp_path, *(advisory(n, n) for n in names), pypi=plugin, files=files)
    assert len(plugin.resolved) == 1
    assert {name for item in result.left for name in item.advisory_ids} == set(names)


def test_of_advisories_that_no_version_clears_together_those_that_one_clears_are_fixed(
    tmp_path: Path,
) -> None:
    given = [
        *(advisory(f"A{patch}", f"left@1.0.{patch}") for patch in (1, 3, 3)),
        advisory("B", "left@1.9.0"),
        advisory("C", "left@2.7.0"),
        advisory("D", "right@1.5.0"),
    ]
    given[2] = given[2].model_copy(update={"id": "A3-again"})
    plugin = LadderEcosystem(highest={"left": "1.9.0"})
    result = planned(tmp_path, *given, pypi=plugin)
    assert moves(result) == {"left": "1.9.0", "right": "1.5.0"}
    assert left(result) == {("C",): RefusalReason.BLOCKED_BY_CONSTRAINT}
    # All, each of the four fixed versions of it, and what is left of them together.
    assert len(plugin.resolved) == 6


def test_advisories_with_the_same_fixed_version_are_not_resolved_apart(tmp_path: Path) -> None:
    plugin = LadderEcosystem(blocked=frozenset({"left"}))
    given = advisory("A", "left"), advisory("B", "left"), advisory("C", "right")
    result = planned(tmp_path, *given, pypi=plugin)
    assert moves(result) == {"right": "2.0.0"}
    assert left(result) == {("A", "B"): RefusalReason.BLOCKED_BY_CONSTRAINT}
    assert len(plugin.resolved) == 2


def test_advisories_are_resolved_apart_a_bounded_number_of_times(tmp_path: Path) -> None:
    given = [advisory(f"A{patch}", f"left@1.0.{patch}") for patch in range(1, MAX_ALONE + 2)]
    plugin = LadderEcosystem(highest={"left": "1.0.1"})
    result = planned(tmp_path, *given, advisory("B", "right"), pypi=plugin)
    assert moves(result) == {"right": "2.0.0"}
    assert len(plugin.resolved) == 2


def test_the_bound_is_for_each_package_while_it_lasts(tmp_path: Path) -> None:
    given = [
        advisory(f"{name}{patch}", f"{name}@1.0.{patch}")
        for name, count in (("left", 3), ("right", MAX_ALONE))
        for patch in range(1, count + 1)
    ]
    plugin = LadderEcosystem(highest={"left": "1.0.2", "right": "1.0.2"})
    result = planned(tmp_path, *given, pypi=plugin)
    assert moves(result) == {"left": "1.0.2"}
    fixed = {name for fix in result.fixes for name in fix.advisory_ids}
    assert fixed == {"left1", "left2"}


def test_what_was_resolved_with_others_may_be_resolved_in_smaller_groups(tmp_path: Path) -> None:
    """All fail together, so each package is resolved; then what is left of a package is."""
    error = RecipeError(RefusalReason.RESOLVER_FAILED, "Down.", next_step="Wait.")
    plugin = LadderEcosystem(failing={"right": error}, highest={"left": "1.0.2"})
    given = [advisory(f"L{patch}", f"left@1.0.{patch}") for patch in (1, 2, 3)]
    others = [advisory(f"R{number}", "right") for number in range(MAX_ALONE)]
    result = planned(tmp_path, *given, *others, pypi=plugin)
    assert moves(result) == {"left": "1.0.2"}
    assert ("L3",) in left(result)


def test_many_that_fail_together_are_resolved_package_by_package(tmp_path: Path) -> None:
    error = RecipeError(RefusalReason.RESOLVER_FAILED, "Down.", next_step="Wait.")
    plugin = LadderEcosystem(failing={"left": error})
    given = [advisory(f"R{number}", "right") for number in range(MAX_ALONE)]
    result = planned(tmp_path, advisory("L", "left"), *given, pypi=plugin)
    assert moves(result) == {"right": "2.0.0"}
    assert left(result) == {("L",): RefusalReason.RESOLVER_FAILED}


BROKEN = Left(
    package="",
    manifest="broken.txt",
    reason=RefusalReason.RECIPE_UNSUPPORTED,
    sentence="broken.txt can't be read.",
)


@pytest.mark.parametrize(
    ("text", "open_"),
    [("right >= 1", ("B",)), (None, ("A", "B"))],
    ids=["what its text names", "no text: everything"],
)
def test_a_project_that_cannot_be_read_keeps_open_what_it_may_hold(
    tmp_path: Path, text: str | None, open_: tuple[str, ...]
) -> None:
    """It is left again when resolved, so nothing is claimed: unknown is not clean."""
    files = {"pypi.txt": PINS, **({"broken.txt": text} if text else {})}
    plugin = LadderEcosystem(unreadable=(BROKEN,))
    result = planned(
        tmp_path, advisory("A", "left"), advisory("B", "right"), pypi=plugin, files=files
    )
    assert result.fixes == ()
    assert result.left[0].advisory_ids == open_
    assert {name for item in result.left for name in item.advisory_ids} == {"A", "B"}


def test_every_advisory_is_accounted_for_exactly_once(tmp_path: Path) -> None:
    given = [
        *(advisory(f"F-{name}", name) for name in ("left", "right")),
        advisory("L-1", "middle@never"),
        advisory("N-1", "absent"),
        advisory("N-2", "left", ecosystem="npm"),
    ]
    result = planned(tmp_path, *given)
    fixed = [name for fix in result.fixes for name in fix.advisory_ids]
    stays = [name for item in result.left for name in item.advisory_ids]
    assert sorted([*fixed, *stays, *result.not_affected]) == sorted(one.id for one in given)


def test_without_resolving_one_outline_is_enough(tmp_path: Path) -> None:
    plugin = LadderEcosystem()
    planned(tmp_path, advisory("A", "left"), advisory("B", "right"), pypi=plugin, resolve=False)
    assert (plugin.outlined, plugin.resolved) == (1, [])


def test_the_document_has_a_stable_shape(tmp_path: Path) -> None:
    repo: RepoContext = context(tmp_path, {"pypi.txt": PINS})
    given = AdvisorySet(
        advisories=(advisory("A", "left"),),
        skipped=(Skipped(source="x.json", reason="It was withdrawn."),),
    )
    divisible = divisible_plan(given, repo, {"PyPI": LadderEcosystem()})
    document = divisible.plan.model_dump(mode="json")
    assert list(document) == [
        *("repository", "base_commit", "resolved", "offline"),
        *(
            "fixes",
            "left",
            "not_affected",
            "undecided",
            "skipped",
            "findings",
            "unread",
            "notes",
            "uncommitted",
        ),
    ]
    assert list(document["fixes"][0]) == [
        *("ecosystem", "advisory_ids", "proof_level", "files", "moves", "declarations", "cleared"),
        *("notes", "in_part", "unread", "tests"),
    ]
    assert set(document["fixes"][0]["moves"][0]) == {
        *("package", "manifest", "step", "before", "after", "raised", "declined", "advisory_ids"),
    }
    assert document["skipped"] == [
        {"source": "x.json", "reason": "It was withdrawn.", "unknown": True}
    ]
    json.dumps(document)


def test_nothing_given(tmp_path: Path) -> None:
    result = planned(tmp_path)
    assert (result.fixes, result.left, result.not_affected) == ((), (), ())


@pytest.mark.parametrize("resolve", [True, False])
def test_what_is_not_locked_only_resolving_tells(tmp_path: Path, resolve: bool) -> None:
    """B was asked about because anything may be there; the resolution shows that it isn't."""
    plugin = LadderEcosystem(unlocked=True)
    given = (advisory("A", "left"), advisory("B", "absent"))
    result = planned(tmp_path, *given, pypi=plugin, resolve=resolve)
    assert [fix.advisory_ids for fix in result.fixes] == [("A",)]
    assert result.fixes[0].advisory.id == "A"
    assert result.not_affected == (("B",) if resolve else ())
    assert result.undecided == (() if resolve else ("B",))


def test_own_code_is_found_although_not_everything_is_locked(tmp_path: Path) -> None:
    """Without a question for each of many advisories."""
    given = [advisory(f"X-{number}", f"absent-{number}") for number in range(40)]
    plugin = LadderEcosystem(unlocked=True, own="this-one")
    files = {"pypi.txt": PINS + "This.One 1.0.0\n"}
    result = planned(
        tmp_path,
        *given,
        advisory("A", "this-one", fixed="1.0.0"),
        advisory("B", "left"),
        pypi=plugin,
        files=files,
    )
    assert left(result) == {("A",): RefusalReason.OWN_CODE}
    assert moves(result) == {"left": "2.0.0"}
    assert len(result.not_affected) == len(given)
    assert plugin.selects < len(given)


def test_a_repository_without_manifests_is_one_thing_left(tmp_path: Path) -> None:
    class Missing(LadderEcosystem):
        def select(self, advisory: Advisory, repo: RepoContext) -> RecipeSelection:
            self.selects += 1
            return NotApplicable(reason=RefusalReason.MANIFEST_MISSING, sentence="No manifest.")

    plugin = Missing()
    given = [advisory(f"X-{number}", f"p-{number}") for number in range(40)]
    result = planned(tmp_path, *given, pypi=plugin, files={"README": "x"})
    assert left(result) == {tuple(one.id for one in given): RefusalReason.MANIFEST_MISSING}
    assert plugin.selects == 1


def test_a_move_names_what_it_clears_and_not_what_it_leaves(tmp_path: Path) -> None:
    """Both cover the version that is there; B has no fixed version above it, and is not cleared."""
    given = (advisory("A", "left@1.5.0"), advisory("B", "right@never"))
    result = planned(tmp_path, *given)
    assert [move.advisory_ids for move in result.fixes[0].moves] == [("A",)]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (LadderStep.PARENT_BUMP, "parent bump of top 2.0"),
        (LadderStep.LOCK_EDIT, "exact edit of a lock, with top 2.0"),
    ],
)
def test_what_else_was_raised_is_said_as_what_it_is(step: LadderStep, words: str) -> None:
    move = Move(package="a", manifest="m", step=step, before=("1",), after="2", raised=("top 2.0",))
    assert how(move) == words


def test_a_left_package_that_was_read_from_a_document_is_the_same() -> None:
    """The kind of the error is in no document."""
    kept = Left(package="pkg", reason=RefusalReason.OWN_CODE, sentence="why", kind="some_kind")
    read = Left.model_validate_json(kept.model_dump_json())
    assert (read, hash(read)) == (kept, hash(kept))
    assert read.model_copy(update={"sentence": "another"}) != kept
