"""The entry point ``fallback_tier.tiers:default``: the tier for a host that knows no other module.

Plain data goes in (a configuration, paths, prior attempts as dicts); results are read by attribute or as
JSON (``model_dump``). ADR-0004.
"""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fallback_tier.advisory import Advisory, load_advisory
from fallback_tier.attempt.task import Inputs, TierEvent
from fallback_tier.errors import AttemptHistoryError, ConfigurationError, first_fault
from fallback_tier.outcome import AttemptSummary, RecipeApplication, RecipeSelection
from fallback_tier.repo import RepoContext
from fallback_tier.tier import FallbackTier
from fallback_tier.wiring import Configuration, Services, wire

#: A prior attempt as a host has it: an AttemptSummary, or its fields as plain data.
PriorAttempt = AttemptSummary | Mapping[str, Any]

_history = TypeAdapter(tuple[AttemptSummary, ...])


class MountedTier(FallbackTier):
    """The tier, and a method that prepares its arguments."""

    def __init__(self, services: Services) -> None:
        self.__dict__.update(services.tier.__dict__)
        self._services = services

    def prepare(self, advisory_file: str | Path, repository: str | Path, **ids: str) -> Inputs:
        """Return the first three arguments of ``run``, from an OSV file and a repository.

        ``ids`` may name ``fix_id`` and ``gate_transition_id``. Raises InputError with the reason.
        """
        return self._services.inputs(load_advisory(Path(advisory_file)), Path(repository), **ids)

    def run(
        self,
        advisory: Advisory,
        repo_ctx: RepoContext,
        recipe_selection: RecipeSelection,
        *,
        prior_attempts: Sequence[PriorAttempt] = (),
    ) -> RecipeApplication:
        """Run as ``FallbackTier.run``."""
        prior = _summaries(prior_attempts)
        return super().run(advisory, repo_ctx, recipe_selection, prior_attempts=prior)

    def stream(
        self,
        advisory: Advisory,
        repo_ctx: RepoContext,
        recipe_selection: RecipeSelection,
        *,
        prior_attempts: Sequence[PriorAttempt] = (),
    ) -> Generator[TierEvent, None, None]:
        """Stream as ``FallbackTier.stream``."""
        prior = _summaries(prior_attempts)
        return super().stream(advisory, repo_ctx, recipe_selection, prior_attempts=prior)

    def close(self) -> None:
        """Release stores and models. Idempotent; the tier can't be used afterwards."""
        self._services.close()


def build_tier(configuration: Mapping[str, Any]) -> MountedTier:
    """Return a tier from plain data (the fields of Configuration). Raises ConfigurationError."""
    try:
        valid = Configuration.model_validate(configuration)
    except ValidationError as error:
        raise ConfigurationError(
            f"The tier's configuration is not valid: {first_fault(error, 'the whole')}.",
            next_step='Give at least {"state_dir": "PATH"}; see Configuration for the rest.',
        ) from error
    return MountedTier(wire(valid))


def _summaries(prior_attempts: Sequence[PriorAttempt]) -> tuple[AttemptSummary, ...]:
    try:
        return _history.validate_python(tuple(prior_attempts))
    except ValidationError as error:
        raise AttemptHistoryError(
            f"The prior attempts are not valid: {first_fault(error, 'the whole')}.",
            next_step="Give each its attempt number, failure_kind and prior_failure_summary.",
        ) from error
