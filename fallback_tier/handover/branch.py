"""A proved patch as a commit on a separate branch; the user's branch, index and files stay as they are.

Made with git's plumbing (gitglossary(7)): a private index, a tree, a commit, a reference that must not
exist yet. No hook runs, and nothing is checked out.
"""

import hashlib
import re
from collections.abc import Sequence

from fallback_audit.events import PatchDelivered
from fallback_audit.vocabulary import DeliveryPlace
from fallback_tier.advisory import Advisory
from fallback_tier.errors import ConfigurationError, PatchError, ToolFailedError
from fallback_tier.execution import ClientRunner
from fallback_tier.fix_result import Committed, Patched, WithPatch
from fallback_tier.gates.trees.isolation import GIT_TIMEOUT_S, USERS_CONFIGURATION, git
from fallback_tier.handover.headline import headline
from fallback_tier.handover.private_index import PrivateIndex, private_index
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext

#: Most characters of the advisories in a branch's name: what a list of branches shows whole. git keeps a
#: reference in a file (255 bytes per name, and ".lock"), and GitHub accepts 255 bytes of a branch.
_MAX_NAME_CHARS = 60

#: Of a longer name: characters of the first advisory, and hexadecimal digits of a digest of all.
_FIRST_CHARS, _DIGEST_CHARS = 40, 8

#: Most characters of a line of a message: what people's terminals show whole.
_MAX_LINE_CHARS = 200

_FOREIGN = re.compile(r"[^A-Za-z0-9._+-]+")
_PLAIN = re.compile(r"[A-Za-z0-9]+")


def committed_as(delivered: PatchDelivered) -> Committed | None:
    """Return the commit to which a patch was delivered, or None if it was delivered elsewhere."""
    if delivered.place is not DeliveryPlace.BRANCH:
        return None
    branch, _, commit = (delivered.reference or "").partition(" ")
    return Committed(branch=branch, commit=commit)


def branch_for(
    advisory_ids: Sequence[str], fix_id: str, repo: RepoContext, clients: ClientRunner
) -> str:
    """Return a name for the fix of these advisories, with ``fix_id`` if that branch exists. The same
    advisories give the same name, in whatever order."""
    name = f"fallback-tier/{_words_of(sorted(set(advisory_ids)))}"
    return f"{name}-{fix_id}" if _has(name, repo, clients) else name


