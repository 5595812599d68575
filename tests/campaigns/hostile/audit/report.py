"""The figures of a run: on the terminal, as JSON, and as the page in docs/evaluation/audit."""

import json
import sqlite3
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.campaigns.hostile.audit.catalogue import CATALOGUE

FOLDER = Path(__file__).parents[4] / "docs" / "evaluation" / "audit"


class Run(BaseModel):
    """One campaign that came to its end."""

    name: str
    backend: str
    promise: str
    seed: int
    first: int
    #: How many cases it was to have.
    asked: int
    cases: int
    counts: dict[str, int]
    notes: list[str]
    seconds: float
    #: CPU time, the system's too, of everything: one-off costs of a run are in it, spread over its cases.
    cpu_ms_a_case: int = 0
    skipped: str | None = None
    date: str = ""
    versions: str = ""
    #: Of the code that did it; "-dirty" with changes on top.
    commit: str = ""


def show(console: Console, runs: Sequence[Run]) -> None:
    """A table, a line a count."""
    table = Table("campaign", "cases", "s", "CPU ms a case", "what", "count", box=None)
    for run in runs:
        named = f"{run.name} ({run.backend}), seed {run.seed}"
        head = (named, f"{run.cases:,}", f"{run.seconds}", f"{run.cpu_ms_a_case}")
        if run.skipped:
            table.add_row(named, "skipped", "", "", escape(run.skipped), "")
        for what, count in sorted(run.counts.items()) or [("", 0)]:
            table.add_row(*head, escape(what), f"{count:,}")
            head = ("", "", "", "")
        for note in run.notes:
            table.add_row("", "", "", "", escape(note), "")
    console.print(table)


def write_json(place: Path, runs: Sequence[Run]) -> None:
    place.write_text(json.dumps([run.model_dump() for run in runs], indent=1) + "\n")


def versions() -> str:
    """What took part, as far as it is not in requirements.lock."""
    python = ".".join(map(str, __import__("sys").version_info[:3]))
    return f"Python {python}, SQLite {sqlite3.sqlite_version}, fallback-tier {version('fallback-tier')}"


def commit() -> str:
    """Of the checkout that this is; empty without git."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=FOLDER.parents[2],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def write_report(runs: Sequence[Run], *, whole: bool) -> None:
    """Keep each run in place of the one before it; make the page again from all that are kept.
    ``whole``: these are all campaigns, so nothing of an earlier run stays."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if whole:
        for old in FOLDER.glob("*.json"):
            old.unlink()
    for run in runs:
        run = run.model_copy(
            update={
                "date": datetime.now(UTC).date().isoformat(),
                "versions": versions(),
                "commit": commit(),
            }
        )
        kept = FOLDER / f"{run.name}-{run.backend}.json"
        kept.write_text(json.dumps(run.model_dump(exclude={"seconds"}), indent=1) + "\n")
    (FOLDER / "README.md").write_text(page(FOLDER))


_HEAD = """# What the audit trail was put through

Written by `make hostile-audit ARGS=--report` (or
`python -m tests.campaigns.hostile.audit --only NAME --report` for
one campaign), from the JSON files beside it, and by nobody's hand: every figure is counted by the run
whose seed and date stand in its row. A campaign that finds anything stops with its seed and case, and
writes nothing here. "2,000 of 10,000" is a run that its time limit ended. How many cycles a kill hits at
which moment depends on the machine's speed, and so does CPU time; no other figure does. The runs of
2026-11-25 and -26 had two cores together with other work (a load of 2 to 50).

| campaign | store | cases | seed | date | commit | what held |
|---|---|---|---|---|---|---|
"""


_CASES = """
CPU time, the system's too, is that of a run divided by its cases: one-off costs are in it. What was done
to lower it: [ADR-0075](../../adr/0075-campaigns-within-an-hour.md).

| campaign | store | CPU ms a case | what every case is |
|---|---|---|---|
"""


def page(folder: Path) -> str:
    """The page, from what is kept."""
    kept = sorted(
        (Run(seconds=0, **json.loads(place.read_text())) for place in folder.glob("*.json")),
        key=lambda run: (run.name, run.backend),
    )
    text = _HEAD + "".join(_row(run) for run in kept)
    text += _CASES + "".join(_case(run) for run in kept)
    for run in kept:
        if run.skipped:
            continue
        text += (
            f"\n## {run.name} ({run.backend})\n\n{run.versions}\n\n| what | count |\n|---|---|\n"
        )
        text += "".join(f"| {what} | {count:,} |\n" for what, count in sorted(run.counts.items()))
        text += "".join(f"\n{note}\n" for note in run.notes)
    return text


def _case(run: Run) -> str:
    entry = next(one for one in CATALOGUE if (one.name, one.backend) == (run.name, run.backend))
    cost = f"{run.cpu_ms_a_case}" if run.cpu_ms_a_case else "not measured"
    return f"| {run.name} | {run.backend} | {cost} | {entry.case} |\n"


def _row(run: Run) -> str:
    cases = f"{run.cases:,}" if run.cases >= run.asked else f"{run.cases:,} of {run.asked:,}"
    held = run.promise
    if run.skipped:
        cases, held = "not run", f"nothing: {run.skipped}"
    return f"| {run.name} | {run.backend} | {cases} | {run.seed} | {run.date} | {run.commit} | {held} |\n"
