"""The advisories of a case: published records from the folder of data sets, or facts in our words."""

import json
import tarfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.campaigns.eval_repos.cases import Case
from tests.campaigns.recipes_bench.cases import ARCHIVE

Record = Mapping[str, Any]


def read_published(data: Path, wanted: Collection[str]) -> dict[str, Record]:
    """Those records that the data set has. Raises FileNotFoundError where some are wanted and it isn't
    there, KeyError where it lacks one."""
    if not wanted:
        return {}
    found: dict[str, Record] = {}
    with tarfile.open(data / ARCHIVE) as archive:
        for member in archive:
            if member.name.endswith(".json") and "/advisories/" in member.name:
                file = archive.extractfile(member)
                record = json.load(file) if file is not None else {}
                if record.get("id") in wanted:
                    found[record["id"]] = record
    if missing := set(wanted) - found.keys():
        raise KeyError(f"the data set has no {', '.join(sorted(missing))}")
    return found


def records_of(case: Case, published: Mapping[str, Record]) -> list[Record]:
    """All of a case, those of the data set first."""
    return [
        *(published[name] for name in case.advisories),
        *(one.osv(case.ecosystem) for one in case.advisory),
    ]


def write_advisories(records: list[Record], folder: Path) -> Path:
    """A file, or a folder of several: what a person gives to the command."""
    folder.mkdir()
    for number, record in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(record), encoding="utf-8")
    return folder / "0.json" if len(records) == 1 else folder
