"""A retry bypasses RAG: ADR-0011 (docs/adr/0011-rag-bypass-on-retry.md), end to end over HTTP.

A gate-runner simulator passes ``prior_attempts=[summary]``. The retriever it passes in fails the test
if any attribute of it is touched. The model's traffic is played from a cassette (recorded from a real
local model; the file says which) that matches on the body, so what is asserted here is the request
*sent in this run*: it carries the fenced summary, and no retrieved example.
"""

import re
from pathlib import Path

import pytest

from fallback_audit.errors import AuditStoreError
from fallback_audit.vocabulary import PromptShape, Provenance, Tier
from fallback_plugins.messages_api.model import ClaudeModel
from fallback_tier.errors import ConfigurationError
from fallback_tier.limits import MAX_FENCED_SUMMARY_BYTES
from fallback_tier.outcome import Applied
from fallback_tier.retrieval import RagHit
from tests.cassettes.player import CASSETTES, REPLAY_URL, CassetteMismatch, Tape, use_cassette
from tests.fakes.memory import FixedRetriever, UntouchableRetriever
from tests.fixtures.fallback_tier_callable import NO_RECIPE
from tests.fixtures.retry_case import CASSETTE, EXAMPLE_MARKER, SUMMARY, Simulator
from tests.kinds import OfKind

FENCE = re.compile(
    r"<<<UNTRUSTED (?P<nonce>[0-9a-f]{32}) prior_attempt_summary[^\n]*>>>\n"
    r"(?P<body>(?:\| [^\n]*\n)+)"
    r"<<<END (?P=nonce)>>>"
)
RETRY_BLOCK = re.compile(r"\{% if prior_attempts %\}.*?\{% endif %\}\n", re.DOTALL)


@pytest.fixture
def simulator(tmp_path: Path) -> Simulator:
    return Simulator(tmp_path)


def replay(simulator: Simulator) -> tuple[Applied, Tape]:
    with use_cassette(CASSETTE) as tape:
        author = ClaudeModel(
            tape.provenance["model"],
            base_url=REPLAY_URL,
            provenance=Provenance.REPLAYED,
            max_retries=0,
            enforces_schema=tape.enforces_schema,
        )
        application = simulator.run(author)
    assert isinstance(application, Applied)
    return application, tape


def test_the_retry_succeeds_by_the_model_alone(simulator: Simulator) -> None:
    application, _ = replay(simulator)
    assert application.tier is Tier.LLM
    assert application.prompt_shape is PromptShape.RETRY
    assert application.attempt == 2
    assert application.files == ("knobfile.py",)
    assert application.used_few_shot_ref == ()


def test_the_request_sent_carries_the_fenced_summary(simulator: Simulator) -> None:
    _, tape = replay(simulator)
    fenced = FENCE.search(tape.requests[0].prompt)
    assert fenced, "the retry's request has no fenced summary"
    lines = [line.removeprefix("| ") for line in fenced["body"].splitlines()]
    assert lines == SUMMARY.prior_failure_summary.splitlines()
    assert len(fenced[0].encode()) <= MAX_FENCED_SUMMARY_BYTES
    assert "You previously attempted this fix and it failed" in tape.requests[0].prompt


def test_the_request_sent_carries_no_example(simulator: Simulator) -> None:
    _, tape = replay(simulator)
    for request in tape.requests:
        assert "solved_example" not in request.prompt
        assert EXAMPLE_MARKER not in request.prompt
        assert "example-that-failed" not in request.prompt


def test_the_skip_is_on_record_before_the_first_request(simulator: Simulator) -> None:
    replay(simulator)
    kinds = simulator.audit.kinds
    assert kinds[:3] == ["AttemptStarted", "RagSkippedOnRetry", "ModelCalled"]
    assert not {"RetrievalQueried", "ExampleReplayed", "RecipeEvaluated"} & set(kinds)
    skipped = simulator.audit.payloads[1]
    assert skipped.kind == "RagSkippedOnRetry"
    assert skipped.attempt_count == 1
    assert skipped.last_failure_kind is SUMMARY.failure_kind


# --- The safeguards, removed: each must be noticed ------------------------------------------------


def test_without_the_retry_block_nothing_is_sent(simulator: Simulator) -> None:
    """Delete the block from the template: the builder notices, and no request leaves."""
    text, removed = RETRY_BLOCK.subn("", simulator.plugin.template_text)
    assert removed == 1
    simulator.plugin.template_text = text
    with (
        pytest.raises(ConfigurationError, match="prior_failure_summary"),
        use_cassette(CASSETTE) as tape,
    ):
        simulator.run(ClaudeModel("any", base_url=REPLAY_URL, max_retries=0))
    assert tape.requests == []


def test_a_request_without_the_block_does_not_match_the_cassette(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the builder's check be lost as well, the cassette still matches on the body."""
    monkeypatch.setattr("fallback_tier.prompt.builder._check_shows_all", lambda *_: None)
    simulator.plugin.template_text = RETRY_BLOCK.sub("", simulator.plugin.template_text)
    with pytest.raises(CassetteMismatch, check=OfKind("another_request")):
        replay(simulator)


@pytest.mark.parametrize("name", ["query", "__class__", "_store"])
def test_the_untouchable_retriever_notices_any_attribute(name: str) -> None:
    with pytest.raises(AssertionError, match="touched"):
        getattr(UntouchableRetriever(), name)


def test_a_first_attempt_does_touch_the_retriever(simulator: Simulator) -> None:
    """The alarm can ring: with an empty history the same call reaches the retriever."""
    retriever = FixedRetriever(RagHit(examples=(), evidence="none"))
    simulator.retriever, simulator.prior_attempts, simulator.selection = retriever, (), NO_RECIPE
    simulator.audit.fail_on = "ModelCalled"
    with pytest.raises(AuditStoreError, match="ModelCalled"):
        simulator.run(ClaudeModel("any", base_url=REPLAY_URL, max_retries=0))
    assert retriever.queries == 1


def test_the_cassette_says_where_it_comes_from_and_holds_no_secret() -> None:
    text = (CASSETTES / CASSETTE).read_text()
    with pytest.raises(CassetteMismatch), use_cassette(CASSETTE) as tape:
        pass
    assert {"model", "model_sha256", "server", "recorded"} <= set(tape.provenance)
    assert not re.search(r"(?i)x-api-key|authorization|127\.0\.0\.1|localhost", text)
