"""The worker: one fix of a campaign or of the service, from its start or from where the audit trail says
that it is.

It reports to its owner only by its status file, which outlives both.
"""

import json
import sys
from collections.abc import Callable

from fallback_tier.files.folders import writing_below
from fallback_tier.fix.document import document
from fallback_tier.fix_result import OneFix, RefusedFix
from fallback_tier.fleet.engine_interface import Phase
from fallback_tier.fleet.fix_opening import ordered_fix
from fallback_tier.fleet.local.engine import Job, WorkerStatus, document_path, write_status
from fallback_tier.workers.ending import carry_out, end_late, ending_in_order, not_late
from fallback_tier.workers.problem import Problem
from fallback_tier.workers.processes import write_holder


def main() -> None:
    """Read the job, carry it out, write its status. The exit code has no meaning."""
    with ending_in_order():
        job = Job.model_validate_json(sys.stdin.buffer.read())
        end_late(job.place.fix_s)
        work(job)


def work(job: Job) -> None:
    """Carry the job out, and write how the worker ended. How the fix ended is in the audit trail."""
    place, fix_id = job.place, job.order.fix_id
    status = WorkerStatus(base_commit=job.order.base_commit)

    def report(**facts: object) -> None:
        nonlocal status
        status = status.model_copy(update=facts)
        write_status(place, fix_id, status)

    def failed(problem: Problem) -> None:
        if status.phase is not Phase.ENDED:
            report(phase=Phase.FAILED, problem=problem)

    def carry_out_job() -> None:
        with writing_below(place.state_dir):
            write_holder(job.lock)
        result = run(job, lambda commit: report(base_commit=commit)).result
        if place.keeps_documents:
            with writing_below(place.state_dir):
                document_path(place, fix_id).write_text(json.dumps(document(result)))
        not_late()  # a fix that has ended is not late
        is_unknown = isinstance(result, RefusedFix) and result.is_unknown
        report(phase=Phase.ENDED, outcome="unknown" if is_unknown else result.outcome)

    carry_out(carry_out_job, failed, limit_s=place.fix_s, resume=place.resume)


def run(job: Job, decided: Callable[[str], None]) -> OneFix:
    """Run the fix. Raises FallbackError."""
    with ordered_fix(job.order, job.whole_place(), job.secrets, decided) as fix:
        return fix.to_the_end()


if __name__ == "__main__":
    main()
