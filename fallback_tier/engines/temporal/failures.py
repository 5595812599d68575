"""What a failed activity says of a fix, to its workflow."""

from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as TimedOutError

from fallback_tier.engines.temporal.messages import SESSION_OVER


def took_its_time(error: ActivityError) -> bool:
    """It ran as long as it might."""
    cause = error.cause
    return isinstance(cause, TimedOutError) and cause.type is TimeoutType.START_TO_CLOSE


def problem_of(error: ActivityError) -> ApplicationError:
    """Why the activity failed. A worker that is lost is nobody's fault, so the fix is opened again."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return cause
    kind = cause.type.name if isinstance(cause, TimedOutError) and cause.type else "lost"
    return ApplicationError(f"No word from the worker ({kind}).", type=SESSION_OVER)
