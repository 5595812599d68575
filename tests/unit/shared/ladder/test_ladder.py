"""What every ecosystem's ladder shares: trees, the account of a fix, and what no fix may do."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.vocabulary import BlockerKind, LadderStep, ProofLevel, RefusalReason
from fallback_plugins.shared.ladder import (
    Position,
    ProjectFix,
    Reached,
    Resolution,
    ResultRules,
    Strategy,
    Tried,
    admits_already,
    blocked,
    combined,
    describe,
    left_behind,
    resolve_all,
)
from fallback_plugins.shared.tree import (
    DependencyEdge,
    DependencyTree,
    Node,
    cleared_paths,
    downgraded,
)
from fallback_tier.advisory import Advisory, bundle
from fallback_tier.errors import RecipeError, StoppedError
from fallback_tier.execution import steps_so_far
from fallback_tier.outcome import NOT_RESOLVED, Left, Move, not_resolved
from fallback_tier.repo import RepoContext
from tests.unit.shared.recipes import tracked

NPM = "npm"
LOCK = "package-lock.json"


def record(name: str, fixed: str, identifier: str) -> Advisory:
    return Advisory.model_validate(
        {
            "id": identifier,
            "affected": [
                {
                    "package": {"ecosystem": NPM, "name": name},
                    "ranges": [
                        {"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": fixed}]}
                    ],
                }
            ],
        }
    )


INI = record("ini", "1.3.6", "GHSA-ini")
RC = record("rc", "2.0.0", "GHSA-rc")


def tree(ini: str = "1.3.5", rc: str = "1.2.8") -> DependencyTree:
    """app → rc → ini, and app → tool → rc."""
    nodes = (
        Node("node_modules/rc", "rc", rc, (DependencyEdge("ini", "~1.3.0", "node_modules/ini"),)),
        Node("node_modules/ini", "ini", ini),
        Node(
            "node_modules/tool",
            "tool",
            "3.0.0",
            (DependencyEdge("rc", "^1.0.0", "node_modules/rc"),),
        ),
    )
    app = Node(
        "",
        "app",
        "",
        (
            DependencyEdge("rc", "^1.2.7", "node_modules/rc"),
            DependencyEdge("tool", "^3.0.0", "node_modules/tool"),
        ),
    )
    return DependencyTree(LOCK, {node.key: node for node in nodes}, (app,))


def move(after: str | None = "1.3.6", before: str = "1.3.5") -> Move:
    step = LadderStep.LOCK_REFRESH
    return Move(package="ini", manifest=LOCK, step=step, before=(before,), after=after)


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    (tmp_path / LOCK).write_text("old\n")
    return tracked(tmp_path)


def fix(
    before: DependencyTree, after: DependencyTree, *moves: Move, text: str = "new\n"
) -> ProjectFix:
    return ProjectFix({LOCK: text}, moves or (move(),), before=before, after=after)


def test_each_path_to_the_affected_package_is_named_with_what_became_of_it() -> None:
    paths = cleared_paths(tree(), tree(ini="1.3.6"), INI, NPM, LOCK)
    assert {path.path for path in paths} == {
        ("app", "rc 1.2.8", "ini 1.3.5"),
        ("app", "tool 3.0.0", "rc 1.2.8", "ini 1.3.5"),
    }
    assert {path.outcome for path in paths} == {"now ini 1.3.6"}
    assert {path.advisory_ids for path in paths} == {("GHSA-ini",)}


def test_a_package_that_is_gone_is_said_to_be() -> None:
    without = DependencyTree(LOCK, {}, tree().roots)
    assert {path.outcome for path in cleared_paths(tree(), without, INI, NPM, LOCK)} == {
        "no longer installed"
    }


def test_what_is_still_affected_is_not_called_cleared() -> None:
    """A bundle that leaves rc as it is clears the ways to ini, and says nothing of rc."""
    both = bundle([INI, RC])
    paths = cleared_paths(tree(), tree(ini="1.3.6"), both, NPM, LOCK)
    assert {path.path[-1] for path in paths} == {"ini 1.3.5"}
    moved = DependencyTree(LOCK, {"elsewhere": Node("elsewhere", "ini", "1.3.4")}, tree().roots)
    assert cleared_paths(tree(), moved, INI, NPM, LOCK) == ()


def test_a_result_carries_the_trees_and_the_level(repo: RepoContext) -> None:
    result = combined(NPM, INI, repo, [fix(tree(), tree(ini="1.3.6"))])
    assert result.proof_level is ProofLevel.RESOLVED_TREE
    assert "node_modules/ini ini 1.3.5" in result.tree_before
    assert "node_modules/ini ini 1.3.6" in result.tree_after
    pins = replace(fix(tree(), tree(ini="1.3.6")), before=None, after=None)
    assert combined(NPM, INI, repo, [pins]).proof_level is ProofLevel.PINS


@pytest.mark.parametrize(
    ("after", "moves", "words"),
    [
        (tree(ini="1.3.5"), (move(),), "ini 1.3.5 would stay, affected by GHSA-ini"),
        (tree(ini="1.3.6", rc="1.2.0"), (move(),), "rc would go down from 1.2.8 to 1.2.0"),
        (tree(ini="1.3.6"), (move("1.3.4", "1.3.3"),), "ini 1.3.4 is itself affected"),
        (tree(ini="1.3.6"), (move("1.3.6", "1.3.7"),), "ini would go from 1.3.7 to 1.3.6"),
    ],
)
def test_what_no_fix_may_do(
    repo: RepoContext, after: DependencyTree, moves: tuple[Move, ...], words: str
) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        combined(NPM, INI, repo, [fix(tree(), after, *moves)])
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED


def test_nothing_changed_is_never_fixed(repo: RepoContext) -> None:
    with pytest.raises(RecipeError) as caught:
        combined(NPM, INI, repo, [fix(tree(), tree(ini="1.3.6"), text="old\n")])
    assert caught.value.reason is RefusalReason.NOTHING_CHANGED


def test_another_advisory_of_the_bundle_is_not_walked_into(repo: RepoContext) -> None:
    """rc 1.2.8 was affected before and is left by name; rc 1.9.0 would be a new affected version."""
    both = bundle([INI, RC])
    stays = left_behind(
        both,
        NPM,
        package="rc",
        versions=["1.2.8"],
        manifest=LOCK,
        error=blocked("rc", "2.0.0", parent="tool 3.0.0", spec="^1.0.0", where=LOCK),
        tried=Tried(),
    )
    kept = replace(fix(tree(), tree(ini="1.3.6")), left=(stays,))
    result = combined(NPM, both, repo, [kept])
    assert [(item.package, item.advisory_ids) for item in result.left] == [("rc", ("GHSA-rc",))]
    walked = replace(fix(tree(), tree(ini="1.3.6", rc="1.9.0")), left=(stays,))
    with pytest.raises(RecipeError, match=r"rc 1\.9\.0 "):
        combined(NPM, both, repo, [walked])


def test_that_not_all_steps_were_tried_is_said_before_a_refusal(repo: RepoContext) -> None:
    refused = Left(
        package="rc", manifest=LOCK, reason=RefusalReason.NO_FIXED_VERSION, sentence="It has none."
    )
    error = not_resolved(StoppedError("Stopped.", next_step="More time.", kind="time_limit"))
    stopped = refused.model_copy(update={"reason": error.reason, "kind": error.kind})
    for advisory in (INI, bundle([INI, RC])):
        with pytest.raises(RecipeError) as caught:
            combined(NPM, advisory, repo, [ProjectFix({}, (), (refused, stopped))])
        assert caught.value.kind == NOT_RESOLVED


def test_a_partial_fix_of_one_advisory_is_none(repo: RepoContext) -> None:
    error = blocked("ini", "1.3.6", parent="rc 1.2.8", spec="~1.2.0", where=LOCK)
    tried = Tried()
    tried.no(LadderStep.LOCK_REFRESH, error)
    stays = left_behind(
        INI, NPM, package="ini", versions=["1.3.5"], manifest=LOCK, error=error, tried=tried
    )
    with pytest.raises(RecipeError) as caught:
        combined(NPM, INI, repo, [fix(tree(), tree(ini="1.3.6")), ProjectFix({}, (), (stays,))])
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    (declined,) = caught.value.declined
    assert declined.step is LadderStep.LOCK_REFRESH
    (blocker,) = declined.blockers
    assert (blocker.kind, blocker.package) == (BlockerKind.CONFLICT, "rc 1.2.8")
    assert (blocker.constraint, blocker.file) == ("ini ~1.2.0", LOCK)


def test_why_a_step_failed_is_told_rather_than_that_nothing_has_to_be_forced() -> None:
    failed = RecipeError(RefusalReason.RESOLVER_FAILED, "npm said no.", next_step="Ask npm.")
    tried = Tried()
    tried.no(LadderStep.LOCK_REFRESH, failed)
    tried.no(LadderStep.OVERRIDE, admits_already("ini"))
    assert tried.refusal is failed
    alone = Tried()
    alone.no(LadderStep.OVERRIDE, admits_already("ini"))
    assert alone.refusal.kind == "admits_already"


class Broken:
    path = "sub/package-lock.json"

    def resolve(self, advisory: Advisory, _patched: object = None, /) -> ProjectFix | None:
        raise RecipeError(RefusalReason.RESOLVER_FAILED, "npm said no.", next_step="Ask npm.")


class Clear:
    path = LOCK

    def resolve(self, advisory: Advisory, _patched: object = None, /) -> ProjectFix | None:
        return None


def nothing() -> RecipeError:
    return RecipeError(RefusalReason.NOT_AFFECTED, "Nothing is affected.", next_step="Nothing.")


def test_a_project_that_cant_be_resolved_stops_one_advisory_and_is_left_of_a_bundle() -> None:
    with pytest.raises(RecipeError, match="npm said no"):
        resolve_all(INI, [Clear(), Broken()], nothing=nothing)
    (found,) = resolve_all(bundle([INI, RC]), [Clear(), Broken()], nothing=nothing)
    assert [(item.manifest, item.sentence) for item in found.left] == [
        ("sub/package-lock.json", "npm said no.")
    ]
    with pytest.raises(RecipeError, match="Nothing is affected"):
        resolve_all(INI, [Clear()], nothing=nothing)


def stop() -> StoppedError:
    return StoppedError("Not resolved within 5 s.", next_step="More time.", kind="time_limit")


class Stopped(Broken):
    def resolve(self, advisory: Advisory, _patched: object = None, /) -> ProjectFix | None:
        raise stop()


class Fixed(Clear):
    def resolve(self, advisory: Advisory, _patched: object = None, /) -> ProjectFix | None:
        return fix(tree(), tree(ini="1.3.6"))


def test_a_project_whose_clients_are_stopped_leaves_those_before_it_as_they_are() -> None:
    fixed, left = resolve_all(bundle([INI, RC]), [Fixed(), Stopped()], nothing=nothing)
    assert fixed.texts == {LOCK: "new\n"}
    assert [(item.manifest, item.is_not_resolved) for item in left.left] == [(Stopped.path, True)]
    with pytest.raises(StoppedError):
        resolve_all(INI, [Fixed(), Stopped()], nothing=nothing)


def stopping(fixed: DependencyTree) -> tuple[Strategy[str], Strategy[str]]:
    """A step that refuses rc and fixes the others; at the next, clients are stopped."""

    def refresh(_at: Position[str], packages: tuple[str, ...]) -> Reached[str]:
        if "rc" in packages:
            raise blocked("rc", "2.0.0", parent="tool 3.0.0", spec="^1.0.0", where=LOCK)
        return Reached(Position("", fixed))

    def bump(_at: Position[str], _packages: tuple[str, ...]) -> Reached[str]:
        raise stop()

    return Strategy(LadderStep.LOCK_REFRESH, refresh), Strategy(LadderStep.DIRECT_BUMP, bump)


def test_what_was_reached_before_clients_are_stopped_stays() -> None:
    """rc was refused once, and its other steps were not tried: that is no reason why it has none."""
    rules = ResultRules[str](NPM, bundle([INI, RC]))
    resolution = Resolution(rules, Position("", tree()))
    resolution.run(stopping(tree(ini="1.3.6")))
    assert [(it.package, it.after) for it in resolution.moves(LOCK)] == [("ini", "1.3.6")]
    (left,) = resolution.lefts(LOCK)
    assert (left.package, left.is_not_resolved) == ("rc", True)
    assert left.sentence == "Not resolved within 5 s."
    assert steps_so_far() is None


def test_a_part_of_an_attempt_is_stopped_as_a_whole() -> None:
    """Otherwise the attempt would go on with half of it, and its failure would count as the step's."""
    resolution = Resolution(ResultRules[str](NPM, bundle([INI, RC])), Position("", tree()))
    with pytest.raises(StoppedError):
        resolution.climb(stopping(tree(ini="1.3.6")))


