"""Random attempts: what author and judge say, when the consumer leaves, and what must come of it."""

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fallback_audit.contract.table import link_violations, violations
from fallback_audit.contract.trail import Entry, Trail, link_of
from fallback_audit.events import AuditEvent
from fallback_audit.ports import Scope
from fallback_audit.vocabulary import ModelFailureKind, Provenance, RefusalReason
from fallback_tier.advisory import parse_advisory
from fallback_tier.attempt.task import Finished, TierEvent
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.errors import ModelError
from fallback_tier.grounding.support import claims_of
from fallback_tier.limits import MAX_AUTHOR_CALLS
from fallback_tier.llm.judging import PlanJudge
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.outcome import Applied, AttemptSummary, RecipeApplication, plan_adapter
from fallback_tier.patch.edits import apply_edits
from fallback_tier.patch.normalise import edit_digest
from fallback_tier.ports import LanguageModel, ModelAnswer, ModelRequest, Usage
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.repo import RepoContext
from fallback_tier.tier import FallbackTier
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context
from tests.fixtures.fallback_tier_callable import (
    ADVISORY,
    FILES,
    NO_RECIPE,
    counting_nonces,
    failed,
)

OLD = "    return open('data/' + name).read()"
USED = Usage(input_tokens=4_000, output_tokens=200)


def plan(number: int) -> dict[str, Any]:
    """A valid plan like no other."""
    edit = {"path": "app.py", "old": OLD, "new": f"    check_{number}(name)\n{OLD}"}
    return {"action": "source_edit", "rationale": "keep the name inside", "edits": [edit]}


#: What an author may say that is a valid plan, and what is none.
VALID = {f"plan {number}": plan(number) for number in range(3)}
INVALID: dict[str, Any] = {
    "no such text": {**plan(0), "edits": [{"path": "app.py", "old": "no such", "new": "x"}]},
    "no change": {**plan(0), "edits": [{"path": "app.py", "old": OLD, "new": OLD}]},
    "a path that leads out": {**plan(0), "edits": [{"path": "../x", "old": "a", "new": "b"}]},
    "a citation of nothing": {**plan(0), "citations": ["S99"]},
    "no fixed version": {"action": "dependency_bump", "package": "vulnerable", "version": "0.1"},
    "nothing to override": {"action": "override", "package": "vulnerable", "version": "1.0.1"},
    "prose": "I would rather write a poem.",
    "nothing": "",
    "half": json.dumps(plan(0))[:40],
}
REFUSE = {"action": "refuse", "reason": "I know no fix."}
#: A file that no first prompt shows, and a model that declines for want of it.
UNSEEN = {"tools/guards.py": "def is_inside(name):\n    return '..' not in name\n"}
ASK_FOR_MORE = {"action": "refuse", "reason": "`is_inside` in tools/guards.py is not shown."}
FAILURES = {kind.value: kind for kind in ModelFailureKind}
AUTHOR_SAYS = (*VALID, *INVALID, "refuse", "ask", *FAILURES)

#: Said by no random attempt: a plan for what the first prompt does not show.
OF_UNSEEN = {
    **plan(0),
    "edits": [{"path": "tools/guards.py", "old": "'..'", "new": "'.'"}],
    "citations": ["S3"],
}

#: A judge's words: a verdict on every claim, or none that counts.
JUDGE_SAYS = ("supported", "doubted", "nothing supported", "prose", "another plan's", *FAILURES)


