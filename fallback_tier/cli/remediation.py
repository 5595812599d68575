"""Display of what a recipe does: moves, why not cheaper, paths cleared, what is left.

Names, versions and clients' output are untrusted: neutralised, and never read as markup.
"""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape

from fallback_audit.showing.describe import visible
from fallback_audit.vocabulary import LadderStep
from fallback_tier.cli.suggesting import completed
from fallback_tier.outcome import (
    ChangedDeclaration,
    ClearedPath,
    Left,
    Move,
    Remediation,
    StepDeclined,
    UnreadItem,
)

#: Most cleared paths and advisory names that are printed; JSON has them all.
MAX_PATHS_SHOWN = 5
MAX_NAMES_SHOWN = 4

#: Most lines that are shown of a patch on record; the evidence has all of them.
MAX_PATCH_LINES = 400


def safe(text: str) -> str:
    """Return untrusted text as markup that shows just that text."""
    return escape(visible(text))


def line(console: Console, markup: str, *, verbatim: bool = False) -> None:
    """Print one line; numbers and paths in it are not coloured. A command that it suggests is completed,
    unless it is a foreign line, which is shown ``verbatim``."""
    text = markup if verbatim else completed(markup, safe)
    console.print(text, highlight=False, soft_wrap=True, emoji=False)  # `no:warning:` is text


def change(move: Move) -> str:
    """Return the versions of a move: ``1.3.5 → 1.3.6``."""
    before = ", ".join(move.before) or "any"
    return safe(f"{before} → {move.after or 'no longer installed'}")


def declaration(changed: ChangedDeclaration) -> str:
    """Return a changed declaration: ``left==1.0 → left==1.1``."""
    return safe(f"{changed.before or 'new'} → {changed.after}")


def how(move: Move) -> str:
    """Return the step, and what else was raised: the parent of a parent bump, or what had to go with it."""
    if not move.raised:
        return move.step.label
    joined = " of " if move.step is LadderStep.PARENT_BUMP else ", with "
    return f"{move.step.label}{joined}{safe(', '.join(move.raised))}"


def declined_lines(declined: Iterable[StepDeclined], shown: str = "") -> list[str]:
    """Return one line per reason for which steps did not work. ``shown``: text that is not repeated."""
    steps: dict[str, list[str]] = {}
    for step in declined:
        steps.setdefault(step.reason, []).extend([step.step.label] if step.step else [])
    return [
        f"no {' or '.join(labels)}: {'see above' if shown.startswith(reason) else safe(reason)}"
        for reason, labels in steps.items()
        if labels
    ]


def why_not_cheaper(item: Move | Left) -> list[str]:
    """Return lines about the steps that were tried before."""
    return declined_lines(item.declined, item.sentence if isinstance(item, Left) else "")


def names(ids: Sequence[str]) -> str:
    """Return advisories by name, bounded."""
    shown = safe(", ".join(ids[:MAX_NAMES_SHOWN]))
    more = len(ids) - MAX_NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def show_remediation(console: Console, remediation: Remediation) -> None:
    """Print the account of a recipe that was applied."""
    for move in remediation.moves:
        line(
            console, f"  {safe(move.package)} {change(move)} ({how(move)}) in {safe(move.manifest)}"
        )
        for reason in why_not_cheaper(move):
            line(console, f"    [dim]{reason}[/]")
    for changed in remediation.declarations:
        line(console, f"  {safe(f'{changed.file}:{changed.line}')}: {declaration(changed)}")
    show_cleared(console, remediation.cleared)
    show_notes(console, remediation.notes)


def show_block(console: Console, title: str, text: str, most: int) -> None:
    """Print several foreign lines below a title, bounded."""
    lines = visible(text, lines=True).rstrip("\n").split("\n")
    line(console, f"{safe(title)}:")
    for block_line in lines[:most]:
        line(console, f"  │ {escape(block_line)}", verbatim=True)
    if len(lines) > most:
        line(console, f"  │ … and {len(lines) - most:,} more lines")


def show_cleared(console: Console, cleared: Sequence[ClearedPath]) -> None:
    """Print how each path from a root to an affected version went away, bounded."""
    for item in cleared[:MAX_PATHS_SHOWN]:
        line(console, f"  cleared: {safe(' → '.join(item.path))}: {safe(item.outcome)}")
    if len(cleared) > MAX_PATHS_SHOWN:
        line(console, f"  and {len(cleared) - MAX_PATHS_SHOWN} more paths (--json has them all)")


def show_notes(console: Console, notes: Iterable[str]) -> None:
    """Print what else a reader should know."""
    for note in notes:
        line(console, f"  note: {safe(note)}")


def show_unread(console: Console, unread: Iterable[UnreadItem]) -> None:
    """Print the sources that were not read, each with its next step."""
    for item in unread:
        line(console, f"  not read: {safe(item.path)}: {safe(item.reason)}")
        if item.next_step:
            line(console, f"    next: {safe(item.next_step)}")


def show_left(console: Console, left: Iterable[Left]) -> None:
    """Print what stays or is unknown, with its typed reason and its sentence."""
    for item in left:
        where = " in ".join(safe(part) for part in (item.package, item.manifest or "") if part)
        head = "unknown" if item.is_unknown else "left"
        line(
            console,
            f"[bold yellow]{head}[/]  {where or 'the repository'}"
            f" ({names(item.advisory_ids)}): {item.reason}",
        )
        line(console, f"  {safe(item.sentence)}")
        for reason in why_not_cheaper(item):
            line(console, f"    [dim]{reason}[/]")
        show_unread(console, item.unread)
        if item.next_step and not item.unread:
            line(console, f"  next: {safe(item.next_step)}")
