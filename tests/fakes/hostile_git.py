"""Repositories whose own configuration names a program: what it leaves behind shows that git ran it."""

import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.repository import GIT_ENV, git, write

#: Settings, as `git config` takes them.
Settings = Mapping[str, str]


@dataclass(frozen=True)
class Canary:
    """A program that writes a file and fails, whatever git wanted of it."""

    ran: Path
    program: Path
    hooks: Path

    @classmethod
    def make(cls, place: Path) -> "Canary":
        """Write the program, and hooks that are the same, to the folder ``place``."""
        place.mkdir()
        ran, hooks = place / "ran", place / "hooks"
        hooks.mkdir()
        touch = f'#!/bin/sh\necho "$0 $*" >> {shlex.quote(str(ran))}\n'
        names = ("post-checkout", "pre-commit", "post-commit", "reference-transaction",
                 "post-index-change", "prepare-commit-msg", "applypatch-msg", "post-merge")  # fmt: skip
        for name in names:
            _program(hooks / name, touch)
        return cls(ran, _program(place / "program", f"{touch}exit 1\n"), hooks)

    def take(self) -> str:
        """What ran since the last call; empty: nothing did."""
        text = self.ran.read_text() if self.ran.exists() else ""
        self.ran.unlink(missing_ok=True)
        return text

    def settings(self) -> dict[str, str]:
        """Every kind of setting that names a program, or another machine, for the repository's commands."""
        run = str(self.program)
        return {
            **{f"filter.f.{name}": run for name in ("clean", "smudge")},
            **{f"diff.d.{name}": run for name in ("textconv", "command")},
            "diff.external": run,
            "merge.m.driver": f"{run} %A",
            "credential.helper": f"!{run}",
            "core.askPass": run,
            "core.sshCommand": run,
            "core.gitProxy": run,
            "core.fsmonitor": run,
            "core.hooksPath": str(self.hooks),
            "core.pager": run,
            "core.editor": run,
            "core.alternateRefsCommand": run,
            "sequence.editor": run,
            "gpg.program": run,
            "log.showSignature": "true",
            "uploadpack.packObjectsHook": run,
            "protocol.allow": "always",
            "protocol.ext.allow": "always",
            "url.ext::" + run + " .insteadOf": "https://",
            "remote.origin.url": f"ext::{run} x",
            "remote.origin.uploadpack": run,
            "remote.origin.receivepack": run,
            "remote.origin.promisor": "true",
            "submodule.recurse": "true",
            "submodule.sub.update": f"!{run}",
            **{f"alias.{name}": f"!{run}" for name in ("status", "rev-parse", "ls-files")},
            **{f"pager.{name}": run for name in ("status", "log", "diff", "show")},
        }


def _program(place: Path, text: str) -> Path:
    place.write_text(text)
    place.chmod(0o755)
    return place


# --- places of a setting --------------------------------------------------------------------------


def in_config(repo: Path, settings: Settings) -> None:
    """In the repository's own file."""
    _set(repo, settings, "--local")


def in_included(repo: Path, settings: Settings) -> None:
    """In a file of the working tree's that the configuration includes."""
    included = repo / ".git" / "included"
    _set(repo, settings, "--file", str(included))
    git(repo, "config", "include.path", str(included))


def in_included_if(repo: Path, settings: Settings) -> None:
    """The same, on a condition."""
    included = repo / ".git" / "included"
    _set(repo, settings, "--file", str(included))
    git(repo, "config", f"includeIf.gitdir:{repo}/.path", "not-this")
    git(repo, "config", "includeIf.gitdir:/**.path", str(included))


def in_worktree(repo: Path, settings: Settings) -> None:
    """In `config.worktree`."""
    git(repo, "config", "core.repositoryformatversion", "1")
    git(repo, "config", "extensions.worktreeConfig", "true")
    _set(repo, settings, "--worktree")


def in_worktree_included(repo: Path, settings: Settings) -> None:
    """In a file that `config.worktree` includes."""
    included = repo / ".git" / "included"
    _set(repo, settings, "--file", str(included))
    in_worktree(repo, {"include.path": str(included)})


PLACES: dict[str, Callable[[Path, Settings], None]] = {
    "config": in_config,
    "include": in_included,
    "includeIf": in_included_if,
    "config.worktree": in_worktree,
    "include in config.worktree": in_worktree_included,
}


def _set(repo: Path, settings: Settings, *where: str) -> None:
    for key, value in settings.items():
        git(repo, "config", *where, "--add", key, value)


# --- places of an attribute -----------------------------------------------------------------------

ATTRIBUTES = "* filter=f diff=d merge=m\n"


def select_tracked(repo: Path, name: str = ".gitattributes") -> None:
    """In a file that is committed with the others."""
    write(repo, {name: ATTRIBUTES})
    subprocess.run(["git", "add", name], cwd=repo, env=GIT_ENV, check=True)
    git(repo, "commit", "-q", "-m", "attributes")


def select_info(repo: Path) -> None:
    """In `info/attributes`."""
    write(repo, {".git/info/attributes": ATTRIBUTES})


def select_named(repo: Path) -> None:
    """In a file that the configuration names."""
    write(repo, {".git/named": ATTRIBUTES})
    git(repo, "config", "core.attributesFile", str(repo / ".git" / "named"))


SELECTIONS: dict[str, Callable[[Path], None]] = {
    ".gitattributes": select_tracked,
    "info/attributes": select_info,
    "core.attributesFile": select_named,
}
