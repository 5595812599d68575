"""``python -m tests.campaigns.capability``: false alarms of the capability gate, and what gets past it.

python -m tests.campaigns.capability --data DIR --clones DIR            # the half that the gate was made on
python -m tests.campaigns.capability … --half 'set aside' --look-at-what-was-set-aside
python -m tests.campaigns.capability --remake                            # evasions again, and the page
"""

import argparse
import re
import sys
from collections.abc import Iterable
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from fallback_audit.vocabulary import FailureKind
from fallback_eval.campaign import Half, add_halves, may_look, print_faults
from fallback_tier.gates.capability import Project, compare
from fallback_tier.gates.capability.project import Texts
from tests.campaigns.capability.evasions import LISTS, evasions
from tests.campaigns.capability.halves import halves, name_of
from tests.campaigns.capability.report import ROWS, Caught, Fix, Row
from tests.campaigns.capability.repository import Repository
from tests.campaigns.measuring.pages import ROOT
from tests.campaigns.own_code.cases import Record, read_records

FOLDER = ROOT / "docs" / "evaluation" / "capability"

#: Projects of a language that each evasion is put into, besides standing alone.
_PROJECTS = 2

#: A project with less source has too few words to hide in.
_ENOUGH_FILES = 40


def main() -> int:
    """0: measured and written; 1: a check found something; 2: that half may not be looked at yet."""
    arguments = _arguments()
    if arguments.check:
        return print_faults(ROWS.faults(ROWS.read(FOLDER), ROWS.shown(FOLDER)))
    half = Half(arguments.half)
    if not may_look([half], "capability", meant=arguments.look_at_what_was_set_aside):
        return 2
    kept = ROWS.read(FOLDER)
    fixes = [row.fix for row in kept if row.fix is not None]
    caught = [row.caught for row in kept if row.caught is not None]
    if not arguments.remake:
        records = _records(arguments.data, half)
        fixes = [fix for fix in fixes if fix.half is not half]
        judge = partial(_judged, half=half, clones=arguments.clones)
        with Pool(arguments.jobs) as workers:
            for fix in filter(None, workers.imap_unordered(judge, records)):
                fixes.append(fix)
                if fix.is_asked:
                    print(fix.name, *fix.uses, sep="\n  ", flush=True)
    if arguments.projects:
        caught = _evaded(_records(arguments.data, Half.SEEN), arguments.clones)
    ROWS.write(_rows(fixes, caught), FOLDER)
    return 0


def _rows(fixes: Iterable[Fix], caught: Iterable[Caught]) -> list[Row]:
    ordered = sorted(fixes, key=lambda fix: (fix.half, fix.name))
    return [*(Row(fix=fix) for fix in ordered), *(Row(caught=one) for one in caught)]


def _records(data: Path, half: Half) -> list[Record]:
    """One record of each fix of the half, in order."""
    records = list(read_records(data).values())
    chosen = halves(records)
    found = {name_of(record): record for record in records if chosen[name_of(record)] is half}
    return [found[name] for name in sorted(found)]


def _repository(record: Record, clones: Path) -> Repository | None:
    place = clones / f"{record.repo.replace('/', '+')}.git"
    return Repository(place.resolve(), record) if place.exists() else None


def _judged(record: Record, *, half: Half, clones: Path) -> Fix | None:
    """None: there is no clone, or the fix changes no source that is read."""
    repository = _repository(record, clones)
    if repository is None:
        return None
    project = Project(repository.paths, repository.texts)
    verdict = compare(repository.changes, frozenset(), gate="capability", project=project)
    if not repository.sources:
        return None
    is_asked = verdict.failure_kind is FailureKind.UNDECLARED_CAPABILITY
    return Fix(
        half=half,
        name=name_of(record),
        ecosystem=record.ecosystem,
        is_asked=is_asked,
        is_library=is_asked and repository.adds(_names_in(verdict.log)),
        uses=tuple(verdict.log.split("\n")[1:]) if is_asked else (),
    )


def _names_in(log: str) -> list[str]:
    """The modules, as they may be named, among what is unknown."""
    return re.findall(r"new unknown use of (@?\w[\w./@-]*) \(", log)


def _evaded(records: Iterable[Record], clones: Path) -> list[Caught]:
    """Each evasion alone, and in the first projects of its language that have enough files."""
    projects: dict[str, list[Project]] = {"PyPI": [], "npm": []}
    used: set[str] = set()
    for record in records:
        found = projects[record.ecosystem]
        repository = None if len(found) == _PROJECTS else _repository(record, clones)
        if repository is not None and record.repo not in used:
            used.add(record.repo)
            texts = list(repository.texts(repository.product))
            if len(texts) >= _ENOUGH_FILES:
                found.append(Project(tuple(path for path, _ in texts), _given(texts)))
    return [
        Caught(
            of=evasion.of,
            language=evasion.language,
            name=evasion.name,
            alone=evasion.is_caught(),
            in_projects=sum(map(evasion.is_caught, there)),
            projects=len(there),
        )
        for of in LISTS
        for evasion in evasions(of)
        for there in [projects["PyPI" if evasion.language == "python" else "npm"]]
    ]


def _given(texts: list[tuple[str, str]]) -> Texts:
    """Always these: they are read once."""
    return lambda _: texts


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.capability")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--clones", type=Path, help="bare clones, OWNER+NAME.git")
    add_halves(parser)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--projects", action="store_true", help="measure the evasions as well")
    parser.add_argument(
        "--check", action="store_true", help="run nothing: is the page of the rows?"
    )
    parser.add_argument("--remake", action="store_true", help="make the page again from its rows")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
