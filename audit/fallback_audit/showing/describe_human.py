"""Interruptions and people in words: the part of ``fallback_audit.showing.describe`` about what they add.

Nothing is neutralised here: ``describe.sentence`` does that for all of them.
"""

from fallback_audit import events
from fallback_audit.vocabulary import DeliveryPlace, ReviewVerdict

#: A person's word is no proof, and no reader may take it for one.
_DECIDED = {
    ReviewVerdict.APPROVED: "approved by {by} (not proved)",
    ReviewVerdict.REJECTED: "rejected by {by}",
}

_PLACES = {DeliveryPlace.WORKING_TREE: "on the working tree", DeliveryPlace.BRANCH: "on a branch"}


def human_sentence(event: events.AuditEvent) -> str:
    """What happened, in one line; empty for an event of another kind."""
    match event:
        case events.FixResumed():
            return f"resumed after {event.after} (version {event.tool_version})"
        case events.ReviewDecided():
            what = f"patch {event.patch_sha256[:12]} " if event.patch_sha256 else ""
            return f"{what}{decided_words(event)}: {event.reason}"
        case events.TransitionReopened():
            return f"{reopened_words(event)} as {event.opens}: {event.reason}"
        case events.PatchDelivered():
            return f"patch {event.patch_sha256[:12]} {delivered_words(event)}"
        case _:
            return ""


def decided_words(event: events.ReviewDecided) -> str:
    """Who decided what: ``approved by NAME (not proved)``."""
    return _DECIDED[event.verdict].format(by=event.by)


def reopened_words(event: events.TransitionReopened) -> str:
    """Who had it tried again; or one of its patches judged again, and nothing tried."""
    if event.judges_again is None:
        return f"reopened by {event.by}"
    return f"gates run again on patch {event.judges_again[:12]}, asked by {event.by}"


def delivered_words(event: events.PatchDelivered) -> str:
    """Where the patch is: ``delivered on a branch (fix-1 at 1a2b3c)``."""
    where = f" ({event.reference})" if event.reference else ""
    return f"delivered {_PLACES[event.place]}{where}"
