"""Messages between an engine, its workers and a fix's process, and payloads of the workflow.

They hold identifiers and digests, never content. Plain dataclasses: a workflow reads this module inside its
sandbox.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from fallback_tier.workers.problem import FIX_SECONDS

#: Of a sentence that an engine's history keeps (characters); the record and the logs have all of it.
SENTENCE_CHARS = 400

#: The outcome that asks a person.
ESCALATED: Final = "escalated"


@dataclass(frozen=True)
class Ticket:
    """Which fix; ``order_sha256``: what it is about, as evidence (``FixOrder``)."""

    fix_id: str
    order_sha256: str


@dataclass(frozen=True)
class SessionStep:
    """The key of a step (``fix.steps.StepKey``)."""

    attempt: int
    name: str
    candidate: int = 1


@dataclass(frozen=True)
class Standing:
    """Where a fix stands. ``next``: the step that follows; None: it has ended, as ``outcome`` says.

    ``patch_sha256``: of the patch in hand. ``delivered``: it was put where it was asked for, or there is
    nothing to deliver.
    """

    next: SessionStep | None = None
    outcome: str | None = None
    patch_sha256: str | None = None
    delivered: bool = False


@dataclass(frozen=True)
class SessionProblem:
    """Why a fix's process gave up: ``FallbackError``'s words, or a defect's. ``is_held``: another process
    of this machine has the fix."""

    code: str
    problem: str
    next_step: str
    is_held: bool = False

    def shortened(self) -> "SessionProblem":
        """As an engine's history keeps it."""
        cut = (self.problem[:SENTENCE_CHARS], self.next_step[:SENTENCE_CHARS])
        return SessionProblem(self.code, *cut, self.is_held)


@dataclass(frozen=True)
class Request:
    """To a fix's process. ``what``: ``step`` (with one), ``deliver`` or ``close``."""

    what: str
    step: SessionStep | None = None


def to_line(message: Standing | SessionProblem | Request) -> bytes:
    """As one line of JSON."""
    return json.dumps({type(message).__name__: asdict(message)}).encode() + b"\n"


def request_from(line: bytes) -> Request:
    """A line of ``to_line``."""
    found = _named(line)["Request"]
    return Request(found["what"], _step(found["step"]))


def reply_from(line: bytes) -> Standing | SessionProblem:
    """A line of ``to_line``. Raises ValueError: it is none."""
    found = _named(line)
    if (problem := found.get("SessionProblem")) is not None:
        return SessionProblem(**problem)
    if (standing := found.get("Standing")) is None:
        raise ValueError("neither a standing nor a problem")
    return Standing(**{**standing, "next": _step(standing["next"])})


def _named(line: bytes) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("no message")  # noqa: TRY004 (what a line says, not its type)
    return found


def _step(found: dict[str, Any] | None) -> SessionStep | None:
    return None if found is None else SessionStep(**found)


#: Names that histories hold: a version of this program that renames one can't go on with older fixes.
WORKFLOW: Final = "fallback-tier-fix"
OPEN: Final = "open"
STEP: Final = "step"
DELIVER: Final = "deliver"
CLOSE: Final = "close"
LOOK: Final = "look"
HINT: Final = "decided"
RENEWED: Final = "renewed"

#: Behind the name of the shared queue: where the record is asked about, since a full worker still answers.
LOOKS: Final = "-looks"

#: What a failed activity is called, where nothing is wrong with the fix: open it again.
SESSION_OVER: Final = "session-over"

#: … and where the fix has taken as long as it may.
TIME_LIMIT: Final = "time_limit"


@dataclass(frozen=True)
class Session:
    """A fix that a worker has open. ``queue``: that worker's own task queue; ``opening_s``: what opening
    took (seconds), without the wait for room; ``order_sha256``: the order that it was opened by."""

    name: str
    queue: str
    standing: Standing
    opening_s: float = 0.0
    order_sha256: str = ""


@dataclass(frozen=True)
class StepOrder:
    """To the worker that has the fix open. ``step`` None: of ``deliver`` and ``close``."""

    ticket: Ticket
    session: str
    step: SessionStep | None = None


@dataclass(frozen=True)
class DecisionResult:
    """What the record says of a question. ``goes_on``: a person let the fix go on; ``is_over``: they
    decided for good; neither: nobody has answered."""

    goes_on: bool = False
    is_over: bool = False


@dataclass(frozen=True)
class Limits:
    """Of one fix's activities, in seconds; a worker is given up after ``heartbeat_s``."""

    heartbeat_s: float = 15.0
    #: The fix itself, while a worker has it open: its steps, whatever their calls wait for their turn, and
    #: its openings, all workers together (``limits.fix_s`` of a campaign). A step has no limit of its own:
    #: one that came to it would be taken for a lost worker's, and be paid for again.
    fix_s: float = FIX_SECONDS
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
class Terms:
    """What holds for a fix from its next step on: its order, and its time (``Limits.fix_s``)."""

    order_sha256: str
    fix_s: float


@dataclass(frozen=True)
class FixRun:
    """What a workflow is started with, and continued with. ``heard``: hints so far; ``session``: what is
    open; ``openings`` and ``passing``: failures since the last step, counted ones and passing ones;
    ``spent_s``: of ``Limits.fix_s``."""

    ticket: Ticket
    limits: Limits = Limits()
    session: Session | None = None
    heard: int = 0
    openings: int = 0
    passing: int = 0
    spent_s: float = 0.0
