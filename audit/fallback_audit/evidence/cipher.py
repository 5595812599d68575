"""Private evidence at rest: AES-256-GCM, a key for each piece derived by HKDF (RFC 5869).

::

    magic ‖ key id (8) ‖ salt (32) ‖ nonce (12) ‖ ciphertext ‖ tag (16)

What stands before the ciphertext, and the digest of the content, are authenticated with it: a file
can't be moved to another digest. A key of its own for each piece, since random nonces of one key are
safe for 2^32 messages only (NIST SP 800-38D §8.3).
"""

import secrets

from fallback_audit.errors import EvidenceError, KeyringError
from fallback_audit.evidence.keys import KEY_BYTES, KEY_ID_BYTES, EvidenceKey, KeySource

MAGIC = b"fallback-tier/evidence/v1\0"
_SALT_BYTES = 32
_NONCE_BYTES = 12
_TAG_BYTES = 16
_PREAMBLE_BYTES = len(MAGIC) + KEY_ID_BYTES + _SALT_BYTES + _NONCE_BYTES

#: How much longer than its content an encrypted file is.
OVERHEAD_BYTES = _PREAMBLE_BYTES + _TAG_BYTES


class EvidenceKeyError(EvidenceError):
    """A piece of private evidence can be neither stored nor read: the key that it needs can't be had."""

    code = "evidence_key"


def is_encrypted(stored: bytes) -> bool:
    """Does it look like one of ours? Evidence may be anything: compare its digest first."""
    return stored.startswith(MAGIC)


def encrypt(content: bytes, digest: str, keys: KeySource | None) -> bytes:
    """The bytes to store. Raises EvidenceKeyError."""
    if keys is None:
        raise EvidenceKeyError(
            "Private evidence can't be stored: there is no folder for its key.",
            next_step="Name one with --keys.",
        )
    try:
        key = keys.current()
    except KeyringError as error:
        raise EvidenceKeyError(error.problem, next_step=error.next_step) from error
    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    preamble = MAGIC + key.key_id + salt + nonce
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    sealed = AESGCM(_derived(key.secret, salt)).encrypt(nonce, content, _bound(preamble, digest))
    return preamble + sealed


def decrypt(stored: bytes, digest: str, keys: KeySource | None) -> bytes | None:
    """The content; None where the bytes were altered. Raises EvidenceKeyError."""
    preamble = stored[:_PREAMBLE_BYTES]
    if len(stored) < OVERHEAD_BYTES:
        return None
    key_id = preamble[len(MAGIC) :][:KEY_ID_BYTES]
    key = _found(key_id, keys)
    if key is None:
        where = "no folder of keys was named" if keys is None else f"it is not in {keys.where}"
        raise EvidenceKeyError(
            f"Evidence {digest} is private: it needs the evidence key {key_id.hex()}, and {where}.",
            next_step="Restore the key's file, or name its folder with --keys.",
        )
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce, salt = preamble[-_NONCE_BYTES:], preamble[-_NONCE_BYTES - _SALT_BYTES : -_NONCE_BYTES]
    cipher = AESGCM(_derived(key.secret, salt))
    try:
        return cipher.decrypt(nonce, stored[_PREAMBLE_BYTES:], _bound(preamble, digest))
    except InvalidTag:
        return None


def _found(key_id: bytes, keys: KeySource | None) -> EvidenceKey | None:
    try:
        return None if keys is None else keys.find(key_id)
    except KeyringError as error:
        raise EvidenceKeyError(error.problem, next_step=error.next_step) from error


def _derived(secret: bytes, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt, MAGIC).derive(secret)


def _bound(preamble: bytes, digest: str) -> bytes:
    return preamble + bytes.fromhex(digest)
