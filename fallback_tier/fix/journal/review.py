"""People's answers to a fix's question: approve its patch, reject it, try again, or run the gates again.

Each answer is one event, with who and why, and it is final for its gate transition: an approved patch is
not reopened, and a rejected one stays rejected. An approval is not a proof. A fix that stopped at its
budget can be rejected, or tried again with a higher cap (``raise_budget``).

The process that records an answer holds the fix (``fallback_tier.fix.journal.holding``), so that what it
has read is still true when the answer is appended.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from fallback_audit.contract.trail import attempt_was_not_made, is_budget_stop
from fallback_audit.events import (
    MAX_WORDS_CHARS,
    AttemptFailed,
    BudgetRaised,
    BudgetReached,
    FixAbandoned,
    FixEscalated,
    FixRefused,
    FixVerified,
    PatchProposed,
    ReviewDecided,
    TransitionReopened,
    abandoned_words,
    decided_words,
    reopened_words,
)
from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_audit.vocabulary import BudgetLimit, EscalationReason, ReviewVerdict
from fallback_tier.budget.meter import CAP_OPTIONS, amount, how_to_go_on, least_cap
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.history import History, Transition, read_history, recorded_patch
from fallback_tier.gates.trees.worktrees import forget_cache, remove_leftovers

#: The least length of a digest's beginning that names a patch: unique among a fix's few patches.
MIN_PATCH_PREFIX = 8

#: How a fix with a patch ended, by whether it was verified.
_WITH_PATCH = {True: "verified", False: "patched"}


@dataclass(frozen=True)
class Signature:
    """The person who answers, and that person's reason."""

    by: str
    because: str


@dataclass(frozen=True)
class Approval:
    """The approval, with the patch itself."""

    decision: ReviewDecided
    patch: bytes


def approve(
    audit: AuditStore,
    evidence: EvidenceStore,
    fix_id: str,
    signature: Signature,
    *,
    patch: str | None = None,
) -> Approval:
    """Record that a person approves a patch: the one asked about, or the one whose digest starts with
    ``patch``.

    Raises InputError, and records nothing, if there is no question, no such patch, no name or no reason;
    EvidenceError.
    """
    transition = _asked(read_history(audit, fix_id))
    check_signature(signature)
    digest = _named(transition.of(PatchProposed), asked_about(transition), patch, fix_id)
    content = evidence.get(digest)
    decision = ReviewDecided(
        verdict=ReviewVerdict.APPROVED,
        by=signature.by,
        reason=signature.because,
        patch_sha256=digest,
    )
    audit.append(transition.scope, decision)
    return Approval(decision, content)


def reject(audit: AuditStore, fix_id: str, signature: Signature) -> ReviewDecided:
    """Record that a person takes none of the patches. Raises InputError as ``approve``, except for a fix
    that stopped at its budget."""
    transition = _asked(read_history(audit, fix_id), rejects=True)
    check_signature(signature)
    decision = ReviewDecided(
        verdict=ReviewVerdict.REJECTED, by=signature.by, reason=signature.because
    )
    audit.append(transition.scope, decision)
    return decision


def reopen(
    audit: AuditStore, fix_id: str, signature: Signature, *, opens: str
) -> TransitionReopened:
    """Record that a person has the fix tried again, in the new gate transition ``opens``.

    It starts with the last failure as its one prior attempt, so that it never regains retrieval (ADR-0011,
    ADR-0014); if the model was unavailable for the first attempt, with a first attempt (ADR-0098). Raises
    InputError as ``approve``, if neither holds, and if this fix already has a transition ``opens``.
    """
    history, transition = _reopening(audit, fix_id, signature, opens)
    if not can_be_tried_again(history, transition):
        raise InputError(
            f"No attempt of fix {fix_id} has failed, so there is nothing that another gate transition "
            "could start with.",
            next_step="Start a new fix: `fallback-tier fix REPO --advisory FILE`.",
            kind="nothing_failed",
        )
    event = TransitionReopened(by=signature.by, reason=signature.because, opens=opens)
    audit.append(transition.scope, event)
    return event


def run_gates_again(
    audit: AuditStore,
    evidence: EvidenceStore,
    fix_id: str,
    signature: Signature,
    *,
    opens: str,
    patch: str | None = None,
) -> TransitionReopened:
    """Record that a person has all gates run again on a recorded patch, in the new transition ``opens``.

    The patch is the one asked about, or the one whose digest starts with ``patch``. Raises as ``approve``;
    EvidenceError.
    """
    history, transition = _reopening(audit, fix_id, signature, opens)
    digest = _named(history.patches, asked_about(transition), patch, fix_id)
    recorded_patch(history, digest, evidence)
    event = TransitionReopened(
        by=signature.by, reason=signature.because, opens=opens, judges_again=digest
    )
    audit.append(transition.scope, event)
    return event


