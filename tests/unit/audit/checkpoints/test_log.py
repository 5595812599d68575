"""The checkpoints' folder, and what is noticed when somebody was at it."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_audit.checkpoints.checkpoint import (
    Checkpoint,
    Previous,
    SignedCheckpoint,
    open_checkpoint,
    sign_checkpoint,
)
from fallback_audit.checkpoints.keyring import generate, history_file, known_files
from fallback_audit.checkpoints.log import SHARD_EVENTS, CheckpointLog
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Signer, sign_note
from fallback_audit.errors import AuditIntegrityError, CheckpointError, KeyringError, TrailFault
from tests.kinds import OfKind
from tests.unit.audit.checkpoints.trail_folder import TrailFolder

ROOT = bytes(range(32))
SIGNER = Signer("log.example", b"\x01" * 32)


@pytest.fixture
def trail(tmp_path: Path) -> TrailFolder:
    """Four checkpoints: of 2, 3, 5 and 9 events."""
    trail = TrailFolder(tmp_path)
    for count in (2, 1, 2, 4):
        trail.add(count)
        trail.sign()
    return trail


def faults(trail: TrailFolder, after: int = 0) -> list[tuple[int, TrailFault]]:
    checked = trail.log.checked(trail.keyring, after=after)
    return [(one.size, one.fault) for one in checked if one.fault is not None]


def kinds(trail: TrailFolder, after: int = 0) -> list[tuple[int, str]]:
    return [(size, fault.kind) for size, fault in faults(trail, after)]


def test_a_checkpoint_is_as_the_specification_says() -> None:
    plain = Checkpoint("log.example", 5, ROOT)
    assert plain.text() == "log.example\n5\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
    linked = Checkpoint("log.example", 5, ROOT, "ab" * 32, Previous(3, "cd" * 32))
    assert linked.text() == plain.text() + f"tip {'ab' * 32}\nprevious 3 {'cd' * 32}\n"
    for checkpoint in (plain, linked):
        assert Checkpoint.parse(checkpoint.text()) == checkpoint
        signed = sign_checkpoint(checkpoint, [SIGNER])
        assert open_checkpoint(signed.note, [SIGNER.verifier]) == signed


def test_extension_lines_of_others_are_ignored() -> None:
    text = Checkpoint("log.example", 5, ROOT).text() + "witness says hello\n"
    assert Checkpoint.parse(text) == Checkpoint("log.example", 5, ROOT)


B64 = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
TIP = "tip " + "ab" * 32


@pytest.mark.parametrize(
    "lines",
    [
        ["log.example", "5"],
        ["", "5", B64],
        ["log.example", "05", B64],
        ["log.example", "-5", B64],
        ["log.example", "\u0665", B64],
        ["log.example", "5", "AAEC"],
        ["log.example", "5", B64.replace("8=", "9=")],
        ["log.example", "5", B64, TIP, TIP],
    ],
)
def test_malformed_checkpoints(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    with pytest.raises(AuditIntegrityError, check=OfKind("malformed")):
        open_checkpoint(sign_note(text, [SIGNER]), [SIGNER.verifier])


def test_a_key_of_another_log_says_nothing_about_this_one() -> None:
    other = Signer("other.example", b"\x02" * 32)
    note = sign_checkpoint(Checkpoint("log.example", 5, ROOT), [other]).note
    with pytest.raises(
        AuditIntegrityError, check=OfKind("no_key_of_the_log"), match=r"log\.example"
    ):
        open_checkpoint(note, [other.verifier, SIGNER.verifier])


def test_no_bit_of_a_checkpoint_can_flip(trail: TrailFolder) -> None:
    note = trail.log.path(9).read_bytes()
    for place in range(len(note) * 8):
        altered = bytearray(note)
        altered[place // 8] ^= 1 << place % 8
        with pytest.raises(AuditIntegrityError):
            open_checkpoint(bytes(altered), trail.keyring.verifiers())


def test_all_of_them_in_order(trail: TrailFolder) -> None:
    assert list(trail.log.sizes()) == [2, 3, 5, 9]
    assert trail.log.latest_size() == 9
    assert kinds(trail) == []
    checked = list(trail.log.checked(trail.keyring))
    assert [one.signed.checkpoint.size for one in checked if one.signed] == [2, 3, 5, 9]
    latest = trail.log.latest(trail.keyring)
    assert latest is not None
    assert latest == checked[-1].signed
    assert trail.log.path(9).stat().st_mode & 0o777 == 0o600


def test_an_empty_log(tmp_path: Path) -> None:
    log = CheckpointLog(tmp_path / "none")
    assert log.latest_size() == 0
    assert log.latest(TrailFolder(tmp_path).keyring) is None
    assert list(log.checked(TrailFolder(tmp_path).keyring)) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("removed", "noticed"),
    [(2, [(3, 2)]), (3, [(5, 3)]), (5, [(9, 5)])],
)
def test_a_hole_is_noticed(
    trail: TrailFolder, removed: int, noticed: list[tuple[int, int]]
) -> None:
    trail.log.path(removed).unlink()
    found = faults(trail)
    assert [size for size, _ in found] == [size for size, _ in noticed]
    for (_, fault), (_, gone) in zip(found, noticed, strict=True):
        assert fault.kind == "checkpoint_missing"
        assert f"size {gone}" in fault.reason


def test_the_keys_know_that_the_last_one_is_gone(trail: TrailFolder) -> None:
    trail.log.path(9).unlink()
    ((size, fault),) = faults(trail)
    assert (size, fault.kind) == (5, "known_checkpoint_missing")  # at the last that is there
    assert "9 events" in fault.reason
    shutil.rmtree(trail.log.folder)
    assert kinds(trail) == [(0, "known_checkpoint_missing")]
    trail.forget()
    assert kinds(trail) == []  # then only the store could say so: it has more events


def test_what_the_keys_know_is_overwritten_in_place_while_it_is_as_long(trail: TrailFolder) -> None:
    """A file made anew at each checkpoint costs more than the signature."""
    (known,) = known_files(trail.keys, trail.log.folder)
    before = known.stat().st_ino
    for size, same in ((10, False), (11, True), (99, True), (100, False), (101, True)):
        trail.add(size - trail.log.latest_size())
        trail.sign()
        assert known.read_text().split()[0] == str(size)
        assert (known.stat().st_ino == before) is same
        before = known.stat().st_ino
    assert kinds(trail) == []
    first = trail.log.first()
    assert first is not None
    history = history_file(trail.keys, first)
    assert {*known.parent.iterdir()} == {known, history}


def test_the_keys_know_that_the_last_one_was_another(trail: TrailFolder) -> None:
    latest = trail.log.open(9, trail.keyring).checkpoint
    forged = sign_checkpoint(replace(latest, root=ROOT), trail.keyring.signers())
    trail.log.path(9).write_bytes(forged.note)
    assert kinds(trail) == [(9, "known_checkpoint_missing")]


@pytest.mark.parametrize("content", ["", "\0" * 90])
def test_known_file_without_bytes_says_nothing(trail: TrailFolder, content: str) -> None:
    """A power cut can keep the name of a file that was not synced, and lose its bytes."""
    (path,) = known_files(trail.keys, trail.log.folder)
    path.write_text(content)
    assert kinds(trail) == []


@pytest.mark.parametrize(
    "content", ["\0" * 80 + "x", "9", f"0 {'a' * 64}\nx\n", f"9 {'A' * 64}\nx\n"]
)
def test_what_the_keys_know_may_be_malformed(trail: TrailFolder, content: str) -> None:
    (path,) = known_files(trail.keys, trail.log.folder)
    path.write_text(content)
    with pytest.raises(KeyringError, check=OfKind("last_checkpoint_unreadable"), match=path.name):
        faults(trail)


def test_an_exchanged_one_is_noticed(trail: TrailFolder) -> None:
    """Signed by the right key, of the right size: but not the one that the next one names."""
    forged = sign_checkpoint(Checkpoint(trail.keyring.origin, 3, ROOT), trail.keyring.signers())
    trail.log.path(3).write_bytes(forged.note)
    assert [size for size, _ in kinds(trail)] == [3, 5]
    assert kinds(trail)[1] == (5, "checkpoint_exchanged")


def test_an_altered_one_is_noticed_once(trail: TrailFolder) -> None:
    path = trail.log.path(3)
    path.write_bytes(path.read_bytes().replace(b"\n3\n", b"\n4\n"))
    assert kinds(trail) == [(3, "signature_altered"), (5, "checkpoint_exchanged")]
    assert str(path) in faults(trail)[0][1].reason


def test_one_under_another_s_name_is_noticed(trail: TrailFolder) -> None:
    trail.log.path(7).write_bytes(trail.log.path(5).read_bytes())
    assert kinds(trail) == [(7, "another_size"), (9, "checkpoint_missing")]
    assert all("size 5" in fault.reason for _, fault in faults(trail))


def test_a_first_one_that_is_not_the_first(trail: TrailFolder) -> None:
    alone = sign_checkpoint(Checkpoint(trail.keyring.origin, 12, ROOT), trail.keyring.signers())
    trail.log.path(12).write_bytes(alone.note)
    assert kinds(trail) == [(12, "not_the_first")]


def test_verified_ones_are_not_read_again(trail: TrailFolder) -> None:
    assert kinds(trail, after=5) == []
    assert [one.size for one in trail.log.checked(trail.keyring, after=5)] == [9]
    trail.log.path(5).write_bytes(trail.log.path(3).read_bytes())
    assert kinds(trail, after=5)[0][1] == "checkpoint_exchanged"


def test_one_of_another_log_is_refused(trail: TrailFolder, tmp_path: Path) -> None:
    other = generate(tmp_path / "other")
    note = sign_checkpoint(Checkpoint(other.origin, 9, ROOT), other.signers()).note
    trail.log.path(9).write_bytes(note)
    with pytest.raises(AuditIntegrityError, check=OfKind("no_trusted_key")):
        trail.log.latest(trail.keyring)
    vkey = other.signers()[0].verifier.vkey
    (trail.keys / "other.vkey").write_text(vkey)
    with pytest.raises(AuditIntegrityError, check=OfKind("another_log"), match=other.origin):
        trail.log.latest(trail.keyring)


def test_two_roots_at_one_size_are_refused(trail: TrailFolder) -> None:
    latest = trail.log.latest(trail.keyring)
    assert latest is not None
    trail.log.add(latest)  # the same again is nothing new
    forged = sign_checkpoint(Checkpoint(trail.keyring.origin, 9, ROOT), trail.keyring.signers())
    with pytest.raises(CheckpointError, check=OfKind("another_of_this_size")):
        trail.log.add(forged)
    assert trail.log.latest(trail.keyring) == latest


def test_a_full_disk_leaves_nothing_behind(
    trail: TrailFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    more = sign_checkpoint(Checkpoint(trail.keyring.origin, 12, ROOT), trail.keyring.signers())
    before = sorted(trail.log.folder.rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="No space left"):
            trail.log.add(more)
    assert sorted(trail.log.folder.rglob("*")) == before
    trail.log.add(more)
    assert trail.log.latest_size() == 12


@pytest.mark.parametrize("altered", [b"tip", b"log", b"\n\n"])
def test_what_was_signed_here_is_looked_at_again(trail: TrailFolder, altered: bytes) -> None:
    """Only the very bytes that were added need no signature checked; nor do they after a retirement."""
    log, keyring = trail.log, trail.keyring
    tip = "ab" * 32
    made = sign_checkpoint(Checkpoint(keyring.origin, 12, ROOT, tip), keyring.signers())
    log.add(made)
    assert log.latest(keyring) == made == trail.log.latest(keyring)
    untrusting = replace(keyring, trusted=(SIGNER.verifier,))
    with pytest.raises(AuditIntegrityError, check=OfKind("no_trusted_key")):
        log.open(12, untrusting)
    retired = replace(keyring, trusted=(SIGNER.verifier,), retired=keyring.trusted)
    with pytest.raises(AuditIntegrityError, check=OfKind("signed_by_retired_keys")):
        log.latest(retired)
    changed = {b"tip": (b"ab", b"ac"), b"log": (b"\n12\n", b"\n13\n"), b"\n\n": (b"\n\n", b"\n")}
    note = made.note.replace(*changed[altered], 1)
    assert note != made.note
    log.path(12).write_bytes(note)
    with pytest.raises(AuditIntegrityError, check=OfKind("signature_altered", "not_a_note")):
        log.latest(keyring)


def test_old_checkpoints_are_in_folders_of_their_own(trail: TrailFolder) -> None:
    large = SHARD_EVENTS * 3 + 7
    signed = sign_checkpoint(Checkpoint(trail.keyring.origin, large, ROOT), trail.keyring.signers())
    trail.log.add(signed)
    assert trail.log.path(large).parent != trail.log.path(9).parent
    assert list(trail.log.sizes()) == [2, 3, 5, 9, large]
    assert trail.log.latest_size() == large


def test_other_files_are_none_of_ours(trail: TrailFolder) -> None:
    for name in ("README", "12.checkpoint", ".new", f"{SHARD_EVENTS:016d}.checkpoint"):
        (trail.log.path(2).parent / name).write_text("x")
    (trail.log.folder / "backup").mkdir()
    assert list(trail.log.sizes()) == [2, 3, 5, 9]


def latest_of(trail: TrailFolder) -> SignedCheckpoint:
    latest = trail.log.latest(trail.keyring)
    assert latest is not None
    return latest


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"size": 9, "hashes": []}', b'{"size": 9, "hashes": ["00", "11"]}',
     b'{"size": 3.5, "hashes": []}', b'{"size": 9, "hashes": null}', b"\xff",
     b'{"size": 1e400, "hashes": []}', b'{"size": 9' + b"0" * 5_000 + b"}", b"[" * 100_000],
)  # fmt: skip
def test_a_cache_is_believed_only_if_its_root_was_signed(
    trail: TrailFolder, content: bytes
) -> None:
    good = trail.log.frontier(latest_of(trail))
    assert good is not None
    assert good.root() == latest_of(trail).checkpoint.root
    (trail.log.folder / "frontier.json").write_bytes(content)
    assert trail.log.frontier(latest_of(trail)) is None
    trail.log.remember(Frontier(9, [ROOT, ROOT]))
    assert trail.log.frontier(latest_of(trail)) is None
    trail.log.remember(good)
    assert trail.log.frontier(latest_of(trail)) is not None


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(trail: TrailFolder) -> None:
    latest = latest_of(trail)
    for path in (trail.log.path(9), trail.log.folder / "frontier.json"):
        path.unlink()
        os.mkfifo(path)
    assert trail.log.frontier(latest) is None
    with pytest.raises(CheckpointError) as caught:
        trail.log.latest(trail.keyring)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EINVAL


def test_a_link_in_place_of_the_folder_is_not_a_new_log(trail: TrailFolder) -> None:
    """Whoever has the state folder, and not the keys, begins again with a history of his own."""
    trail.log.folder.rename(trail.place / "elsewhere")
    (trail.place / "empty").mkdir()
    trail.log.folder.symlink_to(trail.place / "empty")
    assert kinds(trail)[0][1] == "known_checkpoint_missing"
    trail.log.folder.unlink()
    trail.log.folder.symlink_to(trail.place / "elsewhere")
    assert kinds(trail) == []  # it may be moved away, and linked to
    trail.log.folder.unlink()
    trail.log.folder.symlink_to(trail.log.folder.name)
    assert kinds(trail)[0][1] == "known_checkpoint_missing"


def test_one_writer_at_a_time(trail: TrailFolder) -> None:
    refused = pytest.raises(CheckpointError, check=OfKind("locked"))
    with trail.log.locked(), refused, trail.log.locked(timeout_s=0):
        pass
    with trail.log.locked(timeout_s=0):
        pass
