"""How a fix began, in a sentence. A part of ``describe``."""

from fallback_audit import events
from fallback_audit.vocabulary import AffectedCode


def started_words(event: events.FixStarted) -> str:
    """What it is about and where, what it was opened for, whose code is affected, what it is a part of."""
    return (
        f"fix started: {event.advisory_id} in {event.repository} at"
        f" {event.base_commit[:12]} ({event.ecosystem})"
        + _linked(event)
        + _whose(event)
        + _part(event)
        + _ages(event)
    )


def _linked(event: events.FixStarted) -> str:
    """What a person had opened it for."""
    if event.judges_again is not None:
        return f", the gates alone, on patch {event.judges_again[:12]} of {event.linked_transition}"
    return f", reopened from {event.linked_transition}" if event.linked_transition else ""


def _whose(event: events.FixStarted) -> str:
    """Whose code it was taken to be about, where the trail says so."""
    if event.affected_code is None:
        return ""
    what = f"own code ({', '.join(event.own_packages)})" if event.own_packages else "own code"
    code = what if event.affected_code is AffectedCode.OWN else "a dependency"
    return f"; affected is {code}, by {event.decided_by}"


def _part(event: events.FixStarted) -> str:
    """Of which run over several advisories it is a part, and what of it stays affected."""
    batch = f"; a part of batch {event.batch_sha256[:12]}" if event.batch_sha256 else ""
    return batch + (f"; in part only: {', '.join(event.in_part)}" if event.in_part else "")


def _ages(event: events.FixStarted) -> str:
    """What a person said on the age of releases."""
    days = event.release_age_days
    required = f"; releases at least {days} day(s) old" if days is not None else ""
    excepted = (f"{it.package} ({it.reason})" for it in event.age_exceptions)
    return required + "".join(f"; excepted from rules on ages: {it}" for it in excepted)
