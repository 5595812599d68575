"""Nobody waits for a lock without end: whoever holds it may hang."""

import fcntl
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fallback_audit.checkpoints import keyring
from fallback_audit.errors import EvidenceError, FallbackError, KeyringError
from fallback_audit.evidence import store as evidence
from fallback_audit.files import lock
from fallback_tier.errors import SandboxError, ToolFailedError
from fallback_tier.files.locks import hold
from fallback_tier.files.tree import FileTree
from fallback_tier.sandbox import mounting
from tests.kinds import OfKind

AT_ONCE = partial(lock, timeout_s=0)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A folder that somebody else has locked."""
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield tmp_path
    os.close(descriptor)


def says_who(error: FallbackError) -> bool:
    return "fuser" in f"{error.problem} {error.next_step}"


def test_evidence(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "lock", AT_ONCE)
    with pytest.raises(EvidenceError, match="another process holds its lock") as caught:
        evidence.FileEvidenceStore(held).put(b"x")
    assert says_who(caught.value)


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "lock", AT_ONCE)
    keyring.generate(tmp_path)
    with (tmp_path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(KeyringError, match="another process holds its lock") as caught:
            keyring.generate(tmp_path)
    assert says_who(caught.value)


def test_a_tree_that_is_mounted(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounting, "_MAX_WAIT_S", 0)
    tree = FileTree(root=held / "tree", lower=(held,), upper=held / "upper", work=held)
    with (
        pytest.raises(SandboxError, check=OfKind("locked")) as caught,
        mounting.mounting(tree),
    ):
        pass
    assert says_who(caught.value)


def test_a_file(tmp_path: Path) -> None:
    with hold(tmp_path / "x"):
        with pytest.raises(ToolFailedError, check=OfKind("locked")) as caught:
            hold(tmp_path / "x", limit_s=0)
        assert says_who(caught.value)
    hold(tmp_path / "x", limit_s=0).close()
