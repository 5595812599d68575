"""The keys of private evidence: files of their own, in a folder apart from what they encrypt.

``evidence-0001.key``, ``evidence-0002.key`` …: the one with the highest number encrypts, each of them
decrypts what names it. A key that is lost takes with it what it encrypted, and nothing else.
"""

import base64
import binascii
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from fallback_audit.disk_errors import blamed
from fallback_audit.errors import FallbackError, KeyringError
from fallback_audit.files import made_whole, make_private_directory

#: AES-256 and HKDF-SHA-256: 256 bits each.
KEY_BYTES = 32

#: Enough to tell a deployment's keys apart; a key has no other name.
KEY_ID_BYTES = 8

_KEY_ID_DOMAIN = b"fallback-tier/evidence/key-id/v1\0"
_PREFIX = "fallback-tier-evidence-key"
_FILE = re.compile(r"evidence-(\d{4})\.key")


class EvidenceKey(NamedTuple):
    """A master key. Each piece of evidence is encrypted by a key that is derived from it."""

    key_id: bytes
    secret: bytes

    @classmethod
    def of(cls, secret: bytes) -> "EvidenceKey":
        """The key with these KEY_BYTES bytes."""
        return cls(hashlib.sha256(_KEY_ID_DOMAIN + secret).digest()[:KEY_ID_BYTES], secret)


class KeySource(Protocol):
    """Where an evidence store finds keys, when it first needs one."""

    @property
    def where(self) -> str:
        """The place, for a person who has to put a key back."""
        ...

    def current(self) -> EvidenceKey:
        """The key to encrypt with, made where there is none. Raises KeyringError."""
        ...

    def find(self, key_id: bytes) -> EvidenceKey | None:
        """The key of this id; None where it is not there. Raises KeyringError: there, and unusable."""
        ...


class EvidenceKeys:
    """``KeySource`` on a folder. ``folder`` is asked for when a key is first needed.

    Several processes may share the folder: of two that make the first key at once, both use the same.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._current: EvidenceKey | None = None

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder())

    def current(self) -> EvidenceKey:
        """The key with the highest number; the first one is made. Raises KeyringError.

        Remembered: a run keeps to the key that it began with.
        """
        if self._current is None:
            self._current = max(self._all(), default=(0, None))[1] or self._add(1)
        return self._current

    def find(self, key_id: bytes) -> EvidenceKey | None:
        """By its id. Raises KeyringError."""
        if self._current is not None and self._current.key_id == key_id:
            return self._current
        return next((key for _, key in self._all() if key.key_id == key_id), None)

    def rotate(self) -> EvidenceKey:
        """A new key to encrypt with from now on. Those before it stay: delete one to forget what it holds.

        Raises KeyringError.
        """
        self._current = self._add(1 + max((number for number, _ in self._all()), default=0))
        return self._current

    def _all(self) -> Iterator[tuple[int, EvidenceKey]]:
        folder = self._folder()
        try:
            paths = sorted(folder.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed(folder, error) from error
        for path in paths:
            if numbered := _FILE.fullmatch(path.name):
                yield int(numbered[1]), _read(path)

    def _add(self, number: int) -> EvidenceKey:
        """Written whole under another name, then linked: nobody sees half a key, nobody replaces one."""
        path = self._folder() / f"evidence-{number:04}.key"
        key = EvidenceKey.of(secrets.token_bytes(KEY_BYTES))
        try:
            make_private_directory(path.parent)
            with made_whole(path, ".tmp-", put=os.link) as file:
                file.write(_text(key))
        except FileExistsError:
            return _read(path)  # another process was faster
        except OSError as error:
            raise _failed(path, error) from error
        return key


def _text(key: EvidenceKey) -> bytes:
    return f"{_PREFIX}+{key.key_id.hex()}+{base64.b64encode(key.secret).decode()}\n".encode()


def _read(path: Path) -> EvidenceKey:
    try:
        if path.stat().st_mode & 0o077:
            raise _unusable(path, "others than its owner can read it")
        prefix, key_id, secret = path.read_text("ascii").strip().split("+", 2)
        key = EvidenceKey.of(base64.b64decode(secret, validate=True))
    except OSError as error:
        raise _failed(path, error) from error
    except (ValueError, binascii.Error) as error:
        raise _unusable(path, "it is no evidence key") from error
    if prefix != _PREFIX or len(key.secret) != KEY_BYTES or key.key_id.hex() != key_id:
        raise _unusable(path, "it is no evidence key, or it was altered")
    return key


def _failed(path: Path, error: OSError) -> FallbackError:
    return blamed(error, f"Evidence key {path}", _unusable(path, error.strerror or str(error)))


def _unusable(path: Path, why: str) -> KeyringError:
    return KeyringError(
        f"Evidence key {path} can't be used: {why}.",
        next_step="Give it mode 0600, or restore it from a copy; --keys names another folder.",
    )
