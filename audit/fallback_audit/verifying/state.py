"""What an earlier verification found right, so that the next one hashes only what is new.

The state is kept by whoever verifies, in a file of theirs. It is believed only if its tree has the root
of a checkpoint that a trusted key signed, so that a forged one gains nothing; and only as far as it goes:

An incremental run does **not** notice an event before ``size`` that was altered or deleted since, unless it
belongs to a fix with newer events, which is read whole again; nor evidence of other fixes that is gone;
nor an open fix that was open before; nor damage of the database's own index, through which a fix may seem
to have fewer events. A full run, from time to time, notices all of it.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from fallback_audit.checkpoints.checkpoint import open_checkpoint
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.disk_errors import blamed
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, FallbackError
from fallback_audit.event_types import Digest
from fallback_audit.files import made_whole
from fallback_audit.frozen import Frozen

#: Readers refuse another one: a state is cheap to make again.
STATE_VERSION = 1


class OpenFix(Frozen):
    """A gate transition without a terminal event: running, or interrupted."""

    fix_id: str
    gate_transition_id: str
    last_seq: int
    last_kind: str


class VerifiedState(Frozen):
    """The last checkpoint that was verified, the tree and the chain at that size, and the fixes then open.

    ``checkpoint``: the signed note. ``frontier``: as in ``exporting.format.Base``.
    """

    version: int = STATE_VERSION
    size: int
    tip: str
    frontier: tuple[Digest, ...]
    checkpoint: str
    open_fixes: tuple[OpenFix, ...]


def read_state(path: Path) -> VerifiedState | None:
    """The state in this file; None where there is none yet: then everything is verified.

    Raises AuditStoreError where it can't be read, AuditIntegrityError where it is no state of ours.
    """
    try:
        state = VerifiedState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unwritable(path, error) from error
    except ValidationError as error:
        raise _unfit(path, "it is not the state of a verification", kind="not_a_state") from error
    if state.version != STATE_VERSION:
        raise _unfit(
            path,
            f"it has version {state.version}, this program has {STATE_VERSION}",
            kind="another_version",
        )
    return state


def write_state(path: Path, state: VerifiedState) -> None:
    """Put it there whole, or leave what is there. Raises AuditStoreError."""
    try:
        with made_whole(path.absolute(), ".state-") as file:
            file.write(f"{state.model_dump_json()}\n".encode())
    except OSError as error:
        raise _unwritable(path, error) from error


def believed(state: VerifiedState, verifiers: Sequence[Verifier]) -> Frontier:
    """The tree that was verified. Raises AuditIntegrityError unless a trusted key signed its root."""
    forged = AuditIntegrityError(
        "The state of an earlier verification is not what its checkpoint says (forged).",
        next_step="Remove the file, and verify everything once.",
    )
    try:
        frontier = Frontier(state.size, map(bytes.fromhex, state.frontier))
    except ValueError as error:
        raise forged from error
    signed = open_checkpoint(state.checkpoint.encode(), verifiers).checkpoint
    if (signed.size, signed.root) != (state.size, frontier.root()) or signed.tip not in {
        None,
        state.tip,
    }:
        raise forged
    return frontier


def _unfit(path: Path, reason: str, *, kind: str = "") -> AuditIntegrityError:
    return AuditIntegrityError(
        f"Verification state {path}: {reason}.",
        next_step="Remove the file, and verify everything once.",
        kind=kind,
    )


def _unwritable(path: Path, error: OSError) -> FallbackError:
    unusable = AuditStoreError(
        f"Verification state {path}: {error.strerror or error}.",
        next_step="Name a file in a folder that exists and that you may write to.",
    )
    return blamed(error, f"Verification state {path}", unusable)
