"""One byte form: equal to the reference package's, and refused where RFC 8785 has none."""

import hashlib
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.canonical import (
    GENESIS,
    HEADER_DOMAIN,
    PAYLOAD_DOMAIN,
    canonical_bytes,
    leaf_digest,
    payload_digest,
)
from fallback_audit.errors import AuditStoreError
from tests.kinds import OfKind

SAFE = 2**53 - 1
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), values, max_size=6))
def test_same_bytes_as_the_reference(record: dict[str, Any]) -> None:
    assert canonical_bytes(record) == rfc8785.dumps(record)


@given(st.dictionaries(st.text(alphabet="abcAB_"), st.text() | st.integers(-SAFE, SAFE)))
def test_same_bytes_as_the_reference_on_plain_records(record: dict[str, Any]) -> None:
    assert canonical_bytes(record) == rfc8785.dumps(record)


@pytest.mark.parametrize(
    "value", [2**53, -(2**53), float("nan"), float("inf"), "\ud800", {"a": [2**53]}, object()]
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(AuditStoreError, check=OfKind("not_encodable"), match="Sort"):
        canonical_bytes({"kind": "Sort", "value": value})


def test_domains_are_separate() -> None:
    assert leaf_digest(b"x") == hashlib.sha256(HEADER_DOMAIN + b"x").hexdigest()
    assert payload_digest(b"x") == hashlib.sha256(PAYLOAD_DOMAIN + b"x").hexdigest()
    assert leaf_digest(b"x") != payload_digest(b"x")


def test_genesis_is_pinned() -> None:
    """A constant of the format: a change would orphan every store in the field."""
    assert hashlib.sha256(b"fallback-tier/audit/genesis/v1\0").hexdigest() == GENESIS
