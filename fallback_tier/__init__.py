"""fallback-tier: fix a known vulnerability, prove the fix, keep a record an auditor can check.

The public names, imported on first use so that the command line starts fast. (``typing`` is as slow
to import as a whole --help is to print: type checkers take TYPE_CHECKING from its name.)
"""

from fallback_tier.exports import exported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fallback_tier.advisory import Advisory as Advisory
    from fallback_tier.errors import FallbackError as FallbackError
    from fallback_tier.outcome import Applied as Applied
    from fallback_tier.outcome import AttemptSummary as AttemptSummary
    from fallback_tier.outcome import Refused as Refused
    from fallback_tier.repo import RepoContext as RepoContext
    from fallback_tier.tier import FallbackTier as FallbackTier
    from fallback_tier.tier import Finished as Finished

_HOME = {
    "Advisory": "fallback_tier.advisory",
    "Applied": "fallback_tier.outcome",
    "AttemptSummary": "fallback_tier.outcome",
    "FallbackError": "fallback_tier.errors",
    "FallbackTier": "fallback_tier.tier",
    "Finished": "fallback_tier.tier",
    "Refused": "fallback_tier.outcome",
    "RepoContext": "fallback_tier.repo",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> "Any":
    return exported(__name__, _HOME, name)
