"""The contract on line: what breaks a rule is refused, or flagged; and a guard is always caught up."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fallback_audit.contract.guard import ContractGuard, JudgedFix
from fallback_audit.contract.table import ALL_RULES, RULES, link_violations, violations
from fallback_audit.contract.trail import Entry, Trail, link_of
from fallback_audit.errors import ContractError
from fallback_audit.events import AuditEvent, ModelCalled, RagSkippedOnRetry
from fallback_audit.ports import MAINTENANCE, Record, Scope
from fallback_audit.vocabulary import Tier
from tests.kinds import OfKind
from tests.unit.audit import generated as g
from tests.unit.audit import human_trails as h
from tests.unit.audit import maintenance_trails as u
from tests.unit.audit import trails as t
from tests.unit.audit.contract.test_contract import EVERY
from tests.unit.audit.guarding import Guarded, Transaction, stored
from tests.unit.audit.trails import SCOPE, Events, without

VALID = {name: lines for name, lines in g.corpus().items() if not g.broken(lines)}


def refusing() -> Guarded:
    return Guarded(ContractGuard())


def wrong(lines: Sequence[g.Line]) -> set[tuple[str, int]]:
    """What all the rules say of the whole, built anew."""
    trails: dict[Scope, list[Entry[AuditEvent]]] = {}
    for seq, scope, event in lines:
        trails.setdefault(scope, []).append(Entry(seq, event))
    judged = [Trail(scope, entries) for scope, entries in trails.items()]
    found = {(v.rule, v.seq) for trail in judged for v in violations(trail)}
    if all(trail.of_a_fix for trail in judged):
        links = [link_of(trail) for trail in judged]
        found |= {(v.rule, v.seq) for v in link_violations(SCOPE.fix_id, links)}
    return found


def check_shortcut(lines: Sequence[g.Line]) -> None:
    """Judging by the rules that an event can break says the same as judging everything."""
    fix, seen = JudgedFix(SCOPE.fix_id), set[tuple[str, int]]()
    for count, (seq, scope, event) in enumerate(lines, start=1):
        quick = {(v.rule, v.seq) for v in fix.add(Entry(seq, event), scope)}
        new = wrong(lines[:count]) - seen
        assert quick == new, f"event {seq}, {event.kind}"
        seen |= new


# --- The shortcut ---


@pytest.mark.parametrize("name", sorted(g.corpus()))
def test_an_event_is_judged_by_every_rule_that_it_can_break(name: str) -> None:
    check_shortcut(g.corpus()[name])


@pytest.mark.parametrize("rule", sorted(EVERY))
def test_a_mutant_is_judged_on_line_as_it_is_off_line(rule: str) -> None:
    for mutant in EVERY[rule][:4]:
        check_shortcut(g.numbered(mutant()))


POOL = sorted(
    {
        line.event.model_dump_json(): line.event
        for name, lines in g.corpus().items()
        for line in lines
        if name != "kept"
    }.items()
)
events = st.sampled_from([event for _, event in POOL])


@st.composite
def stories(draw: st.DrawFn) -> list[g.Line]:
    """The beginning of a valid trail, and then anything, of two gate transitions."""
    lines = g.corpus()[draw(st.sampled_from(sorted(g.corpus())))]
    begun = list(lines[: draw(st.integers(0, len(lines)))])
    other = Scope(fix_id=SCOPE.fix_id, gate_transition_id="transition-2")
    for event in draw(st.lists(events, max_size=8)):
        attempt = draw(st.sampled_from((1, 1, 2, None)))
        if attempt and hasattr(event, "attempt"):
            event = event.model_copy(update={"attempt": attempt})
        scope = draw(st.sampled_from((SCOPE, SCOPE, other)))
        begun.append(g.Line(begun[-1].seq + 1 if begun else 1, scope, event))
    return begun


def reopened_before_its_patch() -> list[g.Line]:
    """Return a trail whose patch follows its end: a reopening before that patch lacked nothing."""
    lines = g.numbered(h.unavailable_then_reopened())
    return [*lines, g.Line(lines[-1].seq + 1, SCOPE, t.proposed(1, Tier.RECIPE))]


@settings(deadline=None, max_examples=150)
@example(reopened_before_its_patch())
@given(story=stories())
def test_whatever_is_appended_is_judged_by_every_rule_that_it_can_break(
    story: list[g.Line],
) -> None:
    check_shortcut(story)


def test_the_shortcut_spares_rules() -> None:
    """Else it would be none; and each rule is asked for something."""
    kinds = {type(line.event) for lines in g.corpus().values() for line in lines}
    for rule in ALL_RULES:
        assert rule.sees is None or rule.sees & kinds
    some = [rule for rule in RULES if rule.sees is not None]
    assert len(some) > len(RULES) * 0.8


# --- Refused ---


@pytest.mark.parametrize("name", sorted(VALID))
def test_a_valid_trail_is_admitted(name: str) -> None:
    guarded = refusing()
    for seq, scope, event in VALID[name]:
        guarded.append(event, scope, seq)
    assert not guarded.flags


def test_a_refusal_names_the_rule_where_it_comes_from_the_event_and_what_to_do() -> None:
    guarded = refusing()
    events = without(t.verified_on_retry(), RagSkippedOnRetry)
    first_call = next(n for n, e in enumerate(events) if isinstance(e, ModelCalled))
    for event in events[:first_call]:
        guarded.append(event)
    with pytest.raises(ContractError) as refused:
        guarded.append(events[first_call])
    assert len(guarded.rows) == first_call
    assert refused.value.problem == (
        f"ModelCalled can't be recorded as event {first_call + 1} of fix fix-1, gate transition"
        " transition-1: rule rag-skip-recorded (ADR-0011) says: A retry that asks a model has exactly"
        " one RagSkippedOnRetry, before the first request. Here: a retry asked the model before"
        " RagSkippedOnRetry was on record."
    )
    assert "`fallback-tier audit show fix-1`" in refused.value.next_step
    # What was forgotten can still be recorded, and then the call.
    guarded.append(t.skipped(2, 1))
    guarded.append(events[first_call])
    assert guarded.rows[-1].kind == "ModelCalled"


def test_the_event_that_lacks_its_action_is_named_where_it_is_another_one() -> None:
    guarded = refusing()
    for event in [t.fix_started(), *t.first_by_recipe()]:
        guarded.append(event)
    with pytest.raises(ContractError, match=r"proposals-are-judged .*\(at event 4\)\."):
        guarded.append(t.verified(1, Tier.RECIPE))


def test_of_a_batch_with_one_bad_event_nothing_is_recorded() -> None:
    guarded = refusing()
    records = [Record(SCOPE, event) for event in t.recipe_verified()]
    guarded.append_all(records[:3])
    with pytest.raises(ContractError, match="one-terminal-event"):
        guarded.append_all([*records[3:], records[-1]])
    assert len(guarded.rows) == 3
    guarded.append_all(records[3:])
    assert len(guarded.rows) == len(records)


def test_a_further_gate_transition_that_nobody_opened_is_refused() -> None:
    guarded = refusing()
    for event in h.with_gates(t.cap_reached()):
        guarded.append(event)
    second = Scope(fix_id=SCOPE.fix_id, gate_transition_id="transition-2")
    started = h.planned(SCOPE.gate_transition_id)
    with pytest.raises(ContractError, match="transitions-are-opened"):
        guarded.append(started, second)
    guarded.append(h.reopened("transition-2"))
    for event in [started, *t.retry(5, 1)]:
        guarded.append(event, second)


# --- Flagged ---


def test_a_flag_stands_right_behind_and_the_fix_goes_on() -> None:
    guarded = Guarded(ContractGuard("flag"))
    for event in without(t.verified_on_retry(), RagSkippedOnRetry):
        guarded.append(event)
    call = next(row.seq for row in guarded.rows if row.payload.kind == "ModelCalled")
    assert guarded.flags == {("rag-skip-recorded", call)}
    assert guarded.rows[call].kind == "AppendFlagged"
    lines = [g.Line(row.seq, row.scope, row.payload) for row in guarded.rows]
    assert g.broken(lines) == {
        "rag-skip-recorded"
    }  # verify says it all the same; the flag is right


@pytest.mark.parametrize("rule", sorted(EVERY))
def test_a_flagged_trail_breaks_no_rule_about_flags(rule: str) -> None:
    guarded = Guarded(ContractGuard("flag"))
    for event in EVERY[rule][0]():
        guarded.append(event)
    lines = [g.Line(row.seq, row.scope, row.payload) for row in guarded.rows]
    assert rule in {flagged for flagged, _ in guarded.flags}
    assert not {"flags-are-real", "flags-stand-behind"} & g.broken(lines)


def test_what_was_wrong_before_there_was_a_guard_is_not_refused_again() -> None:
    guarded = refusing()
    events = without(t.verified_on_retry(), RagSkippedOnRetry)
    guarded.add(SCOPE, *events)
    guarded.append(h.delivered(2))
    with pytest.raises(ContractError, match="one-terminal-event"):
        guarded.append(t.verified(2))


# --- Caught up ---


def half_way(guarded: Guarded) -> Events:
    """The first events are on record; returns the others."""
    events = t.recipe_verified()
    for event in events[:4]:
        guarded.append(event)
    return events[4:]


def test_an_event_that_another_process_appended_is_seen() -> None:
    guarded = refusing()
    rest = half_way(guarded)
    guarded.add(SCOPE, *rest)
    with pytest.raises(ContractError, match="one-terminal-event"):
        guarded.append(rest[-1])
    guarded.append(h.delivered(1))


@pytest.mark.parametrize("replaced", [True, False])
def test_a_transaction_that_was_rolled_back_is_forgotten(replaced: bool) -> None:
    """The guard admitted the end of the fix, and the disk was full."""
    guarded = refusing()
    rest = half_way(guarded)
    transaction = Transaction(guarded)
    for seq, event in enumerate(rest, start=guarded.next):
        guarded.guard.admit(Record(SCOPE, event), seq, transaction)
        guarded.rows.append(stored(seq, SCOPE, event))
    del guarded.rows[4:]
    if replaced:
        guarded.add(SCOPE, rest[0])
    for event in rest[1:] if replaced else rest:
        guarded.append(event)
    assert [row.payload for row in guarded.rows] == t.recipe_verified()


def test_of_a_fix_that_nobody_else_writes_nothing_is_read_twice() -> None:
    guarded = refusing()
    for event in t.cap_reached():
        guarded.append(event)
    assert (guarded.asked, guarded.reads) == (1, 0)


def test_within_one_transaction_a_fix_is_read_once() -> None:
    """Nobody else writes meanwhile; of what was held before, only that another process wrote is new."""
    guarded = refusing()
    events = t.cap_reached()
    guarded.append(events[0])
    guarded.add(Scope(fix_id="other", gate_transition_id="other"), events[0])
    guarded.append_all([Record(SCOPE, event) for event in events[1:]])
    assert (guarded.asked, guarded.reads) == (2, 0)


def test_an_event_of_another_fix_by_another_process_is_no_reason_to_miss_one_of_this() -> None:
    """The numbers in between are somebody else's: the store is asked again, and what it says is seen."""
    guarded = refusing()
    rest = half_way(guarded)
    guarded.append(t.fix_started(), Scope(fix_id="fix-2", gate_transition_id="t"))
    guarded.add(SCOPE, *rest)
    guarded.append(t.started(1, 0), Scope(fix_id="fix-2", gate_transition_id="t"))
    with pytest.raises(ContractError, match="one-terminal-event"):
        guarded.append(rest[-1])