@given(
    edges=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=60),
    target=st.integers(0, 11),
)
def test_paths_are_real_simple_and_bounded(edges: list[tuple[int, int]], target: int) -> None:
    """Any graph, cycles too: every path starts at a root or at an orphan, follows asks, repeats none."""
    asks: dict[int, list[int]] = {}
    for dependent, asked in edges:
        asks.setdefault(dependent, []).append(asked)
    nodes = {
        str(number): Node(
            str(number),
            f"p{number}",
            "1.0.0",
            tuple(DependencyEdge(f"p{asked}", "*", str(asked)) for asked in asks.get(number, ())),
        )
        for number in range(12)
    }
    root = Node("", "root", "", (DependencyEdge("p0", "*", "0"),))
    graph = DependencyTree(LOCK, nodes, (root,))
    paths = graph.paths_to(str(target), limit=5)
    assert 1 <= len(paths) <= 5
    for path in paths:
        assert path[-1].key == str(target)
        assert len({node.key for node in path}) == len(path)
        for dependent, asked in pairwise(path):
            assert asked.key in {ask.to for ask in dependent.asks}
        assert path[0] is root or len(path) == 1


def test_lost_copies_are_no_downgrade() -> None:
    two = DependencyTree(LOCK, {**tree().nodes, "x": Node("x", "ini", "1.0.0")}, tree().roots)
    assert downgraded(two, tree(), NPM) is None
    assert downgraded(tree(), DependencyTree(LOCK, {}, ()), NPM) is None


