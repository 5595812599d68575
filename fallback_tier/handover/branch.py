"""A proved patch as a commit on a branch of its own; the user's branch, index and files stay as they are.

Made with git's plumbing (gitglossary(7)): an index of its own, a tree, a commit, a reference that must not
exist yet. No hook runs, and nothing is checked out.
"""

import re
from collections.abc import Sequence

from fallback_audit.frozen import Frozen
from fallback_tier.advisory import Advisory
from fallback_tier.errors import ConfigurationError, PatchError, ToolFailedError
from fallback_tier.execution import ClientRunner
from fallback_tier.gates.result import Patched, WithPatch
from fallback_tier.gates.trees.aside import aside
from fallback_tier.gates.trees.isolation import GIT_TIMEOUT_S, USERS_CONFIGURATION, git
from fallback_tier.handover.headline import headline
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext

#: Of a branch's name, and of a line of a message: what git and people's terminals show whole.
_MAX_NAME_CHARS, _MAX_LINE_CHARS = 80, 200

_FOREIGN = re.compile(r"[^A-Za-z0-9._+-]+")
_PLAIN = re.compile(r"[A-Za-z0-9]+")


class Committed(Frozen):
    """Where a patch was committed."""

    branch: str
    commit: str


def branch_for(advisory_id: str, repo: RepoContext, clients: ClientRunner) -> str:
    """A name for the fix of an advisory: its id, and ``repo.fix_id`` where that branch is there already."""
    words = "-".join(_PLAIN.findall(advisory_id)) or "advisory"
    name = f"fallback-tier/{words[:_MAX_NAME_CHARS]}"
    return f"{name}-{repo.fix_id}" if _has(name, repo, clients) else name


def commit_message(fixes: Sequence[tuple[WithPatch, Advisory]]) -> str:
    """A title, what it is about, and trailers (git-interpret-trailers(1)) that lead to the record.

    Without the advisories' own words: a forge acts on some ("closes #1") when the commit is merged.
    """
    about, trailers = [], []
    for result, advisory in fixes:
        said = headline(result)
        about += [f"{_plain(record.id)}: {said}." for record in advisory.records]
        trailers.append(f"Fallback-Tier-Fix: {_plain(result.fix_id)}")
        trailers.append(f"Fallback-Tier-Patch: {result.application.patch_sha256}")
    unshown = any(isinstance(result, Patched) for result, _ in fixes)
    title = ("Patch for " if unshown else "Fix ") + ", ".join(
        _plain(result.advisory_id) for result, _ in fixes
    )
    return "\n".join([title[:_MAX_LINE_CHARS], "", *about, "", *trailers, ""])


def _plain(identifier: str) -> str:
    """A foreign identifier, of letters, digits and what stands between them in such names."""
    return _FOREIGN.sub("-", identifier)[:_MAX_LINE_CHARS]


def check_branch(branch: str, repo: RepoContext, clients: ClientRunner) -> None:
    """Can this branch be made, by somebody? Asked before the work.

    Raises ConfigurationError: no valid name, it is there already, git does not know who commits.
    """
    # The first alone would take `@{-1}`, a name for another one; the second alone `-x`.
    formats = (["--branch", branch], [f"refs/heads/{branch}"])
    if not all(_ask(repo, clients, ["check-ref-format", *form]) for form in formats):
        raise ConfigurationError(
            f"--commit {branch!r} is no name for a branch.",
            next_step="See git-check-ref-format(1).",
        )
    if _has(branch, repo, clients):
        raise ConfigurationError(
            f"{repo.root} has a branch {branch!r} already, and it is not overwritten.",
            next_step="Name another with --commit BRANCH, or remove it: `git branch -D`.",
        )
    if (other := _in_the_way(branch, repo, clients)) is not None:
        raise ConfigurationError(
            f"{repo.root} has a branch {other!r}, and git can't keep {branch!r} beside it.",
            next_step="Name another with --commit BRANCH.",
        )
    if not all(_ask(repo, clients, ["var", f"GIT_{who}_IDENT"]) for who in ("AUTHOR", "COMMITTER")):
        raise ConfigurationError(
            f"git does not know who commits in {repo.root}.",
            next_step='Set it: `git config user.name "…"` and `git config user.email …`.',
        )


def commit_to_branch(
    application: Applied, message: str, branch: str, repo: RepoContext, clients: ClientRunner
) -> Committed:
    """Commit the patch on top of the base commit as ``branch``; one that holds just that already stays.

    Raises PatchError where git refuses: then there is no branch (unreferenced objects may stay, as after
    any interrupted commit; git removes them in time).
    """
    try:
        return _committed(application, message, branch, repo, clients)
    except ToolFailedError as error:
        raise PatchError(
            f"The proved patch could not be committed in {repo.root}: {error.problem}",
            next_step="Apply it by hand: `fallback-tier audit show` names the patch in the evidence store.",
        ) from error


def _committed(
    application: Applied, message: str, branch: str, repo: RepoContext, clients: ClientRunner
) -> Committed:
    with aside(application, repo, clients) as its:
        its.apply()
        tree = its.git("write-tree").strip()
        changed = its.git(
            "diff-tree", "-r", "-z", "--name-only", "--no-renames", repo.base_commit, tree
        )
        if set(filter(None, changed.split("\0"))) != set(application.files):
            raise PatchError(
                f"git made something else of the patch than it declares: {changed!r}.",
                next_step="Apply the proved patch from the evidence store by hand, and report this.",
            )
        if _has(branch, repo, clients):
            # An earlier process may have been stopped between this and its record.
            head = its.git("rev-parse", f"refs/heads/{branch}").strip()
            if its.git("log", "-1", "--format=%T %P", head).strip() == f"{tree} {repo.base_commit}":
                return Committed(branch=branch, commit=head)
        words = its.tree.parent / "message"
        words.write_text(message, encoding="utf-8")
        commit = its.git("commit-tree", tree, "-p", repo.base_commit, "-F", str(words)).strip()
        absent = "0" * len(commit)  # git's name of "no object": the reference must not be there yet
        its.git("update-ref", f"refs/heads/{branch}", commit, absent)
    return Committed(branch=branch, commit=commit)


def _in_the_way(branch: str, repo: RepoContext, clients: ClientRunner) -> str | None:
    """A branch whose name is a folder of this one's, or the other way round."""
    parts = branch.split("/")
    above = ("/".join(parts[:count]) for count in range(1, len(parts)))
    listed = ["for-each-ref", "--count=1", "--format=%(refname:lstrip=2)", f"refs/heads/{branch}/"]
    below = git(clients, repo.root, listed, USERS_CONFIGURATION).strip()
    return next((name for name in above if _has(name, repo, clients)), below or None)


def _has(branch: str, repo: RepoContext, clients: ClientRunner) -> bool:
    return _ask(repo, clients, ["rev-parse", "--quiet", "--verify", f"refs/heads/{branch}"])


def _ask(repo: RepoContext, clients: ClientRunner, args: Sequence[str]) -> bool:
    return clients.run(
        "git", args, cwd=repo.root, timeout_s=GIT_TIMEOUT_S, env=USERS_CONFIGURATION
    ).ok
