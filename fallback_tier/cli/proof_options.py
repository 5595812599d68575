"""``--proof`` and its options: what a person gives that a patch is judged by."""

import argparse
import shlex
from pathlib import Path

from fallback_audit.disk_errors import blamed
from fallback_tier.errors import ConfigurationError
from fallback_tier.files.inputs import open_named
from fallback_tier.gates.builtin.proof_given import PROOF_TIMEOUT_S, Proof
from fallback_tier.limits import MAX_FILE_BYTES


def proof_of(arguments: argparse.Namespace) -> Proof | None:
    """The proof that the options describe. Raises ConfigurationError, ProofError."""
    if arguments.proof is None:
        for option in ("proof_file", "proof_timeout", "proof_end"):
            if getattr(arguments, option):
                raise ConfigurationError(
                    f"--{option.replace('_', '-')} is about a proof, and no proof is given.",
                    next_step="Give the command that proves the fix with --proof.",
                )
        return None
    files: dict[str, bytes] = {}
    for given in arguments.proof_file:
        source, place = _placed(given)
        if place in files:
            raise ConfigurationError(
                f"--proof-file {given}: another file is to be at {place!r} already.",
                next_step="Say where it goes: --proof-file PATH=PLACE.",
            )
        files[place] = _content(source)
    timeout_s = arguments.proof_timeout or PROOF_TIMEOUT_S
    return Proof(_words(arguments.proof), files, timeout_s, arguments.proof_end or "")


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigurationError(
            f"--proof {command!r} is not a command: {str(error).lower()}.",
            next_step="Quote it as for a shell; none is started, so write `sh -c '...'` to have one.",
        ) from error


def _placed(given: str) -> tuple[Path, str]:
    """``PATH=PLACE``; a path alone, which may have an equals sign, goes to the root by its name."""
    if Path(given).is_file() or "=" not in given:
        return Path(given), Path(given).name
    source, _, place = given.rpartition("=")
    return Path(source), place


def _content(source: Path) -> bytes:
    try:
        with open_named(source) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        unreadable = ConfigurationError(
            f"--proof-file {source}: {error.strerror}.",
            next_step="Name a file that can be read; --proof-file PATH=PLACE says where it goes.",
        )
        raise blamed(error, f"--proof-file {source}", unreadable) from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(
            f"--proof-file {source}: larger than {MAX_FILE_BYTES:,} bytes.",
            next_step="Let the proof make large inputs itself.",
        )
    return content
