"""The trace contract over all gate transitions of one fix: a further one is opened by a person, once.

A trail shows one transition; what two of them say of each other is compared here, over a few facts of
each, so that verification still holds one trail at a time in memory.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fallback_audit.contract.trail import Entry, Finding, Trail
from fallback_audit.events import (
    AttemptFailed,
    Digest,
    FixStarted,
    RagSkippedOnRetry,
    TransitionReopened,
)


class Link(NamedTuple):
    """One gate transition, as far as others of its fix concern it.

    ``carried``: digest of the failure summary that it began with; ``last``: of the one to go on with.
    """

    transition: str
    seq: int
    started: FixStarted | None
    prior_attempts: int | None
    carried: Digest | None
    last: Digest | None
    opened: tuple[Entry[TransitionReopened], ...]


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
    if len(links) == 1 and not links[0].opened and not _linked(links[0]):
        return
    openings = [(link, entry) for link in links for entry in link.opened]
    openings.sort(key=lambda opening: opening[1].seq)
    taken: set[str] = {link.transition for link in links if not (link.started and _linked(link))}
    for link, (seq, event) in openings:
        if event.opens in taken:
            yield link, (seq, f"{event.opens} is no new gate transition")
        taken.add(event.opens)
    by_opened = {entry.event.opens: (link, entry.seq) for link, entry in openings}
    for number, link in enumerate(sorted(links, key=lambda link: link.seq)):
        if link.started is None or not link.started.gates:
            continue
        opener = by_opened.get(link.transition)
        if opener is None:
            if number or _linked(link):
                yield link, (link.seq, "a further gate transition that nobody opened")
        else:
            yield from ((link, found) for found in _goes_on(link, *opener))


def _goes_on(link: Link, opener: Link, at: int) -> Iterator[Finding]:
    if _linked(link) != opener.transition or link.seq < at:
        yield link.seq, f"it is not linked to {opener.transition}, which was reopened for it"
    if link.prior_attempts not in {None, 1}:
        yield link.seq, f"a reopened transition starts with {link.prior_attempts} prior attempts"
    if link.carried is not None and opener.last is not None and link.carried != opener.last:
        yield link.seq, f"it does not start with the last failure of {opener.transition}"


def _linked(link: Link) -> str | None:
    return link.started.linked_transition if link.started else None
