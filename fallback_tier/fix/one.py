"""The fix of one advisory in one ecosystem, to a proved patch that is delivered."""

from fallback_tier.advisory import Advisory
from fallback_tier.fix.delivery import Deliver, hand_over
from fallback_tier.fix.ends import OneFix
from fallback_tier.fix.watching import Watch
from fallback_tier.gates.journal.holding import holding
from fallback_tier.gates.journal.inputs import Setup
from fallback_tier.gates.result import FixResult, WithPatch
from fallback_tier.handover.delivery import deliver
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services
from fallback_tier.wiring.gates import check_proofs


def fix_one(
    advisory: Advisory, repo: RepoContext, services: Services, setup: Setup, watch: Watch
) -> OneFix:
    """Attempt, prove, deliver. Raises what its parts raise: the fix can then be resumed."""
    inputs = services.inputs_on(repo, advisory, fix_id=repo.fix_id)
    with holding(services.configuration.state_dir, inputs.repo_ctx.fix_id):
        with watch.fixing() as watcher:
            runner = services.gate_runner(
                advisory, watcher, setup, repo=inputs.repo_ctx, report=watcher.report
            )
            check_proofs(runner, inputs, watcher.report_proof)
            result = runner.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)
        return delivered(result, advisory, inputs.repo_ctx, services, setup, deliver)


def delivered(
    result: FixResult,
    advisory: Advisory,
    repo: RepoContext,
    services: Services,
    setup: Setup,
    deliver: Deliver,
) -> OneFix:
    """The end with what became of its patch, where it has one: the caller holds the fix."""
    if not isinstance(result, WithPatch):
        return OneFix(result)
    fixed = [(result, advisory)]
    return OneFix(result, hand_over(fixed, result.application, repo, services, setup, deliver))
