"""What is said between an engine, its workers and a fix's process: identifiers and digests, never content.

Plain dataclasses: a Temporal workflow reads this module inside its sandbox.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

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