def raise_budget(audit: AuditStore, fix_id: str, raised: BudgetRaised) -> BudgetReached:
    """Record that a person raised a cap. Return the cap that had been reached.

    Raises InputError, and records nothing, if there is no such fix, if it did not stop at its budget, was
    rejected there or abandoned, or if there is no name or reason, or the cap is not higher. After a cap per
    day no number is needed: that cap is an option of ``fix``, and the record says who let the fix continue.
    """
    history = read_history(audit, fix_id)
    history.check_not_abandoned()
    transition = history.current
    if (decision := transition.last_of(ReviewDecided)) is not None:
        raise InputError(
            f"Fix {fix_id} was answered already: {' '.join(decided_words(decision).split())}.",
            next_step="Start a new fix to try again.",
            kind="answered",
        )
    reached = transition.stopped
    if reached is None:
        raise InputError(
            f"Fix {fix_id} did not stop at its budget: its last event is {transition.last_kind}.",
            next_step="Only a fix that was escalated with budget_exhausted can be given more.",
            kind="not_at_budget",
        )
    if not (raised.by.strip() and raised.reason.strip()):
        raise InputError(
            "A raised budget needs a name and a reason.",
            next_step="Give --by NAME and --because TEXT: both go on record.",
            kind="signature_empty",
        )
    for limit, new_cap in (
        (BudgetLimit.USD_PER_FIX, raised.usd_per_fix),
        (BudgetLimit.TOKENS_PER_FIX, raised.tokens_per_fix),
    ):
        _check_higher(transition, reached, limit, None if new_cap is None else str(new_cap))
    audit.append(transition.scope, raised)
    return reached


def _check_higher(
    transition: Transition, reached: BudgetReached, limit: BudgetLimit, new_cap: str | None
) -> None:
    """Check that the reached cap is raised; another cap may be raised too, and must then be higher."""
    caps = [reached.cap] if reached.limit is limit else []
    for raised in transition.of(BudgetRaised):
        earlier = getattr(raised, limit.value)
        caps += [] if earlier is None else [str(earlier)]
    cap = max(caps, key=Decimal, default=None)
    if new_cap is None:
        # Raised before, and no model was asked since: that cap is still valid.
        is_too_low = reached.limit is limit and cap == reached.cap
    else:
        is_too_low = cap is not None and Decimal(new_cap) <= Decimal(cap)
    if is_too_low and cap is not None:
        comparison = "" if new_cap is None else f", and {amount(limit, new_cap)} is not more"
        raise InputError(
            f"The present cap is {amount(limit, cap)}{comparison}.",
            next_step=f"Give {CAP_OPTIONS[limit]} {least_cap(reached) if reached.limit is limit else 'N'} "
            "or more.",
            kind="cap_not_given" if new_cap is None else "cap_not_higher",
        )


def _reopening(
    audit: AuditStore, fix_id: str, signature: Signature, opens: str
) -> tuple[History, Transition]:
    """Return the transition that is to be reopened as ``opens``. Raises InputError."""
    history = read_history(audit, fix_id)
    transition = _asked(history)
    check_signature(signature)
    if history.transition(opens) is not None:
        raise InputError(
            f"Fix {fix_id} has a gate transition {opens!r} already, so it can't be opened again.",
            next_step="Give the new gate transition an identifier of its own.",
        )
    return history, transition


def can_be_tried_again(history: History, transition: Transition) -> bool:
    """Return whether a person can open a gate transition with new attempts after this one."""
    has_patch = bool(transition.of(PatchProposed))
    return carries_failure(history, transition) or attempt_was_not_made(
        transition.end, has_patch=has_patch
    )


def carries_failure(history: History, transition: Transition) -> bool:
    """Return whether an attempt failed in this transition, or in one that it was opened for."""
    ancestor: Transition | None = transition
    while ancestor is not None:
        if ancestor.of(AttemptFailed):
            return True
        ancestor = history.opener_of(ancestor)
    return False


def answer_to(transition: Transition) -> str | None:
    """Return a person's answer, or who abandoned the fix, as text; None if there is no answer yet."""
    if transition.abandoned is not None:
        return abandoned_words(transition.abandoned)
    if decision := transition.last_of(ReviewDecided):
        return decided_words(decision)
    return reopened_words(transition.reopened) if transition.reopened else None


