"""One case from end to end: its repository, ``fix`` with all gates, then the same with a broken
function.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fallback_eval.campaign import Half
from tests.campaigns.eval_repos.advisories import Record
from tests.campaigns.eval_repos.clients import Clients, installed_version
from tests.campaigns.eval_repos.reported import answer, read_reported
from tests.campaigns.measuring.clones import clone, copy
from tests.campaigns.measuring.process import Done, run_to_end
from tests.campaigns.measuring.tool import version_of
from tests.campaigns.measuring.words import cleaned
from tests.campaigns.tests_judged import breaking, results
from tests.campaigns.tests_judged.bare import Bare
from tests.campaigns.tests_judged.cases import Case
from tests.campaigns.tests_judged.results import Breaking, Row

#: One ``fix``, and once more with breaks: 25 minutes each.
CASE_TIMEOUT_S = 1_500

_UV = str(Path(sys.executable).with_name("uv"))

#: How much of a verdict's log tells a cause.
_LOG_CHARS = 4_000
_DETAIL_CHARS = 600

#: Of what was printed by a fix without a headline, one that was ended at its limit for example.
_LAST_CHARS = 300

#: What would choose another server, or another environment's modules.
_HIDDEN = ("ANTHROPIC_", "FALLBACK_TIER_", "PYTHONHOME", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Options:
    """How the cases are measured. ``script``: the measured build's program."""

    clients: Clients
    label: str
    script: Path
    clones: Path | None


@dataclass(frozen=True)
class Bench:
    """One case's repository, with state and keys of its own: what the first run of ``fix`` installed and
    ran at the base commit is kept for the second."""

    options: Options
    case: Case
    half: Half
    root: Path

    @property
    def folder(self) -> Path:
        return self.root.parent

    def measure(self) -> Row:
        """Run ``fix`` whole, and read how far it judged the tests."""
        started = time.monotonic()
        done = self._fix("fixed", {})
        seconds, load = time.monotonic() - started, round(os.getloadavg()[1], 1)
        said = read_reported(done, seconds, self._places)
        document = answer(done)
        judged = self._recorded(document)
        verdict = _tests_verdict(document) or judged
        level, derived = results.level_of(verdict)
        is_compared = level == results.COMPARED
        words = "" if is_compared else self._log_of(judged)
        known = verdict or {}
        command, source = results.commands_of(verdict)
        return Row(
            label=self.options.label,
            name=self.case.name,
            half=self.half,
            client=self.case.client,
            kind=self.case.kind,
            has=self.case.has,
            commit=self.case.commit,
            advisory=self.case.advisory,
            outcome=said.outcome,
            code=done.code,
            headline=said.headline or said.words[-_LAST_CHARS:],
            status=str(known.get("status") or ""),
            detail=self._cleaned(str(known.get("detail") or "")),
            level=level,
            derived=derived,
            command=command,
            source=source,
            tests=results.count_of(verdict),
            cause="" if is_compared else results.cause_of(verdict, said.outcome, words),
            fix_seconds=round(seconds, 1),
            load=load,
            made=datetime.now(UTC).date().isoformat(),
            tool=version_of(self.options.script),
            tools={"npm": installed_version("npm"), "uv": installed_version(_UV)},
        )

    def broken(self, row: Row) -> Row:
        """Run the same fix with the gate of broken_gate.py, and return the row with what came of it."""
        started = time.monotonic()
        found = breaking.breaks(self.root, self.case.ecosystem, self.case.name)
        if not found:
            return row.model_copy(update={"no_breaking": "no function found"})
        self._fix("broken", breaking.mount(self.folder, found))
        answers = breaking.answers(self.folder)
        if not answers:
            why = "the gate gave no answer in time"
            return row.model_copy(update={"no_breaking": why})
        over = found[: len(answers) - (answers[-1]["status"] == "failed")]
        bare = Bare(self.options.clients, self.case, row.command)
        codes, why = bare.codes(self.root, self.folder, over) if over else ((), "")
        names = [f"{one.path}:{one.line} {one.function}" for one in found[: len(answers)]]
        made = Breaking(
            function=names[-1],
            status=answers[-1]["status"],
            detail=self._cleaned(answers[-1]["detail"]),
            passed_over=tuple(names[: len(over)]),
            bare=codes,
            why_bare=cleaned(why, self._places),
            seconds=round(time.monotonic() - started, 1),
        )
        return row.model_copy(update={"breaking": made, "no_breaking": ""})

    def _fix(self, name: str, more: Mapping[str, str]) -> Done:
        command: list[str | Path] = [
            self.options.script,
            "fix",
            copy(self.root, self.folder / name),
        ]
        command += ["--json", "--advisory", self.folder / "advisory.json"]
        command += ["--keys", self.folder / "keys", "--state-dir", self.folder / "state"]
        return self._run(command, more)

    def _recorded(self, document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the tests gate's last verdict on record: of an attempt that failed, too."""
        parts = (document or {}).get("fixes") or [document or {}]
        found = None
        for fix_id in filter(None, (part.get("fix_id") for part in parts)):
            words = ["audit", "show", fix_id, "--json", "--state-dir", self.folder / "state"]
            shown = answer(self._run([self.options.script, *words], {})) or {}
            for event in shown.get("events", ()):
                payload = event.get("payload") or {}
                if event.get("kind") == "GateJudged" and payload.get("gate") == "tests":
                    found = payload
        return found

    def _log_of(self, judged: Mapping[str, Any] | None) -> str:
        """Return the end of the log of a verdict on record."""
        digests = [str(it) for key, it in (judged or {}).items() if key.endswith("sha256") and it]
        places = [self.folder / "state" / "evidence" / it[:2] / it[2:] for it in digests]
        texts = [it.read_text(encoding="utf-8", errors="replace") for it in places if it.exists()]
        return "".join(texts)[-_LOG_CHARS:]

    @property
    def _places(self) -> list[tuple[str, str]]:
        return [(str(self.folder), "FOLDER"), (str(Path.home()), "~")]

    def _cleaned(self, text: str) -> str:
        return cleaned(text, self._places, _DETAIL_CHARS)

    def _run(self, command: list[str | Path], more: Mapping[str, str]) -> Done:
        kept = {name: it for name, it in os.environ.items() if not name.startswith(_HIDDEN)}
        env = {**kept, "COLUMNS": "200", **more}
        return run_to_end(command, cwd=self.folder, env=env, timeout_s=CASE_TIMEOUT_S)


@contextmanager
def bench(case: Case, half: Half, record: Record, options: Options) -> Iterator[Bench]:
    """Lay a case out, and remove it afterwards. Raises RuntimeError if its repository isn't available."""
    prefix = f"judged-{case.name}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as place:
        folder = Path(place).resolve()
        root, _ = clone(case.repo, case.commit, folder, options.clones)
        (folder / "advisory.json").write_text(json.dumps(record), encoding="utf-8")
        yield Bench(options, case, half, root)


def _tests_verdict(document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the tests gate's last verdict that ``fix --json`` has; None without one."""
    parts = (document or {}).get("fixes") or [document or {}]
    verdicts = [one for part in parts for one in part.get("verdicts") or ()]
    found = [one for one in verdicts if one.get("gate") == "tests"]
    return found[-1] if found else None
