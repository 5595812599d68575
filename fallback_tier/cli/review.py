"""``fallback-tier review`` and ``abandon``: the questions of fixes, and a person's answers, each on record.

A question is to be read in a minute, so each attempt has two lines. Texts of models, targets and advisories
are untrusted: neutralised, and never read as markup.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from fallback_audit.events import BudgetRaised, grounded_words
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditStore
from fallback_audit.vocabulary import EscalationReason
from fallback_tier.advisory.vulnerability import as_lines
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import record, state_dir, user_name
from fallback_tier.cli.output import print_json, print_patch
from fallback_tier.cli.remediation import MAX_PATCH_LINES, line, safe, show_block
from fallback_tier.cli.results import print_result, print_shown
from fallback_tier.cli.suggesting import command
from fallback_tier.errors import InputError
from fallback_tier.fix.journal import review
from fallback_tier.fix.journal.holding import holding
from fallback_tier.fix.journal.questions import (
    AttemptReview,
    Evidence,
    Question,
    Review,
    questions,
)
from fallback_tier.fix.journal.questions import review as read_review
from fallback_tier.fix.journal.review import raise_budget as record_raise
from fallback_tier.handover.working_tree import check_output, write_patch
from fallback_tier.repo import new_id
from fallback_tier.wiring.trail import open_evidence, open_trail, read_trail

#: Most lines that are shown of the last failure; the evidence has all of them.
_MAX_FAILURE_LINES = 40


class QuestionList(Frozen):
    """What ``review list --json`` prints, newest first."""

    questions: tuple[Question, ...]


def show_list(arguments: argparse.Namespace) -> int:
    """Print the questions that wait for an answer."""
    with closing(read_trail(state_dir(arguments), record(arguments))) as reader:
        open_questions = questions(reader, answered=arguments.all)
    document = QuestionList(questions=tuple(open_questions))
    return print_shown(arguments, document, lambda: _report_questions(open_questions, Console()))


def show(arguments: argparse.Namespace) -> int:
    """Print one question. Raises InputError for a fix that asks nothing."""
    evidence = _evidence(arguments)
    with closing(read_trail(state_dir(arguments), record(arguments))) as reader:
        fix_review = read_review(reader, evidence, arguments.fix_id)
    return print_shown(
        arguments, fix_review, lambda: _report_review(fix_review, evidence, Console())
    )


def approve(arguments: argparse.Namespace) -> int:
    """Record an approval, and print or write the patch. Raises InputError if nothing can be approved."""
    if arguments.output:
        check_output(Path(arguments.output))
    with _deciding(arguments) as audit:
        approval = review.approve(
            audit,
            _evidence(arguments),
            arguments.fix_id,
            _signature(arguments),
            patch=arguments.patch,
        )
    patch = approval.patch.decode()
    if arguments.output:
        write_patch(Path(arguments.output), patch)
    if arguments.json:
        decision = approval.decision.model_dump(mode="json")
        print_json({"fix_id": arguments.fix_id, **decision, "patch": patch})
        return exit_codes.OK
    console = Console(stderr=True)  # the patch alone is the output: `… > FILE`, `… | git apply`
    line(
        console, f"[bold]approved, not proved[/]  {safe(arguments.fix_id)} by {safe(arguments.by)}"
    )
    if arguments.output:
        line(console, f"  next: git apply {safe(arguments.output)}")
    else:
        print_patch(patch)
    return exit_codes.OK


def reject(arguments: argparse.Namespace) -> int:
    """Record a rejection. Raises InputError if the fix asks nothing."""
    with _deciding(arguments) as audit:
        decision = review.reject(audit, arguments.fix_id, _signature(arguments))
    document = {"fix_id": arguments.fix_id, **decision.model_dump(mode="json")}
    message = f"[bold]rejected[/]  {safe(arguments.fix_id)} by {safe(arguments.by)}"
    return print_result(arguments, document, message)


def reopen(arguments: argparse.Namespace) -> int:
    """Record a reopening, for attempts or for the gates alone. Raises InputError if there is nothing to
    continue, and EvidenceError if the patch to be judged is gone."""
    if arguments.patch and not arguments.gates_again:
        raise InputError(
            "--patch names the patch whose gates are to be run again.",
            next_step="Give --gates-again with it; without both, new attempts are made.",
        )
    fix_id, signature, opens = arguments.fix_id, _signature(arguments), new_id("gate")
    with _deciding(arguments) as audit:
        if arguments.gates_again:
            evidence, patch = _evidence(arguments), arguments.patch
            event = review.run_gates_again(
                audit, evidence, fix_id, signature, opens=opens, patch=patch
            )
        else:
            event = review.reopen(audit, fix_id, signature, opens=opens)
    patch_sha256 = event.judges_again
    gates_alone = f", for the gates alone, on patch {patch_sha256[:12]}" if patch_sha256 else ""
    return print_result(
        arguments,
        {"fix_id": fix_id, **event.model_dump(mode="json")},
        f"[bold]reopened[/]  {safe(fix_id)} as {event.opens}{gates_alone}",
        f"  next: {safe(command(f'fallback-tier resume {fix_id}'))}",
    )


def raise_budget(arguments: argparse.Namespace) -> int:
    """Record who raised a cap, and why. Raises InputError if there is nothing to raise."""
    raised = BudgetRaised(
        by=arguments.by,
        reason=arguments.because,
        usd_per_fix=arguments.max_usd,
        tokens_per_fix=arguments.max_tokens,
    )
    with _deciding(arguments) as audit:
        reached = record_raise(audit, arguments.fix_id, raised)
    return print_result(
        arguments,
        {"fix_id": arguments.fix_id, "limit": reached.limit, **raised.model_dump()},
        f"[bold]raised[/]  {safe(arguments.fix_id)} ({reached.limit})",
        f"  next: {safe(command(f'fallback-tier resume {arguments.fix_id}'))}",
    )


def abandon(arguments: argparse.Namespace) -> int:
    """Record who abandons a fix that was interrupted, and why. Raises InputError if it has ended; HeldError
    if another process runs it."""
    by = user_name() if arguments.by is None else arguments.by
    signature = review.Signature(by=by, because=arguments.reason)
    with _deciding(arguments) as audit:
        event = review.abandon(audit, state_dir(arguments), arguments.fix_id, signature)
    return print_result(
        arguments,
        {"fix_id": arguments.fix_id, **event.model_dump(mode="json")},
        f"[bold]abandoned[/]  {safe(arguments.fix_id)} by {safe(event.by)}",
    )


@contextmanager
def _deciding(arguments: argparse.Namespace) -> Iterator[AuditStore]:
    """Yield the store, with the fix held as by a run: a decision comes before the fix's next event."""
    state, settings = state_dir(arguments), record(arguments)
    read_trail(state, settings).close()  # a missing one is an error here, not a new store
    with holding(state, arguments.fix_id), closing(open_trail(state, settings)) as audit:
        yield audit


