"""The rule of the trace contract on how the gate transitions of a fix follow each other."""

from collections.abc import Iterator, Mapping, Sequence

from fallback_audit.contract.links import Link
from fallback_audit.contract.rule import Altered, Removed, fix_rule
from fallback_audit.contract.trail import Finding
from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    Digest,
    FixStarted,
    RagSkippedOnRetry,
    TransitionReopened,
)


@fix_rule(
    "A further gate transition is opened by a person, once, and starts with the last failure; if no "
    "attempt of the fix has failed, with a first attempt.",
    "ADR-0098",
    breaches=(
        Removed(TransitionReopened),
        Altered(FixStarted, "linked_transition"),
        Altered(RagSkippedOnRetry, "summary_sha256"),
        Altered(AttemptStarted, "prior_attempt_count"),
    ),
    sees={FixStarted, AttemptStarted, RagSkippedOnRetry, AttemptFailed, TransitionReopened},
)
def transitions_are_opened(links: Sequence[Link]) -> Iterator[tuple[Link, Finding]]:
    """Before schema version 5 a FixStarted named no gates, and a link had no event: that is let be."""
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
    """A gate transition that was opened does not tell by its own trail whether an attempt had failed."""
    if link.linked is not None and last is None and not link.not_made:
        for seq, event in link.opened:
            if event.judges_again is None:
                yield seq, "reopened, and no attempt of this fix had failed"


def _goes_on(link: Link, opener: Link, at: int, last: Digest | None) -> Iterator[Finding]:
    if link.linked != opener.transition or link.seq < at:
        yield link.seq, f"it is not linked to {opener.transition}, which was reopened for it"
    expected = {None, 0} if link.judges_again is not None or last is None else {None, 1}
    if link.prior_attempts not in expected:
        yield link.seq, f"a reopened transition starts with {link.prior_attempts} prior attempts"
    if link.carried is not None and last is not None and link.carried != last:
        yield link.seq, f"it does not start with the last failure of {opener.transition}"
