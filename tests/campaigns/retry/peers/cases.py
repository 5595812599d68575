"""One case: a task, a peer and a seed; and the order in which tasks are drawn."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_eval.retrieval.results import EvaluationError
from fallback_eval.retry.calls import Calls
from fallback_eval.retry.tasks import Task, load_tasks
from tests.campaigns.retry.peers.judging import FIXED, Verdict, workplace
from tests.campaigns.retry.peers.model import CaseModel, Upstream
from tests.campaigns.retry.peers.programs import (
    Environments,
    Peer,
    ask_bare,
    run_aider,
    run_mini,
)

#: Draws the order of tasks; committed with the plan, before any run.
DRAWN_BY: Final = "retry-peers-2026-11-29"
SEED: Final = 1

#: Tasks of a block: each peer runs all of it before the next block begins.
BLOCK: Final = 20


@dataclass(frozen=True)
class PeerCase:
    """A task, a peer and a seed. ``number``: the task's place in the drawn order, from 0."""

    task: Task
    peer: Peer
    number: int
    seed: int = SEED

    @property
    def name(self) -> str:
        """Return ``TASK.PEER.SEED``."""
        return f"{self.task.name}.{self.peer.value}.{self.seed}"


class Row(Frozen):
    """What became of a case. ``stopped``: why the peer ended; ``patch``: its final tree, from which outcome
    and ``stricter`` follow again. ``model_seconds``: what the server took; ``seconds``: of this run."""

    task: str
    peer: Peer
    seed: int
    task_sha256: Digest
    model: str
    version: str = ""
    outcome: str
    stricter: bool | None = None
    stopped: str
    calls: tuple[Digest, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    patch: str = ""
    model_seconds: float
    seconds: float

    @property
    def name(self) -> str:
        """Return its case's name."""
        return f"{self.task}.{self.peer.value}.{self.seed}"

    @property
    def is_fixed(self) -> bool:
        """Return whether base tests and proof pass."""
        return self.outcome == FIXED


@dataclass(frozen=True)
class Setup:
    """What all cases share. ``upstream`` None: kept answers alone."""

    model: str
    calls: Calls
    peers: Environments
    upstream: Upstream | None = None


def drawn(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks in the order that the seed draws."""
    return sorted(
        tasks, key=lambda task: hashlib.sha256(f"{DRAWN_BY}:{task.name}".encode()).hexdigest()
    )


def load_cases(root: Path, only: Sequence[str] = ()) -> tuple[PeerCase, ...]:
    """Return the cases in blocks of tasks, in each block peer by peer; those named, or all. Raises
    InputError."""
    load_tasks(root, list(dict.fromkeys(name.split(".")[0] for name in only)))  # are there such?
    order = list(enumerate(drawn(load_tasks(root))))
    cases = (
        PeerCase(task, peer, number)
        for start in range(0, len(order), BLOCK)
        for peer in Peer
        for number, task in order[start : start + BLOCK]
    )
    return tuple(case for case in cases if not only or case.name in only)


def run_case(case: PeerCase, setup: Setup) -> Row:
    """Run one case. Raises EvaluationError if the model could not be reached (no result: run it again),
    FileNotFoundError without the peer, SandboxError, ProofError, ToolError."""
    began, task = time.monotonic(), case.task
    version = setup.peers.version(case.peer)
    model = CaseModel(setup.model, setup.calls, setup.upstream, case.seed)
    with short_folder() as root, workplace(task, root) as place:
        proof, tree = place.proof_output(), place.copy()
        match case.peer:
            case Peer.BARE:
                stopped = ask_bare(task, proof, tree, model)
            case Peer.AIDER:
                stopped = run_aider(task, proof, tree, model, place.parts.sandbox, setup.peers)
            case Peer.MINI:
                stopped = run_mini(task, proof, tree, model, place.parts.sandbox, setup.peers)
        if stopped == "no answer":
            raise EvaluationError(
                f"{case.name} could not be run to its end: the model gave no answer.",
                next_step="Start the server and run this again: it resumes.",
            )
        patch = place.patch_of(tree)
        verdict = place.judge(patch)
    return Row(
        task=task.name,
        peer=case.peer,
        seed=case.seed,
        task_sha256=task.digest,
        model=model.name,
        version=version,
        outcome=verdict.outcome,
        stricter=verdict.stricter,
        stopped=stopped,
        calls=tuple(call.key for call in model.used),
        input_tokens=sum(call.input_tokens for call in model.used),
        output_tokens=sum(call.output_tokens for call in model.used),
        patch=patch,
        model_seconds=round(sum(call.seconds for call in model.used), 1),
        seconds=round(time.monotonic() - began, 1),
    )


def judged_again(row: Row, task: Task) -> Verdict:
    """Derive the verdict on a row's patch again, without a model. Raises SandboxError, ToolError."""
    with short_folder() as root, workplace(task, root) as place:
        return place.judge(row.patch)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a new folder with a short path: that of a Unix socket has at most 107 bytes."""
    with TemporaryDirectory(prefix="retry-peers-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()
