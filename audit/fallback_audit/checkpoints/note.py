"""Signed notes: a text, and one line per signature (C2SP signed-note v1.0.0; Ed25519, type 0x01).

Keys have the text forms of Go's ``golang.org/x/mod/sumdb/note``, so its tools, and those built on it, can
check our signatures. `cryptography` is imported when something is signed or checked: that takes 30 ms.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from fallback_audit.errors import AuditIntegrityError, AuditStoreError, KeyringError

TYPE_CHECKING = False  # typing's would import it
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

#: The only signature type here. Its byte is in keys, and in the input of a key id's hash.
ED25519 = b"\x01"
KEY_BYTES = 32
KEY_ID_BYTES = 4

#: Limits of Go's reader: a larger note is an attempt to use up memory.
MAX_NOTE_BYTES = 1_000_000
MAX_SIGNATURES = 100

_PRIVATE = "PRIVATE+KEY"
_BULLET = "— "  # U+2014, space
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
_HEX_ID = re.compile(r"[0-9a-f]{8}")


def key_id(name: str, public: bytes) -> bytes:
    """Return the four bytes by which a key is found; they prove nothing (C2SP signed-note,
    "Signatures")."""
    return hashlib.sha256(name.encode() + b"\n" + ED25519 + public).digest()[:KEY_ID_BYTES]


@dataclass(frozen=True)
class Verifier:
    """A public key and its name."""

    name: str
    public: bytes

    @cached_property
    def id(self) -> bytes:
        """Return its key id."""
        return key_id(self.name, self.public)

    @property
    def vkey(self) -> str:
        """Return ``name+id+key``, for publishing."""
        return f"{self.name}+{self.id.hex()}+{_b64(ED25519 + self.public)}"

    @classmethod
    def parse(cls, vkey: str) -> "Verifier":
        """Parse ``vkey``. Raises KeyringError."""
        name, _, rest = vkey.partition("+")
        hex_id, _, data = rest.partition("+")
        verifier = cls(_checked_name(name), _key_bytes(data, "public"))
        _check_id(hex_id, verifier)
        return verifier

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Return whether the owner of this key signed exactly this message."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    @cached_property
    def _key(self) -> "Ed25519PublicKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        return Ed25519PublicKey.from_public_bytes(self.public)


@dataclass(frozen=True)
class Signer:
    """A private key and its name. The seed is in no ``repr``."""

    name: str
    seed: bytes = field(repr=False)

    @cached_property
    def verifier(self) -> Verifier:
        """Return its public half."""
        return Verifier(self.name, self._key.public_key().public_bytes_raw())

    @property
    def skey(self) -> str:
        """Return ``PRIVATE+KEY+name+id+seed``: for a private file only."""
        return f"{_PRIVATE}+{self.name}+{self.verifier.id.hex()}+{_b64(ED25519 + self.seed)}"

    @classmethod
    def parse(cls, skey: str) -> "Signer":
        """Parse ``skey``. Raises KeyringError, whose text repeats nothing of it."""
        if not skey.startswith(f"{_PRIVATE}+"):
            raise _bad_key("it is no private key")
        name, _, rest = skey.removeprefix(f"{_PRIVATE}+").partition("+")
        hex_id, _, data = rest.partition("+")
        signer = cls(_checked_name(name), _key_bytes(data, "private"))
        _check_id(hex_id, signer.verifier)
        return signer

    @classmethod
    def generate(cls, name: str) -> "Signer":
        """Generate a key. Raises KeyringError if a note can't have this name."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(_checked_name(name), Ed25519PrivateKey.generate().private_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the 64 bytes of an Ed25519 signature (RFC 8032)."""
        return self._key.sign(message)

    @cached_property
    def _key(self) -> "Ed25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)


class Opened(NamedTuple):
    """A note's text, and the trusted keys that signed it (at least one)."""

    text: str
    signed_by: tuple[Verifier, ...]


def sign_note(text: str, signers: Sequence[Signer]) -> bytes:
    """Return ``text`` with each signer's signature. Raises AuditStoreError if no note can have it."""
    if not text.endswith("\n") or _CONTROL.search(text) or not signers:
        raise AuditStoreError(
            "This text can't be signed: it needs a signer, a line feed at its end, and no control "
            "characters.",
            next_step="This is a defect in the program: please report it.",
            kind="not_signable",
        )
    message = text.encode()
    lines = [
        f"{_BULLET}{signer.name} {_b64(signer.verifier.id + signer.sign(message))}\n"
        for signer in signers
    ]
    return message + b"\n" + "".join(lines).encode()


