"""One capability use."""

from typing import NamedTuple

from fallback_audit.vocabulary import Capability


class CapabilityUse(NamedTuple):
    """A capability, and what it is used by: ``process``, ``child_process.exec``."""

    capability: Capability
    callee: str
