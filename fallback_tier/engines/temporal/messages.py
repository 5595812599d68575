"""Messages between an engine, its workers and a fix's process, and payloads of the workflow.

They hold identifiers and digests, never content. Plain dataclasses: a workflow reads this module inside its
sandbox.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from fallback_tier.workers.problem import FIX_SECONDS

#: Characters of a sentence in an engine's history; the audit trail and the logs have all of it.
SENTENCE_CHARS = 400

#: The outcome of a fix that asks a person.
ESCALATED: Final = "escalated"


@dataclass(frozen=True)
class Ticket:
    """A reference to a fix and its order; ``order_sha256``: the order's digest in evidence
    (``FixOrder``).
    """

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
    """The state of a fix. ``next``: the next step; None: it has ended, as ``outcome`` says.

    ``patch_sha256``: of the current patch. ``delivered``: it was delivered, or there is nothing to deliver.
    """

    next: SessionStep | None = None
    outcome: str | None = None
    patch_sha256: str | None = None
    delivered: bool = False


@dataclass(frozen=True)
class SessionProblem:
    """The reason why a fix's process gave up: the texts of a ``FallbackError``, or of a defect.
    ``is_held``: another process of this machine has the fix.
    """

    code: str
    problem: str
    next_step: str
    is_held: bool = False

    def shortened(self) -> "SessionProblem":
        """Return the problem for an engine's history."""
        cut = (self.problem[:SENTENCE_CHARS], self.next_step[:SENTENCE_CHARS])
        return SessionProblem(self.code, *cut, self.is_held)


@dataclass(frozen=True)
class Request:
    """A request to a fix's process. ``what``: ``step`` (with one), ``deliver`` or ``close``."""

    what: str
    step: SessionStep | None = None


def to_line(message: Standing | SessionProblem | Request) -> bytes:
    """Return the message as one line of JSON."""
    return json.dumps({type(message).__name__: asdict(message)}).encode() + b"\n"


def request_from(line: bytes) -> Request:
    """Return the request in a line of ``to_line``."""
    fields = _named(line)["Request"]
    return Request(fields["what"], _step(fields["step"]))


def reply_from(line: bytes) -> Standing | SessionProblem:
    """Return the reply in a line of ``to_line``. Raises ValueError if it is not one."""
    message = _named(line)
    if (problem := message.get("SessionProblem")) is not None:
        return SessionProblem(**problem)
    if (standing := message.get("Standing")) is None:
        raise ValueError("neither a standing nor a problem")
    return Standing(**{**standing, "next": _step(standing["next"])})


def _named(line: bytes) -> dict[str, Any]:
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("no message")  # noqa: TRY004 (the content of a line, not the type of an argument)
    return message


def _step(fields: dict[str, Any] | None) -> SessionStep | None:
    return None if fields is None else SessionStep(**fields)


#: Names that are in histories: a version of this program that renames one can't continue older fixes.
WORKFLOW: Final = "fallback-tier-fix"
OPEN: Final = "open"
STEP: Final = "step"
DELIVER: Final = "deliver"
CLOSE: Final = "close"
LOOK: Final = "look"
HINT: Final = "decided"
RENEWED: Final = "renewed"

#: Suffix of the shared queue's name: a separate queue for reading the audit trail, since a full worker
#: still answers there.
LOOKS: Final = "-looks"

#: Type of a failed activity if nothing is wrong with the fix: open it again.
SESSION_OVER: Final = "session-over"

#: Type of a failed activity if the fix has reached its time limit.
TIME_LIMIT: Final = "time_limit"


@dataclass(frozen=True)
class Session:
    """A fix that a worker has open. ``queue``: that worker's own task queue; ``opening_s``: the time
    that opening took (seconds), without the wait for room; ``order_sha256``: the order that it was
    opened with.
    """

    name: str
    queue: str
    standing: Standing
    opening_s: float = 0.0
    order_sha256: str = ""


@dataclass(frozen=True)
class StepOrder:
    """A request to the worker that has the fix open. ``step`` None: for ``deliver`` and ``close``."""

    ticket: Ticket
    session: str
    step: SessionStep | None = None


@dataclass(frozen=True)
class DecisionResult:
    """The answer on record to a question. ``goes_on``: a person lets the fix continue; ``is_over``: the
    decision is final; neither: there is no answer yet.
    """

    goes_on: bool = False
    is_over: bool = False


@dataclass(frozen=True)
class Limits:
    """Time limits of one fix's activities, in seconds; a worker without a heartbeat for ``heartbeat_s``
    is lost.
    """

    heartbeat_s: float = 15.0
    #: The fix itself, while a worker has it open: its steps, including waits of their calls, and its
    #: openings, all workers together (``limits.fix_s`` of a campaign). A step has no separate limit: one
    #: that reached it would look like a lost worker's, and would be paid for again.
    fix_s: float = FIX_SECONDS
    #: For a worker to take a task from its own queue, which a living one does at once.
    pickup_s: float = 60.0
    #: For a fix to wait for room on any worker: a campaign may be long (days).
    room_s: float = 30 * 86_400.0
    #: For an opening, which clones a repository and inspects it.
    open_s: float = 3_600.0
    #: Openings in a row without one more step: more may mean that the fix kills its workers.
    max_openings: int = 5
    #: Events of a history after which the workflow continues as a new one (the server's limit is 51,200).
    history: int = 5_000
    #: First pause between two openings; it grows.
    backoff_s: float = 1.0


@dataclass(frozen=True)
class Terms:
    """An order and a time limit (``Limits.fix_s``) that apply to a fix from its next step on."""

    order_sha256: str
    fix_s: float


@dataclass(frozen=True)
class FixRun:
    """The input of a workflow, also when it continues as a new one. ``heard``: hints so far;
    ``session``: the open one; ``openings`` and ``passing``: failures since the last step, counted and
    temporary ones; ``spent_s``: of ``Limits.fix_s``.
    """

    ticket: Ticket
    limits: Limits = Limits()
    session: Session | None = None
    heard: int = 0
    openings: int = 0
    passing: int = 0
    spent_s: float = 0.0
