"""The field types that events share."""

from typing import Annotated, Final

from pydantic import Field

#: Longest excerpt of untrusted text that an event may carry: enough to triage, too short to leak a
#: file. The whole text is evidence.
MAX_EXCERPT_CHARS = 600


class _FreeText:
    """A mark on members of an event that hold somebody's words: a person's, a model's, a target's.

    They may name a person or hold a secret, and can be redacted (``retention.redact``). Nothing else
    can: what has no mark is what the trace contract judges by.
    """


FREE_TEXT: Final = _FreeText()

Prose = Annotated[str, FREE_TEXT]
Excerpt = Annotated[str, Field(max_length=MAX_EXCERPT_CHARS), FREE_TEXT]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Attempt = Annotated[int, Field(ge=1)]
Call = Annotated[int, Field(ge=1)]
#: Dollars as a decimal string: an estimate from a dated price table.
Dollars = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$")]
