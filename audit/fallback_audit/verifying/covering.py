"""Checkpoints, in step with a walk over the events: at the size of each, the tree must have its root."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from fallback_audit.checkpoints.checkpoint import Checkpoint, Span
from fallback_audit.checkpoints.log import CheckedCheckpoint
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.contract.trail import Trail
from fallback_audit.events import FixResumed
from fallback_audit.verifying.report import COVER, KEEP, Listed, Problem
from fallback_audit.verifying.sources import CheckpointSource
from fallback_audit.verifying.state import VerifiedState

#: Ranges of events that a note names.
MAX_RANGES = 5

_NO_KEY = "Name the folder of this deployment's keys with --keys, or its public key with --trust."
_ROLLED_BACK = (
    "Stop what writes to the store, keep a copy of both, and verify it again. Only if that says the same, "
    "restore the store that was signed."
)


class Interruptions:
    """Runs that were interrupted, as the audit trail itself says, before their events were signed.

    ``found``: the events that a signer found and had not written itself.
    """

    def __init__(self, found: Sequence[Span]) -> None:
        self._found = found
        self._listed = Listed[str]()
        self.events = 0

    def trail(self, trail: Trail) -> None:
        """Note the interruption that explains this gate transition's found events, if there is one."""
        if not self._found or not trail.of_a_fix:
            return
        seqs = [seq for seq, _ in trail.everything if self._is_found(seq)]
        if not seqs:
            return
        fix_id, last = trail.scope.fix_id, seqs[-1]
        later = (
            seq for seq, event in trail.entries if seq > last and isinstance(event, FixResumed)
        )
        if (resumed := next(later, None)) is not None:
            reason = f"the run of {fix_id} was interrupted after event {last:,}, and {resumed:,} resumed it"
        elif trail.abandonments and trail.abandonments[0].seq > last:
            at = trail.abandonments[0].seq
            reason = (
                f"the run of {fix_id} was interrupted after event {last:,}, and {at:,} abandoned it"
            )
        elif trail.is_open and trail.entries[-1].seq == last:
            reason = (
                f"the run of {fix_id} was interrupted after event {last:,}, and is not resumed yet"
            )
        else:
            return
        self.events += len(seqs)
        self._listed.add(reason)

    def reasons(self) -> Iterator[str]:
        """Yield one phrase per interruption, at most MAX_RANGES."""
        yield from self._listed.items[:MAX_RANGES]
        if (more := self._listed.count - MAX_RANGES) > 0:
            yield f"{more:,} more runs were interrupted"

    def _is_found(self, seq: int) -> bool:
        at = bisect_right(self._found, seq, key=lambda span: span.first) - 1
        return at >= 0 and seq <= self._found[at].last


def signed_later(events: str, count: int, interruptions: Interruptions) -> str:
    """Return a note on ``count`` events that were signed by a run that had not written them, with the cause
    as far as it is known."""
    causes = [*interruptions.reasons()]
    if (unexplained := count - interruptions.events) > 0:
        rest = f"for {unexplained:,} of them " if causes else ""
        causes.append(
            f"{rest}the trail does not say why: a run was killed after its end, several wrote at once, or "
            "someone with access to the store added them"
        )
    return f"{events} were signed by a run that had not written them: {'; '.join(causes)}."


class Covering:
    """``reached`` is called at each size that ``next_size`` asks for, in order; ``ended`` at last."""

    def __init__(self, source: CheckpointSource, problems: Listed[Problem], *, after: int) -> None:
        self._problems = problems
        self._latest = source.latest_size()
        self._checked: Iterator[CheckedCheckpoint] = source.checked(after=after)
        self._waiting: Checkpoint | None = None
        self._note = b""
        self._max_uncovered = source.max_uncovered
        self._untrusted = KEEP if source.verifiers() else _NO_KEY
        self._contradicted = False
        self._found: list[Span] = []
        self.checked = 0
        self.covered_to = after
        #: Where the last covered event is: the tree, the leaf, and the signed note.
        self.proved: VerifiedState | None = None
        self._advance(after)

    @property
    def next_size(self) -> int | None:
        """At how many events the tree is to be compared next; None: at none any more."""
        return None if self._waiting is None else self._waiting.size

    def reached(self, frontier: Frontier, tip: str) -> None:
        """The tree has ``next_size`` entries."""
        signed = self._waiting
        if signed is None:
            return
        right = frontier.size == signed.size and frontier.root() == signed.root
        if right:
            self._found += signed.found
        if right and signed.tip in {None, tip}:
            self.covered_to = signed.size
            self.proved = VerifiedState(
                size=signed.size,
                tip=tip,
                frontier=tuple(digest.hex() for digest in frontier.hashes),
                checkpoint=self._note.decode(),
                open_fixes=(),
            )
        elif not self._contradicted:  # whatever follows has another root too: once is enough
            self._contradicted = True
            first = self.covered_to + 1
            self._problem(
                f"events {first} to {signed.size} are not those that were signed: their Merkle root is "
                f"not that of checkpoint {signed.size} (altered, removed, reordered, or re-chained)",
                seq=first,
            )
        self._advance(signed.size)

    @property
    def found(self) -> Sequence[Span]:
        """Events that a signer found, and had not written itself."""
        return self._found

    def notes(self, interruptions: Interruptions) -> Iterator[str]:
        """Yield what is covered, and yet was not signed by the run that wrote it."""
        if self._found:
            count = sum(found.last - found.first + 1 for found in self._found)
            ranges = [f"{found.first:,} to {found.last:,}" for found in self._found[:MAX_RANGES]]
            more = ", …" if len(self._found) > MAX_RANGES else ""
            yield signed_later(
                f"{count:,} events ({', '.join(ranges)}{more})", count, interruptions
            )

    def skip(self, size: int) -> None:
        """The events up to here are in a sealed file that is not there: nothing can be compared."""
        while self._waiting is not None and self._waiting.size < size:
            self._advance(self._waiting.size)

    def ended(self, events: int) -> None:
        """The walk is over: what is left was signed over events that are not there."""
        lost: int | None = None
        while self._waiting is not None:
            lost = self._waiting.size
            self._advance(lost)
        if lost is not None:
            self._problem(
                f"the store ends at event {events}, but checkpoint {lost} covers {lost}: it was "
                "truncated, or rolled back to an older copy",
                seq=events + 1,
                next_step=_ROLLED_BACK,
            )
        uncovered = events - self.covered_to
        if events and not self.checked and not self.covered_to:
            self._problem("there are events, and no valid checkpoint", next_step=COVER)
        elif self._max_uncovered is not None and uncovered > self._max_uncovered:
            self._problem(
                f"{uncovered:,} events have no checkpoint, {self._max_uncovered:,} may be without one: "
                "checkpoints are missing from the end of the log, or their writer fails",
                seq=self.covered_to + 1,
                next_step=COVER,
            )

    def _advance(self, size: int) -> None:
        """To the next checkpoint that can be trusted, saying of the others why not."""
        self._waiting = None
        for one in self._checked:
            if one.size > self._latest:
                return
            if one.problem is not None:
                self._problem(one.problem, next_step=self._untrusted)
            if one.signed is None:
                continue
            self.checked += 1
            found = one.signed.checkpoint
            if found.size >= size and found.size > 0:
                self._waiting, self._note = found, one.signed.note
                return

    def _problem(self, reason: str, *, seq: int | None = None, next_step: str = KEEP) -> None:
        self._problems.add(Problem(seq=seq, fix_id=None, reason=reason, next_step=next_step))
