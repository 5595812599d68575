"""Everything about a verified fix in one folder, for whoever merges it: written whole, or not at all."""

import json
import os
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from fallback_audit.disk_errors import blamed
from fallback_tier.advisory import Advisory
from fallback_tier.errors import ConfigurationError, PatchError
from fallback_tier.fix_result import WithPatch
from fallback_tier.handover.pull_request import Subject, pull_request_body
from fallback_tier.handover.vex import Statement, cyclonedx, openvex, product_of
from fallback_tier.repo import RepoContext

PATCH, BODY, OPENVEX, CYCLONEDX = (
    "patch.diff", "pull-request.md", "openvex.json", "cyclonedx.json",
)  # fmt: skip


def handover_files(
    result: WithPatch,
    advisory: Advisory,
    repo: RepoContext,
    *,
    tool_version: str,
    at: datetime,
    commit: str | None = None,
    proof: str | None = None,
    sandboxed: bool = True,
) -> dict[str, str]:
    """The files by name: patch, pull request's body, VEX in both formats.

    ``commit``: where the patch was committed; ``proof``: the command line of the proof test; ``at``: UTC.
    ``sandboxed``: all gates ran in a sandbox.
    """
    product = product_of(
        result.application,
        repository=repo.root.name,
        base_commit=repo.base_commit,
        ecosystem=advisory.ecosystems[0],
        commit=commit,
    )
    statement = Statement(result, advisory, product, tool_version, at, sandboxed)
    return {
        PATCH: result.application.diff,
        BODY: pull_request_body(Subject(result, advisory, repo.base_commit, proof, sandboxed)),
        OPENVEX: _json(openvex(statement)),
        CYCLONEDX: _json(cyclonedx(statement)),
    }


def check_folder(folder: Path) -> None:
    """Can a folder be made here? Asked before the work. Raises ConfigurationError."""
    if os.path.lexists(folder):
        problem, step = "it is there already, and nothing is overwritten", "Name a new folder."
        kind = "exists"
    elif not folder.absolute().parent.is_dir():
        problem, step = f"there is no folder {folder.parent}", "Make it first."
        kind = "no_parent"
    elif not os.access(folder.absolute().parent, os.W_OK):
        problem, step = f"{folder.parent} is not writable", "Name a place that you can write to."
        kind = "not_writable"
    else:
        return
    raise ConfigurationError(f"--report {folder}: {problem}.", next_step=step, kind=kind)


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Make the folder with these files (``name`` or ``folder/name``).

    Raises PatchError naming it; then it is not there.
    """
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        partial.mkdir()
        for name, text in files.items():
            place = partial / name
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(text.encode())
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        unwritable = PatchError(
            f"The report can't be written to {folder}: {error.strerror}.",
            next_step="Name a new folder in a writable place with --report.",
        )
        raise blamed(error, f"The report can't be written to {folder}", unwritable) from error


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
