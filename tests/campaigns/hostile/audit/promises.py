"""What was acknowledged, and whether a record still holds all of it."""

import hashlib
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial

from fallback_audit.canonical import GENESIS, leaf_digest
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.errors import EvidenceError
from fallback_audit.ports import HeaderRow
from tests.campaigns.hostile.audit.maintenance import verify_export
from tests.campaigns.hostile.audit.trail_folder import TrailFolder, records


class Promises:
    """Collected from the lines of processes: ``event SEQ LEAF``, ``evidence DIGEST``, ``gone WORDS``,
    anything else."""

    def __init__(self) -> None:
        self.events: dict[int, str] = {}
        self.evidence: set[str] = set()
        #: Words that a redaction took out.
        self.gone: set[str] = set()

    def copy(self) -> "Promises":
        """As they are now."""
        made = Promises()
        made.events, made.evidence = dict(self.events), set(self.evidence)
        made.gone = set(self.gone)
        return made

    def take(self, lines: list[str]) -> None:
        for line in lines:
            what, *messages = line.split()
            if what == "event":
                self.events[int(messages[0])] = messages[1]
            elif what == "evidence":
                self.evidence.add(messages[0])
            elif what == "gone":
                self.gone.add(" ".join(messages))

    def goes_on(self, trail: TrailFolder) -> None:
        """The next append works; it is a promise too."""
        name = f"after-{len(self.events)}"
        store = trail.store()
        stored = store.append(*next(records(name)))
        store.close()
        self.events[stored.seq] = stored.leaf
        self.evidence.add(trail.evidence().put(name.encode()))

    def problem(self, trail: TrailFolder) -> str | None:
        """What does not hold; None where all does."""
        if not self.events or not trail.log.latest_size():
            # Stopped while it was made, or before the first checkpoint: the next one goes on.
            with closing(trail.store()) as store:
                store.checkpoint()
        stored = trail.headers()
        if (broken := chain_problem(stored)) is not None:
            return broken
        if (wrong := checkpoint_problem(trail, stored)) is not None:
            return wrong
        lost = self.events.items() - {(row.seq, row.leaf) for row in stored}
        if lost:
            return f"{len(lost)} acknowledged events are lost: {sorted(lost)[:3]}"
        evidence = trail.evidence()
        for digest in sorted(self.evidence):
            try:
                evidence.get(digest)
            except EvidenceError as error:
                return f"acknowledged evidence is lost: {error.problem}"
        for path in (path for path in trail.state.rglob("*") if path.is_file()):
            left = [words for words in self.gone if words.encode() in path.read_bytes()]
            if left:
                return f"{path.name} still has words that were taken out: {left}"
        if (trail.place / "export.jsonl").exists() and not verify_export(trail).ok:
            return "an export does not verify"
        report = trail.verify()
        return None if report.ok else f"verify: {report.first_bad}"


def chain_problem(rows: list[HeaderRow]) -> str | None:
    """Without our own verification: numbers without a gap, each header over the leaf before it."""
    leaf = GENESIS
    for number, row in enumerate(rows, start=1):
        if row.seq != number or f'"previous_leaf":"{leaf}"'.encode() not in row.header:
            return f"event {row.seq} does not follow event {number - 1}"
        if leaf_digest(row.header) != row.leaf:
            return f"event {row.seq} is not what its leaf says"
        leaf = row.leaf
    return None


def checkpoint_problem(trail: TrailFolder, rows: list[HeaderRow]) -> str | None:
    """Every checkpoint is signed, of events that are there, and has the root that RFC 6962 says."""
    keyring, root_of = Keyring.load(trail.keys), roots([row.header for row in rows])
    for found in trail.log.checked(keyring):
        if found.signed is None or found.fault:
            return f"checkpoint {found.path}: {found.fault.reason if found.fault else 'not signed'}"
        size, root = found.size, found.signed.checkpoint.root
        if size > len(rows):
            return f"a checkpoint of {size} events, of which {len(rows)} are there"
        if root != root_of(size):
            return f"the checkpoint of {size} events has another root"
    return None


def roots(entries: list[bytes]) -> Callable[[int], bytes]:
    """The root over the first so many of them: RFC 6962 §2.1, as it is written there, each subtree once."""

    @cache
    def tree_hash(start: int, end: int) -> bytes:
        if end - start == 1:
            return hashlib.sha256(b"\0" + entries[start]).digest()
        split = start + (1 << (end - start - 1).bit_length() - 1)
        halves = tree_hash(start, split), tree_hash(split, end)
        return hashlib.sha256(b"\1" + halves[0] + halves[1]).digest()

    return partial(tree_hash, 0)
