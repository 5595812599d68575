"""Events in words: one line each, the same for every reader. Untrusted text is neutralised here."""

import unicodedata
from collections.abc import Iterable
from typing import Any

from fallback_audit import events
from fallback_audit.contract.trail import refused_by_cap
from fallback_audit.event_types import JudgedTests
from fallback_audit.frozen import Frozen
from fallback_audit.ports import StoredEvent
from fallback_audit.showing.describe_human import (
    decided_words,
    delivered_words,
    human_sentence,
    reopened_words,
)
from fallback_audit.showing.describe_maintenance import maintenance_sentence
from fallback_audit.showing.describe_model import grounded_words, model_sentence
from fallback_audit.showing.describe_start import started_words
from fallback_audit.vocabulary import PromptShape, TestsLevel, Tier

# Control, format (bidi overrides, zero width), surrogate, private use, unassigned, line and
# paragraph separators: none of them may reach a terminal.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, *, lines: bool = False) -> str:
    """``text`` with everything that a terminal could act on spelled out, e.g. ``\\x1b``.

    ``lines``: keep line feeds and tabs.
    """
    return "".join(
        character
        if (lines and character in "\n\t") or not is_unsafe(character)
        else _spelled(character)
        for character in text
    )


def is_unsafe(character: str) -> bool:
    """Could a terminal act on it, or show nothing?"""
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
    """One gate transition in one row. ``delivered``: where its patch is, in words."""

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


def summarise(stored: Iterable[StoredEvent]) -> list[FixSummary]:
    """One summary a gate transition, in the order of their first events."""
    building: dict[tuple[str, str], FixSummary] = {}
    for link in stored:
        key = (link.scope.fix_id, link.scope.gate_transition_id)
        summary = building.get(key) or FixSummary(
            fix_id=key[0],
            gate_transition_id=key[1],
            advisory_id="",
            repository="",
            started_at=link.recorded_at,
            attempts=(),
            outcome="open",
            last_seq=link.seq,
        )
        building[key] = summary.model_copy(update={"last_seq": link.seq, **_update(summary, link)})
    return list(building.values())


def _update(summary: FixSummary, link: StoredEvent) -> dict[str, object]:
    """What this event changes in its transition's summary."""
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
        case events.FixVerified():
            return {"outcome": "verified"}
        case events.FixPatched():
            return {"outcome": "patched: tests pass, nothing shows the flaw"}
        case events.FixRefused() as event:
            return {"outcome": f"refused: {event.reason}"}
        case events.FixEscalated() as event:
            return {"outcome": f"escalated: {event.reason}"}
        case events.ReviewDecided() as event:
            return {"outcome": decided_words(event)}
        case events.TransitionReopened() as event:
            return {"outcome": reopened_words(event)}
        case events.PatchDelivered() as event:
            return {"delivered": delivered_words(event)}
        case events.BudgetRaised():
            return {"outcome": "open"}
        case event:
            return _update_attempt(summary, event)


#: Until a model is asked: a recipe, a replay or a refusal may end the attempt before.
_NOT_ASKED: dict[str, Any] = {"prompt_shape": PromptShape.NONE, "shape": PromptShape.NONE.label}


def _update_attempt(summary: FixSummary, event: events.AuditEvent) -> dict[str, object]:
    """What this event changes in the last attempt's line."""
    number = getattr(event, "attempt", 1)
    line = AttemptLine(attempt=number, tier=None, outcome="", **_NOT_ASKED)
    if summary.attempts and not refused_by_cap(event):
        line = summary.attempts[-1]
    changes: dict[str, object]
    match event:
        case events.ModelCalled() | events.AnswerReused():
            shown = dict.fromkeys((*line.examples, *event.example_ids))
            shape = event.prompt_shape
            changes = {"prompt_shape": shape, "shape": shape.label, "examples": tuple(shown)}
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
    before = summary.attempts if refused_by_cap(event) else summary.attempts[:-1]
    return {"attempts": (*before, line.model_copy(update=changes))}


def sentence(event: events.AuditEvent) -> str:
    """What happened, in one line of safe text."""
    return visible(
        _attempt_sentence(event)
        or model_sentence(event)
        or human_sentence(event)
        or maintenance_sentence(event)
        or _fix_sentence(event)
    )


#: How far tests were judged, as a reader is told; comparing them is what is expected.
_UNCOMPARED = {
    TestsLevel.RAN: "not compared with the base commit's",
    TestsLevel.NOT_JUDGED: "not judged",
}


def tests_lines(tests: JudgedTests) -> list[str]:
    """Return what a person needs to judge the tests of a project that were not compared: why, the command
    and the end of its output; nothing of those that were."""
    if tests.tests_level is TestsLevel.COMPARED:
        return []
    where = "" if tests.project == "." else f" of {tests.project}"
    why = f": {tests.reason}" if tests.reason else ""
    lines = [f"tests{where} {_UNCOMPARED[tests.tests_level]}{why}"]
    if tests.command:
        lines.append(f"command: {tests.command}{f' ({tests.source})' if tests.source else ''}")
    if tests.last_line and tests.last_line not in lines[0]:
        lines.append(f"its output ends: {tests.last_line}")
    return list(map(visible, lines))


