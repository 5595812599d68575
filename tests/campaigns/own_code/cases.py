"""The cases of ``make eval-own``: a real repository where the flaw is, its advisory, a proof of the flaw.

``cases.toml`` names them; the code, the advisory, the fix and the tests come from the data set and from a
public clone, and never stand in this repository. A proof that we had to write ourselves, since upstream's
test names what only its fix adds, lies in ``proofs/``.
"""

import hashlib
import json
import lzma
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_eval.campaign import Half

HERE = Path(__file__).parent
CASES = HERE / "cases.toml"
PROOFS = HERE / "proofs"

#: The file in the folder of data sets.
DATA_FILE = "solved-examples.jsonl.xz"

#: What a proof's file is made from: upstream's test file after its change, or one of ours.
_UPSTREAM, _OURS = "upstream:", "ours:"


class Case(Frozen):
    """One case. ``record`` and ``fix_commit`` find it in the data set; ``commit`` is where the flaw is.

    ``installs_by``: what decides what is installed (package-lock, yarn, pnpm, npm without a lock;
    requirements, pyproject, setup.py, setup.cfg, poetry, pdm, pipenv, uv). ``proof``: the command.
    ``files``: place in the repository → ``upstream:PATH`` (that test file as the fix's commit has it) or
    ``ours:FILE``. ``provision``: shell commands that make an environment in which the proof is known to
    fail at ``commit`` and to pass with the fix, found without this tool; ``interpreter`` is what that was
    seen with.
    """

    name: str
    half: Half
    ecosystem: str
    record: str
    fix_commit: str
    repo: str
    commit: str
    installs_by: str
    proof: str
    files: dict[str, str]
    provision: tuple[str, ...] = ()
    interpreter: str = ""
    note: str = ""

    @property
    def command(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.proof))

    @property
    def digest(self) -> str:
        """SHA-256 of the case: a result tells which form of it it is of."""
        ours = [
            (PROOFS / source.removeprefix(_OURS)).read_text(encoding="utf-8")
            for source in self.files.values()
            if source.startswith(_OURS)
        ]
        message = json.dumps([self.model_dump(mode="json"), ours], sort_keys=True)
        return hashlib.sha256(message.encode()).hexdigest()

    @property
    def upstream(self) -> dict[str, str]:
        """Place → path of the test file in the fix's commit."""
        return self._of(_UPSTREAM)

    @property
    def ours(self) -> dict[str, str]:
        """Place → name below ``proofs/``."""
        return self._of(_OURS)

    def _of(self, kind: str) -> dict[str, str]:
        return {
            place: source.removeprefix(kind)
            for place, source in self.files.items()
            if source.startswith(kind)
        }


class Record(Frozen):
    """What a case needs of its record in the data set."""

    id: str
    aliases: tuple[str, ...] = ()
    summary: str | None = None
    details: str | None = None
    cwe_ids: tuple[str, ...] = ()
    ecosystem: str
    packages: tuple[str, ...]
    affected: tuple[dict[str, Any], ...] = ()
    repo: str
    fix_commit: str
    parent_commit: str
    diff: str
    files: tuple[str, ...] = ()
    test_diff: str | None = None
    test_files: tuple[str, ...] = ()
    link_source: str = ""
    repo_licence: str | None = Field(default=None)


def load_cases(only: Sequence[str] = (), half: Half | None = None) -> tuple[Case, ...]:
    """All cases by name, those named, or those of a half. Raises KeyError for a name that none has."""
    tables = tomllib.loads(CASES.read_text(encoding="utf-8")).get("case", [])
    found = {table["name"]: Case.model_validate(table) for table in tables}
    if only:
        return tuple(found[name] for name in only)
    return tuple(case for _, case in sorted(found.items()) if half in (None, case.half))


def read_records(data: Path) -> dict[tuple[str, str], Record]:
    """The data set by (record, fix commit). Raises FileNotFoundError."""
    with lzma.open(data / DATA_FILE, "rt", encoding="utf-8") as lines:
        rows = (Record.model_validate(_known(json.loads(line))) for line in lines)
        return {(row.id, row.fix_commit): row for row in rows}


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in Record.model_fields if row.get(name) is not None}
