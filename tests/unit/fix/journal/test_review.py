"""A person's answers: recorded once, signed, and only where somebody was asked."""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.checkpoints.keyring import generate
from fallback_audit.contract.table import violations
from fallback_audit.contract.trail import Entry, Trail
from fallback_audit.errors import EvidenceError
from fallback_audit.events import (
    MAX_WORDS_CHARS,
    BudgetRaised,
    PatchProposed,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Scope, StoredEvent
from fallback_audit.retention.redact import Redactor
from fallback_audit.stores.appending import utc_now
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import EscalationReason, RefusalReason, ReviewVerdict, Tier
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.questions import Questions, questions, review, why_asked
from fallback_tier.fix.journal.review import (
    Signature,
    approve,
    raise_budget,
    reject,
    reopen,
    run_gates_again,
)
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.kinds import OfKind
from tests.service.portal import ADVISORY
from tests.unit.audit import human_trails as h
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.proof_trails import undecided_and_asked
from tests.unit.audit.trails import Events
from tests.unit.fix.journal.review_record import FIX, Record, diff, summary

ADA = Signature("Ada", "read it line by line")


def record(events: Events) -> Record:
    kept = Record()
    kept.write(events)
    return kept


def kinds(kept: Record) -> list[str]:
    return [stored.kind for stored in kept.audit.events()]


def sound(kept: Record) -> bool:
    entries = [Entry(stored.seq, stored.payload) for stored in kept.audit.events()]
    return not list(violations(Trail(t.SCOPE, entries)))


ANSWERS: dict[str, Callable[[Record, Signature], object]] = {
    "approve": lambda kept, by: approve(kept.audit, kept.evidence, FIX, by),
    "reject": lambda kept, by: reject(kept.audit, FIX, by),
    "reopen": lambda kept, by: reopen(kept.audit, FIX, by, opens="gate-2"),
    "again": lambda kept, by: run_gates_again(kept.audit, kept.evidence, FIX, by, opens="gate-2"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_one_event_and_the_last_word(answer: str) -> None:
    kept = record(t.cap_reached())
    ANSWERS[answer](kept, ADA)
    event = list(kept.audit.events())[-1].payload
    assert isinstance(event, ReviewDecided | TransitionReopened)
    assert (event.by, event.reason) == ("Ada", "read it line by line")
    assert sound(kept)
    before = kinds(kept)
    for other in ANSWERS:
        with pytest.raises(InputError, check=OfKind("answered"), match="Ada"):
            ANSWERS[other](kept, ADA)
    assert kinds(kept) == before


def test_an_approval_hands_out_the_last_patch_or_the_one_that_is_named() -> None:
    kept = record(t.cap_reached())
    approval = approve(kept.audit, kept.evidence, FIX, ADA)
    assert approval.patch.decode() == diff(4)
    assert approval.decision.verdict is ReviewVerdict.APPROVED
    assert approval.decision.patch_sha256 == kept.patch(4)
    other = record(t.cap_reached())
    named = approve(other.audit, other.evidence, FIX, ADA, patch=other.patch(2)[:12])
    assert named.patch.decode() == diff(2)
    assert sound(other)


@pytest.mark.parametrize("prefix", ["", "0" * 12, "short"])
def test_a_patch_that_was_not_proposed_is_not_approved(prefix: str) -> None:
    kept = record(t.cap_reached())
    meant = prefix if prefix != "short" else kept.patch(4)[:7]
    with pytest.raises(InputError, check=OfKind("unknown_patch")) as refused:
        approve(kept.audit, kept.evidence, FIX, ADA, patch=meant)
    assert kept.patch(1)[:12] in refused.value.problem
    assert "ReviewDecided" not in kinds(kept)


def test_a_patch_whose_evidence_is_gone_is_not_approved() -> None:
    kept = record(t.cap_reached())
    assert isinstance(kept.evidence, MemoryEvidence)
    del kept.evidence.contents[kept.patch(4)]
    with pytest.raises(EvidenceError):
        approve(kept.audit, kept.evidence, FIX, ADA)
    assert "ReviewDecided" not in kinds(kept)


def test_gates_are_run_again_on_the_patch_asked_about_or_the_one_that_is_named() -> None:
    for named, attempt in ((None, 4), (2, 2)):
        kept = record(t.cap_reached())
        patch = None if named is None else kept.patch(named)[:12]
        event = run_gates_again(kept.audit, kept.evidence, FIX, ADA, opens="gate-2", patch=patch)
        assert event.judges_again == kept.patch(attempt)
        assert sound(kept)


def test_gates_can_be_run_again_where_no_attempt_has_failed() -> None:
    kept = record(t.infrastructure_failed())
    event = run_gates_again(kept.audit, kept.evidence, FIX, ADA, opens="gate-2")
    assert event.judges_again == kept.patch(1)
    assert sound(kept)


def test_a_patch_of_an_earlier_transition_can_be_named() -> None:
    kept = record([*t.cap_reached(), h.reopened("gate-2")])
    second = Scope(fix_id=FIX, gate_transition_id="gate-2")
    first, *events = h.reopened_twice()[:-1]
    linked = first.model_copy(update={"linked_transition": t.SCOPE.gate_transition_id})
    kept.write([linked, *events], second)
    event = run_gates_again(kept.audit, kept.evidence, FIX, ADA, opens="gate-3")
    assert event.judges_again == kept.patch(4)  # the last: this transition came to none
    assert list(kept.audit.events())[-1].scope == second


@pytest.mark.parametrize("gone", ["the patch", "the account of its attempt"])
def test_a_patch_whose_evidence_is_gone_is_not_judged_again(gone: str) -> None:
    kept = record(t.cap_reached())
    assert isinstance(kept.evidence, MemoryEvidence)
    patches = [e.payload for e in kept.audit.events() if isinstance(e.payload, PatchProposed)]
    last = patches[-1]
    digest = last.patch_sha256 if gone == "the patch" else last.application_sha256
    del kept.evidence.contents[digest or ""]
    before = kinds(kept)
    with pytest.raises(EvidenceError):
        run_gates_again(kept.audit, kept.evidence, FIX, ADA, opens="gate-2")
    assert kinds(kept) == before


def test_a_patch_that_an_older_version_recorded_is_not_judged_again() -> None:
    kept = Record()
    for event in t.cap_reached():
        kept.audit.append(t.SCOPE, event)  # without the account of its attempt
    with pytest.raises(InputError, check=OfKind("older_version")):
        run_gates_again(kept.audit, kept.evidence, FIX, ADA, opens="gate-2")
    assert "TransitionReopened" not in kinds(kept)


def test_without_a_patch_there_is_nothing_to_approve() -> None:
    kept = record(t.model_unavailable())
    with pytest.raises(InputError, check=OfKind("no_patch")):
        approve(kept.audit, kept.evidence, FIX, ADA)
    with pytest.raises(InputError, check=OfKind("no_patch")):
        run_gates_again(kept.audit, kept.evidence, FIX, ADA, opens="gate-2")
    reject(kept.audit, FIX, ADA)
    assert sound(kept)


def test_reopen_without_a_failed_attempt_refuses_unless_the_model_was_unavailable() -> None:
    unproved = record(h.unproved_then_approved()[:-1])
    with pytest.raises(InputError, check=OfKind("nothing_failed")) as refused:
        reopen(unproved.audit, FIX, ADA, opens="gate-2")
    assert "fallback-tier fix REPO" in refused.value.next_step
    unavailable = record(h.with_gates(t.model_unavailable()))
    shown = review(*_stores(unavailable), FIX)
    assert [step.split()[2] for step in shown.next_steps] == ["reject", "reopen"]
    reopen(unavailable.audit, FIX, ADA, opens="gate-2")
    assert sound(unavailable)


def test_a_fix_at_its_budget_can_be_rejected_and_is_then_over() -> None:
    kept = record(m.stopped_at_budget())
    shown = review(*_stores(kept), FIX)
    assert [step.split()[2] for step in shown.next_steps] == ["raise-budget", "reject"]
    reject(kept.audit, FIX, ADA)
    assert sound(kept)
    assert questions(kept.audit) == []
    with pytest.raises(InputError, check=OfKind("answered"), match="Ada"):
        raise_budget(kept.audit, FIX, BudgetRaised(by="Eve", reason="more", usd_per_fix="9"))
    assert kinds(kept)[-1] == "ReviewDecided"


def test_a_transition_that_was_opened_for_another_carries_its_failure() -> None:
    kept = record([*t.cap_reached(), h.reopened("gate-2")])
    second = Scope(fix_id=FIX, gate_transition_id="gate-2")
    events = [*h.reopened_twice()[:-1]]
    first = events[0].model_copy(update={"linked_transition": t.SCOPE.gate_transition_id})
    kept.write([first, *events[1:]], second)
    reopen(kept.audit, FIX, ADA, opens="gate-3")
    assert list(kept.audit.events())[-1].scope == second


UNASKED: dict[str, tuple[Callable[[], Events], str, str, str]] = {
    "verified": (t.recipe_verified, "not_escalated", "verified", "audit show"),
    "refused": (t.not_affected, "not_escalated", r"\(not_affected\)", "audit show"),
    "open": (lambda: t.cap_reached()[:-1], "open", "AttemptFailed", "resume"),
    "at its budget": (m.stopped_at_budget, "at_budget", FIX, "review raise-budget"),
    "raised": (lambda: [*m.stopped_at_budget(), m.raised()], "open", FIX, "resume"),
    "another orchestrator's": (t.foreign_orchestrator, "open", FIX, "resume"),
    "nowhere": (list, "no_such_fix", FIX, "audit log"),
}


@pytest.mark.parametrize(
    ("unasked", "answer"),
    [pair for pair in product(UNASKED, ANSWERS) if pair != ("at its budget", "reject")],
)
def test_nobody_answers_what_nobody_asked(unasked: str, answer: str) -> None:
    make, kind, value, step = UNASKED[unasked]
    kept = record(make())
    before = kinds(kept)
    with pytest.raises(InputError, check=OfKind(kind), match=value) as refused:
        ANSWERS[answer](kept, ADA)
    assert step in refused.value.next_step
    assert kinds(kept) == before


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize(
    "signature",
    [
        Signature(" ", "a reason"),
        Signature("Ada", "\n"),
        Signature("Ada", "x" * (MAX_WORDS_CHARS + 1)),
    ],
)
def test_an_answer_has_a_name_and_a_reason_of_some_length(
    signature: Signature, answer: str
) -> None:
    kept = record(t.cap_reached())
    with pytest.raises(InputError, check=OfKind("signature_empty", "signature_too_long")):
        ANSWERS[answer](kept, signature)
    assert kinds(kept)[-1] == "FixEscalated"


def test_open_questions_are_listed_the_newest_first() -> None:
    kept = Record()
    for name, events in {
        "fix-a": t.cap_reached(),
        "fix-b": t.recipe_verified(),
        "fix-c": h.cap_then_rejected(),
        "fix-d": m.stopped_at_budget(),
        "fix-e": [*m.stopped_at_budget(), m.raised()],
        "fix-f": h.cap_then_reopened(),
    }.items():
        kept.write(events, Scope(fix_id=name, gate_transition_id="g"))
    open_ones = questions(kept.audit)
    assert [question.fix_id for question in open_ones] == ["fix-d", "fix-a"]
    assert open_ones[1].reason is EscalationReason.RETRY_CAP_REACHED
    assert (open_ones[1].attempts, open_ones[1].answer) == (4, None)
    everything = questions(kept.audit, answered=True)
    assert {question.fix_id: question.answer for question in everything} == {
        "fix-f": "reopened by A. Person",
        "fix-d": None,
        "fix-c": "rejected by A. Person",
        "fix-a": None,
    }


def test_a_question_is_shown_with_both_prompt_shapes() -> None:
    kept = record([t.fix_started(), *_with_examples(), *t.cap_reached()[7:]])
    shown = review(kept.audit, kept.evidence, FIX)
    assert [attempt.shape for attempt in shown.attempts] == [
        "initial LLM run",
        *["fresh LLM run, no RAG"] * 3,
    ]
    first, *retries = shown.attempts
    assert (first.examples, first.in_place_of_examples) == (("e1", "e2"), None)
    for number, retry in enumerate(retries, start=2):
        assert (retry.examples, retry.in_place_of_examples) == ((), summary(number - 1))
    last = retries[-1]
    assert (last.failing_gates, last.failure) == (("tests",), summary(4))
    assert (last.tokens, last.cost_usd_estimate) == (1_000, "0.01")
    assert shown.patch == diff(4)
    assert shown.asks == "What now?"
    assert [piece.what for piece in last.evidence] == ["patch", "log of tests", "failure summary"]
    assert [step.split(" --")[0] for step in shown.next_steps] == [
        f"fallback-tier review approve {FIX}",
        f"fallback-tier review reject {FIX}",
        f"fallback-tier review reopen {FIX}",
        f"fallback-tier review reopen {FIX}",
    ]


def test_an_attempt_by_recipe_asked_no_model() -> None:
    shown = review(*_stores(record(t.infrastructure_failed())), FIX)
    (only,) = shown.attempts
    assert (only.shape, only.tier, only.tokens) == ("no model call", "recipe", 0)
    reopening = [step for step in shown.next_steps if "reopen" in step]
    assert [step.split()[-1] for step in reopening] == ["--gates-again"]  # no attempt has failed


def test_what_no_gate_could_decide_is_told_with_its_gate() -> None:
    asked = review(*_stores(record(undecided_and_asked())), FIX)
    (only,) = asked.attempts
    assert only.undecided == ("tests: as expected",)
    assert asked.question.reason is EscalationReason.GATES_UNDECIDED
    assert [step.split()[-1] for step in asked.next_steps if "reopen" in step] == ["--gates-again"]


def test_what_to_double_check_is_what_no_judge_found_supported() -> None:
    doubted = m.doubted_twice()[:-4]
    kept = record([*doubted, t.escalated(1, EscalationReason.NOTHING_PROVED)])
    (only,) = review(*_stores(kept), FIX).attempts
    assert only.low_confidence == "1 of 2 claims unsupported"
    assert only.double_check == ("it says that 1.2.4 is fixed",)
    assert only.grounded is False


def test_what_follows_of_an_answer_is_told() -> None:
    reopened = review(*_stores(record(h.cap_then_reopened())), FIX)
    assert reopened.next_steps == (f"fallback-tier resume {FIX}",)
    assert reopened.question.answer == "reopened by A. Person"
    rejected = review(*_stores(record(h.cap_then_rejected())), FIX)
    assert rejected.next_steps == ()


@pytest.mark.parametrize("reason", EscalationReason)
@pytest.mark.parametrize("cause", [None, *RefusalReason])
def test_every_reason_is_one_sentence_and_has_a_next_step(
    reason: EscalationReason, cause: RefusalReason | None
) -> None:
    why, next_step = why_asked(reason, cause)
    assert why.endswith(".")
    assert ". " not in why
    assert next_step.endswith(".")


def test_a_retry_without_a_model_is_asked_about_by_its_cause() -> None:
    kept = record(retry_without_a_model())
    (question,) = questions(kept.audit)
    assert question.reason is EscalationReason.RETRY_REFUSED
    assert question.cause is RefusalReason.MODEL_NOT_CONFIGURED
    assert question.why == "A retry needs a model, and no model is configured."
    assert question.next_step.startswith("Configure a model, then try again")
    assert sound(kept)


def test_a_question_says_what_the_vulnerability_is() -> None:
    kept = Record(advisory=ADVISORY)
    kept.write(t.cap_reached())
    (found,) = review(*_stores(kept), FIX).vulnerabilities
    assert found.summary == "shop evaluates the text of a setting"
    assert found.severity is not None
    assert (found.severity.level, found.severity.score) == ("critical", 9.8)
    assert [(it.cwe, it.name) for it in found.weaknesses] == [("CWE-95", "eval injection")]
    (affected,) = found.affected
    assert affected.ranges == ("< 1.2.4", "≥ 2.0.0, < 2.0.3")
    assert affected.fixed == ("1.2.4", "2.0.3")
    assert [link.url for link in found.links] == [
        "https://example.org/advisories/GHSA-xxxx-yyyy-zzzz"
    ]


@pytest.mark.parametrize("evidence", ["not recorded", "gone"])
def test_a_question_without_its_advisory_is_shown_without_it(evidence: str) -> None:
    unread = ADVISORY.model_copy(update={"summary": f"never read, {evidence}"})
    kept = Record(advisory=None if evidence == "not recorded" else unread)
    kept.write(t.cap_reached())
    assert isinstance(kept.evidence, MemoryEvidence)
    kept.evidence.contents.clear()
    assert review(*_stores(kept), FIX).vulnerabilities == ()


def test_evidence_that_is_gone_is_said_to_be() -> None:
    kept = record(t.cap_reached())
    assert isinstance(kept.evidence, MemoryEvidence)
    kept.evidence.contents.clear()
    shown = review(kept.audit, kept.evidence, FIX)
    assert shown.patch is None
    assert shown.patch_problem
    assert shown.attempts[-1].failure == "expected 1, got 2"  # the excerpt that is on record


def test_a_fix_that_asks_nothing_is_not_shown() -> None:
    kept = record(t.recipe_verified())
    with pytest.raises(InputError, check=OfKind("asks_nothing")):
        review(kept.audit, kept.evidence, FIX)


def _with_examples() -> Events:
    return t.first_by_model("e1", "e2")


def retry_without_a_model() -> Events:
    """A recipe's patch failed, and no model is configured."""
    refused = t.refused(2, RefusalReason.MODEL_NOT_CONFIGURED, asked=False)
    return [
        t.fix_started(),
        *t.first_by_recipe(),
        *t.failing_gates(1, tier=Tier.RECIPE),
        t.started(2, 1),
        t.skipped(2, 1),
        refused,
        t.escalated(2, EscalationReason.RETRY_REFUSED),
    ]


def _stores(kept: Record) -> tuple[MemoryAudit, MemoryEvidence]:
    assert isinstance(kept.audit, MemoryAudit)
    assert isinstance(kept.evidence, MemoryEvidence)
    return kept.audit, kept.evidence


# --- Questions that are kept while the trail grows ----------------------------------------------------


class Counting(SqliteAuditStore):
    """Counts the events that it is read for."""

    read = 0

    def events(self, *arguments: Any, **options: Any) -> Iterator[StoredEvent]:
        for stored in super().events(*arguments, **options):
            self.read += 1
            yield stored


def test_kept_questions_are_those_of_the_trail(tmp_path: Path) -> None:
    kept = Questions()
    with closing(Counting(tmp_path / "audit.db")) as store:
        record = Record(store, MemoryEvidence())
        many = [
            t.cap_reached(),
            t.recipe_verified(),
            t.same_failure_three_times(),
            m.stopped_at_budget(),
        ]
        for number, events in enumerate(many * 3):
            scope = Scope(fix_id=f"fix-{number}", gate_transition_id=f"gate-{number}")
            for event in events:
                record.write([event], scope)
                for answered in (False, True):
                    assert kept.read(store, answered=answered) == questions(
                        store, answered=answered
                    )
        assert len(kept.read(store)) == 9
        reject(store, "fix-0", ADA)
        assert kept.read(store, answered=True) == questions(store, answered=True)
        assert len(kept.read(store)) == 8
        before = store.read
        kept.read(store)
        assert store.read == before  # nothing is new
        reject(store, "fix-4", ADA)
        before = store.read
        assert len(kept.read(store)) == 7
        assert store.read - before < 30  # of more than a hundred


def test_kept_questions_keep_nothing_that_was_taken_out(tmp_path: Path) -> None:
    """A redaction in another process; and another trail of the same length in the store's place."""
    kept, keys = Questions(), generate(tmp_path / "keys")
    path, verifiers = tmp_path / "audit.db", keys.verifiers()
    with closing(SqliteAuditStore(path, verifiers=verifiers)) as store:
        Record(store, MemoryEvidence()).write(t.cap_reached())
        reject(store, FIX, ADA)
        assert "shop" in str(kept.read(store, answered=True))
        with closing(SqliteAuditStore(tmp_path / "other.db")) as other:
            scope = Scope(fix_id="other", gate_transition_id="gate")
            Record(other, MemoryEvidence()).write(t.cap_reached(), scope)
            reject(other, "other", ADA)
            assert other.tip()[0] == store.tip()[0]
            assert [one.fix_id for one in kept.read(other, answered=True)] == ["other"]
            assert [one.fix_id for one in kept.read(store, answered=True)] == [FIX]
        redactor = Redactor(
            store, FileEvidenceStore(tmp_path / "evidence"), keys.signers(), clock=utc_now
        )
        redactor.redact(1, ("repository",), by="Ada", reason="a name", with_evidence=False)
        assert "shop" not in str(kept.read(store, answered=True))
        assert kept.read(store, answered=True) == questions(store, answered=True)
