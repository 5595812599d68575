"""Every text member of every event is either somebody's words, or known not to be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fallback_audit.event_types import (
    FREE_TEXT,
    STRUCTURAL,
    Blocker,
    Digest,
    StepDeclined,
    Structural,
)
from fallback_audit.events import KINDS, AuditEvent, FixRefused, SandboxDisabled, event_adapter
from fallback_audit.retention.redact import REDACTED, free_text_fields, residue, with_words
from fallback_audit.vocabulary import BlockerKind, LadderStep, RefusalReason
from tests.unit.audit import trails


def undecided(event: type[BaseModel]) -> set[str]:
    """Members that hold plain text, with no mark and no pattern."""
    return {
        f"{event.__name__}.{name}"
        for name, field in event.model_fields.items()
        if any(_undecided(Annotated[(field.annotation, None, *field.metadata)]))
    }


def _undecided(annotation: object, *, decided: bool = False) -> Iterator[object]:
    """The ``str`` types inside an annotation that are not marked, as far as they are not enumerations."""
    if annotation is str and not decided:
        yield annotation
    elif get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        decided = decided or any(map(_decides, marks))
        yield from _undecided(inner, decided=decided)
    else:
        for inner in get_args(annotation):
            yield from _undecided(inner, decided=decided)


def _decides(mark: object) -> bool:
    if isinstance(mark, FieldInfo):
        return any(map(_decides, mark.metadata))
    return mark in (FREE_TEXT, STRUCTURAL) or getattr(mark, "pattern", None) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_each_text_is_decided_on(kind: type[AuditEvent]) -> None:
    assert undecided(kind) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_structural_text_can_not_be_redacted(kind: type[AuditEvent]) -> None:
    structural = {name for name, field in kind.model_fields.items() if _marks(field, STRUCTURAL)}
    assert structural.isdisjoint(free_text_fields(kind))


def test_words_of_events_before_are_as_they_were() -> None:
    """What can be redacted is no rule's to go by; a kind that is new since is not in the file."""
    kinds = {kind.__name__: kind for kind in KINDS}
    before = json.loads(
        (Path(__file__).parents[3] / "golden" / "free-text.json").read_text(encoding="utf-8")
    )
    assert {name: sorted(free_text_fields(kinds[name])) for name in before} == before


def _marks(field: FieldInfo, mark: object) -> bool:
    def found(annotation: object) -> bool:
        return annotation is mark or any(map(found, get_args(annotation)))

    return mark in field.metadata or found(field.annotation)


def test_a_text_without_a_decision_is_noticed() -> None:
    class Undecided(BaseModel):
        marked: Annotated[str, FREE_TEXT] | None = None
        several: tuple[Annotated[str, FREE_TEXT], ...] = ()
        ours: tuple[Structural, ...] = ()
        digest: Digest | None = None
        plain: str | None = None
        plains: tuple[str, ...] = ()

    assert free_text_fields(Undecided) == ("marked", "several")  # type: ignore[arg-type]
    assert undecided(Undecided) == {"Undecided.plain", "Undecided.plains"}


_VALID = [
    event
    for make in (
        trails.verified_on_retry,
        trails.model_with_examples,
        trails.invalid_then_verified,
        trails.cap_reached,
        trails.not_affected,
        trails.unknown,
        trails.excepted,
        trails.interrupted_and_resumed,
    )
    for event in make()
]


@given(event=st.sampled_from(_VALID), data=st.data())
def test_what_is_left_is_an_event_of_the_same_kind(event: AuditEvent, data: st.DataObject) -> None:
    fields = data.draw(st.sets(st.sampled_from(with_words(event)))) if with_words(event) else set()
    left = event_adapter.validate_python(residue(event, fields))
    assert type(left) is type(event)
    for name in type(event).model_fields:
        value, was = getattr(left, name), getattr(event, name)
        if name not in fields:
            assert value == was
        elif isinstance(value, tuple):
            emptied = {
                text
                for item in value
                for text in (
                    dict(item).values() if name in {"unread", "age_exceptions"} else [item]
                )
            }
            assert emptied == {REDACTED}
            assert len(value) == len(was)
        else:
            assert value == REDACTED


def test_declined_steps_lose_their_texts_and_keep_their_kinds() -> None:
    blocker = Blocker(kind=BlockerKind.REGISTRY, package="left", host="host", status=503)
    step = StepDeclined(step=LadderStep.OVERRIDE, reason="why", blockers=(blocker,))
    refused = FixRefused(
        attempt=1, reason=RefusalReason.RESOLVER_FAILED, sentence="no", declined=(step,)
    )
    left = event_adapter.validate_python(residue(refused, {"declined"}))
    assert isinstance(left, FixRefused)
    (emptied,) = left.declined
    (kept,) = emptied.blockers
    assert (emptied.step, emptied.reason) == (LadderStep.OVERRIDE, REDACTED)
    assert (kept.kind, kept.status) == (BlockerKind.REGISTRY, 503)
    assert {kept.package, kept.host} == {REDACTED}


@pytest.mark.parametrize("reason", ["", "because"])
def test_an_empty_text_has_no_words(reason: str) -> None:
    assert with_words(SandboxDisabled(reason=reason)) == (("reason",) if reason else ())