def _words_of(ids: Sequence[str]) -> str:
    """Return the advisories as part of a branch's name: all, or the first, how many more, and a digest."""
    joined = "-".join(_PLAIN.findall("-".join(ids))) or "advisory"
    if len(joined) <= _MAX_NAME_CHARS:
        return joined
    first = "-".join(_PLAIN.findall(ids[0]))[:_FIRST_CHARS] or "advisory"
    more = f"-and-{len(ids) - 1}-more" if len(ids) > 1 else ""
    digest = hashlib.sha256("\0".join(ids).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{first}{more}-{digest[:_DIGEST_CHARS]}"


def commit_message(fixes: Sequence[tuple[WithPatch, Advisory]]) -> str:
    """Return a title, what it is about, and trailers (git-interpret-trailers(1)). The advisories' own text
    is left out: a forge acts on some of it ("closes #1")."""
    lines, trailers = [], []
    for result, advisory in fixes:
        outcome = headline(result)
        for record in advisory.records:
            partial = f"in part only, something of it stays affected; {outcome}"
            lines.append(
                f"{_plain(record.id)}: {partial if record.id in advisory.in_part else outcome}."
            )
        trailers.append(f"Fallback-Tier-Fix: {_plain(result.fix_id)}")
        trailers.append(f"Fallback-Tier-Patch: {result.application.patch_sha256}")
    unshown = any(isinstance(result, Patched) for result, _ in fixes)
    title = ("Patch for " if unshown else "Fix ") + ", ".join(
        _plain(result.advisory_id) + (" in part" if advisory.in_part else "")
        for result, advisory in fixes
    )
    return "\n".join([title[:_MAX_LINE_CHARS], "", *lines, "", *trailers, ""])


def _plain(identifier: str) -> str:
    """Return a foreign identifier with letters, digits and the punctuation of such names alone."""
    return _FOREIGN.sub("-", identifier)[:_MAX_LINE_CHARS]


def check_branch(branch: str, repo: RepoContext, clients: ClientRunner) -> None:
    """Check, before the work, that this branch can be made. A branch with a single commit on the base is
    left to ``commit_to_branch``. Raises ConfigurationError if the name is not valid, the branch exists,
    another branch's name is in the way, or git does not know who commits."""
    # The first form alone would accept `@{-1}`, a name for another branch; the second alone `-x`.
    formats = (["--branch", branch], [f"refs/heads/{branch}"])
    if not all(_ask(repo, clients, ["check-ref-format", *form]) for form in formats):
        raise ConfigurationError(
            f"--commit {branch!r} is not a valid name for a branch.",
            next_step="See git-check-ref-format(1).",
            kind="bad_branch_name",
        )
    if _has(branch, repo, clients) and not _is_on_base(branch, repo, clients):
        raise ConfigurationError(
            f"{repo.root} has a branch {branch!r} already, and it is not overwritten.",
            next_step="Name another with --commit BRANCH, or remove it: `git branch -D`.",
            kind="branch_taken",
        )
    if (blocking := _in_the_way(branch, repo, clients)) is not None:
        raise ConfigurationError(
            f"{repo.root} has a branch {blocking!r}, and git can't keep {branch!r} beside it.",
            next_step="Name another with --commit BRANCH, or rename that one: `git branch -m`.",
            kind="branch_in_the_way",
        )
    if not all(_ask(repo, clients, ["var", f"GIT_{who}_IDENT"]) for who in ("AUTHOR", "COMMITTER")):
        raise ConfigurationError(
            f"git does not know who commits in {repo.root}.",
            next_step='Set it: `git config user.name "…"` and `git config user.email …`.',
            kind="no_committer",
        )


def commit_to_branch(
    application: Applied, message: str, branch: str, repo: RepoContext, clients: ClientRunner
) -> Committed:
    """Commit the patch on the base commit as ``branch``. If an existing branch holds just that, it is
    returned instead. Raises PatchError if ``branch`` holds something else or git refuses: then there is no
    new branch (git removes unreferenced objects in time)."""
    try:
        return _committed(application, message, branch, repo, clients)
    except ToolFailedError as error:
        raise PatchError(
            f"The proved patch could not be committed in {repo.root}: {error.problem}",
            next_step=f"Apply it by hand: `fallback-tier audit show {repo.fix_id}` names the patch in the "
            "evidence store.",
            kind="not_committed",
        ) from error


def _committed(
    application: Applied, message: str, branch: str, repo: RepoContext, clients: ClientRunner
) -> Committed:
    with private_index(application, repo, clients) as index:
        index.apply()
        tree = index.git("write-tree").strip()
        changed = index.git(
            "diff-tree", "-r", "-z", "--name-only", "--no-renames", repo.base_commit, tree
        )
        if set(filter(None, changed.split("\0"))) != set(application.files):
            raise PatchError(
                f"git made something else of the patch than it declares: {changed!r}.",
                next_step="Apply the proved patch from the evidence store by hand, and report this.",
                kind="other_changes",
            )
        # An earlier run may have made it, or an earlier process that was stopped before it was recorded.
        if (existing := _holding(tree, branch, index, repo)) is not None:
            return existing
        if _has(branch, repo, clients):
            raise PatchError(
                f"{repo.root} has a branch {branch!r} already, with something else than this patch on it.",
                next_step="Name another with --commit BRANCH, or remove it: `git branch -D`.",
                kind="branch_taken",
            )
        message_file = index.tree.parent / "message"
        message_file.write_text(message, encoding="utf-8")
        commit = index.git(
            "commit-tree", tree, "-p", repo.base_commit, "-F", str(message_file)
        ).strip()
        absent = "0" * len(commit)  # git's name of "no object": the reference must not exist yet
        index.git("update-ref", f"refs/heads/{branch}", commit, absent)
    return Committed(branch=branch, commit=commit)


def _holding(tree: str, branch: str, index: PrivateIndex, repo: RepoContext) -> Committed | None:
    """Return a branch that is one commit on top of the base, with this tree, or None; ``branch`` before all
    others."""
    form = "--format=%(tree) %(parent) %(objectname) %(refname:lstrip=2)"
    heads = (
        line.split(" ") for line in index.git("for-each-ref", form, "refs/heads/").splitlines()
    )
    branches = [
        Committed(branch=name, commit=commit, existed=True)
        for head_tree, *parents, commit, name in heads
        if (head_tree, parents) == (tree, [repo.base_commit])
    ]
    return min(branches, key=lambda committed: committed.branch != branch, default=None)


def _is_on_base(branch: str, repo: RepoContext, clients: ClientRunner) -> bool:
    """Return whether the branch is one commit on top of the base commit."""
    args = ["log", "-1", "--format=%P", f"refs/heads/{branch}"]
    return git(clients, repo.root, args, USERS_CONFIGURATION).strip() == repo.base_commit


def _in_the_way(branch: str, repo: RepoContext, clients: ClientRunner) -> str | None:
    """Return a branch whose name is a folder of this one's, or the other way round, or None."""
    parts = branch.split("/")
    above = ("/".join(parts[:count]) for count in range(1, len(parts)))
    args = ["for-each-ref", "--count=1", "--format=%(refname:lstrip=2)", f"refs/heads/{branch}/"]
    below = git(clients, repo.root, args, USERS_CONFIGURATION).strip()
    return next((name for name in above if _has(name, repo, clients)), below or None)


def _has(branch: str, repo: RepoContext, clients: ClientRunner) -> bool:
    return _ask(repo, clients, ["rev-parse", "--quiet", "--verify", f"refs/heads/{branch}"])


def _ask(repo: RepoContext, clients: ClientRunner, args: Sequence[str]) -> bool:
    return clients.run(
        "git", args, cwd=repo.root, timeout_s=GIT_TIMEOUT_S, env=USERS_CONFIGURATION
    ).ok
