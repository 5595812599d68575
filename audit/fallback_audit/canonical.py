"""The canonical bytes of a record (RFC 8785), and the domain-separated hashes over them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import rfc8785

from fallback_audit.errors import AuditStoreError

# A hash of one kind of record must never be valid for another (RFC 6962 §2.1 does the same with
# 0x00/0x01), so each kind has its own prefix. It ends with NUL, which canonical JSON never has.
HEADER_DOMAIN = b"fallback-tier/audit/header/v1\0"
PAYLOAD_DOMAIN = b"fallback-tier/audit/payload/v1\0"
GENESIS_DOMAIN = b"fallback-tier/audit/genesis/v1\0"

#: ``previous_leaf`` of the first event: a constant, the same for every deployment.
GENESIS = hashlib.sha256(GENESIS_DOMAIN).hexdigest()


#: The first integer that a JSON reader with IEEE 754 numbers may round (RFC 8785 §3.2.2.3).
UNSAFE_INTEGER = 2**53

# Keys in code point order, no spaces, UTF-8, and only the escapes that RFC 8785 requires.
# A record has no cycles: ``_is_plain``, which it has passed, would not have returned.
_encode = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
).encode


def canonical_bytes(record: Mapping[str, Any]) -> bytes:
    """Return the RFC 8785 form of a JSON object.

    Raises AuditStoreError if it has none: integers of 2**53 and more, NaN, lone surrogates.
    """
    try:
        # The standard library's encoder is 20 times as fast, and gives the same bytes if there are no
        # fractions and no non-ASCII keys (tests compare the two). An append delays a fix.
        return _encode(record).encode() if _is_plain(record) else rfc8785.dumps(dict(record))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise AuditStoreError(
            f"A {record.get('kind', 'record')} can't be recorded: {error} (RFC 8785).",
            next_step="Send large numbers as strings; replace lone surrogates before recording.",
            kind="not_encodable",
        ) from error


def canonical_text(text: str) -> str:
    """Return the RFC 8785 form of a JSON string. Raises AuditStoreError if it has a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AuditStoreError(
            f"{text!r} can't be recorded: {error} (RFC 8785).",
            next_step="Replace lone surrogates before recording.",
            kind="not_encodable",
        ) from error
    return _encode(text)


def _is_plain(value: object) -> bool:
    """Return whether it consists of text, safe integers, booleans, null, lists and ASCII-keyed objects."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if isinstance(value, int):
        return -UNSAFE_INTEGER < value < UNSAFE_INTEGER
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(str.isascii, value)) and all(map(_is_plain, value.values()))
    return False


def payload_digest(payload: bytes) -> str:
    """Return a payload's digest, which its header stores."""
    return hashlib.sha256(PAYLOAD_DOMAIN + payload).hexdigest()


def leaf_digest(header: bytes) -> str:
    """Return a header's digest, the leaf, which the next header stores."""
    return hashlib.sha256(HEADER_DOMAIN + header).hexdigest()
