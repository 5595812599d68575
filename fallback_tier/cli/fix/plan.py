"""``fallback-tier plan``: what a fix would do, and why, before anything is done.

The ladder is run with real clients, in scratch folders. No gate runs, nothing is written to the repository,
and nothing is recorded in the audit trail: a plan proves nothing, so it must not be cited.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field
from rich.console import Console
from rich.text import Text

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_tier.advisory import AdvisorySource
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import advisory_lookup, repository_of, settings
from fallback_tier.cli.progress import watch_of
from fallback_tier.cli.remediation import (
    change,
    declaration,
    how,
    line,
    names,
    safe,
    show_cleared,
    show_left,
    show_notes,
    show_unread,
    why_not_cheaper,
)
from fallback_tier.cli.results import print_shown
from fallback_tier.fix.advisories import advisories_at, unused
from fallback_tier.fix.preview import plan_fixes
from fallback_tier.outcome import OwnTests
from fallback_tier.planning import EcosystemPlan, RemediationPlan

COLUMNS = ("manifest", "package", "from → to", "step", "known", "advisories")


class PlanDocument(RemediationPlan):
    """What ``plan --json`` prints. ``advisory_sources``: where looked-up records come from; left out if
    none was looked up."""

    schema_version: Literal[1] = 1
    exit_code: int
    advisory_sources: tuple[AdvisorySource, ...] = Field((), exclude_if=lambda sources: not sources)


def run(arguments: argparse.Namespace) -> int:
    """Plan and print. Return whether all of it can be done, as an exit code."""
    lookup = advisory_lookup(arguments)
    advisory_set = advisories_at([Path(path) for path in arguments.advisory], lookup)
    repository, fix_settings = repository_of(arguments), settings(arguments)
    with watch_of(arguments).planning() as progress:
        planned = plan_fixes(
            advisory_set,
            repository,
            fix_settings,
            resolve=not arguments.no_resolve,
            observe=progress,
        )
    code = exit_code(planned)
    document = PlanDocument(**dict(planned), exit_code=code, advisory_sources=advisory_set.sources)
    return print_shown(
        arguments, document, lambda: show(planned, Console(), advisory_set.sources), code
    )


def exit_code(planned: RemediationPlan) -> int:
    """Return the documented exit code of a plan. A finding in code is something that no recipe fixes.

    What is affected and left counts more than what is unknown, which counts more than what can be fixed. A
    plan from the files alone is unknown if a source was not read or resolved; otherwise gates check that.
    """
    if any(item.reason is RefusalReason.TOOL_MISSING for item in planned.left):
        return exit_codes.ENVIRONMENT
    if planned.findings or any(not item.is_unknown for item in planned.left):
        return exit_codes.REFUSED
    if planned.left or planned.undecided or (planned.unread and not planned.resolved):
        return exit_codes.UNKNOWN
    if planned.fixes:
        return exit_codes.OK
    # A plan with inputs that were skipped is not clean.
    skipped = any(item.unknown for item in planned.skipped)
    return exit_codes.UNKNOWN if skipped else exit_codes.NOT_AFFECTED


def show(
    planned: RemediationPlan, console: Console, sources: Sequence[AdvisorySource] = ()
) -> None:
    """Print the plan as a table, for people; before it, the ``sources`` of records that were looked up."""
    commit = planned.base_commit[:12]
    for source in sources:
        line(console, safe(source.sentence))
    line(console, f"[bold]plan[/] for {safe(planned.repository)} at {commit}{_how_sure(planned)}")
    if planned.uncommitted:
        line(
            console,
            f"read from the working tree: {names(planned.uncommitted)} with uncommitted changes, which a "
            "fix does not start with",
        )
    if planned.fixes:
        _show_moves(planned, console)
    for fix in planned.fixes:
        show_cleared(console, fix.cleared)
        show_notes(console, fix.notes)
        if not planned.resolved:
            show_unread(console, fix.unread)
        _show_tests(fix, console)
    show_left(console, planned.left)
    show_rest(console, planned)
    shown = {item for fix in planned.fixes for item in fix.unread}
    shown |= {item for remaining in planned.left for item in remaining.unread}
    show_unread(console, [item for item in planned.unread if item not in shown])


def show_rest(console: Console, planned: RemediationPlan) -> None:
    """Print which input needs nothing, and which could not be used."""
    if planned.not_affected:
        line(console, f"not affected: {len(planned.not_affected)} of the advisories")
        show_notes(console, planned.notes)
    if planned.undecided:
        line(
            console,
            f"undecided: {names(planned.undecided)}; not everything is locked, so only resolving decides",
        )
    for sentence in unused(planned):
        line(console, safe(sentence))


def _how_sure(planned: RemediationPlan) -> str:
    if not planned.resolved:
        return ": [yellow]from the files alone, nothing was resolved[/]"
    return ": offline, so a yanked release can't be noticed" if planned.offline else ""


def _show_moves(planned: RemediationPlan, console: Console) -> None:
    """Print a table, with the reasons below their row, and one row per changed declaration."""
    moves = [(fix, move) for fix in planned.fixes for move in fix.moves]
    rows = [
        (
            safe(move.manifest),
            safe(move.package),
            change(move),
            how(move),
            _known(fix),
            names(move.advisory_ids),
        )
        for fix, move in moves
    ]
    declaration_rows = [
        (
            safe(f"{changed.file}:{changed.line}"),
            safe(changed.package),
            declaration(changed),
            "declaration",
            "",
            "",
        )
        for fix in planned.fixes
        for changed in fix.declarations
    ]
    columns = zip(COLUMNS, *rows, *declaration_rows, strict=True)
    widths = [max(map(_width, column)) for column in columns]
    line(console, f"[bold]{_padded(COLUMNS, widths)}[/]")
    for (_fix, move), row in zip(moves, rows, strict=True):
        line(console, _padded(row, widths))
        for reason in why_not_cheaper(move):
            line(console, f"  [dim]{reason}[/]")
    for row in declaration_rows:
        line(console, _padded(row, widths))


def _show_tests(fix: EcosystemPlan, console: Console) -> None:
    """Print how each project would be tested: by the first of its commands that runs tests."""
    by_project: dict[str, list[OwnTests]] = {}
    for tests in fix.tests:
        by_project.setdefault(tests.project, []).append(tests)
    for project, commands in by_project.items():
        first, more = commands[0], len(commands) - 1
        of_project = "" if project == "." else f" of {project}"
        others = f"; {more} more if it runs no test" if more else ""
        text = f"tests{of_project}: {first.command} ({first.source}{others})"
        line(console, f"  {safe(text)}", verbatim=True)
    if not by_project:
        line(console, "  tests: no command names them; runners look for tests by themselves")


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(cells, widths, strict=True)
    return "  ".join(cell + " " * (width - _width(cell)) for cell, width in pairs).rstrip()


def _width(markup: str) -> int:
    return Text.from_markup(markup).cell_len


def _known(fix: EcosystemPlan) -> str:
    """Return how the versions are known. What a fix proves is seen only once it is installed."""
    match fix.proof_level:
        case None:
            return "not resolved"
        case ProofLevel.PINS:
            return "declared"
        case _:
            return "resolved"
