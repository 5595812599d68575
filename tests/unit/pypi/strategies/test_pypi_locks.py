"""What holds for every Python lock: the checks that no step gets around, and what is said in the end."""

import pytest

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.pypi.strategies import locked
from fallback_plugins.pypi.strategies.all_strategies import State, cheapest_first
from fallback_plugins.pypi.strategies.locked import one_by_one
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory import bundle
from fallback_tier.errors import RecipeError
from tests.unit.shared.recipes import advisory

ADVISORY = advisory("PyPI", "leaf", [("0", "1.2")])


def _tree(**versions: str) -> DependencyTree:
    nodes = {
        f"{name} {version}": Node(f"{name} {version}", name, version)
        for name, version in versions.items()
    }
    return DependencyTree("x.lock", nodes)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (_tree(leaf="1.1", b="1"), "leaf 1.1 would come in, which is itself affected"),
        (_tree(leaf="1.0", b="2"), "leaf would stay as affected as before"),
        (_tree(leaf="1.2", b="0.9"), "b would go down from 1 to 0.9"),
        (_tree(leaf="1.2", b="6"), "b 6 would come in, which is itself affected"),
    ],
)
def test_a_step_that_does_what_none_may_is_declined(after: DependencyTree, message: str) -> None:
    both = bundle([ADVISORY, advisory("PyPI", "b", [("5", "7")])])
    start = State({"x.lock": "old"}, _tree(leaf="1.0", b="1"))

    def bad(state: State, package: str) -> State:
        return State({"x.lock": "bad"}, after)

    def good(state: State, package: str) -> State:
        return State({"x.lock": "good"}, _tree(leaf="1.2", b="1"))

    steps = cheapest_first(refresh=one_by_one(bad), direct=one_by_one(good))
    fix = locked.resolve(both, "x.lock", start, steps)
    assert fix is not None
    assert fix.texts == {"x.lock": "good"}
    (move,) = fix.moves
    assert move.step is LadderStep.DIRECT_BUMP
    assert message in move.declined[0].reason


def test_what_another_packages_step_cleared_is_not_resolved_again() -> None:
    start = State({"x.lock": "old"}, _tree(leaf="1.0", twin="1.0"))
    record = advisory("PyPI", "leaf", [("0", "1.2")])
    other = advisory("PyPI", "twin", [("0", "1.2")])
    calls: list[str] = []

    def step(state: State, package: str) -> State:
        calls.append(package)
        return State({"x.lock": "new"}, _tree(leaf="1.2", twin="1.2"))

    fix = locked.resolve(
        bundle([record, other]), "x.lock", start, cheapest_first(refresh=one_by_one(step))
    )
    assert fix is not None
    assert len(calls) == 1
    assert {move.package for move in fix.moves} == {"leaf", "twin"}


def test_the_refusal_names_the_constraint_although_a_later_step_failed_otherwise() -> None:
    blocked = RecipeError(
        RefusalReason.BLOCKED_BY_CONSTRAINT, "p asks for leaf <1.2.", next_step=""
    )
    other = RecipeError(RefusalReason.RESOLVER_FAILED, "no network.", next_step="")

    def failing(error: RecipeError) -> locked.StepFunction:
        def step(state: State, package: str) -> State:
            raise error

        return step

    steps = cheapest_first(parent=one_by_one(failing(blocked)), override=one_by_one(failing(other)))
    fix = locked.resolve(ADVISORY, "x.lock", State({}, _tree(leaf="1.0")), steps)
    assert fix is not None
    assert fix.left[0].sentence == "p asks for leaf <1.2."
    assert [step.step for step in fix.left[0].declined] == [step.step for step in steps]


def test_parents_that_were_raised_on_the_way_are_named() -> None:
    def tree(parent: str, leaf: str) -> DependencyTree:
        node = Node(f"p {parent}", "p", parent, (DependencyEdge("leaf", "", f"leaf {leaf}"),))
        return DependencyTree(
            "x.lock", {node.key: node, f"leaf {leaf}": Node(f"leaf {leaf}", "leaf", leaf)}
        )

    fix = locked.resolve(
        ADVISORY,
        "x.lock",
        State({}, tree("1", "1.0")),
        cheapest_first(edit=one_by_one(lambda *_: State({"x.lock": ""}, tree("2", "1.2")))),
    )
    assert fix is not None
    assert fix.moves[0].raised == ("p 2",)
