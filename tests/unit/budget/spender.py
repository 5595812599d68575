"""A process that asks a model until its budget stops it: ``spender.py STATE FIX TOKENS_PER_DAY MODE``.

MODE ``ask`` prints one line a call that was sent; ``die`` is killed while its first call is in flight.
"""

import os
import signal
import sys
from pathlib import Path

from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.meter import BudgetLimits, OverBudget
from fallback_tier.ports import ModelAnswer, ModelRequest
from tests.fakes.talking import TalkingModel, answer, ask, drain, start

#: More than fit: every spender is stopped by the budget.
MAX_CALLS = 50


def main(state: str, fix_id: str, cap: str, mode: str) -> None:
    audit = SqliteAuditStore(Path(state) / "audit.db")
    meter = AuditMeter(audit, BudgetLimits(tokens_per_day=int(cap)))
    caller = start(audit, FileEvidenceStore(Path(state) / "evidence"), fix_id=fix_id, meter=meter)

    def reply(request: ModelRequest) -> ModelAnswer:
        if mode == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdout.write(f"{fix_id} {request.messages[0].content}\n")
        sys.stdout.flush()
        return answer(input_tokens=300, output_tokens=10)

    try:
        for number in range(MAX_CALLS):
            drain(caller.ask(TalkingModel(reply), ask(f"question {number}")))
    except OverBudget:
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
