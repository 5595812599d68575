"""Descriptions of events, the same in all views and exports. Untrusted text is neutralised here."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fallback_audit import events
from fallback_audit.contract.trail import refused_by_cap
from fallback_audit.event_types import JudgedTests
from fallback_audit.events import AuditEvent
from fallback_audit.events.fix import UNCOMPARED
from fallback_audit.frozen import Frozen
from fallback_audit.ports import StoredEvent
from fallback_audit.showing.headline import Headline
from fallback_audit.vocabulary import PromptShape, ProofLevel, RefusalReason, TestsLevel, Tier

# Control, format (bidi overrides, zero width), surrogate, private use, unassigned, line and
# paragraph separators: none may reach a terminal.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

#: Values before a model is called: a recipe, a replay or a refusal may end the attempt earlier.
_NOT_ASKED: dict[str, Any] = {"prompt_shape": PromptShape.NONE, "shape": PromptShape.NONE.label}

#: Version of the events' texts. Raise it if a text changes: older exports are then not compared with it.
WORDS = 4


def visible(text: str, *, lines: bool = False) -> str:
    """Return ``text`` with everything that a terminal could act on escaped, e.g. ``\\x1b``.

    ``lines``: keep line feeds and tabs.
    """
    return "".join(
        character
        if (lines and character in "\n\t") or not is_unsafe(character)
        else _spelled(character)
        for character in text
    )


def is_unsafe(character: str) -> bool:
    """Return whether a terminal could act on the character, or show nothing."""
    return unicodedata.category(character) in _UNSAFE_CATEGORIES


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class AttemptLine(Frozen):
    """One attempt as a reader sees it: its shape in words, what its prompt stood on, and how it went.

    ``examples``: those in its prompts. ``in_place_of_examples``: what a retry had instead, shortened.
    ``grounded`` None: no judge looked at its patch. ``low_confidence``: look at it before merging.
    """

    attempt: int
    prompt_shape: PromptShape
    shape: str
    tier: Tier | None
    outcome: str
    examples: tuple[str, ...] = ()
    in_place_of_examples: str | None = None
    grounded: bool | None = None
    low_confidence: bool = False


class FixSummary(Frozen):
    """One gate transition in one row. ``proof_level``: what was shown of one that is verified;
    ``delivered``: where its patch is, in words; ``headline``: how it ended, as ``fix`` says it; a patch
    without a delivery on record is "not delivered"."""

    fix_id: str
    gate_transition_id: str
    advisory_id: str
    repository: str
    started_at: str
    attempts: tuple[AttemptLine, ...]
    outcome: str
    last_seq: int
    linked_transition: str | None = None
    delivered: str | None = None
    proof_level: ProofLevel | None = None
    headline: str = "open"


def _without_patch(event: events.AuditEvent, outcome: str) -> str:
    """Return the headline of a gate transition without a patch after this event."""
    match event:
        case events.FixRefused(reason=RefusalReason.FAILS_TOGETHER):
            return "taken apart: not proved in one patch; to be proved in smaller parts"
        case _:
            return outcome


def summarise(stored: Iterable[StoredEvent]) -> list[FixSummary]:
    """Return one summary per gate transition, in the order of their first events."""
    summaries: dict[tuple[str, str], FixSummary] = {}
    headlines: dict[tuple[str, str], Headline] = defaultdict(Headline)
    for link in stored:
        key = (link.scope.fix_id, link.scope.gate_transition_id)
        headlines[key].add(link)
        summary = summaries.get(key) or FixSummary(
            fix_id=key[0],
            gate_transition_id=key[1],
            advisory_id="",
            repository="",
            started_at=link.recorded_at,
            attempts=(),
            outcome="open",
            last_seq=link.seq,
        )
        changes = _update(summary, link)
        if words := headlines[key].words:
            changes["headline"] = words
        elif isinstance(outcome := changes.get("outcome"), str):
            changes["headline"] = _without_patch(link.payload, outcome)
        summaries[key] = summary.model_copy(update={"last_seq": link.seq, **changes})
    return list(summaries.values())


def _update(summary: FixSummary, link: StoredEvent) -> dict[str, object]:
    """Return what this event changes in its transition's summary."""
    match link.payload:
        case events.FixStarted() as event:
            return {
                "advisory_id": event.advisory_id,
                "repository": event.repository,
                "linked_transition": event.linked_transition,
            }
        case events.AttemptStarted() as event:
            line = AttemptLine(attempt=event.attempt, tier=None, outcome="open", **_NOT_ASKED)
            advisory = summary.advisory_id or event.advisory_id
            return {"attempts": (*summary.attempts, line), "advisory_id": advisory}
        case events.FixVerified() as verified:
            return {"outcome": "verified", "proof_level": verified.proof_level}
        case events.FixPatched():
            return {"outcome": "patched: tests pass, nothing shows the flaw gone"}
        case events.FixRefused() as event:
            return {"outcome": f"refused: {event.reason}"}
        case events.FixEscalated() as event:
            return {"outcome": f"escalated: {event.reason}"}
        case events.FixAbandoned() as event:
            return {"outcome": events.abandoned_words(event)}
        case events.ReviewDecided() as event:
            return {"outcome": events.decided_words(event)}
        case events.TransitionReopened() as event:
            return {"outcome": events.reopened_words(event)}
        case events.PatchDelivered() as event:
            return {"delivered": events.delivered_words(event)}
        case events.BudgetRaised():
            return {"outcome": "open"}
        case event:
            return _update_attempt(summary, event)


