"""A command that a program started and follows: its steps are lines of JSON on standard error, and it ends
in order, as with SIGTERM, when its standard input is closed.

``fallback-tier mcp`` runs each tool call this way, below a worker's guard. If the server is killed, the
input is closed too, so that no fix continues that no caller waits for.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from threading import Event, Thread

from fallback_audit.showing.describe import visible
from fallback_tier.cli.main import script
from fallback_tier.cli.progress import in_words
from fallback_tier.fix.steps import StepKey
from fallback_tier.fix.watching import Progress, ProgressCallback

#: Most characters of a step that is reported.
MAX_STEP_CHARS = 500


class _Lines(ProgressCallback):
    def detail(self, _: str, /) -> None:
        """Ignore details: they are for people who give ``-v``."""


def main() -> None:
    """Run the command whose arguments come after the guard's own two, and end the process."""
    sys.argv[1:] = sys.argv[3:]
    has_left = Event()
    Thread(target=_end_with_the_caller, args=(has_left,), name="caller", daemon=True).start()
    script(_Lines(lambda progress: None if has_left.is_set() else _tell(progress)))


def _end_with_the_caller(has_left: Event) -> None:
    while os.read(0, 4096):
        pass  # the input has no content
    has_left.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _tell(progress: Progress) -> None:
    match progress:
        case StepKey():
            text: str | None = f"attempt {progress.attempt}: {progress.name}"
        case str():
            text = progress
        case _:
            text = in_words(progress)
    if text is None:
        return
    with suppress(OSError):  # the caller has gone: the command ends soon
        sys.stderr.write(json.dumps({"progress": visible(text)[:MAX_STEP_CHARS]}) + "\n")
        sys.stderr.flush()
