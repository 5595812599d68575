"""One run of the real command on a case's checkout, as a user gives it, with an author of ours."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.own_code.author import Author, serving
from tests.own_code.ends import End, fix_of_answer, judged_on_record, read_end

#: The command of this environment.
SCRIPT = Path(sys.prefix) / "bin" / "fallback-tier"

#: One run: up to four attempts, each with an install, a build and a suite at two commits.
RUN_TIMEOUT_S = 1_800

#: Between the signal that asks a command to end and the one that ends it.
_GRACE_S = 30

#: Those that run now: they are groups of their own, which no signal to the harness reaches.
_RUNNING: set[int] = set()


@dataclass(frozen=True)
class Ran:
    """How a run ended, and the prompt of each attempt that asked the model."""

    end: End
    prompts: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """``fix`` over one checkout; its state folder is kept from run to run, as a user's is."""

    script: Path
    root: Path
    advisory: Path
    folder: Path
    proof: Sequence[str | Path] = ()

    def without_proof(self) -> "Command":
        return replace(self, proof=())

    def run(self, author: Author) -> Ran:
        """Run it to its end, or to the time limit."""
        with serving(author) as server:
            began = time.monotonic()
            code, out, err = self._start(server.url)
            seconds = time.monotonic() - began
        places = [(str(self.root), "REPO"), (str(self.folder), "FOLDER"), (str(Path.home()), "~")]
        asked = len(server.asked)
        end = read_end(code, out, err, seconds=seconds, asked=asked, places=places)
        judged = judged_on_record(self._on_record(out), places)
        return Ran(end.model_copy(update={"judged": judged}), server.prompts)

    def _on_record(self, out: str) -> str:
        """What the audit trail has of the fix that an answer is about."""
        if (fix_id := fix_of_answer(out)) is None:
            return ""
        words = [self.script, "audit", "show", fix_id, "--json", "--state-dir"]
        told = subprocess.run(
            [*map(str, words), str(self.folder / "state")],
            env=_environ(),
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
        return told.stdout

    def _start(self, url: str) -> tuple[int | None, str, str]:
        words: list[str | Path] = [self.script, "fix", self.root, "--advisory", self.advisory]
        words += ["--base-url", url, "--model", "scripted", "--dry-run", "--json"]
        # Keys of its own: a measurement leaves nothing in the user's configuration.
        words += ["--state-dir", self.folder / "state", "--keys", self.folder / "keys"]
        process = subprocess.Popen(
            [*map(str, words), *map(str, self.proof)],
            cwd=self.folder,
            env=_environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        _RUNNING.add(process.pid)
        try:
            out, err = process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None, *_ended(process)
        finally:
            _RUNNING.discard(process.pid)
        return process.returncode, out, err


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ask the command, and all that it started, to end; then make it."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


def end_all() -> None:
    """Ask what runs now to end: the harness is being ended itself."""
    for pid in tuple(_RUNNING):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)


def _environ() -> dict[str, str]:
    """The user's own, without what would choose another server, or another environment's modules."""
    hidden = ("ANTHROPIC_", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "FALLBACK_TIER_API_KEY": "none", "COLUMNS": "200"}


@cache
def version_of(script: Path) -> str:
    """What the tool calls itself; of this checkout's own also the commit."""
    told = subprocess.run(
        [script, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if script != SCRIPT:
        return told
    told_by_git = ["git", "describe", "--always", "--dirty=+changes"]
    here = Path(__file__).parent
    commit = subprocess.run(told_by_git, cwd=here, capture_output=True, text=True).stdout.strip()
    return f"{told} at {commit}" if commit else told
