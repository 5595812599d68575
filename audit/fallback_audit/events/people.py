"""Events after an interruption or the end: a fix is resumed or abandoned, a person decides, a patch is
delivered."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fallback_audit.event_types import (
    FREE_TEXT,
    Badge,
    Digest,
    Event,
    Prose,
    Role,
    StartedOn,
    Structural,
)
from fallback_audit.events.fix import FIXES_ENDED
from fallback_audit.metrics import NONE, Move
from fallback_audit.vocabulary import DeliveryPlace, ReviewVerdict

#: Longest name or reason that a person gives with a decision: a paragraph, not a file.
MAX_WORDS_CHARS = 2_000

Words = Annotated[str, Field(max_length=MAX_WORDS_CHARS), FREE_TEXT]


class FixResumed(StartedOn, Event):
    """Another process resumes a fix that was interrupted; verdicts on record are not given again.

    ``after``: kind of the last event that it found.
    """

    kind: Literal["FixResumed"] = "FixResumed"
    role = Role.RESUMING
    BADGE = Badge(style="cyan")
    after: Structural
    tool_version: Structural

    def in_words(self) -> str:
        return f"resumed after {self.after} (version {self.tool_version})"


class FixAbandoned(Event):
    """A person ends a fix that has not ended and that no process runs: it is never resumed. Since schema
    version 17."""

    kind: Literal["FixAbandoned"] = "FixAbandoned"
    role = Role.ABANDONING
    since = 17
    BADGE = Badge(tone="person", style="bold cyan")
    by: Words
    reason: Words

    def in_words(self) -> str:
        return f"{abandoned_words(self)}: {self.reason}"

    def moves(self) -> Iterator[Move]:
        yield Move(FIXES_ENDED, ("abandoned", NONE))


class ReviewDecided(Event):
    """A person answered an escalated fix: its last patch is taken as it is, or nothing of it is.

    ``patch_sha256``: what was approved, a patch that this gate transition proposed; None when rejected.
    An approval is no proof: readers print "approved by", never "verified".
    """

    kind: Literal["ReviewDecided"] = "ReviewDecided"
    role = Role.AFTER_THE_END
    BADGE = Badge(tone="person", style="bold cyan")
    verdict: ReviewVerdict
    by: Words
    reason: Words
    patch_sha256: Digest | None = None

    def in_words(self) -> str:
        what = f"patch {self.patch_sha256[:12]} " if self.patch_sha256 else ""
        return f"{what}{decided_words(self)}: {self.reason}"


class TransitionReopened(Event):
    """A person opens a new gate transition (``opens``), linked to this one, which has ended.

    It starts with this one's last failure summary as its first prior attempt, so that it never regains
    retrieval (ADR-0011, ADR-0014). ``judges_again``: a patch that this fix has proposed, whose gates alone
    are run again there, without a prior attempt and without any question (ADR-0042). Since schema
    version 8.
    """

    kind: Literal["TransitionReopened"] = "TransitionReopened"
    role = Role.AFTER_THE_END
    BADGE = Badge(tone="person", style="bold cyan")
    by: Words
    reason: Words
    opens: Structural
    judges_again: Digest | None = None

    def in_words(self) -> str:
        return f"{reopened_words(self)} as {self.opens}: {self.reason}"


class PatchDelivered(Event):
    """A verified or approved patch was put where a user wanted it. ``reference``: branch and commit.

    ``in_part``: advisories of which something stays affected, since another part of the same run did not
    fix it; not written if empty. Since schema version 20.
    """

    kind: Literal["PatchDelivered"] = "PatchDelivered"
    role = Role.AFTER_THE_END
    patch_sha256: Digest
    place: DeliveryPlace
    reference: Prose | None = None
    in_part: tuple[Structural, ...] = Field(default=(), exclude_if=lambda it: not it)

    def in_words(self) -> str:
        part = f"; in part only: {', '.join(self.in_part)}" if self.in_part else ""
        return f"patch {self.patch_sha256[:12]} {delivered_words(self)}{part}"


def abandoned_words(event: FixAbandoned) -> str:
    """Return who ended it: ``abandoned by NAME``."""
    return f"abandoned by {event.by}"


def decided_words(event: ReviewDecided) -> str:
    """Return who decided what, e.g. ``approved by NAME (not proved)``.

    A person's decision is not a proof, and the text must not let readers take it for one.
    """
    if event.verdict is ReviewVerdict.APPROVED:
        return f"approved by {event.by} (not proved)"
    return f"rejected by {event.by}"


def reopened_words(event: TransitionReopened) -> str:
    """Return who had it tried again, or had only the gates run again on one of its patches."""
    if event.judges_again is None:
        return f"reopened by {event.by}"
    return f"gates run again on patch {event.judges_again[:12]}, asked by {event.by}"


def delivered_words(event: PatchDelivered) -> str:
    """Return where the patch is, e.g. ``delivered on a branch (fix-1 at 1a2b3c)``."""
    place = "on a branch" if event.place is DeliveryPlace.BRANCH else "on the working tree"
    where = f" ({event.reference})" if event.reference else ""
    return f"delivered {place}{where}"
