"""The figures: kept after every round, added up over the runs of one build, and shown as a page."""

import fcntl
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from tests.campaigns.hostile.fleet.judging import Row

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "evaluation" / "fleet-faults.md"
DATA = PAGE.with_suffix(".json")

#: What a fleet's fixes run: a change of it is another build.
_PRODUCT = ("fallback_tier", "audit/fallback_audit")

_TEXT = """# Faults against a fleet

Made by `make hostile-fleet`. It disturbs fixes in real workers on a real Temporal server, then reads
the record of each: `audit verify` with the trace contract, the events that a fix has a known number of,
and the working tree that was delivered to. Processes, stores, servers, networks and disks are real, the
ecosystem is small, and the model is scripted. The figures are kept after every round
([data](fleet-faults.json)); runs of one build add up, and a change of the product begins anew.

**{faults} faults, {fixes} fixes; {wrong}.** {runs} of build `{build}` (a digest of the product's
source), on {cores} cores that {load} programs wanted.

| Kind | faults | fixes | resumed | events | lost | two ends | doubled | twice paid | redelivered | else |
| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |
{table}
{skipped}
Of builds before it, which are not in the table:{before}.

*resumed*: how often somebody went on with a fix from the record. *lost*: it has not ended, or without
what it is to end with. *twice paid*: the record has more answers of the model than an undisturbed fix
has. A call that was cut off before its answer may have been billed; it is booked at its pre-charge.
*else*: the record does not verify, the delivered patch is another one, another version's worker had the
fix, or the round broke.

A host is a network namespace with a cable to Temporal and one to PostgreSQL. One or both are pulled for
1 to 45 seconds: no connection is closed, and no byte passes. A worker counts as lost after 10 seconds
there. The disk is a loop device that the kernel allows one to four writes a second for 3 to 25 seconds,
so that a commit takes seconds; the record, the evidence, the repositories and Temporal's file are on it.
"""


@dataclass
class Run:
    """One run of the campaign. ``load``: least and most of the machine's, over its rounds."""

    seed: int
    began: str
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    load: tuple[float, float] = (1e9, 0.0)
    rows: dict[str, Row] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> tuple[str, int]:
        """No other run's."""
        return self.began, self.seed

    def loaded(self) -> None:
        """Look at the machine."""
        now = round(os.getloadavg()[0], 1)
        self.load = min(self.load[0], now), max(self.load[1], now)


def build() -> str:
    """Of the product's files, as git has them, or as they were changed."""
    listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *_PRODUCT)
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    digest = hashlib.sha256()
    for name in sorted(name for name in found.split("\0") if name.endswith(".py")):
        path = ROOT / name
        digest.update(f"{name}\0".encode() + (path.read_bytes() if path.exists() else b"") + b"\0")
    return digest.hexdigest()[:12]


class Before(NamedTuple):
    """What the runs of an earlier build came to."""

    build: str
    faults: int
    fixes: int
    ok: bool


class Kept(NamedTuple):
    """Of one build, and of those before it."""

    runs: list[Run]
    before: list[Before]


def earlier(data: Path, build: str) -> Kept:
    """What is kept of this build, and of others."""
    if not data.exists():
        return Kept([], [])
    kept = json.loads(data.read_text())
    runs = [_run(one) for one in kept["runs"]]
    before = [Before(**one) for one in kept.get("before", ())]
    if kept["build"] == build:
        return Kept(runs, before)
    rows = summed(runs)
    faults, fixes = sum(row.faults for row in rows), sum(row.fixes for row in rows)
    return Kept([], [*before, Before(kept["build"], faults, fixes, all(row.ok for row in rows))])


def keep(data: Path, page: Path, build: str, run: Run) -> None:
    """This run as it is now, beside the others of this build; each file whole, or as it was. Several may
    run at once."""
    with _alone(data.parent):
        kept = earlier(data, build)
        others = [one for one in kept.runs if one.name != run.name]
        runs = sorted([*others, run], key=lambda one: one.name)
        content = {
            "build": build,
            "runs": [asdict(one) for one in runs],
            "before": [one._asdict() for one in kept.before],
        }
        _write(data, json.dumps(content, indent=1) + "\n")
        _write(page, report(build, runs, kept.before))


def summed(runs: Sequence[Run]) -> list[Row]:
    """A row a kind, those alone that had a fault."""
    total: dict[str, Row] = {}
    for run in runs:
        for kind, row in run.rows.items():
            into = total.setdefault(kind, Row(row.name))
            for one in fields(Row):
                if one.name != "name":
                    setattr(into, one.name, getattr(into, one.name) + getattr(row, one.name))
    return [row for row in total.values() if row.faults]


def report(build: str, runs: Sequence[Run], before: Sequence[Before] = ()) -> str:
    """As it stands in the documentation."""
    rows = summed(runs)
    table = "\n".join(
        f"| {row.name} | {row.faults} | {row.fixes} | {row.openings} | {row.events} | {row.lost} "
        f"| {row.two_ends} | {row.doubled} | {row.paid_twice} | {row.delivered_twice} | {row.other} |"
        for row in rows
    )
    reasons = {kind: why for run in runs for kind, why in run.skipped.items()}
    return _TEXT.format(
        faults=sum(row.faults for row in rows),
        fixes=sum(row.fixes for row in rows),
        wrong="nothing was lost or doubled, paid or delivered twice"
        if all(row.ok for row in rows)
        else "**not all is as it must be**",
        runs=f"Runs with seeds {', '.join(str(run.seed) for run in runs)}"
        if len(runs) > 1
        else f"One run, seed {runs[0].seed},",
        build=build,
        cores=runs[0].cores,
        load=f"{min(run.load[0] for run in runs):.0f} to {max(run.load[1] for run in runs):.0f}",
        table=table,
        before="".join(
            f" `{one.build}` {one.faults} faults, {one.fixes} fixes, "
            f"{'nothing wrong' if one.ok else '**not all as it must be**'};"
            for one in before
        ).rstrip(";")
        or " none",
        skipped="".join(f"\nNot had here: *{kind}*: {why}.\n" for kind, why in reasons.items()),
    )


def _run(found: dict[str, object]) -> Run:
    rows = {kind: Row(**row) for kind, row in found["rows"].items()}  # type: ignore[attr-defined]
    return Run(**{**found, "rows": rows, "load": tuple(found["load"])})  # type: ignore[arg-type]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _write(path: Path, text: str) -> None:
    beside = path.with_suffix(f"{path.suffix}.new")
    beside.write_text(text)
    beside.replace(path)
