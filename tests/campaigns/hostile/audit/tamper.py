"""Thousands of changes by somebody who has the files: all are caught that concern what was signed.

What a change did is judged without our own code: the rows of the tables are compared with those of the
record before. A change that verification passes must have changed nothing ("void"), or only events
behind the last checkpoint ("in the uncovered tail", which the report counts); else the campaign fails.
"""

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

from fallback_audit.errors import AuditError
from fallback_audit.ports import Record, Scope
from fallback_audit.verifying.report import VerificationReport
from tests.campaigns.hostile.audit import maintenance
from tests.campaigns.hostile.audit.campaign import Ask, Tally
from tests.campaigns.hostile.audit.mutations_files import FILE_MUTATIONS
from tests.campaigns.hostile.audit.mutations_kept import KEPT_MUTATIONS
from tests.campaigns.hostile.audit.mutations_rows import ROW_MUTATIONS
from tests.campaigns.hostile.audit.trail_folder import TrailFolder, records
from tests.unit.audit.trails import digest, recipe_verified

MUTATIONS = {**ROW_MUTATIONS, **FILE_MUTATIONS, **KEPT_MUTATIONS}

#: Generated records; each is as long, and has as many events behind its last checkpoint, as chance says.
RECORDS = 24

#: So many events may follow the last checkpoint, and one less.
UNCOVERED = 8

#: Before an outcome: of every kind of change together.
IN_ALL = "of all, "

CAUGHT, VOID, TAIL = "caught", "void: nothing of the record is different", "in the uncovered tail"


class Original:
    """A record before any change."""

    def __init__(self, trail: TrailFolder, chance: Random) -> None:
        self.trail, self.why = trail, ""
        self.make(chance)
        self.covered = trail.log.latest_size()
        self.tables = tables(trail.database)
        self.by_fix = by_fix(trail)
        self.files = files(trail)

    def make(self, chance: Random) -> None:
        """Its life so far."""
        trail, events = self.trail, records("fix")
        (trail.place / "old").mkdir(parents=True)
        with_logs(trail)
        for number in range(chance.randint(2, 5)):
            with closing(trail.store()) as store:
                for _ in range(chance.randint(8, 25)):
                    store.append(*next(events))
            shutil.copy(trail.database, trail.place / "old" / f"{number}.db")
        with closing(trail.bare_store()) as bare:  # events that no checkpoint covers yet
            for _ in range(chance.randrange(UNCOVERED)):
                bare.append(*next(events))

    def copy(self, place: Path) -> TrailFolder:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.trail.place, place)
        return TrailFolder(place)

    def outcome(self, trail: TrailFolder) -> str | None:
        """What became of a changed copy; None: it passed, and should not have."""
        try:
            report = self.verified(trail)
        except AuditError as error:
            self.why = error.problem
            return CAUGHT
        if not report.ok:
            self.why = str(report.first_bad)
            return CAUGHT
        if files(trail) != self.files:
            return None
        now = tables(trail.database)
        # What was redacted is said, signed, in the payload's own place. The table of tombstones is the
        # triggers' memory: what is lost of it hides nothing, and is not looked for.
        now["audit_tombstone"] = self.tables["audit_tombstone"]
        if now == self.tables:
            return VOID if by_fix(trail) == self.by_fix else None
        return TAIL if self._only_tail(now) and report.covered_to == self.covered else None

    def verified(self, trail: TrailFolder) -> VerificationReport:
        """The first report that is not good; else the record's own."""
        return trail.verify(evidence=True)

    def _only_tail(self, now: dict[str, list[tuple[object, ...]]]) -> bool:
        def covered(found: dict[str, list[tuple[object, ...]]]) -> dict[str, object]:
            return {
                table: [row for row in rows if table == "schema" or row[0] <= self.covered]  # type: ignore[operator]
                for table, rows in found.items()
            }

        return covered(now) == covered(self.tables)


