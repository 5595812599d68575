"""What the gate transitions of one fix say of each other: a few facts of each.

A trail shows one transition; with these, verification still holds one trail at a time in memory.
"""

from typing import NamedTuple

from fallback_audit.contract.trail import Entry, Trail
from fallback_audit.events import (
    AttemptFailed,
    Digest,
    FixStarted,
    PatchProposed,
    RagSkippedOnRetry,
    TransitionReopened,
)


class Link(NamedTuple):
    """One gate transition, as far as others of its fix concern it.

    ``carried``: digest of the failure summary that it began with; ``last``: of the one to go on with, as
    far as this one tells. ``not_made``: the model was unavailable for its first attempt.
    """

    transition: str
    seq: int
    started: FixStarted | None
    prior_attempts: int | None
    carried: Digest | None
    last: Digest | None
    not_made: bool
    opened: tuple[Entry[TransitionReopened], ...]
    proposed: tuple[Entry[PatchProposed], ...]

    @property
    def linked(self) -> str | None:
        """The gate transition that it says it was opened for."""
        return self.started.linked_transition if self.started else None

    @property
    def judges_again(self) -> Digest | None:
        """The patch whose gates alone are run again here."""
        return self.started.judges_again if self.started else None


def link_of(trail: Trail) -> Link:
    """The facts of one transition, of at least one event."""
    starts, failures = trail.of(FixStarted), trail.of(AttemptFailed)
    first = trail.runs[0] if trail.runs else None
    skips = first.of(RagSkippedOnRetry) if first else []
    carried = skips[0].event.summary_sha256 if skips else None
    return Link(
        transition=trail.scope.gate_transition_id,
        seq=trail.everything[0].seq,
        started=starts[0].event if starts else None,
        prior_attempts=first.start.event.prior_attempt_count if first else None,
        carried=carried,
        last=failures[-1].event.summary_sha256 if failures else carried,
        not_made=trail.not_made,
        opened=tuple(trail.of(TransitionReopened)),
        proposed=tuple(trail.of(PatchProposed)),
    )


class FixLinks:
    """What the gate transitions of one fix say of each other; not ``whole``: one can't be read."""

    def __init__(self, fix_id: str) -> None:
        self.fix_id = fix_id
        self.links: list[Link] = []
        self.whole = True
