"""What the keepers' commands share: the record, opened to take something away from it."""

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.retention.history import History
from fallback_audit.retention.seal import SealableStore
from fallback_tier.cli.options import record, state_dir
from fallback_tier.gates.journal.review import Signature, check_signature
from fallback_tier.wiring.trail import (
    keys_dir,
    open_evidence,
    open_trail,
    read_trail,
    segment_dir,
)


@dataclass(frozen=True)
class Keeping:
    """The record in its keeper's hands. ``covered``: the checkpoint over all that was there before."""

    store: SealableStore
    evidence: FileEvidenceStore
    segments: Path
    keyring: Keyring
    covered: SignedCheckpoint | None

    @property
    def history(self) -> History:
        """What was sealed, and what is in the store."""
        return History(self.store, self.segments, self.keyring.verifiers())


@contextmanager
def keeping(arguments: argparse.Namespace) -> Iterator[Keeping]:
    """Everything is signed before anything is taken away, and what is told of it is signed after.

    Raises InputError for a name or a reason of no words, AuditStoreError where there is no record yet;
    CheckpointError, KeyringError.
    """
    check_signature(Signature(by=arguments.by, because=arguments.because))
    settings, folder = record(arguments), state_dir(arguments)
    read_trail(folder, settings).close()  # there is one: a wrong path makes no new record
    with closing(open_trail(folder, settings)) as trail:
        covered = trail.checkpoint()
    # Opened again: this may have made the first key, which the store has to trust.
    with closing(open_trail(folder, settings)) as trail:
        yield Keeping(
            store=cast("SealableStore", trail.store),  # every store can do this
            evidence=open_evidence(folder, settings),
            segments=segment_dir(folder),
            keyring=Keyring.load(keys_dir(settings)),
            covered=covered,
        )
        trail.checkpoint()
