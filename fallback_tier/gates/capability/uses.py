"""One thing that code reaches for."""

from typing import NamedTuple

from fallback_audit.vocabulary import Capability


class Use(NamedTuple):
    """A kind of reach, and what is used for it: ``process``, ``child_process.exec``."""

    capability: Capability
    callee: str