def test_two_guards_on_one_store_agree() -> None:
    guarded = refusing()
    guards = (guarded.guard, ContractGuard())
    for number, event in enumerate(h.cap_then_approved()):
        guarded.guard = guards[number % 3 == 0]
        guarded.append(event)
    for guard in guards:
        guarded.guard = guard
        with pytest.raises(ContractError, match="reviews-are-signed"):
            guarded.append(h.rejected())


def test_memory_is_bounded() -> None:
    guarded = Guarded(ContractGuard(max_cached_events=50))
    fixes = [Scope(fix_id=f"fix-{number}", gate_transition_id="t") for number in range(20)]
    for event in t.recipe_verified()[:-1]:
        for scope in fixes:
            guarded.append(event, scope)
    held = guarded.guard._fixes
    assert sum(fix.size for fix in held.values()) <= 50
    assert fixes[-1].fix_id in held
    for scope in fixes:
        guarded.append(t.verified(1, Tier.RECIPE), scope)
        with pytest.raises(ContractError, match="one-terminal-event"):
            guarded.append(t.verified(1, Tier.RECIPE), scope)


def test_one_fix_larger_than_the_bound_is_still_judged() -> None:
    guarded = Guarded(ContractGuard(max_cached_events=3))
    for event in t.cap_reached():
        guarded.append(event)
    with pytest.raises(ContractError):
        guarded.append(t.started(5, 4))


