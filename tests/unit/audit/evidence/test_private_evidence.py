"""Raw prompts and answers: encrypted where they lie, by a key that is kept elsewhere."""

import hashlib
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_audit.errors import DiskError, EvidenceError
from fallback_audit.evidence.cipher import MAGIC, OVERHEAD_BYTES, EvidenceKeyError
from fallback_audit.evidence.keys import EvidenceKeys
from fallback_audit.evidence.store import FileEvidenceStore
from tests.waiting import PATIENCE_S, at_once

SECRET = b"the prompt: a planted secret, sk-planted-0123456789"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "evidence"


def opened(root: Path, keys: Path | None) -> FileEvidenceStore:
    """A store of another process: nothing is remembered."""
    return FileEvidenceStore(
        root, max_bytes=1_000, keys=None if keys is None else EvidenceKeys(lambda: keys)
    )


def every_byte(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(content=st.one_of(st.binary(max_size=1_000), st.binary(max_size=50).map(MAGIC.__add__)))
def test_what_was_put_is_got_by_who_has_the_key(root: Path, keys: Path, content: bytes) -> None:
    digest = opened(root, keys).put(content, private=True)
    assert digest == hashlib.sha256(content).hexdigest()
    assert opened(root, keys).get(digest) == content
    assert opened(root, keys).is_private(digest)


def test_nothing_of_it_is_in_the_clear(root: Path, keys: Path) -> None:
    store = opened(root, keys)
    digest = store.put(SECRET, private=True)
    assert b"planted" not in every_byte(root)
    assert store.path(digest).stat().st_mode & 0o777 == 0o600
    plain = store.put(SECRET + b" again")
    assert b"planted" in store.path(plain).read_bytes(), "the search finds what is not encrypted"


def test_the_same_content_never_looks_the_same(tmp_path: Path, keys: Path) -> None:
    stored = []
    for name in ("one", "two"):
        store = opened(tmp_path / name, keys)
        stored.append(store.path(store.put(SECRET, private=True)).read_bytes())
    assert stored[0][: len(MAGIC) + 8] == stored[1][: len(MAGIC) + 8]
    assert stored[0][len(MAGIC) + 8 :][:44] != stored[1][len(MAGIC) + 8 :][:44]


def test_without_its_key_it_can_not_be_read_and_the_key_is_named(root: Path, keys: Path) -> None:
    digest = opened(root, keys).put(SECRET, private=True)
    (key,) = keys.iterdir()
    key_id = key.read_text().split("+")[1]
    key.rename(keys / "elsewhere")
    with pytest.raises(EvidenceKeyError, match=f"needs the evidence key {key_id}, .*{keys}"):
        opened(root, keys).get(digest)
    with pytest.raises(EvidenceKeyError, match="no folder of keys was named"):
        opened(root, None).get(digest)
    with pytest.raises(EvidenceKeyError, match="there is no folder for its key"):
        opened(root, None).put(b"another", private=True)
    assert opened(root, None).get(opened(root, None).put(b"a log")) == b"a log"


def test_the_first_key_is_private_and_made_once(keys: Path) -> None:
    barrier = threading.Barrier(8)
    found = []

    def make() -> None:
        barrier.wait(PATIENCE_S)
        found.append(EvidenceKeys(lambda: keys).current())

    at_once([make] * 8)
    assert len(set(found)) == 1
    assert [path.name for path in keys.iterdir()] == ["evidence-0001.key"]
    assert (keys / "evidence-0001.key").stat().st_mode & 0o777 == 0o600


def test_reading_makes_no_key(root: Path, keys: Path) -> None:
    store = opened(root, keys)
    store.get(store.put(b"a log"))
    assert not keys.exists()


def test_old_keys_go_on_reading(root: Path, keys: Path) -> None:
    store = opened(root, keys)
    old = store.put(SECRET, private=True)
    rotated = EvidenceKeys(lambda: keys).rotate()
    new = opened(root, keys).put(b"after", private=True)
    assert rotated.key_id in opened(root, keys).path(new).read_bytes()
    assert rotated.key_id not in opened(root, keys).path(old).read_bytes()
    assert opened(root, keys).get(old) == SECRET
    (keys / "evidence-0001.key").unlink()
    assert opened(root, keys).get(new) == b"after"
    with pytest.raises(EvidenceKeyError):
        opened(root, keys).get(old)


@pytest.mark.parametrize("at", [0, len(MAGIC), len(MAGIC) + 20, len(MAGIC) + 42, -1])
def test_each_byte_counts(root: Path, keys: Path, at: int) -> None:
    store = opened(root, keys)
    path = store.path(store.put(SECRET, private=True))
    altered = bytearray(path.read_bytes())
    altered[at] ^= 1
    path.write_bytes(altered)
    with pytest.raises(EvidenceError):
        store.get(hashlib.sha256(SECRET).hexdigest())


@pytest.mark.parametrize("length", [0, len(MAGIC), OVERHEAD_BYTES - 1, OVERHEAD_BYTES])
def test_a_cut_file_is_altered(root: Path, keys: Path, length: int) -> None:
    store = opened(root, keys)
    digest = store.put(SECRET, private=True)
    store.path(digest).write_bytes(store.path(digest).read_bytes()[:length])
    with pytest.raises(EvidenceError, match="was altered"):
        store.get(digest)


def test_a_log_may_look_encrypted(root: Path, keys: Path) -> None:
    store = opened(root, keys)
    assert store.get(store.put(MAGIC + b" is how they begin")) == MAGIC + b" is how they begin"


def test_one_piece_does_not_pass_for_another(root: Path, keys: Path) -> None:
    store = opened(root, keys)
    one, other = store.put(b"one", private=True), store.put(b"other", private=True)
    store.path(one).write_bytes(store.path(other).read_bytes())
    with pytest.raises(EvidenceError, match="was altered"):
        store.get(one)


def test_what_was_plain_becomes_private_and_stays_so(root: Path, keys: Path) -> None:
    store = opened(root, keys)
    digest = store.put(SECRET)
    assert not store.is_private(digest)
    assert store.put(SECRET, private=True) == digest
    assert store.is_private(digest)
    assert store.put(SECRET) == digest
    assert b"planted" not in every_byte(root)
    assert store.get(digest) == SECRET


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("fallback-tier-evidence-key+00+AAAA\n", 0o600, "it was altered"),
        ("nonsense", 0o600, "no evidence key"),
        ("fallback-tier-evidence-key+00+!!\n", 0o600, "no evidence key"),
        (None, 0o644, "others than its owner can read it"),
    ],
)
def test_a_key_that_can_not_be_trusted_is_refused(
    root: Path, keys: Path, text: str | None, mode: int, reason: str
) -> None:
    digest = opened(root, keys).put(SECRET, private=True)
    path = keys / "evidence-0001.key"
    if text is not None:
        path.write_text(text)
    path.chmod(mode)
    for act in (
        lambda: opened(root, keys).get(digest),
        lambda: opened(root, keys).put(b"x", private=True),
    ):
        with pytest.raises(EvidenceKeyError, match=reason):
            act()


def test_a_key_is_there_whole_or_not_at_all(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        keys.mkdir()
        with pytest.raises(DiskError, match="No space left"):
            EvidenceKeys(lambda: keys).current()
    assert list(keys.iterdir()) == []
    assert EvidenceKeys(lambda: keys).current() == EvidenceKeys(lambda: keys).current()
