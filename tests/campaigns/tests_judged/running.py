"""One case from end to end: its repository, ``fix`` with all gates, then the same with a broken
function.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.campaigns.tests_judged import breaking, results
from tests.campaigns.tests_judged.bare import Bare
from tests.campaigns.tests_judged.cases import Case
from tests.campaigns.tests_judged.results import Breaking, Row
from tests.eval_repos.advisories import Record
from tests.eval_repos.clients import Clients, installed_version
from tests.eval_repos.reported import answer, read_reported
from tests.measuring.clones import clone, copy
from tests.measuring.halves import Half
from tests.measuring.process import Done, run_to_end
from tests.measuring.tool import version_of
from tests.measuring.words import cleaned

#: One ``fix``, and once more with breaks: 25 minutes each.
CASE_TIMEOUT_S = 1_500

#: How much of a verdict's log tells a cause.
_LOG_CHARS = 4_000
_DETAIL_CHARS = 600

#: What would choose another server, or another environment's modules.
_HIDDEN = ("ANTHROPIC_", "FALLBACK_TIER_", "PYTHONHOME", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Options:
    """How the cases are measured. ``script``: the measured build's program; ``breaks``: break functions."""

    clients: Clients
    label: str
    script: Path
    clones: Path | None
    breaks: bool = True


@dataclass(frozen=True)
class _Run:
    """A build on checkouts of one case, with state and keys of the case's own."""

    options: Options
    case: Case
    folder: Path

    def fix(self, root: Path, more: Mapping[str, str]) -> Done:
        folder = self.folder
        command: list[str | Path] = [self.options.script, "fix", root, "--json"]
        command += ["--advisory", folder / "advisory.json"]
        return self._run(
            [*command, "--keys", folder / "keys", "--state-dir", folder / "state"], more
        )

    def log_of(self, document: Mapping[str, Any] | None) -> str:
        """Return the end of the tests gate's log, from the record."""
        fix_id = (document or {}).get("fix_id")
        if not fix_id:
            return ""
        state = self.folder / "state"
        shown = answer(
            self._run(
                [self.options.script, "audit", "show", fix_id, "--json", "--state-dir", state], {}
            )
        )
        digests = [
            value
            for event in (shown or {}).get("events", ())
            if (event.get("payload") or {}).get("gate") == "tests"
            for key, value in event["payload"].items()
            if key.endswith("sha256") and isinstance(value, str)
        ]
        texts = []
        for digest in digests[-1:]:
            place = state / "evidence" / digest[:2] / digest[2:]
            texts += [place.read_text(encoding="utf-8", errors="replace")] if place.exists() else []
        return "".join(texts)[-_LOG_CHARS:]

    @property
    def places(self) -> list[tuple[str, str]]:
        return [(str(self.folder), "FOLDER"), (str(Path.home()), "~")]

    def _run(self, command: list[str | Path], more: Mapping[str, str]) -> Done:
        kept = {name: it for name, it in os.environ.items() if not name.startswith(_HIDDEN)}
        env = {**kept, "COLUMNS": "200", **more}
        return run_to_end(command, cwd=self.folder, env=env, timeout_s=CASE_TIMEOUT_S)


@contextmanager
def _own_folder(case: Case) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix=f"judged-{case.name}-", ignore_cleanup_errors=True
    ) as place:
        yield Path(place).resolve()


def run_case(case: Case, half: Half, record: Record, options: Options) -> Row:
    """Measure one case. Raises RuntimeError if its repository isn't available."""
    began = time.monotonic()
    with _own_folder(case) as folder:
        root, _ = clone(case.repo, case.commit, folder, options.clones)
        (folder / "advisory.json").write_text(json.dumps(record), encoding="utf-8")
        run = _Run(options, case, folder)
        work = copy(root, folder / "fixed")
        started = time.monotonic()
        done = run.fix(work, {})
        seconds = time.monotonic() - started
        said = read_reported(done, seconds, run.places)
        document = answer(done)
        verdict = tests_verdict(document)
        level, derived = results.level_of(verdict)
        words = run.log_of(document) if level != results.COMPARED else ""
        cause = "" if level == results.COMPARED else results.cause_of(verdict, said.outcome, words)
        broken, no_breaking = None, ""
        if not options.breaks:
            no_breaking = "not asked for"
        elif level != results.COMPARED:
            no_breaking = "not compared"
        elif (verdict or {}).get("status") != "passed":
            no_breaking = "the fix alone did not pass the tests gate"
        else:
            broken = _break(run, root, str((verdict or {}).get("command") or ""))
            no_breaking = "" if broken else "no function found, or the gate gave no answer in time"
        return Row(
            label=options.label,
            name=case.name,
            half=half,
            client=case.client,
            kind=case.kind,
            has=case.has,
            commit=case.commit,
            advisory=case.advisory,
            outcome=said.outcome,
            code=done.code,
            headline=said.headline or said.words[:200],
            status=str((verdict or {}).get("status") or ""),
            detail=cleaned(str((verdict or {}).get("detail") or ""), run.places, _DETAIL_CHARS),
            level=level,
            derived=derived,
            command=str((verdict or {}).get("command") or ""),
            source=str(
                (verdict or {}).get("command_source") or (verdict or {}).get("source") or ""
            ),
            tests=results.count_of(verdict),
            cause=cause,
            fix_seconds=round(seconds, 1),
            breaking=broken,
            no_breaking=no_breaking,
            seconds=round(time.monotonic() - began, 1),
            made=datetime.now(UTC).date().isoformat(),
            tool=version_of(options.script),
            tools={"npm": installed_version("npm"), "uv": installed_version("uv")},
        )


def tests_verdict(document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the tests gate's last verdict that ``fix --json`` has; None without one."""
    parts = (document or {}).get("fixes") or [document or {}]
    found = [
        one for part in parts for one in part.get("verdicts") or () if one.get("gate") == "tests"
    ]
    return found[-1] if found else None


def _break(run: _Run, root: Path, command: str) -> Breaking | None:
    """Run the same fix again with the gate of broken_gate.py. None: nothing to break, or no answer."""
    started = time.monotonic()
    found = breaking.breaks(root, run.case.ecosystem, run.case.name)
    if not found:
        return None
    run.fix(copy(root, run.folder / "broken"), breaking.mount(run.folder, found))
    answers = breaking.answers(run.folder)
    if not answers:
        return None
    names = [f"{one.path}:{one.line} {one.function}" for one in found[: len(answers)]]
    is_failed = answers[-1]["status"] == "failed"
    over = found[: len(answers) - is_failed]
    bare, why = (
        Bare(run.options.clients, run.case, command).codes(root, run.folder, over)
        if over
        else ((), "")
    )
    return Breaking(
        function=names[-1],
        status=answers[-1]["status"],
        detail=cleaned(answers[-1]["detail"], run.places, _DETAIL_CHARS),
        passed_over=tuple(names[: len(over)]),
        bare=bare,
        why_bare=cleaned(why, run.places),
        seconds=round(time.monotonic() - started, 1),
    )
