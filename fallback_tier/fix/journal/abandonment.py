"""A person ends a fix for good that was interrupted and that is not to be resumed (ADR-0138).

Its record stays as it is, with one more event; its worktree is removed. The caller holds the fix
(``fallback_tier.fix.journal.holding``), so that no process of this machine runs it.
"""

from contextlib import suppress
from pathlib import Path

from fallback_audit.events import FixAbandoned, FixEscalated
from fallback_audit.ports import AuditStore
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.history import read_history
from fallback_tier.fix.journal.review import Signature, answer_to, check_signature
from fallback_tier.gates.trees.worktrees import forget_cache, remove_leftovers


def abandon(audit: AuditStore, workspace: Path, fix_id: str, signature: Signature) -> FixAbandoned:
    """Record that a person abandons a fix, then remove its worktree, as an ended fix's is.

    A fix that was reopened, and does not run again yet, can be abandoned too. Raises InputError, and
    records nothing: no such fix, one that has ended, waits for an answer, was abandoned before or belongs
    to another orchestrator; no name or reason.
    """
    history = read_history(audit, fix_id)
    history.check_not_abandoned()
    current = history.current
    if current.start is None:
        raise InputError(
            f"{fix_id} is not a fix of this program's gate runner: another orchestrator keeps its state.",
            next_step="End it there.",
            kind="another_orchestrator",
        )
    if current.end is not None and not current.reopened:
        if isinstance(current.end, FixEscalated) and answer_to(current) is None:
            raise InputError(
                f"Fix {fix_id} was not interrupted: it was escalated, and waits for an answer.",
                next_step=f"`fallback-tier review reject {fix_id} --by NAME --because TEXT` ends it.",
                kind="escalated",
            )
        raise InputError(
            f"Fix {fix_id} has ended: its last event is {current.last_kind}.",
            next_step=f"`fallback-tier audit show {fix_id}` shows how.",
            kind="ended",
        )
    check_signature(signature, "--reason")
    event = FixAbandoned(by=signature.by, reason=signature.because)
    audit.append(current.scope, event)
    with suppress(OSError):  # it is on record: the next fix removes what could not be removed now
        remove_leftovers(workspace)
    forget_cache(workspace / "cache", current.scope)
    return event
