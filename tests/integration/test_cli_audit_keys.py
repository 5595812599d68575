"""``audit keygen``, ``checkpoint`` and ``prove`` from the outside."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.events import SigningKeyRotated
from fallback_audit.stores.sqlite import open_readonly
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from tests.e2e.command import Ended
from tests.unit.audit.checkpoints.trail_folder import TrailFolder

Audit = Callable[..., Ended]


@pytest.fixture
def audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Audit:
    """``audit VERB …`` over a state folder and a folder of keys, in this process."""

    def run_audit(
        *arguments: str | Path, state: Path = tmp_path, keys: Path = tmp_path / "keys"
    ) -> Ended:
        options = ["--state-dir", state, "--keys", keys]
        code = main(["audit", *map(str, [*arguments, *options])])
        return Ended(code, *capsys.readouterr())

    return run_audit


@pytest.fixture
def trail(tmp_path: Path) -> TrailFolder:
    """Seven events, and nothing signed."""
    trail = TrailFolder(tmp_path)
    trail.add(7)
    return trail


def test_keygen_prints_what_to_publish_and_what_to_keep(audit: Audit, tmp_path: Path) -> None:
    made = audit("keygen", "--name", "log.example")
    assert made.code == exit_codes.OK
    vkey = made.out.split("\n")[0]
    assert Keyring.load(tmp_path / "keys").signers()[0].verifier.vkey == vkey
    assert vkey.startswith("log.example+")
    assert f"back up {tmp_path / 'keys' / 'signing.skey'}" in made.out
    again = audit("keygen", "--json")
    assert again.json["vkey"] == vkey
    assert "already" in again.json["said"]
    assert "PRIVATE" not in made.out + made.err + again.out + again.err

    other = audit("keygen", "--name", "other.example", "--json")
    assert other.code == exit_codes.BAD_INPUT
    assert "is named log.example" in other.problem


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--rotate"], "--by and --because"),
        (["--rotate", "--by", "me"], "--by and --because"),
        (["--by", "me", "--because", "x"], "--by and --because"),
        (["--rotate", "--end-overlap"], "exclude each other"),
        (["--end-overlap", "--name", "x"], "exclude each other"),
    ],
)
def test_keygen_asked_for_nonsense(
    audit: Audit, tmp_path: Path, options: list[str], problem: str
) -> None:
    ended = audit("keygen", *options)
    assert ended.code == exit_codes.BAD_INPUT
    assert problem in ended.problem
    assert not (tmp_path / "keys").exists()


def test_a_rotation_goes_on_record_and_is_signed_by_both(
    audit: Audit, trail: TrailFolder, caplog: pytest.LogCaptureFixture
) -> None:
    first = audit("checkpoint", "--json")
    assert first.json["size"] == 7
    assert "back it up" in caplog.text  # the first key was made
    rotated = audit("keygen", "--rotate", "--by", "Ann", "--because", "yearly", "--json")
    assert rotated.code == exit_codes.OK, rotated
    reader = open_readonly(trail.db)
    (*_, last) = reader.events()
    reader.close()
    assert last.payload == SigningKeyRotated(
        old_vkey=first.json["signed_by"][0],
        new_vkey=rotated.json["vkey"],
        by="Ann",
        reason="yearly",
    )
    signed = trail.log.latest(trail.keyring)
    assert signed is not None
    assert signed.checkpoint.size == 8
    assert {key.vkey for key in signed.signed_by} == {
        first.json["signed_by"][0],
        rotated.json["vkey"],
    }

    twice = audit("keygen", "--rotate", "--by", "Ann", "--because", "again", "--json")
    assert (twice.code, twice.kind) == (exit_codes.ENVIRONMENT, "overlap_not_over")
    ended = audit("keygen", "--end-overlap")
    assert ended.code == exit_codes.OK
    assert first.json["signed_by"][0] in ended.out
    assert [key.verifier.vkey for key in trail.keyring.signers()] == [rotated.json["vkey"]]
    assert audit("checkpoint", "--json").json["size"] == 8
    none = audit("keygen", "--end-overlap", "--json")
    assert (none.code, none.kind) == (exit_codes.BAD_INPUT, "no_overlap")


def test_a_checkpoint_on_demand(audit: Audit, trail: TrailFolder) -> None:
    assert audit("checkpoint").code == exit_codes.OK
    reported = audit("checkpoint", "--json").json
    assert reported["path"] == str(trail.log.path(7))
    assert reported["origin"] == trail.keyring.origin
    signed = trail.log.latest(trail.keyring)
    assert signed is not None
    assert (reported["root"], reported["tip"]) == (
        signed.checkpoint.root.hex(),
        signed.checkpoint.tip,
    )


def test_nothing_to_sign(audit: Audit, tmp_path: Path) -> None:
    none = audit("checkpoint", "--json")
    assert (none.code, none.kind) == (exit_codes.ENVIRONMENT, "no_such_file")
    TrailFolder(tmp_path).add(0)
    empty = audit("checkpoint", "--json")
    assert (empty.code, empty.kind) == (exit_codes.ENVIRONMENT, "no_event")
    assert not (tmp_path / "checkpoints").exists()
    assert not (tmp_path / "keys").exists()


def test_an_event_is_proved_to_somebody_without_the_record(
    audit: Audit, trail: TrailFolder, tmp_path: Path
) -> None:
    unsigned = audit("prove", "3", "--json")
    assert (unsigned.code, unsigned.kind) == (exit_codes.ENVIRONMENT, "no_checkpoint")
    trail.sign()
    proof = tmp_path / "3.tlog-proof"
    written = audit("prove", "3", "-o", proof)
    assert written.code == exit_codes.OK
    assert "event 3 (SandboxDisabled of fix-1 at" in written.out
    printed = audit("prove", "3")
    assert printed.out.encode() == proof.read_bytes()
    as_json = audit("prove", "3", "--json").json
    assert as_json["proof"] == printed.out
    assert (as_json["seq"], as_json["header"]["kind"]) == (3, "SandboxDisabled")

    vkey = trail.keyring.signers()[0].verifier.vkey
    nowhere = tmp_path / "nowhere"
    asked = ["prove", "--check", proof, "--trust", vkey, "--json"]
    held = audit(*asked, state=nowhere, keys=nowhere)
    assert held.code == exit_codes.OK, held
    assert held.json["ok"] is True
    assert held.json["header"] == as_json["header"]
    assert not nowhere.exists()
    assert audit("prove", "--check", proof).out.startswith("it holds: event 3 (SandboxDisabled of ")

    proof.write_bytes(proof.read_bytes().replace(b"index 2", b"index 3"))
    wrong = audit("prove", "--check", proof)
    assert wrong.code == exit_codes.TRAIL_BROKEN
    assert "not entry 3" in wrong.problem


def test_an_old_checkpoint_is_the_beginning(
    audit: Audit, trail: TrailFolder, tmp_path: Path
) -> None:
    trail.sign()
    kept = tmp_path / "kept.checkpoint"
    kept.write_bytes(trail.log.path(7).read_bytes())
    trail.add(6)
    trail.sign()
    proof = tmp_path / "proof"
    made = audit("prove", "--from", kept, "-o", proof, "--json")
    assert made.code == exit_codes.OK, made
    assert (made.json["old_size"], made.json["size"]) == (7, 13)
    held = audit("prove", "--check", proof, "--from", kept)
    assert held.code == exit_codes.OK
    assert "the first 7 events are the same" in held.out
    alone = audit("prove", "--check", proof)
    assert alone.code == exit_codes.BAD_INPUT
    assert "--from" in alone.next_step
    kept.write_bytes(kept.read_bytes().replace(b"\n7\n", b"\n6\n"))
    altered = audit("prove", "--check", proof, "--from", kept)
    assert altered.code == exit_codes.TRAIL_BROKEN


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "Name the event to prove, or --from"),
        (["3", "--from", "x"], "Name the event to prove, or --from"),
        (["3", "--check", "x"], "--check takes neither"),
        (["--check", "missing"], "--check missing: No such file"),
        (["--check", "./missing"], "--check ./missing: No such file"),
        (["--from", "./missing"], "--from ./missing: No such file"),
        (
            ["--check", "missing", "--trust", "x"],
            "--trust x: A key of the audit trail can't be used",
        ),
        (["0"], "Event 0 is not among"),
    ],
)
def test_prove_asked_for_nonsense(
    audit: Audit, trail: TrailFolder, options: list[str], problem: str
) -> None:
    trail.sign()
    ended = audit("prove", *options)
    assert ended.code == exit_codes.BAD_INPUT
    assert problem in ended.problem


def test_a_proof_that_can_not_be_written(audit: Audit, trail: TrailFolder, tmp_path: Path) -> None:
    trail.sign()
    ended = audit("prove", "3", "-o", tmp_path / "none" / "proof")
    assert ended.code == exit_codes.BAD_INPUT
    assert "No such file or directory" in ended.problem
    covered = audit("prove", "8", "--json")
    assert covered.code == exit_codes.BAD_INPUT
    assert json.loads(covered.out)["error"]["code"] == "audit_request"


def test_no_trusted_key(audit: Audit, trail: TrailFolder, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    proof.write_text("c2sp.org/tlog-proof@v1\n")
    ended = audit("prove", "--check", proof, "--json")
    assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "no_trusted_key")
    assert CheckpointLog(tmp_path / "checkpoints").latest_size() == 0


@pytest.mark.parametrize(("options", "named"), [(["--check"], "--check"), (["--from"], "--from")])
def test_what_can_not_be_trusted_is_named(
    audit: Audit, trail: TrailFolder, tmp_path: Path, options: list[str], named: str
) -> None:
    trail.sign()
    junk = tmp_path / "junk"
    junk.write_bytes(b"\xff no proof")
    ended = audit("prove", *options, junk)
    assert ended.code == exit_codes.TRAIL_BROKEN
    assert ended.problem.startswith(f"{named} {junk}: ")


def test_keys_of_others_are_read_from_a_file(
    audit: Audit, trail: TrailFolder, tmp_path: Path
) -> None:
    trail.sign()
    keys, proof = tmp_path / "trusted", tmp_path / "proof"
    keys.write_text(f"{trail.keyring.signers()[0].verifier.vkey}\n")
    assert audit("prove", "3", "-o", proof).code == exit_codes.OK
    held = audit("prove", "--check", proof, "--trust", keys, keys=tmp_path / "none")
    assert held.code == exit_codes.OK, held


def test_no_record_is_made_by_a_rotation(audit: Audit, tmp_path: Path) -> None:
    assert audit("keygen").code == exit_codes.OK
    ended = audit("keygen", "--rotate", "--by", "Ann", "--because", "a year is over", "--json")
    assert (ended.code, ended.kind) == (exit_codes.ENVIRONMENT, "no_such_file")
    assert not (tmp_path / "audit.db").exists()
    blank = audit("keygen", "--rotate", "--by", "Ann", "--because", " ")
    assert blank.code == exit_codes.BAD_INPUT
    assert blank.problem.startswith("--because is empty")
