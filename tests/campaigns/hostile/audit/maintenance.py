"""What keepers do to a record: redact, seal, retire, exchange the key, export. As the commands do it."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, cast

from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.keyring import Keyring, Rotation, end_overlap, rotate
from fallback_audit.events import FixStarted, SigningKeyRotated
from fallback_audit.exporting.export import Exporter
from fallback_audit.exporting.spool import Spool
from fallback_audit.ports import MAINTENANCE, Record, Scope
from fallback_audit.retention.redact import Redactor
from fallback_audit.retention.seal import SealableStore, Sealer
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.sources import GivenCheckpoints, LogCheckpoints
from fallback_audit.verifying.verify import verify
from fallback_tier.cli.audit.verify import _output
from tests.campaigns.hostile.audit.trail_folder import TrailFolder
from tests.unit.audit.trails import recipe_verified

#: Words that a redaction takes out.
WORDS = "Wilhelmina Quackenbush"

_WHO = {"by": "A. Keeper", "reason": "a reason"}


class Kept(NamedTuple):
    """A record in its keeper's hands; ``covered`` is the checkpoint over all that was there."""

    store: SealableStore
    keyring: Keyring
    covered: SignedCheckpoint | None


@contextmanager
def keeping(trail: TrailFolder) -> Iterator[Kept]:
    with closing(trail.store()) as opened:
        covered = opened.checkpoint()
    with closing(trail.store()) as opened:
        keyring = Keyring.load(trail.keys)
        yield Kept(cast("SealableStore", opened.store), keyring, covered)
        opened.checkpoint()


def fixes(trail: TrailFolder, *names: str) -> None:
    """Fixes that are over; each begins with an event that has WORDS in it."""
    with closing(trail.store()) as store:
        for name in names:
            scope = Scope(fix_id=name, gate_transition_id="t")
            for event in recipe_verified():
                known = {"repository": WORDS} if isinstance(event, FixStarted) else {}
                store.append_all([Record(scope, event.model_copy(update=known))])


def first_of(trail: TrailFolder, fix_id: str) -> int:
    """The number of its first event."""
    with trail.reader() as reader:
        return int(next(iter(reader.events(fix_id))).seq)


def redact(trail: TrailFolder, fix_id: str) -> int:
    """Take the words out of its first event. Returns the event's number."""
    seq = first_of(trail, fix_id)
    with keeping(trail) as kept:
        redactor = Redactor(kept.store, trail.evidence(), kept.keyring.signers(), clock=_now)
        redactor.redact(seq, by=_WHO["by"], reason=_WHO["reason"])
    return seq


def seal(trail: TrailFolder) -> int:
    """Everything that is over, as if days had gone by. Returns the segment's last event, or 0."""
    with keeping(trail) as kept:
        sealer = Sealer(kept.store, trail.segments, kept.keyring, clock=_later)
        before = _later().replace(hour=0, minute=0, second=0, microsecond=0)
        sealed = sealer.seal(before, kept.covered, by=_WHO["by"], reason=_WHO["reason"])
    return sealed.last_seq if sealed else 0


def copy_segments(trail: TrailFolder) -> None:
    """As an auditor does, before one is retired."""
    shutil.copytree(trail.segments, trail.place / "copies", dirs_exist_ok=True)


def retire(trail: TrailFolder, number: int) -> None:
    """Delete a sealed file."""
    with keeping(trail) as kept:
        sealer = Sealer(kept.store, trail.segments, kept.keyring, clock=_later)
        sealer.retire(number, by=_WHO["by"], reason=_WHO["reason"])


def rotate_key(trail: TrailFolder) -> None:
    """A new key, beside the old one."""
    with closing(trail.store()) as store:

        def announce(rotation: Rotation) -> None:
            old, new = rotation.old.vkey, rotation.new.vkey
            event = SigningKeyRotated(
                old_vkey=old, new_vkey=new, by=_WHO["by"], reason=_WHO["reason"]
            )
            store.append(MAINTENANCE, event)

        rotate(trail.keys, announce)
    with closing(trail.store()) as store:
        store.checkpoint()


def end_rotation(trail: TrailFolder) -> None:
    """The new key alone."""
    with closing(trail.store()) as store:
        store.checkpoint()
    end_overlap(trail.keys)


def export(trail: TrailFolder) -> Path:
    """All of it, to ``export.jsonl``, by the command's own way to a file."""
    out = trail.place / "export.jsonl"
    source = LogCheckpoints(trail.log, Keyring.load(trail.keys))
    with trail.reader() as reader, reader.snapshot() as snapshot, _output(str(out)) as file:
        Exporter(snapshot, source, origin=source.keyring.origin).trail(file)
    return out


def verify_export(trail: TrailFolder) -> VerificationReport:
    """As the command line does."""
    keyring = Keyring.load(trail.keys)
    path = trail.place / "export.jsonl"
    with path.open("rb") as file, Spool(file, path.name, keyring.verifiers()) as spool:
        source = GivenCheckpoints(tuple(spool.notes()), keyring)
        return verify(spool, checkpoints=source, complete_evidence=False)


def _now() -> datetime:
    return datetime.now(UTC)


def _later() -> datetime:
    return _now() + timedelta(days=2)
