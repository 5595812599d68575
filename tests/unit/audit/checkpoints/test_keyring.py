"""The folder of keys: made once, private, exchanged without a moment in which nobody can sign."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fallback_audit import files as files_module
from fallback_audit.checkpoints import keyring as keyring_module
from fallback_audit.checkpoints.keyring import (
    KeyFolder,
    Keyring,
    Rotation,
    end_overlap,
    generate,
    rotate,
)
from fallback_audit.checkpoints.note import Signer, open_note, sign_note
from fallback_audit.errors import KeyringError
from tests.kinds import OfKind


def nobody(rotation: Rotation) -> None:
    """Announces nothing."""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_key(tmp_path: Path) -> None:
    made = generate(tmp_path / "keys")
    assert mode(tmp_path / "keys") == 0o700
    assert mode(tmp_path / "keys" / "signing.skey") == 0o600
    (signer,) = made.signers()
    assert made.verifiers() == made.current() == (signer.verifier,)
    assert made.origin == signer.name
    assert signer.name.startswith("fallback-tier/")
    assert Keyring.load(tmp_path / "keys") == made
    assert {path.name for path in (tmp_path / "keys").iterdir()} == {
        ".lock",
        "signing.skey",
        f"{signer.verifier.id.hex()}.vkey",
    }


def test_a_key_that_is_there_stays(tmp_path: Path) -> None:
    first = generate(tmp_path, "log.example")
    assert first.origin == "log.example"
    assert generate(tmp_path) == generate(tmp_path, "other.example") == first


def test_all_who_make_the_first_key_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: generate(tmp_path / "keys"), range(16)))
    assert len(made) == 1


def test_a_first_key_that_breaks_off_half_way_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with the public half only would be one that verifies, for ever."""
    write = keyring_module._write

    def once(path: Path, line: str) -> None:
        monkeypatch.setattr(keyring_module, "_write", never)
        write(path, line)

    def never(path: Path, line: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keyring_module, "_write", once)
    with pytest.raises(KeyringError, match="No space left"):
        generate(tmp_path)
    assert Keyring.load(tmp_path).signing is not None


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_first_key_made_while_another_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It sees the whole of it or nothing, not a public half that is nobody's."""
    private = keyring_module._private

    def meanwhile(path: Path) -> Signer | None:
        monkeypatch.setattr(keyring_module, "_private", private)
        if when == "before":
            generate(tmp_path)
        found = private(path)
        if when == "behind":
            generate(tmp_path)
        return found

    monkeypatch.setattr(keyring_module, "_private", meanwhile)
    seen = Keyring.load(tmp_path)
    assert (seen.signing is None) == (seen.trusted == ())


def test_no_folder_is_an_empty_keyring(tmp_path: Path) -> None:
    empty = Keyring.load(tmp_path / "none")
    assert empty.verifiers() == ()
    with pytest.raises(KeyringError, check=OfKind("no_signing_key")):
        empty.signers()
    with pytest.raises(KeyringError, check=OfKind("no_key")):
        _ = empty.origin
    assert not (tmp_path / "none").exists()


def test_public_keys_are_enough_to_verify(tmp_path: Path) -> None:
    made = generate(tmp_path / "keys")
    public = tmp_path / "public"
    public.mkdir(mode=0o700)
    (public / "any.vkey").write_text(made.signers()[0].verifier.vkey)
    reader = Keyring.load(public)
    note = sign_note("text\n", made.signers())
    assert open_note(note, reader.verifiers()).signed_by == made.verifiers()
    assert reader.origin == made.origin


def test_keys_of_two_names_don_t_say_whose_log(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.vkey").write_text(Signer.generate(name).verifier.vkey)
    with pytest.raises(KeyringError, check=OfKind("several_names")):
        _ = Keyring.load(tmp_path).origin


@pytest.mark.parametrize("name", ["signing.skey", "previous.skey"])
def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path, name: str) -> None:
    generate(tmp_path)
    rotate(tmp_path, nobody)
    (tmp_path / name).chmod(0o640)
    with pytest.raises(KeyringError, check=OfKind("readable_by_others")):
        Keyring.load(tmp_path)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """They could add a key of their own to the trusted ones."""
    generate(tmp_path / "keys")
    (tmp_path / "keys").chmod(0o770)
    with pytest.raises(KeyringError, check=OfKind("writable_by_others")):
        Keyring.load(tmp_path / "keys")


def test_a_trusted_key_that_others_can_write_is_refused(tmp_path: Path) -> None:
    generate(tmp_path)
    (path,) = tmp_path.glob("*.vkey")
    path.chmod(0o644)
    assert Keyring.load(tmp_path).verifiers()
    path.chmod(0o666)
    with pytest.raises(KeyringError, check=OfKind("writable_by_others")):
        Keyring.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff", b"PRIVATE+KEY+x", b"name+00000000+AA=="])
@pytest.mark.parametrize("name", ["signing.skey", "some.vkey"])
def test_malformed_keys_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyringError, match=name):
        Keyring.load(tmp_path)