@dataclass
class Said:
    """Implements LanguageModel over words; at the end of them it is unreachable.

    A word that the consumer did not wait for is said again: ``heard`` are those that were finished.
    """

    words: Sequence[str]
    tell: Callable[[str], str]
    model: str = "said"
    provenance: Provenance = Provenance.SCRIPTED
    heard: list[str] = field(default_factory=list)

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        word = next(self._left(), "unreachable")
        if word in FAILURES:
            if FAILURES[word] is ModelFailureKind.BROKEN_STREAM:
                yield '{"action": "sou'
            self.heard.append(word)
            raise ModelError("No answer.", next_step="Wait.", failure=FAILURES[word])
        text = self.tell(word)
        for start in range(0, len(text), 100):
            yield text[start : start + 100]
        self.heard.append(word)
        return ModelAnswer(text=text, usage=USED, stop_reason="end_turn")

    def _left(self) -> Iterator[str]:
        return iter(self.words[len(self.heard) :])

    def from_anew(self) -> tuple[str, ...]:
        """What an attempt that is resumed hears: no failure a second time."""
        return (*(word for word in self.heard if word not in FAILURES), *self._left())

    def close(self) -> None:
        pass


def author_reports(word: str) -> str:
    reported = {
        **VALID,
        **INVALID,
        "refuse": REFUSE,
        "ask": ASK_FOR_MORE,
        "plan of what was unseen": OF_UNSEEN,
    }[word]
    return reported if isinstance(reported, str) else json.dumps(reported)


def judge_reports(word: str) -> str:
    """Every plan here makes two claims: its rationale and its edit."""
    if word == "prose":
        return "I like it."
    names = ["C7", "C8"] if word == "another plan's" else ["C1", "C2"]
    good = {"doubted": 1, "nothing supported": 0}.get(word, 2)
    claims = [{"id": n, "supported": at < good, "reason": "so"} for at, n in enumerate(names)]
    return json.dumps({"claims": claims})


class Case(NamedTuple):
    """``judge`` None: nobody judges. ``repeats``: plans that earlier attempts of the fix made."""

    author: tuple[str, ...]
    judge: tuple[str, ...] | None
    repeats: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """What an attempt must come to. ``flagged``: plans in doubt; 0 where there is no flag."""

    plan: str | None
    grounded: bool | None = None
    flagged: int = 0
    reason: RefusalReason | None = None
    why: str = ""


def expected(case: Case) -> Outcome:
    """What one attempt must come to."""
    judge = None if case.judge is None else iter(case.judge)
    return attempt(iter(case.author), judge, case.repeats)


def attempt(author: Iterator[str], judge: Iterator[str] | None, repeats: Sequence[str]) -> Outcome:
    """The checks of ADR-0022 once more, over words alone; takes those that it uses."""
    doubts: list[str] = []
    rejected: set[str] = set()
    why = Outcome(None)
    asked = just_asked = False
    for number in range(1, MAX_AUTHOR_CALLS + 1):
        word = next(author, "unreachable")
        if word in FAILURES:
            if just_asked and word == ModelFailureKind.CONTEXT_TOO_LONG:
                return Outcome(None, reason=RefusalReason.MODEL_REFUSED)
            return Outcome(None, reason=unanswered(word))
        just_asked = False
        if word == "ask" and not (asked or doubts) and number < MAX_AUTHOR_CALLS:
            asked = just_asked = True
            continue
        if word in ("refuse", "ask"):
            return Outcome(None, reason=RefusalReason.MODEL_REFUSED)
        if word in repeats or word in INVALID:
            is_repeat = word in repeats
            reason = RefusalReason.REPEATED_PATCH if is_repeat else RefusalReason.PLAN_INVALID
            why = Outcome(None, reason=reason, why=f"{word}, call {number}")
            if word in rejected:
                break
            rejected.add(word)
            continue
        verdict = "off" if judge is None else next(judge, "unreachable")
        if verdict == "supported":
            return Outcome(word, grounded=True)
        if verdict not in ("doubted", "nothing supported"):
            if word in doubts:  # the doubt about these very edits stands
                return Outcome(word, grounded=False, flagged=len(doubts))
            return Outcome(word)
        doubts.append(word)
        if len(doubts) == 2 or number == MAX_AUTHOR_CALLS:
            break
    if doubts:
        return Outcome(doubts[-1], grounded=False, flagged=len(doubts))
    return why


def unanswered(word: str) -> RefusalReason:
    if word == ModelFailureKind.CONTEXT_TOO_LONG:
        return RefusalReason.CONTEXT_TOO_LONG
    return RefusalReason.MODEL_UNAVAILABLE


