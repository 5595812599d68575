"""Who follows what a fix does, while it does it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from fallback_tier.attempt.task import TierEvent
from fallback_tier.fix.steps import StepKey

#: What is reported to a caller: each step before it is taken, each event as it is recorded, and
#: sentences for a person about what takes its time.
Progress = TierEvent | StepKey | str


class Watcher(Protocol):
    """Progress callbacks of a running fix."""

    def __call__(self, event: TierEvent | StepKey, /) -> None:
        """Each step and event."""
        ...

    def report(self, what: str, /) -> None:
        """What is waited for."""
        ...

    def report_proof(self, what: str, /) -> None:
        """What is done before there are events: the proof that was given is tried."""
        ...


class Watch(Protocol):
    """Shows work for as long as it lasts: each ``with`` is one piece of it, however that ends."""

    def fixing(self) -> AbstractContextManager[Watcher]:
        """The attempts and gates of one fix."""
        ...

    def planning(self) -> AbstractContextManager[Callable[[str], None]]:
        """The making of a plan; told each step."""
        ...

    def note(self, what: str, /) -> None:
        """A sentence before or between."""
        ...


@dataclass(frozen=True)
class ProgressCallback:
    """A ``Watch`` that hands everything to one function, in order, in the thread that does the work."""

    to: Callable[[Progress], None]

    @contextmanager
    def fixing(self) -> Iterator[Watcher]:
        """Each step, event and sentence."""
        yield _FixProgress(self.to)

    @contextmanager
    def planning(self) -> Iterator[Callable[[str], None]]:
        """Each step of a plan, as a sentence."""
        yield self.to

    def note(self, what: str, /) -> None:
        """The sentence."""
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
    """For who watches nothing."""


#: Nobody watches.
UNWATCHED = ProgressCallback(ignore_progress)
