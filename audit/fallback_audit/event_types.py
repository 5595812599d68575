"""The field types that events share."""

from typing import Annotated

from pydantic import Field

#: Longest excerpt of untrusted text that an event may carry: enough to triage, too short to leak a
#: file. The whole text is evidence.
MAX_EXCERPT_CHARS = 600

Excerpt = Annotated[str, Field(max_length=MAX_EXCERPT_CHARS)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Attempt = Annotated[int, Field(ge=1)]
Call = Annotated[int, Field(ge=1)]
#: Dollars as a decimal string: an estimate from a dated price table.
Dollars = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$")]
