"""Progress of a fix, for people: one line per event, a spinner for the step in hand."""

import argparse
import threading
import time
from typing import TYPE_CHECKING, Protocol, Self

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
from fallback_audit.showing.describe import excerpt_of, sentence, visible
from fallback_tier.attempt.task import DraftDiscarded, DraftText, Finished, TierEvent
from fallback_tier.cli.remediation import line, safe
from fallback_tier.execution import steps_so_far, tests_so_far
from fallback_tier.fix.steps import StepKey
from fallback_tier.fix.watching import Watch
from fallback_tier.limits import HEARTBEAT_S
from fallback_tier.sandbox.process import running_programs

if TYPE_CHECKING:
    from rich.progress import Progress

#: Characters of a draft's end that are shown next to the spinner: what fits on a line.
_SHOWN_DRAFT = 60

#: Events that tell a watching person nothing new.
_PASSED_OVER = (
    DraftText,
    DraftDiscarded,
    Finished,
    FixStarted,
    GroundingNotEvaluated,
    RetrieveDecided,
    ConsumerLeft,
)

#: Events whose excerpts repeat what was just shown, gate by gate.
_REPORTED_BEFORE = (AttemptFailed, RagSkippedOnRetry)


class Heartbeat:
    """A line on standard error whenever nothing was shown for ``every_s``: what runs, and for how long.

    A thread writes it, so that it comes whatever the work waits for.
    """

    def __init__(self, console: Console, every_s: float) -> None:
        self._console, self._every_s = console, every_s
        self._step, self._begun = "starting", time.monotonic()
        self._shown = self._begun
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._begun = self._shown = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; no line follows."""
        self._ended.set()
        self._thread.join()

    def begin(self, step: str) -> None:
        """Set the step in hand."""
        self._step, self._begun = step, time.monotonic()

    def shown(self) -> None:
        """Note that another line was written."""
        self._shown = time.monotonic()

    def _beat(self) -> None:
        while not self._ended.wait(max(self._shown + self._every_s - time.monotonic(), 0.01)):
            now = time.monotonic()
            if now - self._shown >= self._every_s:
                self._shown = now
                programs = (
                    f"; {program.command}: {now - program.since:.0f} s of at most {program.limit_s:,.0f} s"
                    for program in running_programs()
                )
                count = tests_so_far()
                tests = f"; {count:,} tests so far" if count else ""
                steps = steps_so_far()
                if steps is not None and steps.packages > 1:
                    tests += f"; steps for {steps.found} of {steps.packages} packages"
                line(
                    self._console,
                    f"  waiting    {safe(self._step)}: {now - self._begun:.0f} s"
                    f"{safe(''.join(programs))}{tests}",
                    verbatim=True,
                )


class Shown:
    """Displays on the terminal for the length of a ``with``, however that ends."""

    def __init__(self, *displays: "Status | Progress | Heartbeat") -> None:
        self._displays = displays

    def __enter__(self) -> Self:
        for display in self._displays:
            display.start()
        return self

    def __exit__(self, *_: object) -> None:
        for display in reversed(self._displays):
            display.stop()


class FixProgress(Shown):
    """An observer of the gate runner. Use as a context manager: the spinner ends with it.

    ``beats``: where heartbeats are written, if that is another console. ``verbose``: events with their
    whole excerpt, not its first line.
    """

    def __init__(
        self,
        console: Console,
        beats: Console | None = None,
        *,
        every_s: float = HEARTBEAT_S,
        verbose: bool = False,
    ) -> None:
        self._console = console
        self._verbose = verbose
        self._draft = ""
        self._status = Status("starting", console=console)
        self._heartbeat = Heartbeat(beats or console, every_s)
        super().__init__(self._status, self._heartbeat)

    def __call__(self, event: TierEvent | StepKey) -> None:
        """Show one step or event; those that tell a person nothing are skipped."""
        if isinstance(event, StepKey):
            self._heartbeat.begin(event.name)
            self._status.update(f"attempt {event.attempt}: {safe(event.name)} …")
            return
        if isinstance(event, DraftText):
            # A draft is never printed as a result: it passes by, and only its verdict stays.
            self._draft = (self._draft + event.text)[-_SHOWN_DRAFT:]
            shown = safe(" ".join(self._draft.split()))
            self._status.update(f"attempt {event.attempt}: the model drafts … {shown}")
            return
        self._draft = ""
        if message := describe(event, whole=self._verbose):
            self._print(message)

    def report_proof(self, what: str) -> None:
        """Show what the proof does: before a fix has any events, it may take time."""
        self._print(f"  proof      {safe(what)}")

    def report(self, what: str) -> None:
        """Show what takes time for a reason that no event has."""
        self._print(f"  [dim]note[/]       {safe(what)}")

    def _print(self, markup: str) -> None:
        # A terminal wraps at words; a reader of a pipe gets one event per line.
        wrap = not self._console.is_terminal
        self._console.print(markup, highlight=False, soft_wrap=wrap, emoji=False)
        if not self._console.quiet:
            self._heartbeat.shown()


class CommandWatch(Watch, Protocol):
    """A ``Watch`` that also gets details, for a person who wants to see them."""

    def detail(self, what: str, /) -> None:
        """Show a sentence about what was decided before the work."""
        ...


def watch_of(arguments: argparse.Namespace) -> CommandWatch:
    """Return the program's watch that follows the command, or the one of ``--json``, ``-q`` and ``-v``."""
    follower: CommandWatch | None = getattr(arguments, "follower", None)
    if follower is not None:
        return follower
    quiet = getattr(arguments, "quiet", False)
    return OnTerminal(
        quiet=arguments.json or quiet,
        beats=not quiet,
        verbose=getattr(arguments, "verbose", False),
    )


