"""``fallback-tier plan``: what a fix would do, and why, before anything is done.

The ladder is run with real clients, in scratch folders; no gate runs, nothing is written to the
repository, and there is no record in the audit trail: a plan proves nothing, so nobody should cite it.
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
    """Plan, print. The exit code says whether all of it can be done."""
    lookup = advisory_lookup(arguments)
    given = advisories_at([Path(path) for path in arguments.advisory], lookup)
    repository, chosen = repository_of(arguments), settings(arguments)
    with watch_of(arguments).planning() as progress:
        planned = plan_fixes(
            given, repository, chosen, resolve=not arguments.no_resolve, observe=progress
        )
    code = exit_code(planned)
    document = PlanDocument(**dict(planned), exit_code=code, advisory_sources=given.sources)
    return print_shown(arguments, document, lambda: show(planned, Console(), given.sources), code)


def exit_code(planned: RemediationPlan) -> int:
    """The documented exit code of a plan. A finding in code is something that no recipe fixes.

    What is affected and left counts more than what is unknown, which counts more than what can be fixed. A
    plan from the files alone is unknown if a source was not read or resolved; otherwise gates see to that.
    """
    if any(item.reason is RefusalReason.TOOL_MISSING for item in planned.left):
        return exit_codes.ENVIRONMENT
    if planned.findings or any(not item.is_unknown for item in planned.left):
        return exit_codes.REFUSED
    if planned.left or planned.undecided or (planned.unread and not planned.resolved):
        return exit_codes.UNKNOWN
    if planned.fixes:
        return exit_codes.OK
    # What a scanner skipped is not clean.
    skipped = any(item.unknown for item in planned.skipped)
    return exit_codes.UNKNOWN if skipped else exit_codes.NOT_AFFECTED


def show(
    planned: RemediationPlan, console: Console, sources: Sequence[AdvisorySource] = ()
) -> None:
    """The plan as a table, for a person; before it, the ``sources`` of records that were looked up."""
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
    told = {item for fix in planned.fixes for item in fix.unread}
    told |= {item for remaining in planned.left for item in remaining.unread}
    show_unread(console, [it for it in planned.unread if it not in told])


def show_rest(console: Console, planned: RemediationPlan) -> None:
    """What of the input needs nothing, and what could not be used."""
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
    """A table, with the reasons below the row that they are about, and a row per changed declaration."""
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
    declared = [
        (safe(f"{it.file}:{it.line}"), safe(it.package), declaration(it), "declaration", "", "")
        for fix in planned.fixes
        for it in fix.declarations
    ]
    columns = zip(COLUMNS, *rows, *declared, strict=True)
    widths = [max(map(_width, column)) for column in columns]
    line(console, f"[bold]{_padded(COLUMNS, widths)}[/]")
    for (_fix, move), row in zip(moves, rows, strict=True):
        line(console, _padded(row, widths))
        for reason in why_not_cheaper(move):
            line(console, f"  [dim]{reason}[/]")
    for row in declared:
        line(console, _padded(row, widths))


def _show_tests(fix: EcosystemPlan, console: Console) -> None:
    """How each project would be tested: by the first of its commands that runs tests."""
    by_project: dict[str, list[OwnTests]] = {}
    for one in fix.tests:
        by_project.setdefault(one.project, []).append(one)
    for project, commands in by_project.items():
        first, more = commands[0], len(commands) - 1
        where = "" if project == "." else f" of {project}"
        others = f"; {more} more if it runs no test" if more else ""
        told = f"tests{where}: {first.command} ({first.source}{others})"
        line(console, f"  {safe(told)}", verbatim=True)
    if not by_project:
        line(console, "  tests: no command names them; runners look for tests by themselves")


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(cells, widths, strict=True)
    return "  ".join(cell + " " * (width - _width(cell)) for cell, width in pairs).rstrip()


def _width(markup: str) -> int:
    return Text.from_markup(markup).cell_len


def _known(fix: EcosystemPlan) -> str:
    """How the versions are known. What a fix proves is seen only once it is installed."""
    match fix.proof_level:
        case None:
            return "not resolved"
        case ProofLevel.PINS:
            return "declared"
        case _:
            return "resolved"