def _evidence(arguments: argparse.Namespace) -> FileEvidenceStore:
    return open_evidence(state_dir(arguments))


def _signature(arguments: argparse.Namespace) -> review.Signature:
    return review.Signature(by=arguments.by, because=arguments.because)


def _report_questions(questions: Sequence[Question], console: Console) -> None:
    if not questions:
        line(console, "No fix waits for a person.")
    for question in questions:
        line(
            console,
            f"{safe(question.fix_id)}  {safe(question.advisory_id)}  {safe(question.repository)}  "
            f"[bold yellow]{_reason(question)}[/]  {question.attempts} attempt(s)  {question.asked_at}"
            + (f"  {safe(question.answer)}" if question.answer else ""),
        )


def _report_review(review: Review, evidence: FileEvidenceStore, console: Console) -> None:
    question = review.question
    head = (question.fix_id, question.advisory_id, question.repository)
    line(console, f"[bold yellow]{_reason(question)}[/]  {safe('  '.join(head))}")
    for vulnerability in review.vulnerabilities:
        for number, text in enumerate(as_lines(vulnerability)):
            line(console, f"  {'  ' if number else ''}{safe(text)}")
    line(console, f"  {safe(review.asks)}")
    if question.answer:
        line(console, f"  [bold cyan]{safe(question.answer)}[/]")
    for attempt in review.attempts:
        _report_attempt(attempt, console)
    last = review.attempts[-1] if review.attempts else None
    if last is not None and last.failure:
        show_block(
            console, f"last failure (attempt {last.attempt})", last.failure, _MAX_FAILURE_LINES
        )
    _report_evidence(review, evidence, console)
    if review.patch is not None:
        title = f"patch {review.patch_sha256[:12]}, not proved" if review.patch_sha256 else "patch"
        show_block(console, title, review.patch, MAX_PATCH_LINES)
    elif review.patch_problem:
        line(console, f"patch: {safe(review.patch_problem)}")
    for number, step in enumerate(review.next_steps):
        line(console, f"{'next:' if not number else '     '} {safe(command(step))}")


