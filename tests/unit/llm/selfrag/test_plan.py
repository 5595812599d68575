"""Segments in their places, and the plan that they make up."""

from pathlib import Path

import pytest

from fallback_tier.answers.critique import (
    DoneSegment,
    EditSegment,
    RaiseSegment,
    RefuseSegment,
    Segment,
)
from fallback_tier.errors import EditError
from fallback_tier.llm.selfrag import misplaced, plan_key, plan_of
from fallback_tier.outcome import DependencyBump, Override, Refuse, SearchReplace, SourceEdit
from tests.fakes.repository import context
from tests.kinds import OfKind

EDIT = EditSegment(path="a.py", old="x = 1\n", new="x = 2\n", rationale="first", citations=("S1",))
NEXT = EditSegment(
    path="a.py", old="y = 1\n", new="y = 2\n", rationale="then", citations=("S2", "S1")
)
BUMP = RaiseSegment(action="dependency_bump", package="thing", version="2.0", rationale="raise")


@pytest.mark.parametrize(
    ("segment", "before", "place"),
    [
        (EDIT, [], True),
        (BUMP, [], True),
        (RefuseSegment(reason="no"), [], True),
        (DoneSegment(), [], False),
        (NEXT, [EDIT], True),
        (EDIT, [BUMP], True),
        (BUMP, [EDIT], False),
        (RefuseSegment(reason="no"), [EDIT], False),
        (DoneSegment(), [EDIT], False),
    ],
)
def test_where_a_segment_may_stand(segment: Segment, before: list[Segment], place: bool) -> None:
    assert (misplaced(segment, before) is None) == place


def test_edits_make_a_source_edit() -> None:
    plan = plan_of([EDIT, NEXT])
    assert plan == SourceEdit(
        edits=(
            SearchReplace(path="a.py", old="x = 1\n", new="x = 2\n"),
            SearchReplace(path="a.py", old="y = 1\n", new="y = 2\n"),
        ),
        rationale="first then",
        citations=("S1", "S2"),
    )


def test_a_first_segment_may_carry_the_action() -> None:
    bump = plan_of([BUMP, EDIT])
    assert isinstance(bump, DependencyBump)
    assert (bump.package, bump.version, len(bump.edits)) == ("thing", "2.0", 1)
    override = plan_of([BUMP.model_copy(update={"action": "override"})])
    assert isinstance(override, Override)
    assert override.edits == ()
    assert plan_of([RefuseSegment(reason="no code")]) == Refuse(reason="no code")


def test_the_same_outcome_is_the_same_path(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": "x = 1\ny = 1\n"})
    key = plan_key(plan_of([EDIT, NEXT]), repo)
    assert plan_key(plan_of([NEXT, EDIT]), repo) == key
    at_once = EditSegment(path="a.py", old="x = 1\ny = 1\n", new="x =  2\ny = 2\n")
    assert plan_key(plan_of([at_once]), repo) == key
    others: list[list[Segment]] = [
        [EDIT],
        [NEXT],
        [BUMP],
        [BUMP, EDIT, NEXT],
        [RefuseSegment(reason="no")],
    ]
    assert len({key, *(plan_key(plan_of(one), repo) for one in others)}) == 6


def test_a_path_that_changes_nothing_is_none(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": "x = 1\n"})
    back = EditSegment(path="a.py", old="x = 2\n", new="x = 1\n")
    with pytest.raises(EditError, check=OfKind("changes_nothing")):
        plan_key(plan_of([EDIT, back]), repo)
