"""The search without models: what beam search promises, whatever the scores are."""

from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.llm.selfrag import Beam, Path, Scored

STEPS = 4


@dataclass(frozen=True)
class Node:
    """A segment that can follow another. ``name`` tells nodes apart, ``key`` tells paths apart."""

    name: int
    key: int
    score: float
    is_final: bool
    children: tuple["Node", ...]


@st.composite
def trees(draw: st.DrawFn, *, keys: int | None = None, finals: bool = True) -> Node:
    """``keys``: so few different paths that some are equal; None: all differ."""
    count = 0

    def node(depth: int) -> Node:
        nonlocal count
        count += 1
        name = count
        return Node(
            name=name,
            key=name if keys is None else draw(st.integers(1, keys)),
            score=draw(st.integers(-2, 8)) / 8,
            is_final=finals and draw(st.integers(0, 3)) == 0,
            children=tuple(
                node(depth + 1) for _ in range(draw(st.integers(0, 3)) if depth < STEPS else 0)
            ),
        )

    return node(0)


@dataclass
class Searched:
    best: Path[Node] | None
    scored: list[int]
    steps: int


def search(tree: Node, width: int) -> Searched:
    beam: Beam[Node] = Beam(width)
    done = Searched(None, [], 0)
    while beam.frontier and done.steps < STEPS:
        scored = []
        for place, path in enumerate(beam.frontier):
            for child in (path.segments[-1] if path.segments else tree).children:
                if beam.is_new(child.key):
                    done.scored.append(child.key)
                    scored.append(Scored(place, child, child.score, child.is_final))
        beam.advance(scored)
        done.steps += 1
    done.best = beam.best()
    return done


def every_path(node: Node, path: tuple[Node, ...] = ()) -> Iterator[tuple[Node, ...]]:
    """All that can't go on: final, without children, or at the cap."""
    if (path and node.is_final) or not node.children or len(path) == STEPS:
        yield path
        return
    for child in node.children:
        yield from every_path(child, (*path, child))


def best_score(tree: Node) -> float | None:
    paths = [path for path in every_path(tree) if path]
    ended = [path for path in paths if path[-1].is_final] or paths
    means = [sum(node.score for node in path) / len(path) for path in ended]
    return max(means, default=None)


def greedy(tree: Node) -> tuple[Node, ...]:
    path: tuple[Node, ...] = ()
    at = tree
    while at.children and len(path) < STEPS and not (path and at.is_final):
        at = max(at.children, key=lambda child: child.score)
        path = (*path, at)
    return path


@given(trees())
def test_a_beam_of_one_is_greedy(tree: Node) -> None:
    best = search(tree, 1).best
    assert (best.segments if best else ()) == greedy(tree)


@given(trees())
def test_a_beam_as_wide_as_the_tree_is_exhaustive(tree: Node) -> None:
    best = search(tree, 3**STEPS).best
    assert (best.score if best else None) == best_score(tree)


@given(trees(finals=False))
def test_without_a_finished_path_the_best_with_a_segment_wins(tree: Node) -> None:
    best = search(tree, 3**STEPS).best
    assert (best is None) == (not tree.children)
    if best is not None:
        assert best.score == best_score(tree)


@given(trees(keys=12), st.integers(1, 5))
def test_no_path_is_scored_twice(tree: Node, width: int) -> None:
    scored = search(tree, width).scored
    assert len(scored) == len(set(scored))


@given(trees(keys=30), st.integers(1, 5))
def test_steps_and_calls_are_bounded(tree: Node, width: int) -> None:
    done = search(tree, width)
    assert done.steps <= STEPS
    assert len(done.scored) <= 3 + (STEPS - 1) * width * 3


@given(trees(keys=30), st.integers(1, 5))
def test_the_same_scores_give_the_same_plan(tree: Node, width: int) -> None:
    assert search(tree, width) == search(tree, width)


@given(trees(), st.integers(1, 5))
def test_a_finished_path_beats_every_unfinished_one(tree: Node, width: int) -> None:
    best = search(tree, width).best
    children = [] if best is None else [node for node in best.segments if node.is_final]
    if best is not None and children:
        assert best.segments[-1].is_final
        assert len(children) == 1


def leaf(name: int, score: float, *children: Node, is_final: bool = False) -> Node:
    return Node(name, name, score, is_final, children)


def test_equal_scores_are_ordered_by_position() -> None:
    tree = leaf(0, 0, leaf(1, 0.5, is_final=True), leaf(2, 0.5, is_final=True))
    for width in (1, 2):
        best = search(tree, width).best
        assert best is not None
        assert [node.name for node in best.segments] == [1]


def test_a_longer_plan_is_not_better_for_its_length() -> None:
    long = leaf(1, 0.5, leaf(2, 0.5, leaf(3, 0.5, is_final=True)))
    tree = leaf(0, 0, long, leaf(4, 0.75, is_final=True))
    best = search(tree, 2).best
    assert best is not None
    assert [node.name for node in best.segments] == [4]


def test_a_wider_beam_finds_what_greed_passes_by() -> None:
    tree = leaf(
        0,
        0,
        leaf(1, 0.5, leaf(2, 0.0, is_final=True)),
        leaf(3, 0.375, leaf(4, 1.0, is_final=True)),
    )
    narrow, wide = search(tree, 1).best, search(tree, 2).best
    assert narrow is not None
    assert wide is not None
    assert [node.name for node in narrow.segments] == [1, 2]
    assert [node.name for node in wide.segments] == [3, 4]


def test_a_finished_path_takes_no_place_in_later_steps() -> None:
    beam: Beam[str] = Beam(2)
    kept = beam.advance(
        [Scored(0, "a", 0.9, True), Scored(0, "b", 0.8, False), Scored(0, "c", 0, False)]
    )
    assert kept == (True, True, False)
    assert [path.segments for path in beam.frontier] == [("b",)]
    assert beam.advance([Scored(0, "d", 1.0, False), Scored(0, "e", 0.9, False)]) == (True, True)
    assert [path.segments for path in beam.frontier] == [("b", "d"), ("b", "e")]


def test_a_path_that_nothing_continues_has_ended_and_may_still_win() -> None:
    beam: Beam[str] = Beam(3)
    beam.advance([Scored(0, name, score, False) for name, score in (("a", 0.9), ("b", 0.8))])
    beam.advance([Scored(0, "worse", -0.3, False)])
    assert [path.segments for path in beam.frontier] == [("a", "worse")]
    best = beam.best()
    assert best is not None
    assert best.segments == ("b",)
    assert not beam.has_finished
