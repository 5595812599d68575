"""One run of the real command on a case's checkout, as a user gives it, with an author of ours."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.campaigns.measuring.process import Done, run_to_end
from tests.campaigns.own_code.author import Author, serving
from tests.campaigns.own_code.ends import End, fix_of_answer, judged_on_record, read_end

#: A fix that runs suites of ten minutes on both sides, and again where they differ, on a busy machine.
RUN_TIMEOUT_S = 3_600


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
            done = self._start(server.url)
            seconds = time.monotonic() - began
        places = [(str(self.root), "REPO"), (str(self.folder), "FOLDER"), (str(Path.home()), "~")]
        asked = len(server.asked)
        end = read_end(done.code, done.out, done.err, seconds=seconds, asked=asked, places=places)
        judged = judged_on_record(self._on_record(done.out), places)
        return Ran(end.model_copy(update={"judged": judged}), server.prompts)

    def _on_record(self, out: str) -> str:
        """What the audit trail has of the fix that an answer is about."""
        if (fix_id := fix_of_answer(out)) is None:
            return ""
        words: list[str | Path] = [self.script, "audit", "show", fix_id, "--json"]
        words += ["--state-dir", self.folder / "state"]
        return run_to_end(words, cwd=self.folder, env=_environ(), timeout_s=RUN_TIMEOUT_S).out

    def _start(self, url: str) -> Done:
        words: list[str | Path] = [self.script, "fix", self.root, "--advisory", self.advisory]
        words += ["--base-url", url, "--model", "scripted", "--dry-run", "--json"]
        # Keys of its own: a measurement leaves nothing in the user's configuration.
        words += ["--state-dir", self.folder / "state", "--keys", self.folder / "keys"]
        return run_to_end(
            [*words, *self.proof], cwd=self.folder, env=_environ(), timeout_s=RUN_TIMEOUT_S
        )


def _environ() -> dict[str, str]:
    """The user's own, without what would choose another server, or another environment's modules."""
    hidden = ("ANTHROPIC_", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "FALLBACK_TIER_API_KEY": "none", "COLUMNS": "200"}
