"""The vulnerable mini-projects of a real run: what to fix, and what proves that it is fixed.

::

    NAME/project.toml    weakness, proof command, a reference fix, fixes that are wrong
    NAME/advisory.json   OSV: names the function and the class of remedy, not the patch
    NAME/repo/           becomes a repository of its own, with one commit
    NAME/proof/          laid over that repository for the proof gate only
"""

import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from fallback_audit.disk_errors import blamed
from fallback_audit.frozen import Frozen
from fallback_tier.advisory import Advisory, load_advisory
from fallback_tier.errors import InputError, ToolFailedError, first_fault
from fallback_tier.execution import ClientRunner
from fallback_tier.gates.builtin.proof import Proof
from fallback_tier.outcome import SearchReplace, SourceEdit

PROJECT, ADVISORY, REPOSITORY, PROOF = "project.toml", "advisory.json", "repo", "proof"

#: One git command over some ten small files.
_GIT_TIMEOUT_S = 60.0


class Fix(Frozen):
    """Edits that somebody wrote by hand."""

    rationale: str = ""
    edits: Annotated[tuple[SearchReplace, ...], Field(min_length=1)]

    def plan(self, advisory_id: str) -> SourceEdit:
        """As the plan that a model would answer with."""
        return SourceEdit(rationale=self.rationale, citations=(advisory_id,), edits=self.edits)


class WrongFix(Fix):
    """A plausible fix that is none. ``gate``: the one that has to say so."""

    what: str
    gate: str


class _Facts(Frozen):
    weakness: str
    cwe: str
    command: Annotated[tuple[str, ...], Field(min_length=1)]
    reference: Fix
    wrong: Annotated[tuple[WrongFix, ...], Field(min_length=1)]


class MiniProject(_Facts):
    """One vulnerable project, read."""

    name: str
    folder: Path
    advisory: Advisory

    @property
    def proof(self) -> Proof:
        """The proof command with its files."""
        root = self.folder / PROOF
        files = {
            f"{PROOF}/{place.relative_to(root).as_posix()}": place.read_bytes()
            for place in sorted(root.rglob("*"))
            if place.is_file() and place.suffix != ".pyc"
        }
        return Proof(self.command, files)

    def commit_to(self, place: Path, clients: ClientRunner) -> None:
        """Make a repository of it at ``place``, which must not exist. Raises ToolError."""
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(self.folder / REPOSITORY, place, ignore=ignored)
        commit_all(place, clients, "mini-project")


def commit_all(place: Path, clients: ClientRunner, author: str) -> None:
    """Make a repository of what is at ``place``, with one commit: by its fixed facts, the same files are
    the same base commit on every machine. Raises ToolError."""
    facts = {
        "NAME": author,
        "EMAIL": f"{author}@fallback-tier.invalid",
        "DATE": "2026-01-01T00:00:00Z",
    }
    env = {f"GIT_{role}_{key}": it for role in ("AUTHOR", "COMMITTER") for key, it in facts.items()}
    for args in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "as found"]):
        done = clients.run("git", args, cwd=place, timeout_s=_GIT_TIMEOUT_S, env=env)
        if not done.ok:
            raise ToolFailedError(
                f"git {args[0]} in {place} failed: {' '.join(done.output.split())}",
                next_step="Check free space and git's installation.",
                output=done.output,
            )


def load_project(folder: Path) -> MiniProject:
    """One project's folder. Raises InputError (AdvisoryError among them): missing, not of the format."""
    place = folder / PROJECT
    try:
        read = tomllib.loads(place.read_text(encoding="utf-8"))
        facts = _Facts.model_validate(read)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        unfit = _unfit(place, str(getattr(error, "strerror", None) or error))
        raise blamed(error, str(place), unfit) from error
    except ValidationError as error:
        raise _unfit(place, first_fault(error, "the file")) from error
    advisory = load_advisory(folder / ADVISORY)
    return MiniProject(name=folder.name, folder=folder, advisory=advisory, **dict(facts))


def load_projects(root: Path, only: Sequence[str] = ()) -> tuple[MiniProject, ...]:
    """All projects of a folder by name, or those named. Raises InputError: none there, not that one."""
    names = sorted(place.parent.name for place in root.glob(f"*/{PROJECT}"))
    if not names:
        raise InputError(
            f"There is no mini-project in {str(root)!r}.",
            next_step=f"Name a folder of folders that have a {PROJECT}.",
            kind="no_projects",
        )
    if unknown := [name for name in only if name not in names]:
        raise InputError(
            f"There is no mini-project {unknown[0]!r}.",
            next_step=f"Choose among: {', '.join(names)}.",
            kind="no_such_project",
        )
    return tuple(load_project(root / name) for name in names if not only or name in only)


def _unfit(place: Path, why: str) -> InputError:
    return InputError(
        f"{place} does not describe a mini-project: {why}.",
        next_step="Compare it with one of the others.",
        kind="not_a_project",
    )