def _asked(history: History, *, rejects: bool = False) -> Transition:
    """Return the transition that waits for an answer. Raises InputError if none does, or if the fix stopped
    at its budget, unless the answer ``rejects`` it."""
    fix_id, current = history.fix_id, history.current
    history.check_not_abandoned()
    if (answer := answer_to(current)) is not None:
        resume = f", `fallback-tier resume {fix_id}` goes on" if current.reopened else ""
        raise InputError(
            f"Fix {fix_id} was answered already: {' '.join(answer.split())}.",
            next_step=f"`fallback-tier review show {fix_id}` shows the whole story{resume}.",
            kind="answered",
        )
    end = current.end
    if end is None:
        raise InputError(
            f"Fix {fix_id} asks nothing: it is open, its last event is {current.last_kind}.",
            next_step=f"`fallback-tier resume {fix_id}` continues it, if no process does; "
            f"`fallback-tier abandon {fix_id} --reason TEXT` ends it.",
            kind="open",
        )
    if is_budget_stop(end) and not rejects:
        reached = current.stopped
        description = how_to_go_on(reached, fix_id) if reached else "Start a new fix."
        raise InputError(
            f"Fix {fix_id} stopped at its budget: it can be tried again with a higher cap, or rejected.",
            next_step=f"{description} Or reject it: `fallback-tier review reject {fix_id} --by NAME "
            "--because TEXT`.",
            kind="at_budget",
        )
    if not isinstance(end, FixEscalated):
        description = _WITH_PATCH[isinstance(end, FixVerified)]
        if isinstance(end, FixRefused):
            description = f"refused ({end.reason})"
        raise InputError(
            f"Fix {fix_id} was not escalated: it ended {description}.",
            next_step=f"See `fallback-tier audit show {fix_id}`; start a new fix to try again.",
            kind="not_escalated",
        )
    return current


def asked_about(transition: Transition) -> str | None:
    """Return the patch that the question is about: the one that tests contradict, otherwise the last; None
    if there is none."""
    patches = {patch.attempt: patch.patch_sha256 for patch in transition.of(PatchProposed)}
    end = transition.end
    if isinstance(end, FixEscalated) and end.reason is EscalationReason.TESTS_CONTRADICT_PATCH:
        failures = transition.of(AttemptFailed)
        contradicted = [failure.attempt for failure in failures if failure.contradicting_tests]
        return patches.get(contradicted[-1]) if contradicted else None
    return next(reversed(patches.values()), None)


def _named(
    patches: Sequence[PatchProposed], default: str | None, prefix: str | None, fix_id: str
) -> str:
    """Return the digest of the patch that is meant: the one asked about, otherwise the last, or the only
    one with this beginning."""
    proposed = [patch.patch_sha256 for patch in patches]
    if not proposed:
        raise InputError(
            f"Fix {fix_id} has proposed no patch that could be approved, or judged again.",
            next_step=f"Reject it, or have it tried again: `fallback-tier review reopen {fix_id} "
            "--by NAME --because TEXT`.",
            kind="no_patch",
        )
    if prefix is None:
        return default or proposed[-1]
    matching = {digest for digest in proposed if digest.startswith(prefix)}
    if len(prefix) < MIN_PATCH_PREFIX or len(matching) != 1:
        shown = ", ".join(digest[:12] for digest in dict.fromkeys(proposed))
        raise InputError(
            f"{prefix!r} names no patch of fix {fix_id}: it has proposed {shown}.",
            next_step=f"Give at least {MIN_PATCH_PREFIX} characters of one of these digests, or no "
            "--patch for the last one.",
            kind="unknown_patch",
        )
    return matching.pop()


def check_signature(signature: Signature, because: str = "--because") -> None:
    """Raise InputError if the name or the reason is empty, or longer than the record takes. ``because``:
    the option that gives the reason."""
    for option, text in (("--by", signature.by), (because, signature.because)):
        if not text.strip():
            raise InputError(
                f"{option} is empty: a decision has a name and a reason, and both go on record.",
                next_step=f"Give --by NAME and {because} TEXT.",
                kind="signature_empty",
            )
        if len(text) > MAX_WORDS_CHARS:
            raise InputError(
                f"{option} has {len(text):,} characters, and the record takes {MAX_WORDS_CHARS:,}.",
                next_step="Say it in a paragraph.",
                kind="signature_too_long",
            )


def abandon(audit: AuditStore, workspace: Path, fix_id: str, signature: Signature) -> FixAbandoned:
    """Record that a person abandons a fix, then remove its worktree, as for an ended fix.

    A fix that was reopened, and does not run again yet, can be abandoned too. Raises InputError, and
    records nothing, if there is no such fix, or if it has ended, waits for an answer, was abandoned before
    or belongs to another orchestrator; or if there is no name or reason.
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
    with suppress(OSError):  # it is recorded: the next fix removes what could not be removed now
        remove_leftovers(workspace)
    forget_cache(workspace / "cache", current.scope)
    return event