class OnTerminal:
    """A ``Watch`` on standard error. ``beats`` False: nothing if it is quiet. ``verbose``: also details."""

    def __init__(self, *, quiet: bool, beats: bool = True, verbose: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet)
        #: Silence is for programs, which read standard output; a person sees that the command works.
        self._beats = Console(stderr=True, quiet=not beats) if quiet else self._console
        self._verbose = verbose

    def fixing(self) -> "FixProgress":
        """Return the display of the attempts and gates of one fix."""
        return FixProgress(self._console, self._beats, verbose=self._verbose)

    def planning(self) -> "PlanProgress":
        """Return the display of a plan's steps."""
        return PlanProgress(self._console, self._beats)

    def note(self, what: str, /) -> None:
        """Show a sentence before or between them."""
        line(self._console, safe(what))

    def detail(self, what: str, /) -> None:
        """Show a sentence that only ``-v`` shows."""
        if self._verbose:
            self.note(what)


class PlanProgress(Shown):
    """Display of what is planned, and for how long: a context manager. ``beats`` as for FixProgress."""

    def __init__(
        self, console: Console, beats: Console | None = None, *, every_s: float = HEARTBEAT_S
    ) -> None:
        self._progress = spinner(console)
        self._heartbeat = Heartbeat(beats or console, every_s)
        super().__init__(self._progress, self._heartbeat)
        self._task = self._progress.add_task("planning", total=None)

    def __call__(self, step: str) -> None:
        """Show the step in hand."""
        self._heartbeat.begin(step)
        self._progress.update(self._task, description=visible(step))


def spinner(console: Console) -> "Progress":
    """Return a display of steps and the time that they take; on a terminal only, and removed at its end."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def counting_bar() -> "Progress":
    """Return a bar on standard error that counts; on a terminal only, and removed at its end."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def in_words(event: TierEvent, *, whole: bool = False) -> str | None:
    """Return one line for an event, in the trail's own wording, or None if it would tell nothing new.
    ``whole``: with all lines of its excerpt."""
    # The report shows what ends a fix.
    if isinstance(event, _PASSED_OVER) or event.kind in TERMINAL_KINDS:
        return None
    if isinstance(event, SegmentScored) and not event.kept:
        return None
    more = None if isinstance(event, _REPORTED_BEFORE) else excerpt_of(event)
    first = (more or "") if whole else (more or "").partition("\n")[0]
    return f"{sentence(event)}: {first}" if first else sentence(event)


def describe(event: TierEvent, *, whole: bool = False) -> str | None:
    """Return the same as markup."""
    text = in_words(event, whole=whole)
    if text is None or isinstance(event, DraftText | DraftDiscarded | Finished):
        return None
    message, style = escape(text), event.badge.style
    if isinstance(event, AttemptStarted):
        return f"[bold]{message}[/]"
    return f"  [{style}]{message}[/]" if style else f"  {message}"
