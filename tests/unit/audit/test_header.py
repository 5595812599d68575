"""A header is written out by hand, for speed: it must be byte for byte what RFC 8785 makes of it."""

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.canonical import canonical_bytes, canonical_text
from fallback_audit.chain import Header, canonical_header, make_link
from fallback_audit.errors import AuditStoreError
from fallback_audit.events import SCHEMA_VERSION, SandboxDisabled
from fallback_audit.ports import Scope
from tests.kinds import OfKind
from tests.unit.audit.trails import digest

WHEN = "2026-01-02T03:04:05.000006Z"

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)


@given(names, names, st.integers(1, 2**53 - 1), digests, digests)
def test_it_is_the_canonical_form(
    fix_id: str, transition: str, seq: int, payload: str, previous: str
) -> None:
    scope = Scope(fix_id=fix_id, gate_transition_id=transition)
    made = canonical_header(scope, "SandboxDisabled", seq, WHEN, payload, previous)
    header = Header(
        seq=seq,
        fix_id=fix_id,
        gate_transition_id=transition,
        kind="SandboxDisabled",
        schema_version=SCHEMA_VERSION,
        recorded_at=WHEN,
        payload_sha256=payload,
        previous_leaf=previous,
    )
    assert made == canonical_bytes(header.model_dump()) == rfc8785.dumps(header.model_dump())
    assert Header.model_validate_json(made) == header


@given(st.text(max_size=40))
def test_text_is_canonical_or_refused(text: str) -> None:
    try:
        expected = rfc8785.dumps(text).decode()
    except rfc8785.CanonicalizationError:
        with pytest.raises(AuditStoreError, check=OfKind("not_encodable")):
            canonical_text(text)
    else:
        assert canonical_text(text) == expected


@pytest.mark.parametrize("part", ["fix_id", "gate_transition_id"])
def test_a_scope_without_canonical_form_makes_no_link(part: str) -> None:
    scope = Scope(fix_id="f", gate_transition_id="t").model_copy(update={part: "\ud800"})
    with pytest.raises(AuditStoreError, check=OfKind("not_encodable")):
        make_link(
            scope,
            SandboxDisabled(reason="r"),
            seq=1,
            previous_leaf=digest("before"),
            recorded_at=WHEN,
        )