def _update_attempt(summary: FixSummary, event: events.AuditEvent) -> dict[str, object]:
    """Return what this event changes in the last attempt's line."""
    number = getattr(event, "attempt", 1)
    line = AttemptLine(attempt=number, tier=None, outcome="", **_NOT_ASKED)
    if summary.attempts and not refused_by_cap(event):
        line = summary.attempts[-1]
    changes: dict[str, object]
    match event:
        case events.ModelCalled() | events.AnswerReused():
            examples = dict.fromkeys((*line.examples, *event.example_ids))
            shape = event.prompt_shape
            changes = {"prompt_shape": shape, "shape": shape.label, "examples": tuple(examples)}
        case events.RagSkippedOnRetry():
            changes = {"in_place_of_examples": event.summary_excerpt}
        case events.PatchProposed():
            changes = {
                "tier": event.tier,
                "outcome": "patch to be judged again" if event.taken_from else "patch proposed",
                "grounded": event.grounded,
                "low_confidence": event.low_confidence,
            }
        case events.AttemptRefused():
            changes = {"outcome": f"refused: {event.reason}"}
        case events.RecipeCandidateFailed():
            outcome = f"candidate {event.candidate} failed: {event.failure_kind}"
            changes = {"outcome": outcome}
        case events.AttemptFailed():
            changes = {"tier": event.tier, "outcome": f"failed: {event.failure_kind}"}
        case _:
            return {}
    earlier_lines = summary.attempts if refused_by_cap(event) else summary.attempts[:-1]
    return {"attempts": (*earlier_lines, line.model_copy(update=changes))}


def sentence(event: events.AuditEvent) -> str:
    """Return what happened, as one line of safe text."""
    return visible(event.in_words())


def tests_lines(tests: JudgedTests) -> list[str]:
    """Return what a person needs to judge tests that were not compared; nothing for tests that were.

    It is the reason, the command, its exit code and the lines of its output that look like the error.
    """
    if tests.tests_level is TestsLevel.COMPARED:
        return []
    where = "" if tests.project == "." else f" of {tests.project}"
    why = f": {tests.reason}" if tests.reason else ""
    lines = [f"tests{where} {UNCOMPARED[tests.tests_level]}{why}"]
    if tests.command:
        source = f" ({tests.source})" if tests.source else ""
        ended = "" if tests.exit_code is None else f"; exit code {tests.exit_code}"
        lines.append(f"command: {tests.command}{source}{ended}")
    output = tests.output.splitlines()
    if len(output) > 1:
        lines += [f"output: {line}" for line in output]
    elif tests.last_line and tests.last_line not in lines[0]:
        lines.append(f"its output ends: {tests.last_line}")
    return list(map(visible, lines))


def excerpt_of(event: events.AuditEvent) -> str | None:
    """Return the lines to show below the sentence, safe to print: a summary, a gate's detail, problems."""
    excerpt = event.excerpt()
    return None if excerpt is None else visible(excerpt, lines=True)


def shown(event: AuditEvent) -> str:
    """Return the sentence and, below it, the event's excerpt, e.g. the failure summary of a retry.

    A retry's own sentence says "fresh LLM run, no RAG"; each model call names its prompt's shape.
    """
    excerpt = excerpt_of(event)
    return sentence(event) if not excerpt else f"{sentence(event)}\n{excerpt}"
