"""Events in words: a verdict names what it led to, routine is folded, failures never."""

from itertools import count

from fallback_audit.ports import StoredEvent
from fallback_tier.portal.views.timeline import Group, timeline
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t


def shown(events: t.Events) -> list[Group]:
    numbers = count(1)
    return timeline(
        [
            StoredEvent(
                seq=next(numbers),
                scope=t.SCOPE,
                kind=event.kind,
                schema_version=12,
                recorded_at="2026-11-25T10:00:00.000000Z",
                payload_sha256="0" * 64,
                previous_leaf="0" * 64,
                leaf="1" * 64,
                payload=event,
            )
            for event in events
        ]
    )


def test_a_verdict_names_the_act_that_it_caused() -> None:
    lines = [line for group in shown(m.doubted_twice()) for line in group.lines]
    led = [line.led_to for line in lines if line.kind == "GroundingJudged"]
    assert [act[0] for act in led if act] == [
        "asked again with the strict instruction",
        "handed on with the flag low confidence",
    ]
    numbers = {line.seq: line.kind for line in lines}
    assert [numbers[act[1]] for act in led if act] == ["ModelCalled", "LowConfidenceFlagged"]


def test_what_is_routine_is_folded_and_nothing_is_lost() -> None:
    events = [t.started(1, 0), *(t.judged(1, f"gate-{n}") for n in range(5)), *t.failing_gates(1)]
    groups = shown(events)
    assert [line.seq for group in groups for line in group.lines] == list(range(1, len(events) + 1))
    (folded,) = [group for group in groups if group.folded]
    assert all(line.kind == "GateJudged" and line.tone == "" for line in folded.lines)


def test_both_prompt_shapes_are_plain() -> None:
    says = " ".join(line.says for group in shown(t.cap_reached()) for line in group.lines)
    assert "initial LLM run" in says
    assert "fresh LLM run, no RAG: in place of examples, the summary of the last failure" in says


def test_each_piece_of_evidence_says_what_it_is() -> None:
    lines = [line for group in shown(t.cap_reached()) for line in group.lines]
    named = {line.kind: [what for what, _ in line.evidence] for line in lines if line.evidence}
    assert named["PatchProposed"][0] == "patch"
    assert named["AttemptFailed"] == ["summary"]


def test_every_field_that_names_evidence_has_a_word() -> None:
    for trail in m.VALID:
        for group in shown(trail()):
            for line in group.lines:
                assert "evidence" not in [what for what, _ in line.evidence], line.kind
