"""Evidence: content-addressed, private, bounded, verified when read."""

import base64
import hashlib
import os
import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_audit.errors import DiskError, EncryptedEvidenceError, EvidenceError
from fallback_audit.evidence.checking import Finding, examine
from fallback_audit.evidence.store import ENCRYPTED, FileEvidenceStore
from fallback_audit.ports import EvidenceStore
from tests.kinds import OfKind


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state" / "evidence"


@pytest.fixture
def store(root: Path) -> FileEvidenceStore:
    return FileEvidenceStore(root, max_bytes=100)


def place(root: Path, digest: str) -> Path:
    return root / digest[:2] / digest[2:]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(content=st.binary(max_size=100))
def test_what_was_put_is_got(store: FileEvidenceStore, content: bytes) -> None:
    port: EvidenceStore = store
    digest = port.put(content)
    assert digest == hashlib.sha256(content).hexdigest()
    assert port.get(digest) == content
    assert port.put(content) == digest


def test_files_are_private_and_nothing_else_is_left(root: Path, store: FileEvidenceStore) -> None:
    file = place(root, store.put(b"log"))
    assert [path for path in root.rglob("*") if path.is_file()] == [file]
    assert file.stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in (root, file.parent)} == {0o700}


def test_the_cap(root: Path, store: FileEvidenceStore) -> None:
    store.put(b"x" * 100)
    with pytest.raises(EvidenceError, check=OfKind("too_large"), match=r"101 .* 100"):
        store.put(b"x" * 101)
    assert sum(1 for path in root.rglob("*") if path.is_file()) == 1


@pytest.mark.parametrize("content", [b"", b"lo", b"lag", b"log and more", b"x" * 101])
def test_altered_evidence_is_never_handed_out_nor_replaced(
    root: Path, store: FileEvidenceStore, content: bytes
) -> None:
    digest = store.put(b"log")
    place(root, digest).write_bytes(content)
    for action in (lambda: store.get(digest), lambda: store.put(b"log")):
        with pytest.raises(EvidenceError, check=OfKind("altered")):
            action()
    assert place(root, digest).read_bytes() == content


def test_missing_evidence(store: FileEvidenceStore) -> None:
    with pytest.raises(EvidenceError, check=OfKind("missing")):
        store.get("0" * 64)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_only_digests_are_looked_up(store: FileEvidenceStore, digest: str) -> None:
    with pytest.raises(EvidenceError, check=OfKind("not_a_digest")):
        store.get(digest)


def test_what_the_system_can_not_read_is_not_called_bad(store: FileEvidenceStore) -> None:
    """No descriptor is left: nothing is known about the file."""
    digest = store.put(b"log")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(DiskError, match="Too many open files"):
            store.get(digest)
        with pytest.raises(DiskError):
            examine(store, digest, frozenset(), is_private=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert examine(store, digest, frozenset(), is_private=False) is None


def test_a_planted_link_is_not_followed(root: Path, store: FileEvidenceStore) -> None:
    digest = store.put(b"log")
    target = root / "elsewhere"
    place(root, digest).rename(target)
    place(root, digest).symlink_to(target)
    with pytest.raises(EvidenceError, match="symbolic links"):
        store.get(digest)
    found = examine(store, digest, frozenset(), is_private=False)
    assert found is not None
    assert found[0] is Finding.BAD


def test_a_planted_pipe_does_not_hang(root: Path, store: FileEvidenceStore) -> None:
    digest = store.put(b"log")
    place(root, digest).unlink()
    os.mkfifo(place(root, digest))
    with pytest.raises(EvidenceError, check=OfKind("altered")):
        store.get(digest)


def test_an_unusable_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EvidenceError, match=r"Evidence .*/file/"):
        FileEvidenceStore(tmp_path / "file").put(b"log")


def test_a_failed_write_leaves_nothing(
    root: Path, store: FileEvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    store.put(b"first")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match="No space left on device"):
        store.put(b"second")
    assert sum(1 for path in root.rglob("*") if path.is_file()) == 1


# --- What an earlier release encrypted ------------------------------------------------------------

#: A private piece, and the file that the last release which encrypted made of it.
ANSWER = b"what a model answered"
ENCRYPTED_ANSWER = base64.b64decode(
    "ZmFsbGJhY2stdGllci9ldmlkZW5jZS92MQA4KLe66yJWzd077Fqz9a/iiBTikErloIgfqu6epVq2hq7VmTJ5Y5t4630f"
    "ugqub8kCYqaZWWcF5RQp5BM44EOj8G0ROBn1SLYt1xyAQQz2wb67Rz7W9cgJ3Q=="
)


@pytest.fixture
def encrypted(root: Path) -> str:
    """The digest of what is encrypted in ``root``."""
    digest = hashlib.sha256(ANSWER).hexdigest()
    place(root, digest).parent.mkdir(parents=True)
    place(root, digest).write_bytes(ENCRYPTED_ANSWER)
    return digest


def test_what_an_earlier_release_encrypted_is_named_as_that(
    root: Path, store: FileEvidenceStore, encrypted: str
) -> None:
    with pytest.raises(EncryptedEvidenceError) as caught:
        store.get(encrypted)
    assert caught.value.code == "evidence_encrypted"
    assert str(place(root, encrypted)) in caught.value.problem
    found = examine(store, encrypted, frozenset(), is_private=True)
    assert found is not None
    assert found[0] is Finding.LOCKED


def test_what_no_release_encrypted_is_altered_if_it_looks_so(
    root: Path, store: FileEvidenceStore
) -> None:
    """A patch, or a gate's log."""
    digest = store.put(b"a patch")
    place(root, digest).write_bytes(ENCRYPTED_ANSWER)
    found = examine(store, digest, frozenset(), is_private=False)
    assert found is not None
    assert found[0] is Finding.BAD


def test_what_was_encrypted_is_readable_once_it_is_put_again(
    store: FileEvidenceStore, encrypted: str
) -> None:
    assert store.put(ANSWER) == encrypted
    assert store.get(encrypted) == ANSWER


def test_a_log_may_look_encrypted(store: FileEvidenceStore) -> None:
    content = ENCRYPTED + b" is how they begin"
    for _ in range(2):
        assert store.get(store.put(content)) == content
