"""The process of one fix of a campaign, as a Temporal worker starts it, under a guard (ADR-0086).

Its order, including keys, is the first line of its standard input; then it takes the requested steps, and
replies with the fix's state. One process per fix, as in the service (ADR-0080): gates can't run for two
fixes in one process, running out of memory ends one fix only, and it can be ended from outside.
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
    """Keys from a worker's environment. ``provider``: for the default model server; ``other``: for any
    other server that an order names; ``judge``: for the judge's server.
    """

    provider: SecretStr | None = None
    other: SecretStr | None = None
    judge: SecretStr | None = None

    def for_order(self, order: FixOrder) -> FleetSecrets:
        """Return the keys for this order's model servers."""
        configuration = order.configuration
        return FleetSecrets(
            api_key=self.other if configuration.get("base_url") else self.provider,
            judge_api_key=self.judge if configuration.get("judge_base_url") else self.provider,
            database=self.database,
            store=self.store,
        )


class Job(PipedJob):
    """The job of a process: one fix, its order by the digest under which its runner put it into
    evidence.
    """

    fix_id: str
    order_sha256: str
    secrets: WorkerKeys


@contextmanager
def opened(line: bytes) -> Iterator[OpenedFix]:
    """Yield the ordered fix, begun or continued. Raises FallbackError."""
    job = Job.model_validate_json(line)
    order = read_order(job)
    with ordered_fix(order, job.whole_place(), job.secrets.for_order(order)) as fix:
        yield fix


def read_order(job: Job) -> FixOrder:
    """Return the order that its runner put into evidence. No event names it there, so ``audit evidence gc``
    may have removed it while the fix waited: then return the order by the campaign's current list.

    Raises EvidenceError if neither has it, or it was altered; FleetStoreError.
    """
    try:
        return get_document(open_evidence(job.place.state_dir), FixOrder, job.order_sha256)
    except EvidenceError as error:
        if error.kind != "missing":
            raise
        try:
            with store_at(job.place.state_dir, job.secrets.store) as store:
                return listed_order(store, job.fix_id)
        except CampaignError:  # the list is on another machine
            raise error from None


def main() -> None:
    """Serve requests about one fix, until it is closed."""
    serve_standard_input(opened)


#: Opens the fix that the first line of its input describes.
Opener = Callable[[bytes], AbstractContextManager[OpenedFix]]

#: Bytes that are read at once: requests are lines of some hundred bytes, the first one an order with keys.
_READ_BYTES = 65_536


def serve_standard_input(opener: Opener) -> None:
    """Serve requests on standard input with replies on standard output; other output goes to the log.

    It ends with the last request, at SIGTERM, and when the worker that sends requests has ended.
    """
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with ending_in_order():
        _serve(opener, _lines(sys.stdin.fileno()), replies)


def _lines(descriptor: int) -> Iterator[bytes]:
    """Yield lines, without a buffered file: a thread that waits in one breaks the interpreter's
    shutdown.
    """
    rest = b""
    while chunk := os.read(descriptor, _READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


def _serve(opener: Opener, requests: Iterator[bytes], replies: BinaryIO) -> None:
    order = next(requests, b"")
    request_queue: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, request_queue), daemon=True).start()
    carry_out_all(opener, order, request_queue.get, partial(_tell, replies))


def carry_out_all(
    opener: Opener,
    order: bytes,
    next_request: Callable[[], Request | None],
    send: Callable[[Standing | SessionProblem], None],
) -> None:
    """Open the fix and send its state, and again after each request, until None or ``close``.

    ``next_request`` waits for the next request. Any error is sent; then the fix is not open any more.
    """
    try:
        with opener(order) as fix:
            send(_standing(fix))
            while (request := next_request()) is not None and request.what != "close":
                send(_carry_out(fix, request))
    except UnansweredError:
        send(Standing(outcome=ESCALATED, delivered=True))
    except FallbackError as error:
        send(_session_problem(problem_of(error), is_held=isinstance(error, HeldError)))
    except Exception as error:  # noqa: BLE001 (sent to the worker, its traceback to the log)
        traceback.print_exc()
        send(_session_problem(defect(error)))


def _session_problem(problem: Problem, *, is_held: bool = False) -> SessionProblem:
    return SessionProblem(problem.code, problem.problem, problem.next_step, is_held)


def _read(requests: Iterator[bytes], request_queue: "queue.SimpleQueue[Request | None]") -> None:
    """Put requests into the queue. The end of the input means that the worker has ended, and no process
    receives replies any more: this process ends then, whatever it is doing.
    """
    for line in requests:
        request_queue.put(request_from(line))
    request_queue.put(None)
    os.kill(os.getpid(), signal.SIGTERM)
    killer = threading.Timer(GRACE_S, os.kill, (os.getpid(), signal.SIGKILL))
    killer.daemon = True
    killer.start()


def _carry_out(fix: OpenedFix, request: Request) -> Standing:
    """Carry a request out. A requested step that is not the next one was taken already: it is not
    repeated.
    """
    following = fix.next()
    if request.what == "deliver" and following is None:
        fix.deliver()
        return _standing(fix, delivered=True)
    if request.step is not None and following is not None and request.step == _key(following):
        fix.step(following)
    return _standing(fix)


def _standing(fix: OpenedFix, *, delivered: bool = False) -> Standing:
    following, application = fix.next(), fix.state.application
    return Standing(
        next=None if following is None else _key(following),
        outcome=None if fix.result is None else fix.result.outcome,
        patch_sha256=application.patch_sha256 if isinstance(application, Applied) else None,
        delivered=delivered,
    )


def _key(key: StepKey) -> SessionStep:
    return SessionStep(key.attempt, key.name, key.candidate)


def _tell(replies: BinaryIO, message: Standing | SessionProblem) -> None:
    with suppress(BrokenPipeError):  # the worker has ended, which `_read` notices
        replies.write(to_line(message))
        replies.flush()
