"""Delivery of a proved patch to the user's working tree: all of it or nothing, and nothing else.

An interrupted delivery is completed. The files are compared, byte by byte, with their content before the
patch and with it. Anything else is a person's, and stays.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fallback_audit.disk_errors import blamed
from fallback_audit.events import PatchDelivered
from fallback_audit.ports import AuditStore, Scope
from fallback_audit.vocabulary import DeliveryPlace
from fallback_tier.errors import ConfigurationError, PatchError, RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.files.whole import write_whole
from fallback_tier.fix_result import WithPatch
from fallback_tier.gates.trees.isolation import USERS_CONFIGURATION, inspect_repository
from fallback_tier.handover.private_index import private_index
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext

#: Timeout in seconds of `git apply` on one patch of at most MAX_PATCH_BYTES.
_APPLY_TIMEOUT_S = 60.0


def put_on_working_tree(application: Applied, repo: RepoContext, clients: ClientRunner) -> None:
    """Put the patch on the working tree, uncommitted. Raises RepositoryError if HEAD or the tree changed
    since the fix began, PatchError if git fails: the tree is as before, or the error says how to restore
    it."""
    now = inspect_repository(repo.root, clients)
    if now.base_commit != repo.base_commit:
        raise RepositoryError(
            f"{repo.root} moved from {repo.base_commit[:12]} to {now.base_commit[:12]} while the fix "
            "was being proved.",
            next_step="Run the fix again on the new commit; the proved patch is in the evidence store.",
        )
    if now.dirty:
        raise RepositoryError(
            f"{repo.root} was changed while the fix was being proved: {now.dirty[0]}.",
            next_step="Commit or stash it, and run the fix again.",
        )
    if (path := _in_the_way(application, repo)) is not None:
        raise RepositoryError(
            f"{repo.root} has a file {path!r} that git does not track, where the fix makes one.",
            next_step="Move it away, and run the fix again; the proved patch is in the evidence store.",
        )
    with tempfile.NamedTemporaryFile("wb", suffix=".patch") as file:
        file.write(application.diff.encode())
        file.flush()
        applied = clients.run(
            "git",
            ["apply", "--whitespace=nowarn", file.name],
            cwd=repo.root,
            timeout_s=_APPLY_TIMEOUT_S,
            env=USERS_CONFIGURATION,
        )
    if not applied.ok:
        raise PatchError(
            f"git could not put the proved patch on {repo.root}: {applied.output.strip()}",
            next_step=put_back(application, repo, clients),
            kind="not_put",
        )


def _in_the_way(application: Applied, repo: RepoContext) -> str | None:
    """Return an existing path where the patch creates a file: ``put_back`` would remove a person's file."""
    created = (path for path in application.files if not repo.has(path))
    return next((path for path in created if os.path.lexists(repo.root / path)), None)


def put_back(application: Applied, repo: RepoContext, clients: ClientRunner) -> str:
    """Restore the patch's files from the index after a partial write (a full disk, a kill), and return a
    sentence about it. The tree must differ from its index by the patch alone."""
    for path in application.files:
        if not repo.has(path):
            (repo.root / path).unlink(missing_ok=True)
    restored = clients.run(
        "git",
        ["checkout-index", "--force", "--", *filter(repo.has, application.files)],
        cwd=repo.root,
        timeout_s=_APPLY_TIMEOUT_S,
        env=USERS_CONFIGURATION,
    )
    if restored.ok:
        return "The working tree was put back as it was; use --dry-run to print the patch."
    names = " ".join(filter(repo.has, application.files))
    return f"Free some space, then put the tree back: `git checkout -- {names}`."


def record_delivery(
    audit: AuditStore,
    result: WithPatch,
    place: DeliveryPlace = DeliveryPlace.WORKING_TREE,
    reference: str | None = None,
    in_part: tuple[str, ...] = (),
) -> None:
    """Record where the proved patch was delivered, and of which advisories something stays (``in_part``).
    Raises AuditStoreError."""
    scope = Scope(fix_id=result.fix_id, gate_transition_id=result.gate_transition_id)
    digest = result.application.patch_sha256
    delivered = PatchDelivered(
        patch_sha256=digest, place=place, reference=reference, in_part=in_part
    )
    audit.append(scope, delivered)


def check_output(path: Path) -> None:
    """Check, before the work, that a patch can be written here. Raises ConfigurationError."""
    if path.is_dir():
        problem, kind = "it is a folder", "folder"
    elif not path.parent.is_dir():
        problem, kind = f"there is no folder {path.parent}", "no_parent"
    elif not os.access(path.parent, os.W_OK):
        problem, kind = f"{path.parent} is not writable", "not_writable"
    else:
        return
    raise ConfigurationError(
        f"--output {path}: {problem}.",
        next_step="Name a file in a folder that you can write to.",
        kind=kind,
    )


def write_patch(path: Path, diff: str) -> None:
    """Write the patch whole or not at all. Raises PatchError naming the path."""
    try:
        write_whole(path, diff.encode())
    except OSError as error:
        unwritable = PatchError(
            f"The patch can't be written to {path}: {error.strerror}.",
            next_step="Name a writable path with --output.",
        )
        raise blamed(error, f"The patch can't be written to {path}", unwritable) from error


@dataclass(frozen=True)
class _File:
    path: str
    before: bytes | None
    after: bytes | None
    now: bytes | None

    @property
    def is_ours(self) -> bool:
        """Whether nothing is lost if it is rewritten: git removes a file before it writes the new one, and
        a kill may stop that anywhere."""
        cut = self.now is not None and self.after is not None and self.after.startswith(self.now)
        return self.now in (None, self.before, self.after) or cut


def complete(application: Applied, repo: RepoContext, clients: ClientRunner) -> None:
    """Complete an interrupted delivery, if it had not arrived. Raises RepositoryError if HEAD moved or a
    person's changes are in the way; otherwise as ``put_on_working_tree``."""
    facts = inspect_repository(repo.root, clients)
    if facts.base_commit != repo.base_commit:
        put_on_working_tree(application, repo, clients)  # raises the error
        return
    files = _files(application, repo, clients)
    if all(file.now == file.before for file in files):
        put_on_working_tree(application, repo, clients)
        return
    foreign = sorted({*facts.dirty} - {*application.files})
    foreign += [file.path for file in files if not file.is_ours]
    if foreign:
        raise RepositoryError(
            f"The proved patch is partly on {repo.root}, or {foreign[0]} was changed by somebody else.",
            next_step=f"Look at `git diff`, put the tree back, then `fallback-tier resume {repo.fix_id}`.",
            kind="changed_meanwhile",
        )
    if any(file.now != file.after for file in files):
        put_back(application, repo, clients)
        put_on_working_tree(application, repo, clients)


def _files(application: Applied, repo: RepoContext, clients: ClientRunner) -> list[_File]:
    with private_index(application, repo, clients) as index:
        before = {path: _read(index.tree / path) for path in application.files}
        index.apply()
        return [
            _File(path, before[path], _read(index.tree / path), _read(repo.root / path))
            for path in application.files
        ]


def _read(path: Path) -> bytes | None:
    """Return a file's content, or None if it is absent. Anything but a file is marked by a NUL, which no
    file of a patch has."""
    if path.is_symlink() or path.is_dir():
        return b"\0"
    return path.read_bytes() if path.exists() else None
