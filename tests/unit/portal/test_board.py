"""The board tells of every trail what the whole record tells, and reads each event once."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from fallback_audit.event_types import JudgedTests
from fallback_audit.events import AuditEvent, GateJudged
from fallback_audit.ports import Scope
from fallback_audit.showing.describe import summarise
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_tier.fix.journal.questions import questions
from fallback_tier.portal.board import ABANDONED, TAKEN_APART, Board
from tests.unit.audit import human_trails as h
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.batch_trails import (
    delivered_in_part,
    fails_together,
    fixed_in_part,
    nothing_proved_together,
    part,
    undecided_together,
)
from tests.unit.fix.journal.review_record import Record

TRAILS: list[Callable[[], t.Events]] = [
    t.recipe_verified,
    t.verified_on_retry,
    t.model_with_examples,
    t.replayed,
    t.invalid_then_verified,
    t.cap_reached,
    t.same_failure_three_times,
    t.not_affected,
    t.model_unavailable,
    t.infrastructure_failed,
    t.interrupted_and_resumed,
    t.foreign_orchestrator,
    m.stopped_at_budget,
    m.raised_and_verified,
    m.raised_twice,
    m.doubted_then_supported,
    m.doubted_twice,
    m.self_rag,
    m.self_rag_on_retry,
    h.abandoned_between_gates,
    h.abandoned_when_reopened,
    h.abandoned_after_raise,
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "audit.db"


@pytest.fixture
def store(place: Path) -> Iterator[SqliteAuditStore]:
    with closing(SqliteAuditStore(place)) as opened:
        yield opened


def write(store: SqliteAuditStore, trail: Callable[[], t.Events], name: str) -> None:
    Record(store).write(trail(), Scope(fix_id=name, gate_transition_id=f"gate-{name}"))


def begun_as(begun: AuditEvent, trail: Callable[[], t.Events]) -> t.Events:
    return [begun, *trail()[1:]]


def test_it_asks_what_the_record_asks(store: SqliteAuditStore, place: Path) -> None:
    board = Board(lambda: open_readonly(place))
    for trail in TRAILS:
        write(store, trail, trail.__name__)
        assert board.catch_up().behind == 0
        asked = questions(store)
        assert [(one.fix_id, one.reason, one.attempts, one.repository) for one in asked] == [
            (line.fix_id, line.reason, len(line.attempts), line.repository)
            for line in board.waiting()
        ], trail.__name__
        assert_counted(board)


@pytest.mark.parametrize(
    "trail", [h.abandoned_between_gates, h.abandoned_when_reopened, h.abandoned_after_raise]
)
def test_an_abandoned_fix_has_ended_and_waits_for_nobody(
    store: SqliteAuditStore, place: Path, trail: Callable[[], t.Events]
) -> None:
    board = Board(lambda: open_readonly(place))
    write(store, trail, "given-up")
    board.catch_up()
    (line,) = board.newest()
    assert (line.outcome, line.answer, line.sentence) == (
        ABANDONED,
        "abandoned by A. Person",
        "the project is archived",
    )
    assert not line.waits
    assert line.unfixed
    assert [day.ended[ABANDONED] for day in board.days.values()] == [1]
    assert not any(end == ABANDONED for _, end in board.by_ecosystem)


@pytest.mark.parametrize("whole", [fails_together, nothing_proved_together, undecided_together])
def test_what_is_taken_apart_is_no_refusal(
    store: SqliteAuditStore, place: Path, whole: Callable[[], t.Events]
) -> None:
    """Its parts are fixes of their own, and say what became of each advisory: once they are on record."""
    board = Board(lambda: open_readonly(place))
    write(store, whole, "both")
    board.catch_up()
    (line,) = board.newest()
    assert (line.outcome, line.waits, line.unfixed) == (TAKEN_APART, False, True)
    assert_counted(board)
    for name, unfixed in (("A", True), ("B", False)):
        write(store, partial(begun_as, part(name), fixed_in_part), name)
        board.catch_up()
        assert board.fixes["both"].unfixed == unfixed
        assert_counted(board)


def test_a_part_of_another_run_or_ecosystem_is_none_of_what_is_taken_apart(
    store: SqliteAuditStore, place: Path
) -> None:
    board = Board(lambda: open_readonly(place))
    write(store, fails_together, "both")
    for name, other in (("run", {"batch_sha256": t.digest("2")}), ("eco", {"ecosystem": "x"})):
        begun = part("A", "B").model_copy(update=other)
        write(store, partial(begun_as, begun, fails_together), name)
    board.catch_up()
    assert board.fixes["both"].no_part_of == ("A", "B")


def test_what_is_taken_apart_counts_once(store: SqliteAuditStore, place: Path) -> None:
    board = Board(lambda: open_readonly(place))
    write(store, fails_together, "both")
    board.catch_up()
    assert [day.ended for day in board.days.values()] == [{TAKEN_APART: 1}]
    assert not board.by_ecosystem
    assert_counted(board)


def test_fixed_stands_beside_what_gates_saw(store: SqliteAuditStore, place: Path) -> None:
    """In the words of the audit trail's own headline, of the last patch."""
    board = Board(lambda: open_readonly(place))
    for trail in (
        *(t.verified_on_retry, t.recipe_verified, h.verified_and_delivered),
        *(fixed_in_part, delivered_in_part),
    ):
        write(store, trail, trail.__name__)
    board.catch_up()
    with closing(open_readonly(place)) as reader:
        told = {one.fix_id: one.headline for one in summarise(reader.events())}
    assert {line.fix_id: line.headline for line in board.newest()} == told
    assert all(line.shown for line in board.newest())
    in_part = {line.fix_id for line in board.newest() if line.headline.endswith("; in part: A")}
    assert in_part == {"fixed_in_part", "delivered_in_part"}


