"""Our embedded loop: three keyed steps of a fix, each durable in the audit trail before the next.

The steps do nothing themselves (no git, no gate commands): what is left is the loop's own cost, as
``fallback_tier.fix.open_fix`` pays it — ``next_step`` over a ``FixProgress``, one event a step, one
transaction and one sync an event — and the event that starts the fix.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fallback_audit.events import AttemptStarted, FixStarted, FixVerified, GateJudged
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import GateStatus, PromptShape, ProofLevel, Tier
from fallback_tier.fix.steps import FixProgress, StepKey, next_step
from fallback_tier.fix_result import Verified
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.outcome import Applied

_DIGEST = "0" * 64

_APPLIED = Applied(
    attempt=1,
    prompt_shape=PromptShape.NONE,
    tier=Tier.RECIPE,
    diff="",
    patch_sha256=_DIGEST,
    edit_digest=_DIGEST,
    files=("requirements.txt",),
    proof_level=ProofLevel.PINS,
)


def prepare(
    place: Path, synchronous: str = ""
) -> tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]:
    """The loop over a store in ``place``; ``synchronous`` replaces the store's own setting (FULL)."""
    store = SqliteAuditStore(place / "audit.db")
    with store._connection.using() as connection:
        pass
    if synchronous:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
    numbers = itertools.count()

    def fix() -> None:
        scope = Scope(fix_id=f"fix-{next(numbers)}", gate_transition_id="gate")
        store.append(
            scope,
            FixStarted(
                advisory_id="GHSA",
                repository="target",
                base_commit="0" * 40,
                ecosystem="PyPI",
                tool_version="0",
            ),
        )
        # A fix that needs no worktree: attempt, one gate, decide.
        state = FixProgress(isolated=True)
        while (key := next_step(state, [])) is not None:
            state = _step(key, state, store, scope)

    def facts() -> Mapping[str, Any]:
        return {
            "journal_mode": connection.execute("PRAGMA journal_mode").fetchone()[0],
            "synchronous": connection.execute("PRAGMA synchronous").fetchone()[0],
        }

    return fix, facts


def _step(key: StepKey, state: FixProgress, store: SqliteAuditStore, scope: Scope) -> FixProgress:
    if key.name == "attempt":
        store.append(
            scope,
            AttemptStarted(
                attempt=1,
                advisory_id="GHSA",
                prior_attempt_count=0,
                prompt_shape=PromptShape.INITIAL,
            ),
        )
        return replace(state, application=_APPLIED)
    if key.gate is not None:
        verdict = GateVerdict(gate=key.gate, status=GateStatus.PASSED, detail="nothing was run")
        store.append(
            scope,
            GateJudged(
                attempt=1,
                gate=verdict.gate,
                status=verdict.status,
                detail=verdict.detail,
                duration_ms=0,
            ),
        )
        return replace(state, verdicts=(*state.verdicts, verdict))
    passed = state.gates_with(GateStatus.PASSED)
    store.append(
        scope,
        FixVerified(
            attempt=1,
            tier=Tier.RECIPE,
            patch_sha256=_DIGEST,
            proof_level=ProofLevel.PINS,
            gates_passed=passed,
        ),
    )
    result = Verified(
        fix_id=scope.fix_id,
        gate_transition_id=scope.gate_transition_id,
        advisory_id="GHSA",
        attempts=1,
        verdicts=state.verdicts,
        application=_APPLIED,
    )
    return replace(state, result=result)
