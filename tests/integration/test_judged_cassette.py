"""A doubted plan, regenerated: recorded HTTP against the scripted server, through the real SDK."""

from pathlib import Path

from fallback_audit.events import GroundingJudged, ModelCalled
from fallback_audit.vocabulary import CallType, Provenance
from fallback_plugins.messages_api.model import ClaudeModel
from fallback_tier.outcome import Applied
from fallback_tier.prompt.turns import STRICT_INSTRUCTION
from tests.cassettes.player import REPLAY_URL, use_cassette
from tests.fakes.audit import MemoryAudit
from tests.fixtures.judged_case import CASSETTE, play


def test_what_was_sent_changes_with_the_judges_word(tmp_path: Path) -> None:
    audit = MemoryAudit()
    with use_cassette(CASSETTE) as tape:
        model = ClaudeModel(
            tape.provenance["model"],
            base_url=REPLAY_URL,
            provenance=Provenance.REPLAYED,
            max_retries=0,
        )
        done = play(tmp_path, audit, model)
    assert "scripted" in tape.provenance["server"]
    assert isinstance(done, Applied)
    assert done.grounded is True
    # Asserted on what this run has sent, never on what the file holds.
    author, judge, again, judge_again = (request.prompt for request in tape.requests)
    assert STRICT_INSTRUCTION not in author
    assert "CVE-2021-9999" in judge
    assert STRICT_INSTRUCTION in again
    assert "the advisory names no CVE" in again
    assert "CVE-2021-9999" not in judge_again
    assert [event.supported for event in audit.of(GroundingJudged)] == [False, True]
    assert [
        event.strict for event in audit.of(ModelCalled) if event.call_type is CallType.AUTHOR
    ] == [False, True]
