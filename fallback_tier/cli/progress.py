"""A fix as it happens, for people: one line an event, a spinner for the step in hand."""

from typing import Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from fallback_audit.events import (
    TERMINAL_KINDS,
    AttemptFailed,
    AttemptStarted,
    ConsumerLeft,
    FixStarted,
    GroundingNotEvaluated,
    RagSkippedOnRetry,
    RetrieveDecided,
    SegmentScored,
)
from fallback_audit.showing.describe import excerpt_of, sentence
from fallback_audit.showing.render import style_of
from fallback_tier.attempt.task import DraftDiscarded, DraftText, Finished, TierEvent
from fallback_tier.cli.remediation import line, safe
from fallback_tier.gates.steps import StepKey

#: The end of a draft that passes by beside the spinner: what fits on a line.
_SHOWN_DRAFT = 60

#: What tells nothing new to whoever watches.
_PASSED_OVER = (
    DraftText,
    DraftDiscarded,
    Finished,
    FixStarted,
    GroundingNotEvaluated,
    RetrieveDecided,
    ConsumerLeft,
)

#: What their excerpts say was just told, gate by gate.
_REPORTED_BEFORE = (AttemptFailed, RagSkippedOnRetry)


class _Display(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


class Shown:
    """Something on the terminal for as long as a ``with`` lasts, however that ends."""

    def __init__(self, display: _Display) -> None:
        self._display = display

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()


class FixProgress(Shown):
    """An observer of the gate runner. Use as a context manager: the spinner ends with it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._draft = ""
        self._status = Status("starting", console=console)
        super().__init__(self._status)

    def __call__(self, event: TierEvent | StepKey) -> None:
        """Show one step or event; those that say nothing to a person are passed over."""
        if isinstance(event, StepKey):
            self._status.update(f"attempt {event.attempt}: {safe(event.name)} …")
            return
        if isinstance(event, DraftText):
            # A draft is never printed as if it stood: it passes by, and its verdict stays.
            self._draft = (self._draft + event.text)[-_SHOWN_DRAFT:]
            shown = safe(" ".join(self._draft.split()))
            self._status.update(f"attempt {event.attempt}: the model drafts … {shown}")
            return
        self._draft = ""
        if message := describe(event):
            self._console.print(message, highlight=False)

    def report_proof(self, what: str) -> None:
        """Before a fix has any events, its proof may take its time."""
        self._console.print(f"  proof      {safe(what)}", highlight=False)

    def report(self, what: str) -> None:
        """What takes its time for a reason that no event has."""
        self._console.print(f"  [dim]note[/]       {safe(what)}", highlight=False)


class OnTerminal:
    """A ``Watch``: on standard error, while it lasts."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, quiet=quiet)

    def fixing(self) -> "FixProgress":
        """The attempts and gates of one fix."""
        return FixProgress(self._console)

    def planning(self) -> "PlanProgress":
        """The making of a plan."""
        return PlanProgress(self._console)

    def note(self, what: str, /) -> None:
        """A sentence before or between."""
        line(self._console, safe(what))


class PlanProgress(Shown):
    """What is being planned, and for how long. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        super().__init__(self._progress)
        self._task = self._progress.add_task("planning", total=None)

    def __call__(self, step: str) -> None:
        """Show the step in hand."""
        self._progress.update(self._task, description=safe(step))


def describe(event: TierEvent) -> str | None:
    """One line of markup for an event, in the trail's own words; None where it would say nothing new."""
    # What ends a fix is told by the report.
    if isinstance(event, _PASSED_OVER) or event.kind in TERMINAL_KINDS:
        return None
    if isinstance(event, SegmentScored) and not event.kept:
        return None
    more = None if isinstance(event, _REPORTED_BEFORE) else excerpt_of(event)
    first = (more or "").partition("\n")[0]
    message = escape(f"{sentence(event)}: {first}" if first else sentence(event))
    style = style_of(event)
    if isinstance(event, AttemptStarted):
        return f"[bold]{message}[/]"
    return f"  [{style}]{message}[/]" if style else f"  {message}"