def open_note(note: bytes, verifiers: Collection[Verifier]) -> Opened:
    """Check a note. Raises AuditIntegrityError: malformed, a wrong signature of a trusted key, or none.

    Signatures of unknown keys are ignored, as the specification requires (rotation and witnesses depend on
    it). A wrong signature of a trusted key is refused even if another one is right.
    """
    text, lines = _split(note)
    verifier_by_key = {(verifier.name, verifier.id): verifier for verifier in verifiers}
    signed_by: list[Verifier] = []
    message = text.encode()
    for line in lines:
        name, signature = _signature(line)
        verifier = verifier_by_key.get((name, signature[:KEY_ID_BYTES]))
        if verifier is None or verifier in signed_by:
            continue
        if not verifier.verifies(message, signature[KEY_ID_BYTES:]):
            raise bad_note(
                f"the signature of {name} does not match the text (altered)",
                kind="signature_altered",
            )
        signed_by.append(verifier)
    if not signed_by:
        raise bad_note("no trusted key signed it", kind="no_trusted_key")
    return Opened(text, tuple(signed_by))


def bad_note(reason: str, *, kind: str = "") -> AuditIntegrityError:
    """Return the error for a note that can't be trusted."""
    return AuditIntegrityError(
        f"A signed note can't be trusted: {reason}.",
        next_step="Keep it for analysis; check that --keys names the keys of this deployment.",
        kind=kind,
    )


def decode_base64(text: str) -> bytes:
    """Decode standard base64, of which each value has one valid text. Raises ValueError.

    The library's decoder ignores spare bits at the end: two texts would decode to one signature.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    if _b64(data) != text:
        raise ValueError("it is not in its only right spelling")
    return data


def _split(note: bytes) -> tuple[str, list[str]]:
    if len(note) > MAX_NOTE_BYTES:
        raise bad_note(f"it has more than {MAX_NOTE_BYTES} bytes", kind="too_large")
    try:
        whole = note.decode()
    except UnicodeDecodeError as error:
        raise bad_note("it is not UTF-8", kind="not_utf8") from error
    text, blank, signatures = whole.rpartition("\n\n")
    if not blank or not signatures.endswith("\n") or _CONTROL.search(whole):
        raise bad_note("it does not have the form of a signed note", kind="not_a_note")
    lines = signatures[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise bad_note(f"it has more than {MAX_SIGNATURES} signatures", kind="too_many_signatures")
    return text + "\n", lines


def _signature(line: str) -> tuple[str, bytes]:
    name, _, data = line.removeprefix(_BULLET).partition(" ")
    try:
        signature = decode_base64(data)
    except ValueError:
        signature = b""
    if not line.startswith(_BULLET) or not _is_name(name) or len(signature) <= KEY_ID_BYTES:
        raise bad_note("a signature line is malformed", kind="bad_signature_line")
    return name, signature


def _is_name(name: str) -> bool:
    return bool(name) and "+" not in name and not any(map(str.isspace, name)) and name.isprintable()


def _checked_name(name: str) -> str:
    if not _is_name(name):
        raise _bad_key(
            f"{name[:80]!r} is no name for a key: no spaces, no plus, not empty", kind="bad_name"
        )
    return name


def _key_bytes(data: str, which: str) -> bytes:
    try:
        key = decode_base64(data)
    except ValueError:
        key = b""
    if key[:1] != ED25519 or len(key) != 1 + KEY_BYTES:
        raise _bad_key(f"it is no {which} Ed25519 key")
    return key[1:]


def _check_id(hex_id: str, verifier: Verifier) -> None:
    if not _HEX_ID.fullmatch(hex_id) or bytes.fromhex(hex_id) != verifier.id:
        raise _bad_key(f"its id is not that of the key of {verifier.name}")


def _bad_key(reason: str, *, kind: str = "") -> KeyringError:
    return KeyringError(
        f"A key of the audit trail can't be used: {reason}.",
        next_step="Restore it from its backup, or make one with `fallback-tier audit keygen`.",
        kind=kind,
    )


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
