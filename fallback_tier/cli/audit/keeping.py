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
    RecordSettings,
    keys_dir,
    open_evidence,
    open_trail,
    read_trail,
    segment_dir,
)


@dataclass(frozen=True)
class Keeping:
    """The record in its keeper's hands. ``covered``: the checkpoint over all that was there before; None
    where it is only looked at."""

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
def keeping(arguments: argparse.Namespace, *, dry_run: bool = False) -> Iterator[Keeping]:
    """Everything is signed before anything is taken away, and what is told of it is signed after.

    ``dry_run``: the record is opened for reading, so that nothing can be signed or made. Raises InputError
    for a name or a reason of no words, AuditStoreError where there is no record yet; CheckpointError,
    KeyringError.
    """
    check_signature(Signature(by=arguments.by, because=arguments.because))
    settings, folder = record(arguments), state_dir(arguments)
    # There is one already: a wrong path makes no new record.
    with closing(read_trail(folder, settings)) as reader:
        if dry_run:
            yield _kept(reader, folder, settings, None)
            return
    with closing(open_trail(folder, settings)) as trail:
        covered = trail.checkpoint()
    # Opened again: this may have made the first key, which the store has to trust.
    with closing(open_trail(folder, settings)) as trail:
        yield _kept(trail.store, folder, settings, covered)
        trail.checkpoint()


def _kept(
    store: object, folder: Path, settings: RecordSettings, covered: SignedCheckpoint | None
) -> Keeping:
    return Keeping(
        store=cast(
            "SealableStore", store
        ),  # every store can do this; a reader can show what would be
        evidence=open_evidence(folder),
        segments=segment_dir(folder),
        keyring=Keyring.load(keys_dir(settings)),
        covered=covered,
    )