def test_a_lower_version_for_some_environments_is_a_downgrade() -> None:
    """As uv locks it for an old Python: the highest version stays."""
    before = tree()
    (app,) = before.roots
    old = Node("rc 0.1.0", "rc", "0.1.0")
    forked = app._replace(asks=(*app.asks, DependencyEdge("rc", "^1.2.7", old.key)))
    after = DependencyTree(LOCK, {**before.nodes, old.key: old}, (forked,))
    assert downgraded(before, after, NPM) == ("rc", "1.2.8", "0.1.0")
    another = DependencyTree(LOCK, {**before.nodes, old.key: old}, before.roots)
    assert downgraded(before, another, NPM) is None


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            "1.2.8",
            "2.0.0-rc.1",
            "rc 2.0.0-rc.1 would come in, which is a pre-release (package-lock.json)",
        ),
        ("2.0.0-rc.1", "2.0.0-rc.2", None),
        ("1.2.8", "2.0.0", None),
    ],
)
def test_no_final_release_gives_way_to_a_candidate(
    before: str, after: str, problem: str | None
) -> None:
    rules = ResultRules[str](NPM, INI)
    old, new = Position("", tree(rc=before)), Position("", tree(ini="1.3.6", rc=after))
    found = rules.problem(old, new)
    assert (describe(found) if found else None) == problem


def test_a_dependent_that_moved_by_itself_is_progress() -> None:
    """Another copy can be left below the other dependent: as many are affected as before."""
    shared = tree()
    tool = shared.nodes["node_modules/tool"]._replace(
        asks=(DependencyEdge("ini", "1.3.5", "node_modules/ini"),)
    )
    before = replace(shared, nodes={**shared.nodes, tool.key: tool})
    below = Node("node_modules/tool/node_modules/ini", "ini", "1.3.5")
    alone = tool._replace(asks=(DependencyEdge("ini", "1.3.5", below.key),))
    moved = Node("node_modules/ini", "ini", "1.3.6")
    nodes = {**before.nodes, tool.key: alone, moved.key: moved, below.key: below}
    after = replace(before, nodes=nodes)
    rules = ResultRules[str](NPM, INI)
    assert rules.is_nearer(Position("", before), Position("", after))
    assert not rules.is_nearer(Position("", after), Position("", after))
    assert not rules.is_nearer(Position("", after), Position("", before))
