"""``fallback-tier review`` and ``abandon``: what fixes ask, and a person's answers, each on record."""

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from fallback_audit.events import BudgetRaised
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditStore
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import record, state_dir, user_name
from fallback_tier.cli.output import print_json, print_patch
from fallback_tier.cli.remediation import line, safe
from fallback_tier.cli.results import print_result, print_shown
from fallback_tier.cli.review.report import report_questions, report_review
from fallback_tier.cli.suggesting import command
from fallback_tier.errors import InputError
from fallback_tier.gates.journal import abandonment, review
from fallback_tier.gates.journal.budget_raise import raise_budget as record_raise
from fallback_tier.gates.journal.holding import holding
from fallback_tier.gates.journal.questions import Question, questions
from fallback_tier.gates.journal.questions import review as read_review
from fallback_tier.handover.delivery import check_output, write_patch
from fallback_tier.installed import new_id
from fallback_tier.wiring.trail import open_evidence, open_trail, read_trail


class QuestionList(Frozen):
    """What ``review list --json`` prints, newest first."""

    questions: tuple[Question, ...]


def show_list(arguments: argparse.Namespace) -> int:
    """The questions that wait for an answer."""
    with closing(read_trail(state_dir(arguments), record(arguments))) as reader:
        found = questions(reader, answered=arguments.all)
    document = QuestionList(questions=tuple(found))
    return print_shown(arguments, document, lambda: report_questions(found, Console()))


def show(arguments: argparse.Namespace) -> int:
    """One question. Raises InputError for a fix that asks nothing."""
    evidence = _evidence(arguments)
    with closing(read_trail(state_dir(arguments), record(arguments))) as reader:
        found = read_review(reader, evidence, arguments.fix_id)
    return print_shown(arguments, found, lambda: report_review(found, evidence, Console()))


def approve(arguments: argparse.Namespace) -> int:
    """Record an approval, hand out the patch. Raises InputError where nothing can be approved."""
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
        reported = approval.decision.model_dump(mode="json")
        print_json({"fix_id": arguments.fix_id, **reported, "patch": patch})
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
    """Record a rejection. Raises InputError where nobody asks."""
    with _deciding(arguments) as audit:
        decision = review.reject(audit, arguments.fix_id, _signature(arguments))
    document = {"fix_id": arguments.fix_id, **decision.model_dump(mode="json")}
    message = f"[bold]rejected[/]  {safe(arguments.fix_id)} by {safe(arguments.by)}"
    return print_result(arguments, document, message)


def reopen(arguments: argparse.Namespace) -> int:
    """Record a reopening, for attempts or for the gates alone. Raises InputError where there is nothing to
    go on with; EvidenceError: the patch to be judged is gone."""
    if arguments.patch and not arguments.gates_again:
        raise InputError(
            "--patch names the patch whose gates are to be run again.",
            next_step="Give --gates-again with it; without both, new attempts are made.",
        )
    fix_id, signature, opens = arguments.fix_id, _signature(arguments), new_id("gate")
    with _deciding(arguments) as audit:
        if arguments.gates_again:
            kept, named = _evidence(arguments), arguments.patch
            event = review.run_gates_again(audit, kept, fix_id, signature, opens=opens, patch=named)
        else:
            event = review.reopen(audit, fix_id, signature, opens=opens)
    again = event.judges_again
    what = f", for the gates alone, on patch {again[:12]}" if again else ""
    return print_result(
        arguments,
        {"fix_id": fix_id, **event.model_dump(mode="json")},
        f"[bold]reopened[/]  {safe(fix_id)} as {event.opens}{what}",
        f"  next: {safe(command(f'fallback-tier resume {fix_id}'))}",
    )


def raise_budget(arguments: argparse.Namespace) -> int:
    """Record who raised a cap, and why. Raises InputError where there is nothing to raise."""
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
        event = abandonment.abandon(audit, state_dir(arguments), arguments.fix_id, signature)
    return print_result(
        arguments,
        {"fix_id": arguments.fix_id, **event.model_dump(mode="json")},
        f"[bold]abandoned[/]  {safe(arguments.fix_id)} by {safe(event.by)}",
    )


@contextmanager
def _deciding(arguments: argparse.Namespace) -> Iterator[AuditStore]:
    """The store, and the fix held as a run holds it: what is decided now stands before its next event."""
    state, settings = state_dir(arguments), record(arguments)
    read_trail(state, settings).close()  # one that is not there is an error here, not a new store
    with holding(state, arguments.fix_id), closing(open_trail(state, settings)) as audit:
        yield audit


def _evidence(arguments: argparse.Namespace) -> FileEvidenceStore:
    return open_evidence(state_dir(arguments))


def _signature(arguments: argparse.Namespace) -> review.Signature:
    return review.Signature(by=arguments.by, because=arguments.because)