# --- Altered, redacted, sealed ---


def test_a_trail_that_cannot_be_trusted_takes_no_event() -> None:
    guarded = refusing()
    guarded.add(SCOPE, *t.recipe_verified())
    guarded.bad = 3
    for mode in (ContractGuard(), ContractGuard("flag")):
        guarded.guard = mode
        with pytest.raises(
            ContractError, check=OfKind("trail_not_judged"), match="Event 3 "
        ) as reported:
            guarded.append(h.delivered(1))
        assert reported.value.next_step == "Find out who wrote."
    guarded.append(t.fix_started(), Scope(fix_id="fix-2", gate_transition_id="t"))


def test_a_redacted_event_is_judged_by_what_is_left_of_it() -> None:
    guarded = refusing()
    guarded.add(SCOPE, *h.cap_then_approved()[:-1])
    left = [row.payload for row in guarded.rows]
    left[-1] = left[-1].model_copy(update={"by": "[redacted]", "reason": "[redacted]"})
    guarded.rows = []
    guarded.add(SCOPE, *left)
    guarded.append(u.redacted(len(left), "by", "reason"))
    guarded.append(h.delivered(4))
    with pytest.raises(ContractError, match="redactions-are-named"):
        guarded.append(u.redacted(len(left), "by"))
    with pytest.raises(ContractError, match="deliveries-are-earned"):
        guarded.append(h.delivered(3))