def test_a_process_that_runs_for_weeks_sees_what_becomes_of_the_keys(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path / "keys")
    assert folder.load().verifiers() == ()
    generate(tmp_path / "keys")
    first = folder.load()
    assert first == Keyring.load(tmp_path / "keys")
    assert folder.load() is first  # nothing is parsed anew
    (tmp_path / "keys" / "known").mkdir()
    (tmp_path / "keys" / "known" / "log").write_text("1")
    assert folder.load() is first
    rotation = rotate(tmp_path / "keys", nobody)
    assert [signer.verifier for signer in folder.load().signers()] == [rotation.new, rotation.old]
    end_overlap(tmp_path / "keys")
    assert folder.load() == Keyring.load(tmp_path / "keys")
    assert folder.load().retired == (rotation.old,)


@pytest.mark.parametrize(
    ("name", "mode", "kind"),
    [("signing.skey", 0o640, "readable_by_others"), ("", 0o770, "writable_by_others")],
)
def test_keys_that_get_exposed_are_refused(tmp_path: Path, name: str, mode: int, kind: str) -> None:
    generate(tmp_path / "keys")
    folder = KeyFolder(tmp_path / "keys")
    folder.load()
    exposed = tmp_path / "keys" / name
    before = exposed.stat().st_mode & 0o777
    exposed.chmod(mode)
    for _ in range(2):
        with pytest.raises(KeyringError, check=OfKind(kind)):
            folder.load()
    exposed.chmod(before)
    assert folder.load() == Keyring.load(tmp_path / "keys")


def test_a_rotation_overlaps_until_it_is_ended(tmp_path: Path) -> None:
    old = generate(tmp_path).signers()[0]
    announced: list[Rotation] = []
    rotation = rotate(tmp_path, announced.append)
    assert announced == [rotation]
    during = Keyring.load(tmp_path)
    assert [signer.verifier for signer in during.signers()] == [rotation.new, rotation.old]
    assert set(during.current()) == {rotation.old, rotation.new}
    assert rotation.old == old.verifier
    assert rotation.new.name == old.name  # the log keeps its name

    assert end_overlap(tmp_path) == rotation.old
    after = Keyring.load(tmp_path)
    assert [signer.verifier for signer in after.signers()] == [rotation.new]
    assert after.current() == (rotation.new,)
    assert set(after.verifiers()) == {rotation.old, rotation.new}
    assert not (tmp_path / "previous.skey").exists()
    assert end_overlap(tmp_path) is None


def test_one_rotation_at_a_time(tmp_path: Path) -> None:
    generate(tmp_path)
    first = rotate(tmp_path, nobody)
    with pytest.raises(KeyringError, check=OfKind("overlap_not_over")):
        rotate(tmp_path, nobody)
    assert Keyring.load(tmp_path).signers()[0].verifier == first.new
    end_overlap(tmp_path)
    assert rotate(tmp_path, nobody).old == first.new


def test_nothing_to_rotate(tmp_path: Path) -> None:
    with pytest.raises(KeyringError, check=OfKind("no_signing_key")):
        rotate(tmp_path / "keys", nobody)


def test_what_can_not_go_on_record_is_not_done(tmp_path: Path) -> None:
    before = generate(tmp_path)
    seen: list[Rotation] = []

    def full(rotation: Rotation) -> None:
        seen.append(rotation)
        raise OSError(28, "No space left on device")

    with pytest.raises(KeyringError, match="No space left"):
        rotate(tmp_path, full)
    assert Keyring.load(tmp_path) == before
    assert rotate(tmp_path, seen.append).new == seen[0].new  # it goes on with the same new key


@pytest.mark.parametrize("step", range(1, 6))
def test_a_crash_at_any_step_leaves_a_key_that_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """And the rotation can be made again: to the same new key, or it was complete already."""
    old = generate(tmp_path).signers()[0].verifier
    seen: list[Rotation] = []

    class Killed(BaseException):
        pass

    left = step

    def dying(path: Path) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Killed

    with monkeypatch.context() as patched:
        for module in (
            keyring_module,
            files_module,
        ):  # its own steps, and those of the files it writes
            patched.setattr(module, "sync_directory", dying)
        with pytest.raises(Killed):
            rotate(tmp_path, seen.append)
    between = Keyring.load(tmp_path)
    assert old in between.current()
    if between.signers()[0].verifier == old:
        seen.append(rotate(tmp_path, seen.append))
    assert len({rotation.new for rotation in seen}) == 1
    assert end_overlap(tmp_path) == old
    assert Keyring.load(tmp_path).current() == (seen[0].new,)


def test_ending_a_rotation_that_did_not_begin(tmp_path: Path) -> None:
    """Killed when the old key stood there twice: it is not retired, since it still signs."""
    (signer,) = generate(tmp_path).signers()
    os.link(tmp_path / "signing.skey", tmp_path / "previous.skey")
    end_overlap(tmp_path)
    after = Keyring.load(tmp_path)
    assert after.signers() == (signer,)
    assert after.current() == (signer.verifier,)


def test_half_a_key_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyringError, match="No space left"):
        generate(tmp_path / "keys")
    assert list((tmp_path / "keys").glob("*key")) == []
    assert not (tmp_path / "keys" / ".new").exists()
