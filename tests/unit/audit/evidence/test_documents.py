"""Models as evidence: they come back as they were, whatever text a model put into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.errors import EvidenceError
from fallback_audit.evidence.store import get_document, put_document
from fallback_audit.vocabulary import PromptShape, RefusalReason
from fallback_tier.outcome import Applied, Refused
from tests.fakes.audit import MemoryEvidence
from tests.kinds import OfKind


@given(sentence=st.text(st.characters(codec=None)))
def test_any_text_comes_back(sentence: str) -> None:
    refused = Refused(
        attempt=1,
        prompt_shape=PromptShape.NONE,
        reason=RefusalReason.NOT_AFFECTED,
        sentence=sentence,
    )
    evidence = MemoryEvidence()
    assert get_document(evidence, Refused, put_document(evidence, refused)) == refused


@pytest.mark.parametrize("content", [b"", b"{}", b"[", b"\xff", b'{"outcome": "applied"}'])
def test_what_is_no_such_document_is_said_to_be_none(content: bytes) -> None:
    evidence = MemoryEvidence()
    with pytest.raises(EvidenceError, check=OfKind("not_the_document"), match="Applied"):
        get_document(evidence, Applied, evidence.put(content))
