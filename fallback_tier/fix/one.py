"""The fix of one advisory in one ecosystem, to a proved patch that is delivered."""

from fallback_tier.advisory import Advisory
from fallback_tier.fix.ends import OneFix
from fallback_tier.fix.opened import Asked, begun
from fallback_tier.fix.watching import Watch
from fallback_tier.gates.journal.inputs import Setup
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services


def fix_one(
    advisory: Advisory, repo: RepoContext, services: Services, setup: Setup, watch: Watch
) -> OneFix:
    """Attempt, prove, deliver. Raises what its parts raise: the fix can then be resumed."""
    with begun(Asked(advisory, services, setup, watch), repo) as fix:
        return fix.to_the_end()
