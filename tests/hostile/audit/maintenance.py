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
from fallback_audit.verifying.sources import GivenCheckpoints, LogCheckpoints
from fallback_audit.verifying.verify import VerificationReport, verify
from fallback_tier.cli.audit.export import _output
from tests.hostile.audit.house import House
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
def keeping(house: House) -> Iterator[Kept]:
    with closing(house.store()) as trail:
        covered = trail.checkpoint()
    with closing(house.store()) as trail:
        keyring = Keyring.load(house.keys)
        yield Kept(cast("SealableStore", trail.store), keyring, covered)
        trail.checkpoint()


def fixes(house: House, *names: str) -> None:
    """Fixes that are over; each begins with an event that has WORDS in it."""
    with closing(house.store()) as store:
        for name in names:
            scope = Scope(fix_id=name, gate_transition_id="t")
            for event in recipe_verified():
                known = {"repository": WORDS} if isinstance(event, FixStarted) else {}
                store.append_all([Record(scope, event.model_copy(update=known))])


def first_of(house: House, fix_id: str) -> int:
    """The number of its first event."""
    with house.reader() as reader:
        return int(next(iter(reader.events(fix_id))).seq)


def redact(house: House, fix_id: str) -> int:
    """Take the words out of its first event. Returns the event's number."""
    seq = first_of(house, fix_id)
    with keeping(house) as kept:
        redactor = Redactor(kept.store, house.evidence(), kept.keyring.signers(), clock=_now)
        redactor.redact(seq, by=_WHO["by"], reason=_WHO["reason"])
    return seq


def seal(house: House) -> int:
    """Everything that is over, as if days had gone by. Returns the segment's last event, or 0."""
    with keeping(house) as kept:
        sealer = Sealer(kept.store, house.segments, kept.keyring, clock=_later)
        before = _later().replace(hour=0, minute=0, second=0, microsecond=0)
        sealed = sealer.seal(before, kept.covered, by=_WHO["by"], reason=_WHO["reason"])
    return sealed.last_seq if sealed else 0


def copy_segments(house: House) -> None:
    """As an auditor does, before one is retired."""
    shutil.copytree(house.segments, house.place / "copies", dirs_exist_ok=True)


def retire(house: House, number: int) -> None:
    """Delete a sealed file."""
    with keeping(house) as kept:
        sealer = Sealer(kept.store, house.segments, kept.keyring, clock=_later)
        sealer.retire(number, by=_WHO["by"], reason=_WHO["reason"])


def rotate_key(house: House) -> None:
    """A new key, beside the old one."""
    with closing(house.store()) as store:

        def announce(rotation: Rotation) -> None:
            old, new = rotation.old.vkey, rotation.new.vkey
            event = SigningKeyRotated(
                old_vkey=old, new_vkey=new, by=_WHO["by"], reason=_WHO["reason"]
            )
            store.append(MAINTENANCE, event)

        rotate(house.keys, announce)
    with closing(house.store()) as store:
        store.checkpoint()


def end_rotation(house: House) -> None:
    """The new key alone."""
    with closing(house.store()) as store:
        store.checkpoint()
    end_overlap(house.keys)


def export(house: House) -> Path:
    """All of it, to ``export.jsonl``, by the command's own way to a file."""
    out = house.place / "export.jsonl"
    source = LogCheckpoints(house.log, Keyring.load(house.keys))
    with house.reader() as reader, reader.snapshot() as snapshot, _output(str(out)) as file:
        Exporter(snapshot, source, origin=source.keyring.origin).trail(file)
    return out


def verify_export(house: House) -> VerificationReport:
    """As the command line does."""
    keyring = Keyring.load(house.keys)
    path = house.place / "export.jsonl"
    with path.open("rb") as file, Spool(file, path.name, keyring.verifiers()) as spool:
        source = GivenCheckpoints(tuple(spool.notes()), keyring)
        return verify(spool, checkpoints=source, complete_evidence=False)


def _now() -> datetime:
    return datetime.now(UTC)


def _later() -> datetime:
    return _now() + timedelta(days=2)