def _reason(question: Question) -> str:
    """Return the reason; for a retry that gave no patch, with its cause."""
    if question.reason is EscalationReason.RETRY_REFUSED and question.cause is not None:
        return f"{question.reason} ({question.cause})"
    return question.reason


def _report_attempt(attempt: AttemptReview, console: Console) -> None:
    """Print how an attempt was made and ended, then what its prompt had. Each doubt has its line."""
    origin = ", ".join(filter(None, (attempt.tier, attempt.shape)))
    line(console, f"[bold cyan]{attempt.attempt}[/]  {safe(origin)}: {safe(_ended(attempt))}")
    line(console, f"   {safe(_stood_on(attempt))}")
    if attempt.low_confidence:
        line(
            console,
            f"   [bold yellow]low confidence[/]: {safe(attempt.low_confidence)}; double-check:",
        )
        for claim in attempt.double_check:
            line(console, f"     - {safe(claim)}")
    for gate in attempt.undecided:
        line(console, f"   [bold yellow]could not be decided[/] by gate {safe(gate)}")
    if attempt.flaky:
        line(console, f"   flaky tests, at the base commit too: {safe(', '.join(attempt.flaky))}")


def _ended(attempt: AttemptReview) -> str:
    messages = [attempt.outcome]
    if attempt.failing_gates:
        messages.append(f"at gate {', '.join(attempt.failing_gates)}")
    if attempt.grounded is not None:
        messages.append(grounded_words(attempt.grounded))
    if attempt.tokens:
        cost = attempt.cost_usd_estimate
        messages.append(
            f"{attempt.tokens:,} tokens, {f'about ${cost}' if cost else 'price not known'}"
        )
    return ", ".join(messages)


def _stood_on(attempt: AttemptReview) -> str:
    """Return what the prompt had in addition to the advisory and the code."""
    if attempt.in_place_of_examples is not None:
        lines = attempt.in_place_of_examples.strip().splitlines() or ["nothing"]
        more = f" (and {len(lines) - 1} more lines)" if len(lines) > 1 else ""
        return f"in place of examples, the last failure: {lines[0]}{more}"
    if attempt.examples:
        return f"examples: {', '.join(attempt.examples)}"
    return "no examples"


def _report_evidence(review: Review, store: FileEvidenceStore, console: Console) -> None:
    """Print each piece once, as a file that any pager opens."""
    pieces: dict[str, tuple[int | None, Evidence]] = {}
    for attempt in review.attempts:
        for piece in attempt.evidence:
            pieces.setdefault(piece.sha256, (attempt.attempt, piece))
    for piece in review.evidence:
        pieces.setdefault(piece.sha256, (None, piece))
    if pieces:
        line(console, "evidence (plain files, named by their SHA-256):")
    for number, piece in pieces.values():
        where = f"attempt {number}, " if number else ""
        line(console, f"  {where}{safe(piece.what)}: {safe(str(store.path(piece.sha256)))}")
