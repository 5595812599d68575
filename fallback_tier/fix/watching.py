"""Progress of a running fix, for its caller."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from fallback_tier.attempt.task import TierEvent
from fallback_tier.fix.steps import StepKey

#: Progress for a caller: each step before it is taken, each event as it is recorded, and sentences for a
#: person about work that takes long.
Progress = TierEvent | StepKey | str


class Watcher(Protocol):
    """Progress callbacks of a running fix."""

    def __call__(self, event: TierEvent | StepKey, /) -> None:
        """Report a step or an event."""
        ...

    def report(self, what: str, /) -> None:
        """Report work that takes long."""
        ...

    def report_proof(self, what: str, /) -> None:
        """Report how the given proof is tried, before there are events."""
        ...


class Watch(Protocol):
    """Shows progress while work lasts: each ``with`` is one piece of work, whether or not it succeeds."""

    def fixing(self) -> AbstractContextManager[Watcher]:
        """Return the callbacks for the attempts and gates of one fix."""
        ...

    def planning(self) -> AbstractContextManager[Callable[[str], None]]:
        """Return the callback for the steps of a plan."""
        ...

    def note(self, what: str, /) -> None:
        """Show a sentence before or between these."""
        ...


@dataclass(frozen=True)
class ProgressCallback:
    """A ``Watch`` that calls one function with everything, in order, in the thread that does the work."""

    to: Callable[[Progress], None]

    @contextmanager
    def fixing(self) -> Iterator[Watcher]:
        """Pass on each step, event and sentence."""
        yield _FixProgress(self.to)

    @contextmanager
    def planning(self) -> Iterator[Callable[[str], None]]:
        """Pass on each step of a plan, as a sentence."""
        yield self.to

    def note(self, what: str, /) -> None:
        """Pass on the sentence."""
        self.to(what)


@dataclass(frozen=True)
class _FixProgress:
    to: Callable[[Progress], None]

    def __call__(self, event: TierEvent | StepKey, /) -> None:
        self.to(event)

    def report(self, what: str, /) -> None:
        self.to(what)

    def report_proof(self, what: str, /) -> None:
        self.to(f"the proof: {what}")


def ignore_progress(_: Progress, /) -> None:
    """Do nothing."""


#: The ``Watch`` that shows nothing.
UNWATCHED = ProgressCallback(ignore_progress)
