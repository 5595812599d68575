"""Payloads of the workflow, its activities and its hints: identifiers and digests alone."""

from dataclasses import dataclass
from typing import Final

from fallback_tier.budget.limiter import MAX_OVERLOADS
from fallback_tier.engines.sessions.messages import Standing, Step, Ticket
from fallback_tier.fleet.limiter import MAX_WAIT_S
from fallback_tier.fleet.policies import MAX_BACKOFF_S

#: Names that histories hold: a version of this program that renames one can't go on with older fixes.
WORKFLOW: Final = "fallback-tier-fix"
OPEN: Final = "open"
STEP: Final = "step"
DELIVER: Final = "deliver"
CLOSE: Final = "close"
LOOK: Final = "look"
HINT: Final = "decided"

#: Behind the name of the shared queue: where the record is asked about, since a full worker still answers.
LOOKS: Final = "-looks"

#: What a failed activity is called, where nothing is wrong with the fix: open it again.
SESSION_OVER: Final = "session-over"

#: The work of one step (seconds): an attempt with a slow model, or a gate with a long suite and retries.
_WORK_S = 3_600.0

#: The longest that a call waits for its turn, and then for an overloaded provider (seconds). A step that
#: ended before would be taken for a lost worker's, and the limiter's own word would never be heard.
_CALL_WAITS_S = MAX_WAIT_S + MAX_OVERLOADS * MAX_BACKOFF_S


@dataclass(frozen=True)
class Session:
    """A fix that a worker has open. ``queue``: that worker's own task queue."""

    name: str
    queue: str
    standing: Standing


@dataclass(frozen=True)
class StepOrder:
    """To the worker that has the fix open. ``step`` None: of ``deliver`` and ``close``."""

    ticket: Ticket
    session: str
    step: Step | None = None


@dataclass(frozen=True)
class Decided:
    """What the record says of a question. ``goes_on``: a person let the fix go on; ``is_over``: they
    decided for good; neither: nobody has answered."""

    goes_on: bool = False
    is_over: bool = False


@dataclass(frozen=True)
class Limits:
    """Of one fix's activities, in seconds; a worker is given up after ``heartbeat_s``."""

    heartbeat_s: float = 15.0
    #: One step: its work, and what a call of it waits for its turn.
    step_s: float = _WORK_S + _CALL_WAITS_S
    #: A worker's own queue is read at once by a living worker.
    pickup_s: float = 60.0
    #: A fix waits for room on some worker as long as there are none: a campaign may be long (days).
    room_s: float = 30 * 86_400.0
    #: Opening clones a repository and looks at it.
    open_s: float = 3_600.0
    #: So often in a row a fix is opened again without one more step: it may be what kills the workers.
    max_openings: int = 5
    #: Events of a history, from which on it is begun anew (the server's own limit is 51,200).
    history: int = 5_000
    #: Between two openings, growing.
    backoff_s: float = 1.0


@dataclass(frozen=True)
class FixRun:
    """What a workflow is started with, and continued with. ``heard``: hints so far; ``session``: what is
    open; ``openings`` and ``passing``: failures since the last step, counted ones and passing ones."""

    ticket: Ticket
    limits: Limits = Limits()
    session: Session | None = None
    heard: int = 0
    openings: int = 0
    passing: int = 0
