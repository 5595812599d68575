"""The checkpoints' folder, and what is noticed when somebody was at it."""

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
from fallback_audit.checkpoints.keyring import generate
from fallback_audit.checkpoints.known import known_files
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Signer, sign_note
from fallback_audit.checkpoints.shards import SHARD_EVENTS
from fallback_audit.errors import AuditIntegrityError, CheckpointError, KeyringError
from tests.unit.audit.checkpoints.house import House

ROOT = bytes(range(32))
SIGNER = Signer("log.example", b"\x01" * 32)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Four checkpoints: of 2, 3, 5 and 9 events."""
    house = House(tmp_path)
    for count in (2, 1, 2, 4):
        house.add(count)
        house.sign()
    return house


def problems(house: House, after: int = 0) -> list[tuple[int, str]]:
    checked = house.log.checked(house.keyring, after=after)
    return [(one.size, one.problem) for one in checked if one.problem is not None]


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
    with pytest.raises(AuditIntegrityError, match="checkpoint can't be trusted"):
        open_checkpoint(sign_note(text, [SIGNER]), [SIGNER.verifier])


def test_a_key_of_another_log_says_nothing_about_this_one() -> None:
    other = Signer("other.example", b"\x02" * 32)
    note = sign_checkpoint(Checkpoint("log.example", 5, ROOT), [other]).note
    with pytest.raises(AuditIntegrityError, match=r"no key of the log log\.example signed it"):
        open_checkpoint(note, [other.verifier, SIGNER.verifier])


def test_no_bit_of_a_checkpoint_can_flip(house: House) -> None:
    note = house.log.path(9).read_bytes()
    for place in range(len(note) * 8):
        altered = bytearray(note)
        altered[place // 8] ^= 1 << place % 8
        with pytest.raises(AuditIntegrityError):
            open_checkpoint(bytes(altered), house.keyring.verifiers())


def test_all_of_them_in_order(house: House) -> None:
    assert list(house.log.sizes()) == [2, 3, 5, 9]
    assert house.log.latest_size() == 9
    assert problems(house) == []
    checked = list(house.log.checked(house.keyring))
    assert [one.signed.checkpoint.size for one in checked if one.signed] == [2, 3, 5, 9]
    latest = house.log.latest(house.keyring)
    assert latest is not None
    assert latest == checked[-1].signed
    assert house.log.path(9).stat().st_mode & 0o777 == 0o600


def test_an_empty_log(tmp_path: Path) -> None:
    log = CheckpointLog(tmp_path / "none")
    assert log.latest_size() == 0
    assert log.latest(House(tmp_path).keyring) is None
    assert list(log.checked(House(tmp_path).keyring)) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("removed", "noticed"),
    [(2, [(3, 2)]), (3, [(5, 3)]), (5, [(9, 5)])],
)
def test_a_hole_is_noticed(house: House, removed: int, noticed: list[tuple[int, int]]) -> None:
    house.log.path(removed).unlink()
    reported = [
        (size, f"the checkpoint of size {gone} before it is missing (removed)")
        for size, gone in noticed
    ]
    assert problems(house) == reported


def test_the_keys_know_that_the_last_one_is_gone(house: House) -> None:
    house.log.path(9).unlink()
    ((size, message),) = problems(house)
    assert size == 5  # the last that is there
    assert "a checkpoint of 9 events was signed for" in message
    shutil.rmtree(house.log.folder)
    assert [size for size, _ in problems(house)] == [0]
    house.forget()
    assert problems(house) == []  # then only the store could say so: it has more events


def test_what_the_keys_know_is_overwritten_in_place_while_it_is_as_long(house: House) -> None:
    """A file made anew at each checkpoint costs more than the signature."""
    (known,) = known_files(house.keys, house.log.folder)
    before = known.stat().st_ino
    for size, same in ((10, False), (11, True), (99, True), (100, False), (101, True)):
        house.add(size - house.log.latest_size())
        house.sign()
        assert known.read_text().split()[0] == str(size)
        assert (known.stat().st_ino == before) is same
        before = known.stat().st_ino
    assert problems(house) == []
    assert [path.name for path in known.parent.iterdir()] == [known.name]


def test_the_keys_know_that_the_last_one_was_another(house: House) -> None:
    latest = house.log.open(9, house.keyring).checkpoint
    forged = sign_checkpoint(replace(latest, root=ROOT), house.keyring.signers())
    house.log.path(9).write_bytes(forged.note)
    ((size, message),) = problems(house)
    assert size == 9
    assert "exchanged" in message


@pytest.mark.parametrize("content", ["", "9", f"0 {'a' * 64}\nx\n", f"9 {'A' * 64}\nx\n"])
def test_what_the_keys_know_may_be_malformed(house: House, content: str) -> None:
    (path,) = known_files(house.keys, house.log.folder)
    path.write_text(content)
    with pytest.raises(KeyringError, match=path.name):
        problems(house)


def test_an_exchanged_one_is_noticed(house: House) -> None:
    """Signed by the right key, of the right size: but not the one that the next one names."""
    forged = sign_checkpoint(Checkpoint(house.keyring.origin, 3, ROOT), house.keyring.signers())
    house.log.path(3).write_bytes(forged.note)
    assert [size for size, _ in problems(house)] == [3, 5]
    assert "exchanged" in problems(house)[1][1]


def test_an_altered_one_is_noticed_once(house: House) -> None:
    path = house.log.path(3)
    path.write_bytes(path.read_bytes().replace(b"\n3\n", b"\n4\n"))
    (found, after) = problems(house)
    assert found[0] == 3
    assert "altered" in found[1]
    assert str(path) in found[1]
    assert after == (5, "the checkpoint of size 3 before it is another one (exchanged)")


def test_one_under_another_s_name_is_noticed(house: House) -> None:
    house.log.path(7).write_bytes(house.log.path(5).read_bytes())
    (found, after) = problems(house)
    assert found[0] == 7
    assert "it is one of size 5" in found[1]
    assert after == (9, "the checkpoint of size 5 before it is missing (removed)")


def test_a_first_one_that_is_not_the_first(house: House) -> None:
    alone = sign_checkpoint(Checkpoint(house.keyring.origin, 12, ROOT), house.keyring.signers())
    house.log.path(12).write_bytes(alone.note)
    assert problems(house) == [
        (12, "it says that it is the first, but there are checkpoints before it")
    ]


def test_verified_ones_are_not_read_again(house: House) -> None:
    assert problems(house, after=5) == []
    assert [one.size for one in house.log.checked(house.keyring, after=5)] == [9]
    house.log.path(5).write_bytes(house.log.path(3).read_bytes())
    assert "exchanged" in problems(house, after=5)[0][1]


def test_one_of_another_log_is_refused(house: House, tmp_path: Path) -> None:
    other = generate(tmp_path / "other")
    note = sign_checkpoint(Checkpoint(other.origin, 9, ROOT), other.signers()).note
    house.log.path(9).write_bytes(note)
    with pytest.raises(AuditIntegrityError, match="no trusted key signed it"):
        house.log.latest(house.keyring)
    vkey = other.signers()[0].verifier.vkey
    (house.keys / "other.vkey").write_text(vkey)
    with pytest.raises(AuditIntegrityError, match=f"it is of the log {other.origin}"):
        house.log.latest(house.keyring)


def test_two_roots_at_one_size_are_refused(house: House) -> None:
    latest = house.log.latest(house.keyring)
    assert latest is not None
    house.log.add(latest)  # the same again is nothing new
    forged = sign_checkpoint(Checkpoint(house.keyring.origin, 9, ROOT), house.keyring.signers())
    with pytest.raises(CheckpointError, match="another checkpoint of this size"):
        house.log.add(forged)
    assert house.log.latest(house.keyring) == latest


def test_a_full_disk_leaves_nothing_behind(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    more = sign_checkpoint(Checkpoint(house.keyring.origin, 12, ROOT), house.keyring.signers())
    before = sorted(house.log.folder.rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="No space left"):
            house.log.add(more)
    assert sorted(house.log.folder.rglob("*")) == before
    house.log.add(more)
    assert house.log.latest_size() == 12


@pytest.mark.parametrize("altered", [b"tip", b"log", b"\n\n"])
def test_what_was_signed_here_is_looked_at_again(house: House, altered: bytes) -> None:
    """Only the very bytes that were added need no signature checked; nor do they after a retirement."""
    log, keyring = house.log, house.keyring
    tip = "ab" * 32
    made = sign_checkpoint(Checkpoint(keyring.origin, 12, ROOT, tip), keyring.signers())
    log.add(made)
    assert log.latest(keyring) == made == house.log.latest(keyring)
    untrusting = replace(keyring, trusted=(SIGNER.verifier,))
    with pytest.raises(AuditIntegrityError, match="no trusted key signed it"):
        log.open(12, untrusting)
    retired = replace(keyring, trusted=(SIGNER.verifier,), retired=keyring.trusted)
    with pytest.raises(AuditIntegrityError, match="retired keys"):
        log.latest(retired)
    changed = {b"tip": (b"ab", b"ac"), b"log": (b"\n12\n", b"\n13\n"), b"\n\n": (b"\n\n", b"\n")}
    note = made.note.replace(*changed[altered], 1)
    assert note != made.note
    log.path(12).write_bytes(note)
    with pytest.raises(AuditIntegrityError, match="can't be trusted"):
        log.latest(keyring)


def test_old_checkpoints_are_in_folders_of_their_own(house: House) -> None:
    large = SHARD_EVENTS * 3 + 7
    signed = sign_checkpoint(Checkpoint(house.keyring.origin, large, ROOT), house.keyring.signers())
    house.log.add(signed)
    assert house.log.path(large).parent != house.log.path(9).parent
    assert list(house.log.sizes()) == [2, 3, 5, 9, large]
    assert house.log.latest_size() == large


def test_other_files_are_none_of_ours(house: House) -> None:
    for name in ("README", "12.checkpoint", ".new", f"{SHARD_EVENTS:016d}.checkpoint"):
        (house.log.path(2).parent / name).write_text("x")
    (house.log.folder / "backup").mkdir()
    assert list(house.log.sizes()) == [2, 3, 5, 9]


def latest_of(house: House) -> SignedCheckpoint:
    latest = house.log.latest(house.keyring)
    assert latest is not None
    return latest


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"size": 9, "hashes": []}', b'{"size": 9, "hashes": ["00", "11"]}',
     b'{"size": 3.5, "hashes": []}', b'{"size": 9, "hashes": null}', b"\xff",
     b'{"size": 1e400, "hashes": []}', b'{"size": 9' + b"0" * 5_000 + b"}", b"[" * 100_000],
)  # fmt: skip
def test_a_cache_is_believed_only_if_its_root_was_signed(house: House, content: bytes) -> None:
    good = house.log.frontier(latest_of(house))
    assert good is not None
    assert good.root() == latest_of(house).checkpoint.root
    (house.log.folder / "frontier.json").write_bytes(content)
    assert house.log.frontier(latest_of(house)) is None
    house.log.remember(Frontier(9, [ROOT, ROOT]))
    assert house.log.frontier(latest_of(house)) is None
    house.log.remember(good)
    assert house.log.frontier(latest_of(house)) is not None


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(house: House) -> None:
    latest = latest_of(house)
    for path in (house.log.path(9), house.log.folder / "frontier.json"):
        path.unlink()
        os.mkfifo(path)
    assert house.log.frontier(latest) is None
    with pytest.raises(CheckpointError, match="no regular file"):
        house.log.latest(house.keyring)


def test_a_link_in_place_of_the_folder_is_not_a_new_log(house: House) -> None:
    """Whoever has the state folder, and not the keys, begins again with a history of his own."""
    house.log.folder.rename(house.place / "elsewhere")
    (house.place / "empty").mkdir()
    house.log.folder.symlink_to(house.place / "empty")
    assert "was signed for" in problems(house)[0][1]
    house.log.folder.unlink()
    house.log.folder.symlink_to(house.place / "elsewhere")
    assert problems(house) == []  # it may be moved away, and linked to
    house.log.folder.unlink()
    house.log.folder.symlink_to(house.log.folder.name)
    assert "was signed for" in problems(house)[0][1]


def test_one_writer_at_a_time(house: House) -> None:
    refused = pytest.raises(CheckpointError, match="another process holds the lock")
    with house.log.locked(), refused, house.log.locked(timeout_s=0):
        pass
    with house.log.locked(timeout_s=0):
        pass