def test_a_patch_that_is_not_delivered_is_not_fixed(store: SqliteAuditStore, place: Path) -> None:
    """Held back, of a dry run, or not delivered yet: nothing of the repository has changed."""
    board = Board(lambda: open_readonly(place))
    write(store, t.recipe_verified, "held")
    board.catch_up()
    (line,) = board.newest()
    assert (line.is_held, line.fixed, line.unfixed) == (True, False, True)
    Record(store).write([h.delivered(1)], Scope(fix_id="held", gate_transition_id="gate-held"))
    board.catch_up()
    (line,) = board.newest()
    assert (line.is_held, line.fixed, line.unfixed) == (False, True, False)
    assert_counted(board)


def test_it_tells_how_far_a_patch_was_tested(store: SqliteAuditStore, place: Path) -> None:
    tests = JudgedTests(
        project=".", tests_level=Level.NOT_JUDGED, reason="no test ran", command="x"
    )

    def untested() -> t.Events:
        told = {"tests_level": tests.tests_level, "tests": (tests,)}
        return [
            one.model_copy(update=told) if isinstance(one, GateJudged) else one
            for one in t.recipe_verified()
        ]

    board = Board(lambda: open_readonly(place))
    write(store, untested, "untested")
    write(store, t.recipe_verified, "before")
    board.catch_up()
    assert {one.fix_id: (one.tests_level, one.untested) for one in board.newest()} == {
        "untested": (Level.NOT_JUDGED, [["tests not judged: no test ran", "command: x"]]),
        "before": (None, []),
    }


def assert_counted(board: Board) -> None:
    """As if each fix were looked at."""
    lines = board.newest()
    for name in ("waits", "fixed", "unfixed"):
        assert board.standing[name] == sum(getattr(line, name) for line in lines), name
    unfixed = [line.fix_id for line in lines if line.unfixed]
    assert [line.fix_id for line in board.newest_unfixed(3)] == unfixed[:3]
    assert [line.fix_id for line in board.newest_unfixed(1_000)] == unfixed


def test_tokens_and_dollars_by_call_type(store: SqliteAuditStore, place: Path) -> None:
    board = Board(lambda: open_readonly(place))
    write(store, m.doubted_then_supported, "fix-1")
    board.catch_up()
    spent = {
        one.call_type: (one.calls, one.input_tokens, str(one.usd))
        for one in board.fixes["fix-1"].spent
    }
    assert spent == {"author": (2, 1_800, "0.02"), "judge": (2, 1_800, "0.02")}


def test_the_influence_of_an_example(store: SqliteAuditStore, place: Path) -> None:
    board = Board(lambda: open_readonly(place))
    write(store, t.model_with_examples, "asked")
    write(store, t.replayed, "replayed")
    board.catch_up()
    assert set(board.fixes["asked"].influences.values()) == {"in a prompt"}
    assert "replayed" in board.fixes["replayed"].influences.values()


def test_a_new_transition_of_a_fix_begins_anew(store: SqliteAuditStore, place: Path) -> None:
    board = Board(lambda: open_readonly(place))
    write(store, t.cap_reached, "fix-1")
    scope = Scope(fix_id="fix-1", gate_transition_id="transition-9")
    Record(store).write(t.recipe_verified(), scope)
    board.catch_up()
    line = board.fixes["fix-1"]
    assert (line.outcome, line.transitions, len(line.attempts)) == ("verified", 2, 1)
    assert board.waiting() == []
    assert_counted(board)


def test_a_record_that_was_begun_again_is_read_anew(store: SqliteAuditStore, place: Path) -> None:
    other = place.with_name("other.db")
    now = [place]
    board = Board(lambda: open_readonly(now[0]))
    write(store, t.cap_reached, "old")
    board.catch_up()
    with closing(SqliteAuditStore(other)) as second:
        write(second, t.recipe_verified, "new")
    now[0] = other
    board.catch_up()
    assert list(board.fixes) == ["new"]
    assert_counted(board)
    assert sum(day.attempts for day in board.days.values()) == 1


def test_unknown_is_an_outcome_of_its_own_and_asks_nobody(
    store: SqliteAuditStore, place: Path
) -> None:
    write(store, t.unknown, "unknown")
    board = Board(lambda: open_readonly(place))
    board.catch_up()
    (line,) = board.newest()
    assert (line.outcome, line.waits, line.unfixed) == ("unknown", False, True)
    assert [item.path for item in line.unread] == ["lib/yarn.lock"]
    assert questions(store) == []
