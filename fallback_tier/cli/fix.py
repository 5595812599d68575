"""``fallback-tier fix``: a proved patch, or an honest reason."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from fallback_audit.vocabulary import EscalationReason, ProofLevel, RefusalReason
from fallback_tier.advisory import load_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import configuration
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import FixProgress
from fallback_tier.gates.delivery import check_output, deliver, write_patch
from fallback_tier.gates.result import Escalated, FixResult, RefusedFix, Verified
from fallback_tier.wiring import open_services


def run(arguments: argparse.Namespace) -> int:
    """Fix, prove, deliver, report. The exit code says how it ended."""
    advisory = load_advisory(Path(arguments.advisory))
    if arguments.output:
        check_output(Path(arguments.output))
    errors = Console(stderr=True, quiet=arguments.json)
    with open_services(configuration(arguments)) as services:
        inputs = services.inputs(advisory, Path(arguments.repository))
        with FixProgress(errors) as progress:
            runner = services.gate_runner(advisory, progress)
            result = runner.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)
        delivered = False
        if isinstance(result, Verified):
            if arguments.output:
                write_patch(Path(arguments.output), result.application.diff)
            if not arguments.dry_run:
                deliver(result.application, inputs.repo_ctx, services.clients)
                delivered = True
    code = exit_code(result)
    if arguments.json:
        # Logs are evidence, found by digest; a result for machines stays small.
        document = result.model_dump(mode="json", exclude={"verdicts": {"__all__": {"log"}}})
        print_json({**document, "delivered": delivered, "exit_code": code})
    else:
        report(result, Console(), delivered=delivered)
    return code


def exit_code(result: FixResult) -> int:
    """The documented exit code of a result."""
    match result:
        case Verified():
            return exit_codes.OK
        case Escalated(reason=EscalationReason.GATE_INFRASTRUCTURE):
            return exit_codes.ENVIRONMENT
        case Escalated():
            return exit_codes.ESCALATED
        case RefusedFix(reason=reason):
            return exit_codes.of_refusal(reason)


def report(result: FixResult, console: Console, *, delivered: bool) -> None:
    """The end of the story, for a person."""
    head = escape(result.advisory_id)
    match result:
        case Verified(application=application, verdicts=verdicts):
            skipped = [v for v in verdicts if v.status.value == "skipped"]
            console.print(
                f"[bold green]fixed and proved[/]  {head} by the {application.tier} tier in "
                f"{result.attempts} attempt(s); proof: {application.proof_level}",
                highlight=False,
            )
            if application.proof_level is ProofLevel.SOURCE:
                # A passing suite shows that nothing broke; only a test of the flaw shows it gone.
                console.print(
                    "  the base commit's tests pass with the patch; whether one of them shows the "
                    "vulnerability is for a reviewer to say",
                    highlight=False,
                )
            for verdict in skipped:
                console.print(
                    f"  not proved by {escape(verdict.gate)}: {escape(verdict.detail)}",
                    highlight=False,
                )
            if delivered:
                console.print(
                    f"  on the working tree, not committed: {escape(', '.join(application.files))}",
                    highlight=False,
                )
            else:
                sys.stdout.write(application.diff)
        case Escalated(reason=reason, question=question):
            console.print(f"[bold yellow]escalated[/]  {head} ({reason})", highlight=False)
            console.print(f"  {escape(question)}", highlight=False)
        case RefusedFix(reason=reason, sentence=sentence):
            what = "not affected" if reason is RefusalReason.NOT_AFFECTED else "no patch"
            console.print(f"[bold]{what}[/]  {head} ({reason})", highlight=False)
            console.print(f"  {escape(sentence)}", highlight=False)
    console.print(
        f"  [dim]record: fallback-tier audit show {escape(result.fix_id)}[/]", highlight=False
    )