def cut(beginning: Callable[[], Events], kept: int) -> Guarded:
    """What is left of a fix whose first events were sealed; SegmentSealed says so."""
    guarded = refusing()
    events = beginning()
    sealed = len(events) - kept
    for seq, event in list(enumerate(events, start=1))[sealed:]:
        guarded.rows.append(stored(seq, SCOPE, event))
    guarded.rows.append(stored(len(events) + 1, MAINTENANCE, u.sealed(1, sealed)))
    return guarded


@pytest.mark.parametrize("kept", [0, 1, 12])
def test_where_the_beginning_was_sealed_what_is_missing_proves_nothing(kept: int) -> None:
    guarded = cut(t.cap_reached, kept)
    guarded.append(h.approved(4))
    guarded.append(h.delivered(4))
    guarded.append(u.redacted(2, "repository"))  # of the sealed part
    with pytest.raises(ContractError, match="redactions-are-named"):
        guarded.append(u.redacted(guarded.next, "repository"))


def test_a_new_fix_in_a_store_with_sealed_segments_is_judged() -> None:
    guarded = cut(t.cap_reached, 1)
    other = Scope(fix_id="fix-2", gate_transition_id="t")
    guarded.append(t.fix_started(), other)
    with pytest.raises(ContractError, match="events-stand-in-their-attempt"):
        guarded.append(t.judged(1, "tests"), other)


def test_where_nothing_was_sealed_a_missing_beginning_is_a_breach() -> None:
    guarded = refusing()
    for event in (t.verified(1), h.delivered(1)):
        with pytest.raises(ContractError):
            guarded.append(event)
