"""The process of one fix of a campaign, as a Temporal worker starts it, under a guard (ADR-0086).

Its order, with keys in it, is the first line of its standard input; then it takes the steps that are
requested, and replies with where the fix stands. One process per fix, as in the service (ADR-0080): gates
can't run for two fixes in one process, running out of memory ends one fix only, and it can be ended from
outside.
"""

import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import BinaryIO

from pydantic import SecretStr

from fallback_audit.errors import EvidenceError, FallbackError
from fallback_audit.evidence.store import get_document
from fallback_tier.engines.opened import OpenedFix
from fallback_tier.engines.temporal.messages import (
    ESCALATED,
    Request,
    SessionProblem,
    SessionStep,
    Standing,
    request_from,
    to_line,
)
from fallback_tier.errors import HeldError, UnansweredError
from fallback_tier.fix.steps import StepKey
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.fix_opening import ordered_fix
from fallback_tier.fleet.fix_order import (
    DatabaseSecrets,
    FixOrder,
    FleetSecrets,
    PipedJob,
    listed_order,
    store_at,
)
from fallback_tier.outcome import Applied
from fallback_tier.wiring.trail import open_evidence
from fallback_tier.workers.ending import ending_in_order
from fallback_tier.workers.problem import Problem, defect, problem_of
from fallback_tier.workers.processes import GRACE_S


class WorkerKeys(DatabaseSecrets):
    """What a worker has in its environment. ``provider``: of the default model server; ``other``: of any
    other one that an order names; ``judge``: of the judge's."""

    provider: SecretStr | None = None
    other: SecretStr | None = None
    judge: SecretStr | None = None

    def for_order(self, order: FixOrder) -> FleetSecrets:
        """Those that this order's model servers are sent."""
        told = order.configuration
        return FleetSecrets(
            api_key=self.other if told.get("base_url") else self.provider,
            judge_api_key=self.judge if told.get("judge_base_url") else self.provider,
            database=self.database,
            store=self.store,
        )


class Job(PipedJob):
    """One fix for its process, its order by digest: as its runner put it into evidence."""

    fix_id: str
    order_sha256: str
    secrets: WorkerKeys


@contextmanager
def opened(line: bytes) -> Iterator[OpenedFix]:
    """The fix that is ordered, begun or gone on with. Raises FallbackError."""
    job = Job.model_validate_json(line)
    order = read_order(job)
    with ordered_fix(order, job.whole_place(), job.secrets.for_order(order)) as fix:
        yield fix


def read_order(job: Job) -> FixOrder:
    """As its runner put it into evidence. No event names it there, so ``audit evidence gc`` may have
    removed it while the fix waited: then as the campaign's list has it now.

    Raises EvidenceError if neither has it, or it was altered; FleetStoreError.
    """
    try:
        return get_document(open_evidence(job.place.state_dir), FixOrder, job.order_sha256)
    except EvidenceError as gone:
        if gone.kind != "missing":
            raise
        try:
            with store_at(job.place.state_dir, job.secrets.store) as store:
                return listed_order(store, job.fix_id)
        except CampaignError:  # a list of another machine
            raise gone from None


def main() -> None:
    """Serve requests about one fix, until it is closed."""
    serve_standard_input(opened)


#: Opens the fix that the first line of its input describes.
Opener = Callable[[bytes], AbstractContextManager[OpenedFix]]

#: Of requests, at once: they are lines of some hundred bytes, the first one an order with keys.
_READ_BYTES = 65_536


def serve_standard_input(opener: Opener) -> None:
    """Requests on standard input, replies on standard output; whatever else is printed goes to the log.

    Ends with the last request, at SIGTERM, and when whoever asks is no more.
    """
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with ending_in_order():
        _serve(opener, _lines(sys.stdin.fileno()), replies)


def _lines(descriptor: int) -> Iterator[bytes]:
    """Not by way of a buffered file: a thread that waits in one breaks the interpreter's own end."""
    held = b""
    while found := os.read(descriptor, _READ_BYTES):
        *whole, held = (held + found).split(b"\n")
        yield from whole


def _serve(opener: Opener, requests: Iterator[bytes], replies: BinaryIO) -> None:
    order = next(requests, b"")
    asked: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, asked), daemon=True).start()
    carry_out_all(opener, order, asked.get, partial(_tell, replies))


def carry_out_all(
    opener: Opener,
    order: bytes,
    asked: Callable[[], Request | None],
    tell: Callable[[Standing | SessionProblem], None],
) -> None:
    """Open the fix, tell where it stands, and again after each request, until None or ``close``.

    ``asked`` waits for the next request. Whatever goes wrong is told; then the fix is open no more.
    """
    try:
        with opener(order) as fix:
            tell(_standing(fix))
            while (request := asked()) is not None and request.what != "close":
                tell(_carry_out(fix, request))
    except UnansweredError:
        tell(Standing(outcome=ESCALATED, delivered=True))
    except FallbackError as error:
        tell(_session_problem(problem_of(error), is_held=isinstance(error, HeldError)))
    except Exception as error:  # noqa: BLE001 (told to whoever asks, its traceback to the log)
        traceback.print_exc()
        tell(_session_problem(defect(error)))


def _session_problem(why: Problem, *, is_held: bool = False) -> SessionProblem:
    return SessionProblem(why.code, why.problem, why.next_step, is_held)


def _read(requests: Iterator[bytes], asked: "queue.SimpleQueue[Request | None]") -> None:
    """The end of the input is the end of whoever asks: nobody hears of what is done any more. This process
    ends then, whatever it is doing."""
    for line in requests:
        asked.put(request_from(line))
    asked.put(None)
    os.kill(os.getpid(), signal.SIGTERM)
    killer = threading.Timer(GRACE_S, os.kill, (os.getpid(), signal.SIGKILL))
    killer.daemon = True
    killer.start()


def _carry_out(fix: OpenedFix, request: Request) -> Standing:
    """A step that does not follow is one that was taken: it is not taken again."""
    following = fix.next()
    if request.what == "deliver" and following is None:
        fix.deliver()
        return _standing(fix, delivered=True)
    if request.step is not None and following is not None and request.step == _key(following):
        fix.step(following)
    return _standing(fix)


def _standing(fix: OpenedFix, *, delivered: bool = False) -> Standing:
    following, made = fix.next(), fix.state.application
    return Standing(
        next=None if following is None else _key(following),
        outcome=None if fix.result is None else fix.result.outcome,
        patch_sha256=made.patch_sha256 if isinstance(made, Applied) else None,
        delivered=delivered,
    )


def _key(key: StepKey) -> SessionStep:
    return SessionStep(key.attempt, key.name, key.candidate)


def _tell(replies: BinaryIO, message: Standing | SessionProblem) -> None:
    with suppress(BrokenPipeError):  # whoever asked is no more, which `_read` notices
        replies.write(to_line(message))
        replies.flush()
