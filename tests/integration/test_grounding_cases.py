"""Half-truths and cut exceptions, end to end: what no single source carries ends as low confidence.

The judge here is a reader of labels: each claim has the words that one and the same source must have. So
it depends on what the tier shows it, source by source; the same plan in a context that carries the whole
claim is grounded.
"""

import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fallback_audit.events import GroundingJudged, LowConfidenceFlagged, ModelCalled
from fallback_audit.vocabulary import CallType, Provenance
from fallback_tier.llm.judging import PlanJudge
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.outcome import Applied, SearchReplace
from fallback_tier.ports import LanguageModel, ModelAnswer, ModelRequest, Usage
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.retrieval import RagHit, SolvedExample
from tests.fakes.memory import FixedRetriever
from tests.fixtures.examples import WRITTEN, shown
from tests.fixtures.fallback_tier_callable import (
    FILES,
    OTHER_PLAN,
    PLAN,
    FallbackTierCallable,
    Runtime,
    counting_nonces,
)

FUSED = "The archive fix compares real paths and holds a lock meanwhile."
CUT = "Every name is checked before it is opened."

#: Claim → what one source must have, all of it, and what it must not have.
LABELS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    FUSED: (("archive", "compares real paths", "holds a lock"), ()),
    CUT: (("every name is checked",), ("except",)),
}

_SOURCE = re.compile(r"<<<UNTRUSTED \S+ (\w+)[^>]*>>>\n(.*?)\n<<<END", re.DOTALL)


@dataclass
class LabelReader:
    """Implements LanguageModel: grades each claim of LABELS by the sources of its request."""

    model: str = "labels"
    provenance: Provenance = Provenance.SCRIPTED
    requests: list[ModelRequest] = field(default_factory=list)

    def close(self) -> None:
        """Nothing is open."""

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        self.requests.append(request)
        fences = _SOURCE.findall(request.messages[0].content)
        sources = [text for kind, text in fences if kind != "plan"]
        claims = re.findall(r"^\| (C\d+): (.*)$", fences[-1][1], re.MULTILINE)
        graded = [
            {"id": name, "supported": supported(claim, sources), "reason": "read"}
            for name, claim in claims
        ]
        text = json.dumps({"claims": graded})
        yield text
        return ModelAnswer(text=text, usage=Usage(), stop_reason="end_turn")


def supported(claim: str, sources: list[str]) -> bool:
    if claim not in LABELS:
        return True
    needed, spoiling = LABELS[claim]
    return any(
        all(words in text for words in needed) and not any(words in text for words in spoiling)
        for text in sources
    )


class JudgedByLabels(FallbackTierCallable):
    reader: LabelReader

    def leaf(self, author: LanguageModel) -> LlmLeaf:
        nonces = counting_nonces()
        self.reader = LabelReader()
        return LlmLeaf(
            author,
            PromptBuilder(nonces, frozenset()),
            evidence=self.evidence,
            judge=PlanJudge(self.reader, nonces, self.evidence),
        )


@pytest.fixture
def call(runtime: Runtime, tmp_path: Path) -> JudgedByLabels:
    return JudgedByLabels(tmp_path, runtime=runtime)


def examples(*texts: str) -> FixedRetriever:
    shots = [
        SolvedExample(
            example_id=f"example-{number}",
            advisory_id=f"TEST-2025-{number}",
            advisory_text=text,
            ecosystem="PyPI",
            package=f"package-{number}",
            edits=(SearchReplace(path="lib.py", old="open(name)", new="open(safe(name))"),),
            file_sha256={},
            provenance=WRITTEN,
            licence="Apache-2.0",
        )
        for number, text in enumerate(texts, 1)
    ]
    return FixedRetriever(RagHit(examples=tuple(map(shown, shots)), evidence="fixed"))


def says(claim: str) -> list[object]:
    """An author who stays with a claim, also when asked again."""
    return [{**PLAN, "rationale": claim}, {**OTHER_PLAN, "rationale": claim}]


def assert_low_confidence(call: JudgedByLabels, claim: str) -> None:
    done = call().application
    assert isinstance(done, Applied)
    assert done.grounded is False
    assert done.low_confidence is not None
    assert done.low_confidence.attempts == 2
    assert any(claim in sentence for sentence in done.low_confidence.double_check)
    assert [event.supported for event in call.audit.of(GroundingJudged)] == [False, False]
    assert len(call.audit.of(LowConfidenceFlagged)) == 1
    asked = [event for event in call.audit.of(ModelCalled) if event.call_type is CallType.AUTHOR]
    assert [event.strict for event in asked] == [False, True]


def assert_grounded(call: JudgedByLabels) -> None:
    done = call().application
    assert isinstance(done, Applied)
    assert (done.grounded, done.low_confidence) == (True, None)
    assert not call.audit.of(LowConfidenceFlagged)


HALVES = (
    "The archive fix compares real paths with the root.",
    "The upload fix holds a lock while it moves the file.",
)


def test_two_half_truths_of_two_examples_are_low_confidence(call: JudgedByLabels) -> None:
    call.retriever, call.answers = examples(*HALVES), says(FUSED)
    assert_low_confidence(call, FUSED)
    (first, _) = call.reader.requests
    assert all(half in first.messages[0].content for half in HALVES)  # the judge saw both halves


def test_the_same_claim_is_grounded_where_one_example_says_all_of_it(call: JudgedByLabels) -> None:
    call.retriever = examples("The archive fix compares real paths and holds a lock meanwhile.")
    call.answers = says(FUSED)
    assert_grounded(call)


def test_without_one_of_the_halves_it_is_low_confidence_too(call: JudgedByLabels) -> None:
    call.retriever, call.answers = examples(HALVES[0]), says(FUSED)
    assert_low_confidence(call, FUSED)


def _with_rule(rule: str) -> dict[str, str]:
    return {**FILES, "app.py": f"# {rule}\n" + FILES["app.py"]}


def test_a_rule_cut_from_its_exception_is_low_confidence(call: JudgedByLabels) -> None:
    call.files = _with_rule("every name is checked, except those that begin with a slash")
    call.answers = says(CUT)
    assert_low_confidence(call, CUT)


def test_the_same_rule_is_grounded_where_there_is_no_exception(call: JudgedByLabels) -> None:
    call.files = _with_rule("every name is checked")
    call.answers = says(CUT)
    assert_grounded(call)


def test_a_plan_that_drops_the_claim_when_asked_again_is_grounded(call: JudgedByLabels) -> None:
    """The flag is no life sentence: one strict regeneration may fix it."""
    call.retriever = examples(*HALVES)
    call.answers = [{**PLAN, "rationale": FUSED}, {**OTHER_PLAN, "rationale": ""}]
    assert_grounded(call)
    assert [event.supported for event in call.audit.of(GroundingJudged)] == [False, True]


def test_the_plan_under_judgement_is_no_source(call: JudgedByLabels) -> None:
    """Else every claim would support itself."""
    call.answers = says(FUSED)
    assert_low_confidence(call, FUSED)
    assert FUSED in call.reader.requests[0].messages[0].content
