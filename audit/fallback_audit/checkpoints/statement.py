"""Signed statements: what a keeper of the record says of it (a tombstone, a sealed segment).

A signed note of two lines: the *domain*, which names the kind of statement, and one canonical JSON
object (RFC 8785). No statement of one domain is valid in another, and none is a checkpoint: a checkpoint
has a number in its second line.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fallback_audit.canonical import canonical_bytes
from fallback_audit.checkpoints.note import Signer, Verifier, bad_note, open_note, sign_note
from fallback_audit.errors import AuditStoreError

TOMBSTONE_DOMAIN = "fallback-tier/audit/tombstone/v1"
SEGMENT_DOMAIN = "fallback-tier/audit/segment/v1"


def sign_statement(domain: str, content: Mapping[str, Any], signers: Sequence[Signer]) -> bytes:
    """A statement, as bytes to store. Raises AuditStoreError where ``content`` has no canonical form."""
    return sign_note(f"{domain}\n{canonical_bytes(content).decode()}\n", signers)


def open_statement(domain: str, data: bytes, verifiers: Collection[Verifier]) -> dict[str, Any]:
    """What a statement of this domain says. Raises AuditIntegrityError: altered, or another kind."""
    text = open_note(data, verifiers).text
    message, _, body = text.removesuffix("\n").partition("\n")
    if message != domain:
        raise bad_note(f"it is no statement of the kind {domain}", kind="another_domain")
    try:
        content = json.loads(body)
        canonical = isinstance(content, dict) and canonical_bytes(content).decode() == body
    except (ValueError, RecursionError, AuditStoreError):
        canonical = False
    if not canonical:
        raise bad_note("its content is not one canonical JSON object", kind="not_canonical")
    assert isinstance(content, dict)  # noqa: S101 - for the type checker: canonical says so
    return content
