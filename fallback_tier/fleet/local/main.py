"""The worker: one fix of a campaign, from its start or from where the record says that it stands."""

import sys

from fallback_tier.fleet.engine import EngineState, Phase
from fallback_tier.fleet.local.job import RESUME, Job, leave_word
from fallback_tier.fleet.place import ordered_fix
from fallback_tier.gates.trees.state_folder import writing_below
from fallback_tier.workers.ending import carry_out, end_late, ending_in_order
from fallback_tier.workers.locks import write_holder
from fallback_tier.workers.problem import Problem


def main() -> None:
    """Read the job, do it, leave a word. The exit code tells nothing."""
    with ending_in_order():
        job = Job.model_validate_json(sys.stdin.buffer.read())
        end_late(job.place.fix_s)
        work(job)


def work(job: Job) -> None:
    """Do it, and say how it ended. How the fix ended is on record."""

    def said(phase: Phase, problem: Problem | None = None) -> None:
        leave_word(job.place, job.order.fix_id, EngineState(phase=phase, problem=problem))

    def failed(problem: Problem) -> None:
        said(Phase.FAILED, problem)

    def to_its_end() -> None:
        with writing_below(job.place.state_dir):
            write_holder(job.lock)
        run(job)
        said(Phase.ENDED)

    carry_out(to_its_end, failed, limit_s=job.place.fix_s, resume=RESUME)


def run(job: Job) -> None:
    """The fix itself. Raises FallbackError."""
    place = job.place.model_copy(update={"record": job.record()})
    with ordered_fix(job.order, place, job.secrets) as fix:
        fix.to_the_end()


if __name__ == "__main__":
    main()