class KeptOriginal(Original):
    """One with everything in it that keepers leave, and a -wal file that was not copied yet."""

    def make(self, chance: Random) -> None:
        trail = self.trail
        maintenance.fixes(trail, "a", "b")
        maintenance.redact(trail, "a")
        maintenance.seal(trail)
        maintenance.fixes(trail, "c", *(f"c{number}" for number in range(chance.randrange(3))))
        maintenance.seal(trail)
        maintenance.copy_segments(trail)
        maintenance.retire(trail, 1)
        maintenance.rotate_key(trail)
        maintenance.fixes(trail, "d", "e")
        for fix_id in ("d", "e"):
            maintenance.redact(trail, fix_id)
        maintenance.end_rotation(trail)
        maintenance.export(trail)
        events = records("fix")
        with closing(trail.store()) as store:
            for _ in range(chance.randint(3, 9)):
                store.append(*next(events))
            store.checkpoint()
            shutil.copytree(trail.place, trail.place.with_suffix(".open"))
        shutil.rmtree(trail.place)
        trail.place.with_suffix(".open").rename(trail.place)

    def verified(self, trail: TrailFolder) -> VerificationReport:
        found = trail.verify()
        return maintenance.verify_export(trail) if found.ok else found


def files(trail: TrailFolder) -> dict[str, bytes]:
    """Sealed files and exports, whose every byte counts."""
    kept = [*trail.segments.glob("*"), *trail.place.glob("export.jsonl")]
    return {path.name: path.read_bytes() for path in kept}


def with_logs(trail: TrailFolder) -> None:
    """A fix whose verdicts name evidence."""
    logs = [f"log of gate {number}\n" * 50 for number in range(4)]
    texts = [f"{what} {number}" for what in ("patch", "summary", "edit") for number in range(1, 6)]
    for text in (*logs, *texts, "prompt", "answer"):  # whatever the trails name
        trail.evidence().put(text.encode())
    events = [*recipe_verified()]
    for place, log in zip((4, 5, 6), logs, strict=False):
        events[place] = events[place].model_copy(update={"evidence_sha256": digest(log)})
    scope = Scope(fix_id="with-logs", gate_transition_id="t")
    with closing(trail.store()) as store:
        store.append_all([Record(scope, event) for event in events])


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of ours, and the schema, as SQLite gives them without our code."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        schema = connection.execute(
            "SELECT name, type, sql FROM sqlite_master WHERE name LIKE 'audit%' ORDER BY name"
        ).fetchall()
        return {"schema": schema} | {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name, kind, _ in schema
            if kind == "table"
        }


def by_fix(trail: TrailFolder) -> dict[str, list[int]]:
    """What a reader who asks for one fix is given."""
    with trail.reader() as reader:
        every = list(reader.events())
        names = {event.scope.fix_id for event in every}
        return {name: [event.seq for event in reader.events(name)] for name in sorted(names)}


def _control(ask: Ask, number: int, *, kept: bool) -> Original:
    """A record, which verifies as long as nobody changes it."""
    sort, name = (KeptOriginal, "kept") if kept else (Original, "record")
    original = sort(TrailFolder(ask.place / f"{name}-{number}"), ask.chance(-1 - number))
    if original.outcome(original.copy(ask.place / "control")) != VOID:
        raise ask.broken(-1, f"an unchanged record does not verify: {original.why}")
    return original


def tamper(ask: Ask) -> Tally:
    """Every kind as often as any other."""
    tally, kinds = Tally(), list(MUTATIONS)
    originals: dict[tuple[int, bool], Original] = {}
    outcomes: Counter[tuple[str, str]] = Counter()
    for case in ask.cases:
        chance, kind = ask.chance(case), kinds[case % len(kinds)]
        number, kept = case // len(kinds) % RECORDS, kind in KEPT_MUTATIONS
        if (number, kept) not in originals:
            originals[number, kept] = _control(ask, number, kept=kept)
        original = originals[number, kept]
        trail = original.copy(ask.place / "changed")
        what = MUTATIONS[kind](trail, chance)
        try:
            outcome = original.outcome(trail)
        except Exception as error:
            raise ask.broken(case, f"{kind}, {what}: {type(error).__name__}: {error}") from error
        if outcome is None:
            raise ask.broken(case, f"{kind}, {what}: not noticed")
        outcomes[kind, outcome] += 1
        tally.cases += 1
        ask.told(tally.cases, ask.count)
    tally.counts.update({f"{kind}: {outcome}": n for (kind, outcome), n in outcomes.items()})
    tally.counts["controls, all verify"] = len(originals)
    for outcome in (CAUGHT, VOID, TAIL):
        total = sum(n for (_, found), n in outcomes.items() if found == outcome)
        tally.counts[f"{IN_ALL}{outcome}"] = total
    return tally
