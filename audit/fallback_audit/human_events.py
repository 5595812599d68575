"""Events after an interruption, and after the end: a run is resumed, a person decides, a patch goes out.

Part of the vocabulary in ``fallback_audit.events``, which names them all.
"""

from typing import Annotated, Literal

from pydantic import Field

from fallback_audit.event_types import FREE_TEXT, Digest, Prose, StartedOn
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import DeliveryPlace, ReviewVerdict

#: Who decided, and why, in a person's own words: a paragraph, not a file.
MAX_WORDS_CHARS = 2_000

Words = Annotated[str, Field(max_length=MAX_WORDS_CHARS), FREE_TEXT]


class FixResumed(StartedOn):
    """Another process resumes a fix that was interrupted; verdicts on record are not given again.

    ``after``: kind of the last event that it found.
    """

    kind: Literal["FixResumed"] = "FixResumed"
    after: str
    tool_version: str


class ReviewDecided(Frozen):
    """A person answered an escalated fix: its last patch is taken as it is, or nothing of it is.

    ``patch_sha256``: what was approved, a patch that this gate transition proposed; None when rejected.
    An approval is no proof: readers print "approved by", never "verified".
    """

    kind: Literal["ReviewDecided"] = "ReviewDecided"
    verdict: ReviewVerdict
    by: Words
    reason: Words
    patch_sha256: Digest | None = None


class TransitionReopened(Frozen):
    """A person opens a new gate transition (``opens``), linked to this one, which has ended.

    It starts with this one's last failure summary as its first prior attempt, so that it never regains
    retrieval (ADR-0011, ADR-0014). ``judges_again``: a patch that this fix has proposed, whose gates alone
    are run again there, without a prior attempt and without any question (ADR-0042). Since schema
    version 8.
    """

    kind: Literal["TransitionReopened"] = "TransitionReopened"
    by: Words
    reason: Words
    opens: str
    judges_again: Digest | None = None


class PatchDelivered(Frozen):
    """A verified or approved patch was put where a user wanted it. ``reference``: branch and commit."""

    kind: Literal["PatchDelivered"] = "PatchDelivered"
    patch_sha256: Digest
    place: DeliveryPlace
    reference: Prose | None = None
