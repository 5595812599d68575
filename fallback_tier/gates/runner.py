"""The gate runner: a plain loop over keyed steps (``fallback_tier.gates.steps``).

Per attempt: ``attempt`` → ``isolate`` → ``gate:applies`` → ``gate:…`` in order → ``decide``. A failed
attempt is distilled, deterministically, into the next attempt's context; nothing else of it survives.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from fallback_tier.advisory import Advisory
from fallback_tier.gates.fix_steps import FixSteps, GateParts
from fallback_tier.gates.journal.resume import ResumedFix
from fallback_tier.gates.journal.stopped import resumable
from fallback_tier.gates.result import FixResult
from fallback_tier.gates.steps import FixState
from fallback_tier.outcome import AttemptSummary, RecipeSelection
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class GateRunner(GateParts):
    """Runs attempts until one is proved, none can be had, or a person must decide."""

    def run(
        self,
        advisory: Advisory,
        repo: RepoContext,
        selection: RecipeSelection,
        *,
        prior_attempts: Sequence[AttemptSummary] = (),
        linked: str | None = None,
    ) -> FixResult:
        """One gate transition: a first attempt and at most MAX_RETRIES retries.

        ``prior_attempts`` is not empty only where a transition is linked to an earlier one, ``linked``.
        Raises SandboxError, RepositoryError, AuditStoreError: then the repository is untouched, and the
        fix stays open in the trail.
        """
        steps = FixSteps(self, advisory, repo, selection)
        return self._to_the_end(
            steps, steps.begin(FixState(prior_attempts=tuple(prior_attempts)), linked)
        )

    def resume(
        self, advisory: Advisory, repo: RepoContext, selection: RecipeSelection, taken: ResumedFix
    ) -> FixResult:
        """Go on from where the trail says that the fix stands, under the same identifiers.

        An attempt without an outcome begins again under its own number; verdicts on record are not given
        again. A reopened gate transition is started: with a failure, or with a patch on record, whose gates
        are run again and for which no tier is asked. Raises as ``run`` does.
        """
        steps = FixSteps(self, advisory, repo, selection)
        return self._to_the_end(steps, steps.resume(taken))

    def _to_the_end(self, steps: FixSteps, state: FixState) -> FixResult:
        with closing(steps), resumable(steps.record.scope.fix_id):
            while (key := steps.next(state)) is not None:
                state = steps.step(key, state)
        return steps.result(state)