@dataclass
class LeafScenario:
    """A fix's trail and evidence, which outlive each attempt's parts."""

    root: Path
    case: Case
    tokens_per_fix: int | None = None
    audit: MemoryAudit = field(default_factory=MemoryAudit)
    evidence: MemoryEvidence = field(default_factory=MemoryEvidence)

    def __post_init__(self) -> None:
        self.nonces = counting_nonces()
        self.author = Said(self.case.author, author_reports, "author")
        self.judge = Said(self.case.judge or (), judge_reports, "judge")
        self.repo: RepoContext = context(self.root, {**FILES, **UNSEEN})

    def tier(self) -> FallbackTier:
        """New parts, as a new process would have; the models go on where they were."""
        limits = BudgetLimits(tokens_per_fix=self.tokens_per_fix)
        judge: LanguageModel = self.judge
        leaf = LlmLeaf(
            self.author,
            PromptBuilder(self.nonces, frozenset()),
            evidence=self.evidence,
            judge=None if self.case.judge is None else PlanJudge(judge, self.nonces, self.evidence),
            meter=AuditMeter(self.audit, limits),
            journal=AuditJournal(self.audit, self.evidence),
        )
        plugins = {"PyPI": FakeEcosystem()}
        return FallbackTier(
            plugins=plugins, retriever=None, leaf=leaf, audit=self.audit, evidence=self.evidence
        )

    @property
    def case_from_anew(self) -> Case:
        """What the attempt is, where it is resumed."""
        judge = None if self.case.judge is None else self.judge.from_anew()
        return Case(self.author.from_anew(), judge, self.case.repeats)

    @property
    def prior(self) -> tuple[AttemptSummary, ...]:
        return tuple(
            failed(number, edit_digest=digest_of(self.repo, word))
            for number, word in enumerate(self.case.repeats, 1)
        )

    def run(self) -> RecipeApplication:
        advisory = parse_advisory(ADVISORY, "test")
        return self.tier().run(advisory, self.repo, NO_RECIPE, prior_attempts=self.prior)

    def stream(self, leave_after: int | None = None) -> list[TierEvent]:
        """All events, or the first ones: then the consumer goes away."""
        advisory = parse_advisory(ADVISORY, "test")
        events = self.tier().stream(advisory, self.repo, NO_RECIPE, prior_attempts=self.prior)
        seen: list[TierEvent] = []
        with closing(events):
            for event in events:
                seen.append(event)
                if len(seen) == leave_after:
                    break
        return seen

    def check(self) -> None:
        """Each gate transition's trail keeps its contract, and so do they together."""
        entries: dict[Scope, list[Entry[AuditEvent]]] = {}
        for stored in self.audit.stored:
            entries.setdefault(stored.scope, []).append(Entry(stored.seq, stored.payload))
        trails = [Trail(scope, own) for scope, own in entries.items()]
        broken = [violation for trail in trails for violation in violations(trail)]
        broken += link_violations(self.repo.fix_id, [link_of(trail) for trail in trails])
        assert not broken, (self.case, broken, self.audit.kinds)


def digest_of(repo: RepoContext, word: str) -> str:
    made = plan_adapter.validate_python(VALID[word])
    assert len(claims_of(made)) == 2
    return edit_digest(apply_edits(repo, made.edits))  # type: ignore[union-attr]


def came_to(application: RecipeApplication) -> Outcome:
    """An application in the words of ``expected``."""
    if not isinstance(application, Applied):
        return Outcome(None, reason=application.reason)
    assert application.plan is not None
    flag = application.low_confidence
    (word,) = (
        w for w, made in VALID.items() if plan_adapter.validate_python(made) == application.plan
    )
    return Outcome(word, application.grounded, flag.attempts if flag else 0)


def finished(events: Sequence[TierEvent]) -> RecipeApplication:
    last = events[-1]
    assert isinstance(last, Finished)
    assert not any(isinstance(event, Finished) for event in events[:-1])
    return last.application
