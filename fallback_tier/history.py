"""What a list of prior attempts says, to whoever makes the next one."""

from collections.abc import Sequence

from fallback_tier.outcome import AttemptSummary

#: The heading in a failure summary that turns from what failed to what the patch tried.
TRIED_HEADING = "What the patch tried:"


def next_attempt(prior_attempts: Sequence[AttemptSummary]) -> int:
    """The number of the attempt after these: 1 on a first one, then one more than the last one's."""
    return prior_attempts[-1].attempt + 1 if prior_attempts else 1
