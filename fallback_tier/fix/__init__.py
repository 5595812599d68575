"""The whole way to a proved fix: plan, attempt, prove, deliver; one advisory or many (ADR-0063).

``docs/python.md`` has an example that runs as a test. The names are imported on first use: a plan needs no
gates, and a first fix needs nothing that resumes one.
"""

from fallback_tier.exports import exported

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from typing import Any

    from fallback_tier.fix.advisories import advisories_at as advisories_at
    from fallback_tier.fix.advisories import advisories_to_fix as advisories_to_fix
    from fallback_tier.fix.delivery import Delivery as Delivery
    from fallback_tier.fix.delivery import Fixed as Fixed
    from fallback_tier.fix.delivery import SeveralFixes as SeveralFixes
    from fallback_tier.fix.fixer import Fixer as Fixer
    from fallback_tier.fix.fixer import open_fixer as open_fixer
    from fallback_tier.fix.preview import plan_fixes as plan_fixes
    from fallback_tier.fix.watching import Progress as Progress
    from fallback_tier.fix.watching import ProgressCallback as ProgressCallback
    from fallback_tier.fix.watching import Watch as Watch
    from fallback_tier.fix_result import DeliveryOutcome as DeliveryOutcome
    from fallback_tier.fix_result import OneFix as OneFix
    from fallback_tier.wiring import Configuration as Configuration

_HOME = {
    "Configuration": "fallback_tier.wiring",
    "Delivery": "fallback_tier.fix.delivery",
    "Fixed": "fallback_tier.fix.delivery",
    "Fixer": "fallback_tier.fix.fixer",
    "DeliveryOutcome": "fallback_tier.fix_result",
    "OneFix": "fallback_tier.fix_result",
    "SeveralFixes": "fallback_tier.fix.delivery",
    "ProgressCallback": "fallback_tier.fix.watching",
    "Progress": "fallback_tier.fix.watching",
    "Watch": "fallback_tier.fix.watching",
    "advisories_at": "fallback_tier.fix.advisories",
    "advisories_to_fix": "fallback_tier.fix.advisories",
    "open_fixer": "fallback_tier.fix.fixer",
    "plan_fixes": "fallback_tier.fix.preview",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> "Any":
    return exported(__name__, _HOME, name)
