"""The trace contract over all gate transitions of one fix: a further one is opened by a person, once.

A trail shows one transition; what two of them say of each other is compared here, over a few facts of
each, so that verification still holds one trail at a time in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fallback_audit.contract.trail import Entry, Finding, Trail
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
    far as this one tells.
    """

    transition: str
    seq: int
    started: FixStarted | None
    prior_attempts: int | None
    carried: Digest | None
    last: Digest | None
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
        opened=tuple(trail.of(TransitionReopened)),
        proposed=tuple(trail.of(PatchProposed)),
    )


class FixLinks:
    """What the gate transitions of one fix say of each other; not ``whole``: one can't be read."""

    def __init__(self, fix_id: str) -> None:
        self.fix_id = fix_id
        self.links: list[Link] = []
        self.whole = True


def transitions_are_opened(links: Sequence[Link]) -> Iterator[tuple[Link, Finding]]:
    """Each further transition is linked to the one that a reopening of it ended, and goes on from there.

    Before schema version 5 a FixStarted named no gates, and a link had no event: that is let be.
    """
    if len(links) == 1 and not links[0].opened and not links[0].linked:
        return
    openings = [(link, entry) for link in links for entry in link.opened]
    openings.sort(key=lambda opening: opening[1].seq)
    taken: set[str] = {link.transition for link in links if not link.linked}
    for link, (seq, event) in openings:
        if event.opens in taken:
            yield link, (seq, f"{event.opens} is no new gate transition")
        taken.add(event.opens)
    by_opened = {entry.event.opens: (link, entry.seq) for link, entry in openings}
    last: dict[str, Digest | None] = {}
    for number, link in enumerate(sorted(links, key=lambda link: link.seq)):
        last[link.transition] = _last(link, last)
        yield from ((link, found) for found in _starts_with_something(link, last[link.transition]))
        if link.started is None or not link.started.gates:
            continue
        opener = by_opened.get(link.transition)
        if opener is None:
            if number or link.linked:
                yield link, (link.seq, "a further gate transition that nobody opened")
        else:
            at, before = opener[1], last.get(opener[0].transition)
            yield from ((link, found) for found in _goes_on(link, opener[0], at, before))


def _last(link: Link, last: Mapping[str, Digest | None]) -> Digest | None:
    """The failure to go on with. Gates that were run again, and did not fail, leave it as it was."""
    if link.last is None and link.judges_again is not None:
        return last.get(link.linked or "")
    return link.last


def _starts_with_something(link: Link, last: Digest | None) -> Iterator[Finding]:
    """Behind gates that were run again: its own trail does not tell whether an attempt had failed."""
    if link.judges_again is not None and last is None:
        for seq, event in link.opened:
            if event.judges_again is None:
                yield seq, "reopened, and no attempt of this fix had failed"


def _goes_on(link: Link, opener: Link, at: int, last: Digest | None) -> Iterator[Finding]:
    if link.linked != opener.transition or link.seq < at:
        yield link.seq, f"it is not linked to {opener.transition}, which was reopened for it"
    if link.prior_attempts not in {None, 1 if link.judges_again is None else 0}:
        yield link.seq, f"a reopened transition starts with {link.prior_attempts} prior attempts"
    if link.carried is not None and last is not None and link.carried != last:
        yield link.seq, f"it does not start with the last failure of {opener.transition}"