def excerpt_of(event: events.AuditEvent) -> str | None:
    """The lines to show below the sentence, safe to print: a summary, a gate's detail, problems."""
    match event:
        case events.RagSkippedOnRetry() | events.AttemptFailed():
            return visible(event.summary_excerpt, lines=True)
        case events.GateJudged(status="failed"):
            return visible(event.detail, lines=True)
        case events.PlanRejected():
            return visible("\n".join(event.problems), lines=True)
        case events.GroundingJudged(supported=False):
            return visible("\n".join(event.unsupported), lines=True)
        case events.FixEscalated():
            return visible(event.question, lines=True)
        case events.AppendFlagged():
            return visible(event.detail, lines=True)
        case _:
            return None


def _attempt_sentence(event: events.AuditEvent) -> str:
    """Events of the tier."""
    match event:
        case events.AttemptStarted(prompt_shape=PromptShape.NONE):
            return f"attempt {event.attempt}: its patch alone is judged again, no tier is asked"
        case events.AttemptStarted():
            before = event.prior_attempt_count
            return (
                f"attempt {event.attempt} started{f', {before} failed before it' if before else ''}"
            )
        case events.RecipeEvaluated():
            steps = f" ({', '.join(step.label for step in event.steps)})" if event.steps else ""
            message = f"selected {event.recipe}{steps}" if event.selected else f"no: {event.reason}"
            return f"recipe: {message}"
        case events.RetrievalQueried():
            found = ", ".join(event.example_ids) or "no example"
            return f"solved examples: {event.verdict} ({found}): {event.reason}"
        case events.ExampleReplayed():
            return f"example {event.example_id} replayed; no model asked"
        case events.RagSkippedOnRetry():
            return (
                f"{PromptShape.RETRY.label}: in place of examples, the summary of the last failure"
                f" ({event.last_failure_kind})"
            )
        case events.PatchProposed():
            made = f", made in {event.taken_from}" if event.taken_from else ""
            return (
                f"patch {event.patch_sha256[:12]} by {event.tier}{made}: {', '.join(event.files)}"
                f"{_confidence(event)}"
            )
        case events.AttemptRefused():
            return f"refused ({event.reason}): {event.sentence}"
        case events.ConsumerLeft():
            return f"the consumer left. {event.resume_rule}"
        case _:
            return ""


def _confidence(event: events.PatchProposed) -> str:
    """Only a model's claims can be grounded."""
    messages = [grounded_words(event.grounded)] if event.tier is Tier.LLM else []
    messages += ["LOW CONFIDENCE"] if event.low_confidence else []
    loose = len(event.loose_edits)
    messages += [f"{loose} edits matched only without white space"] if loose else []
    return f" ({', '.join(messages)})" if messages else ""


def _fix_sentence(event: events.AuditEvent) -> str:
    """Events of the gate runner."""
    match event:
        case events.FixStarted():
            return started_words(event)
        case events.SandboxDisabled():
            return f"SANDBOX DISABLED: {event.reason}"
        case events.GateJudged():
            why = f" ({event.failure_kind})" if event.failure_kind else ""
            detail = "" if event.status == "failed" else f": {event.detail}"
            flaky = f" (flaky: {', '.join(event.flaky)})" if event.flaky else ""
            kept = f" (not asked: {', '.join(event.refused_hosts)})" if event.refused_hosts else ""
            level = _UNCOMPARED.get(event.tests_level) if event.tests_level else None
            tests = f" (tests {level})" if level else ""
            return f"gate {event.gate} {event.status}{why}{tests}{flaky}{kept}{detail}"
        case events.RecipeCandidateFailed():
            gates = ", ".join(event.failing_gates)
            without = " and ".join(step.label for step in event.left_out)
            return (
                f"candidate {event.candidate} failed: {event.failure_kind} at {gates}; the recipe tries"
                f" another, without {without}"
            )
        case events.AttemptFailed():
            gates = ", ".join(event.failing_gates) or "no gate"
            return f"attempt {event.attempt} failed: {event.failure_kind} at {gates}"
        case events.FixVerified():
            passed = ", ".join(event.gates_passed)
            return f"VERIFIED ({event.proof_level}): passed {passed}"
        case events.FixPatched():
            passed = ", ".join(event.gates_passed)
            return f"PATCHED, nothing shows the flaw ({event.proof_level}): passed {passed}"
        case events.FixRefused():
            return f"REFUSED ({event.reason}): {event.sentence}"
        case events.FixEscalated():
            return f"ESCALATED ({event.reason})"
        case _:
            return event.kind
