"""A question as a person reads it: in a minute, so each attempt has two lines.

What models, targets and advisories said is untrusted: neutralised, and never read as markup.
"""

from collections.abc import Sequence

from rich.console import Console

from fallback_audit.events import grounded_words
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.vocabulary import EscalationReason
from fallback_tier.advisory.vulnerability import as_lines
from fallback_tier.cli.remediation import MAX_PATCH_LINES, line, safe, show_block
from fallback_tier.cli.suggesting import command
from fallback_tier.gates.journal.questions import AttemptReview, Evidence, Question, Review

#: Lines of the last failure that are shown; the evidence has all of them.
MAX_FAILURE_LINES = 40


def report_questions(questions: Sequence[Question], console: Console) -> None:
    """A line a question, and its answer where it has one."""
    if not questions:
        line(console, "No fix waits for a person.")
    for question in questions:
        line(
            console,
            f"{safe(question.fix_id)}  {safe(question.advisory_id)}  {safe(question.repository)}  "
            f"[bold yellow]{_reason(question)}[/]  {question.attempts} attempt(s)  {question.asked_at}"
            + (f"  {safe(question.answer)}" if question.answer else ""),
        )


def report_review(review: Review, evidence: FileEvidenceStore, console: Console) -> None:
    """The question first, the patch last, the commands under it."""
    question = review.question
    head = (question.fix_id, question.advisory_id, question.repository)
    line(console, f"[bold yellow]{_reason(question)}[/]  {safe('  '.join(head))}")
    for one in review.vulnerabilities:
        for number, text in enumerate(as_lines(one)):
            line(console, f"  {'  ' if number else ''}{safe(text)}")
    line(console, f"  {safe(review.asks)}")
    if question.answer:
        line(console, f"  [bold cyan]{safe(question.answer)}[/]")
    for attempt in review.attempts:
        _report_attempt(attempt, console)
    last = review.attempts[-1] if review.attempts else None
    if last is not None and last.failure:
        show_block(
            console, f"last failure (attempt {last.attempt})", last.failure, MAX_FAILURE_LINES
        )
    _report_evidence(review, evidence, console)
    if review.patch is not None:
        what = f"patch {review.patch_sha256[:12]}, not proved" if review.patch_sha256 else "patch"
        show_block(console, what, review.patch, MAX_PATCH_LINES)
    elif review.patch_problem:
        line(console, f"patch: {safe(review.patch_problem)}")
    for number, step in enumerate(review.next_steps):
        line(console, f"{'next:' if not number else '     '} {safe(command(step))}")


def _reason(question: Question) -> str:
    """The reason; of a retry that gave no patch with its cause."""
    if question.reason is EscalationReason.RETRY_REFUSED and question.cause is not None:
        return f"{question.reason} ({question.cause})"
    return question.reason


def _report_attempt(attempt: AttemptReview, console: Console) -> None:
    """How it was made and how it ended; then what it stood on. A doubt is a line of its own each."""
    made = ", ".join(filter(None, (attempt.tier, attempt.shape)))
    line(console, f"[bold cyan]{attempt.attempt}[/]  {safe(made)}: {safe(_ended(attempt))}")
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
    """What the prompt had beside the advisory and the code."""
    if attempt.in_place_of_examples is not None:
        first = attempt.in_place_of_examples.strip().splitlines() or ["nothing"]
        more = f" (and {len(first) - 1} more lines)" if len(first) > 1 else ""
        return f"in place of examples, the last failure: {first[0]}{more}"
    if attempt.examples:
        return f"examples: {', '.join(attempt.examples)}"
    return "no examples"


def _report_evidence(review: Review, store: FileEvidenceStore, console: Console) -> None:
    """Each piece once, as a file that any pager opens."""
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
