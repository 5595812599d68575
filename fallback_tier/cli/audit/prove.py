"""``fallback-tier audit prove``: a file that proves to a third party what is on record."""

import argparse
import json
import sys
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from fallback_audit.checkpoints.checkpoint import Checkpoint, SignedCheckpoint, open_checkpoint
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.checkpoints.proofs import (
    INCLUSION_HEADER,
    ConsistencyProof,
    InclusionProof,
    prove_consistency,
    prove_inclusion,
)
from fallback_audit.disk_errors import blamed
from fallback_audit.errors import AuditIntegrityError, CheckpointError
from fallback_audit.statements import Start
from fallback_tier.cli import exit_codes
from fallback_tier.cli.audit.verify import read_file, trusted
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result
from fallback_tier.errors import InputError
from fallback_tier.files.whole import write_whole
from fallback_tier.wiring.trail import checkpoint_dir, keys_dir, read_trail

Proof = InclusionProof | ConsistencyProof


def prove(arguments: argparse.Namespace) -> int:
    """Make a proof, or check one. Raises InputError, CheckpointError, AuditIntegrityError."""
    if arguments.check is not None:
        return _check(arguments)
    if (arguments.seq is None) == (arguments.old is None):
        raise InputError(
            "Name the event to prove, or --from with an old checkpoint: one of them.",
            next_step="`fallback-tier audit show FIX` prints the numbers of events.",
        )
    proof, signed = _make(arguments)
    if arguments.output:
        _write(Path(arguments.output), proof.text())
    elif not arguments.json:
        sys.stdout.write(proof.text().decode())
        return exit_codes.OK
    return print_result(
        arguments,
        {**_statement(proof, signed), "proof": proof.text().decode()},
        f"{safe(arguments.output or '')}: {_sentence(proof, signed)}",
    )


def _make(arguments: argparse.Namespace) -> tuple[Proof, SignedCheckpoint]:
    settings, folder = record(arguments), state_dir(arguments)
    keyring = Keyring.load(keys_dir(settings))
    log = CheckpointLog(checkpoint_dir(folder, settings))
    signed = log.latest(keyring)
    if signed is None:
        raise CheckpointError(
            f"There is no checkpoint in {log.folder}, so nothing can be proved.",
            next_step="Make one with `fallback-tier audit checkpoint`.",
            kind="no_checkpoint",
        )
    keys = keyring.verifiers()
    old = _old(arguments, keys)
    with closing(read_trail(folder, settings)) as reader:
        base = Start.of(reader.segments(), keys).frontier
        if old is not None:
            return prove_consistency(old, reader, signed, keys, base), signed
        return prove_inclusion(arguments.seq, reader, signed, keys, base), signed


def _check(arguments: argparse.Namespace) -> int:
    """Needs no store: the file, the keys, and for consistency the old checkpoint."""
    if arguments.seq is not None or arguments.output:
        raise InputError(
            "--check takes neither an event nor --output.",
            next_step="Give the proof alone; --from names the old checkpoint of a consistency proof.",
        )
    keys = _trusted(arguments)
    data = read_file("--check", arguments.check)
    with _named("--check", arguments.check):
        proof, signed = _checked(arguments, data, keys)
    document = {"ok": True, **_statement(proof, signed)}
    return print_result(arguments, document, f"it holds: {_sentence(proof, signed)}")


def _checked(
    arguments: argparse.Namespace, data: bytes, keys: Collection[Verifier]
) -> tuple[Proof, SignedCheckpoint]:
    if data.startswith(INCLUSION_HEADER.encode()):
        proof = InclusionProof.parse(data)
        return proof, proof.checked(keys)
    goes_on = ConsistencyProof.parse(data)
    old = _old(arguments, keys)
    if old is None:
        raise InputError(
            f"--check {arguments.check}: this proves that a log continues from an old checkpoint.",
            next_step="Name the old checkpoint that you kept, with --from.",
        )
    return goes_on, goes_on.checked(old, keys)


@contextmanager
def _named(option: str, name: str) -> Iterator[None]:
    """What is wrong with a file's content says which file."""
    try:
        yield
    except AuditIntegrityError as error:
        if error.problem.startswith("--"):
            raise
        raise AuditIntegrityError(
            f"{option} {name}: {error.problem}", next_step=error.next_step
        ) from error


def _trusted(arguments: argparse.Namespace) -> tuple[Verifier, ...]:
    keyring = trusted(arguments)
    keys = keyring.verifiers()
    if not keys:
        raise InputError(
            f"There is no trusted key in {keyring.folder}, so nothing can be checked.",
            next_step="Give the line that `audit keygen` printed there, with --trust.",
            kind="no_trusted_key",
        )
    return keys


def _old(arguments: argparse.Namespace, keys: Collection[Verifier]) -> Checkpoint | None:
    if arguments.old is None:
        return None
    note = read_file("--from", arguments.old)
    with _named("--from", arguments.old):
        return open_checkpoint(note, keys).checkpoint


def _write(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        unwritable = InputError(
            f"--output {path}: {error.strerror or error}.",
            next_step="Name a file that can be made.",
        )
        raise blamed(error, f"--output {path}", unwritable) from error


def _statement(proof: Proof, signed: SignedCheckpoint) -> dict[str, Any]:
    reported: dict[str, Any] = {
        "origin": signed.checkpoint.origin,
        "size": signed.checkpoint.size,
        "root": signed.checkpoint.root.hex(),
        "hashes": [digest.hex() for digest in proof.hashes],
        "signed_by": [key.vkey for key in signed.signed_by],
    }
    if isinstance(proof, InclusionProof):
        return reported | {"seq": proof.index + 1, "header": _header(proof)}
    return reported | {"old_size": proof.old}


def _header(proof: InclusionProof) -> Any:
    try:
        return json.loads(proof.header)
    except (ValueError, RecursionError):
        return None


def _sentence(proof: Proof, signed: SignedCheckpoint) -> str:
    log = f"{safe(signed.checkpoint.origin)}, {signed.checkpoint.size} events"
    if isinstance(proof, ConsistencyProof):
        return f"the first {proof.old} events are the same in the log {log}"
    header = _header(proof)
    of = header if isinstance(header, dict) else {}
    what = safe(f"{of.get('kind')} of {of.get('fix_id')} at {of.get('recorded_at')}")
    return f"event {proof.index + 1} ({what}) is in the log {log}"
