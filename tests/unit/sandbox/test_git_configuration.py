"""git through `SubprocessClients`: only an allow-list of a repository's own configuration counts."""

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from fallback_tier.gates.trees.isolation import USERS_CONFIGURATION
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.hostile_git import PLACES, SELECTIONS, Canary
from tests.fakes.repository import GIT_ENV, commit_all, git, write

#: The commands of this product for a user's repository, in each its form.
COMMANDS = (
    "rev-parse --show-toplevel",
    "rev-parse --quiet --verify HEAD^{commit}",
    "ls-files",
    "status --porcelain=v1 --untracked-files=no --no-renames --ignore-submodules=dirty",
    "tag --merged HEAD",
    "describe --tags --abbrev=0 HEAD",
    "show -s --format=%cs HEAD",
    "show --no-textconv HEAD:a.txt",
    "log -1 --format=%P HEAD",
    "ls-tree -z HEAD -- a.txt",
    "ls-tree -r -z --name-only HEAD",
    "cat-file blob HEAD:a.txt",
    "check-ignore --quiet --no-index -- ./b.txt",
    "check-ref-format --branch x",
    "for-each-ref --count=1 --format=%(refname:lstrip=2) refs/heads/x/",
    "var GIT_AUTHOR_IDENT",
    "diff-index --cached --raw -z --no-renames --full-index --ignore-submodules=none HEAD --",
    "diff-tree -r -z --name-only --no-renames HEAD~1 HEAD",
    "hash-object -- a.txt",
    "apply --whitespace=nowarn change.patch",
    "checkout-index --force -- a.txt",
    "update-index --add --remove -- a.txt",
    "read-tree --no-sparse-checkout HEAD",
    "write-tree",
    "checkout --quiet --detach HEAD",
    "reset --quiet --hard HEAD",
    "clean -ffdxq",
)
PATCH = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits and a file that git must look into."""
    repo = tmp_path / "repo"
    write(repo, {"a.txt": "zero\n"})
    commit_all(repo)
    write(repo, {"a.txt": "one\n"})
    commit_all(repo)
    git(repo, "tag", "v1")
    return repo


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary.make(tmp_path / "canary")


@pytest.fixture
def clients(tmp_path: Path) -> SubprocessClients:
    """A user's git with nothing configured."""
    (tmp_path / "home").mkdir()
    return SubprocessClients({"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")})


def plainly(repo: Path, *args: str, **more: str) -> None:
    """The same by anyone's git, whatever comes of it."""
    subprocess.run(
        ["git", *args], cwd=repo, env={**GIT_ENV, **more}, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=60,
    )  # fmt: skip


def runs_nothing(repo: Path, canary: Canary, clients: SubprocessClients) -> None:
    """Each command, with the user's configuration and without."""
    for env in ({}, USERS_CONFIGURATION):
        for command in COMMANDS:
            write(repo, {"change.patch": PATCH, "a.txt": "one\n"})  # as committed, of another time
            os.utime(repo / "a.txt", (1, 1))
            words = shlex.split(command)
            clients.run("git", words, cwd=repo, timeout_s=60, env=env)
            assert canary.take() == "", command


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("place", PLACES)
def test_no_program_of_a_repositorys_configuration_runs(
    repo: Path, canary: Canary, clients: SubprocessClients, place: str, selection: str
) -> None:
    """Under plain git the same `git status` runs the filter: the test can fail."""
    SELECTIONS[selection](repo)
    PLACES[place](repo, canary.settings())
    os.utime(repo / "a.txt", (1, 1))
    plainly(repo, "-c", "core.fsmonitor=false", "status")
    assert canary.take()
    runs_nothing(repo, canary, clients)


@pytest.mark.parametrize("place", PLACES)
def test_no_filter_process_runs(
    repo: Path, canary: Canary, clients: SubprocessClients, place: str
) -> None:
    SELECTIONS["info/attributes"](repo)
    PLACES[place](repo, {"filter.f.process": str(canary.program), "filter.f.required": "true"})
    os.utime(repo / "a.txt", (1, 1))
    plainly(repo, "status")
    assert canary.take()
    runs_nothing(repo, canary, clients)


@pytest.mark.parametrize("place", ["config", "config.worktree"])
def test_no_program_runs_in_a_linked_worktree(
    repo: Path, canary: Canary, clients: SubprocessClients, place: str
) -> None:
    SELECTIONS[".gitattributes"](repo)
    linked = repo.parent / "linked"
    git(repo, "worktree", "add", "-q", "--detach", str(linked))
    PLACES[place](linked, canary.settings())
    os.utime(linked / "a.txt", (1, 1))
    plainly(linked, "-c", "core.fsmonitor=false", "status")
    assert canary.take()
    runs_nothing(linked, canary, clients)


def test_no_program_of_a_submodules_configuration_runs(
    repo: Path, canary: Canary, clients: SubprocessClients
) -> None:
    with_submodule(repo)
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update")
    SELECTIONS["info/attributes"](repo)
    PLACES["config"](repo / "sub", canary.settings())
    git(repo, "config", "submodule.recurse", "true")
    plainly(repo, "status")
    assert canary.take()
    runs_nothing(repo, canary, clients)


def test_settings_that_change_later_run_nothing(
    repo: Path, canary: Canary, clients: SubprocessClients
) -> None:
    """Also while git is at work: it has no way to them."""
    runs_nothing(repo, canary, clients)
    SELECTIONS["info/attributes"](repo)
    PLACES["include"](repo, canary.settings())
    runs_nothing(repo, canary, clients)


def test_what_is_read_of_a_configuration_follows_its_changes(
    repo: Path, clients: SubprocessClients
) -> None:
    def ident() -> str:
        ask = ["var", "GIT_AUTHOR_IDENT"]
        return clients.run("git", ask, cwd=repo, timeout_s=60, env=USERS_CONFIGURATION).output

    PLACES["include"](repo, {"user.name": "First", "user.email": "f@example.invalid"})
    assert ident().startswith("First <f@example.invalid>")
    git(repo, "config", "--file", ".git/included", "user.name", 'A "B" \\ #;\tC')
    assert ident().startswith('A "B" \\ #;\tC <f@example.invalid>')
    git(repo, "config", "user.name", "Third")
    assert ident().startswith("Third <")


# --- one kind of setting, and the git command that runs it -----------------------------------------


def merged(repo: Path) -> None:
    """A branch `other` that changes what this one changes."""
    git(repo, "checkout", "-q", "-b", "other", "HEAD~1")
    write(repo, {"a.txt": "another\n"})
    git(repo, "commit", "-q", "-a", "-m", "other")
    git(repo, "checkout", "-q", "main")


def with_submodule(repo: Path) -> None:
    """A submodule that is not there yet."""
    write(repo.parent / "sub", {"s": "s\n"})
    commit = commit_all(repo.parent / "sub")
    write(repo, {".gitmodules": f'[submodule "sub"]\n\tpath = sub\n\turl = {repo.parent}/sub\n'})
    git(repo, "add", ".gitmodules")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    git(repo, "commit", "-q", "-m", "submodule")
    git(repo, "submodule", "init")


def borrowing(repo: Path) -> None:
    """Objects of another repository, `others`, which has a commit more."""
    others = repo.parent / "others"
    git(repo.parent, "clone", "-q", str(repo), str(others))
    commit = git(others, "commit-tree", "HEAD^{tree}", "-m", "new").strip()
    git(others, "update-ref", "refs/heads/new", commit)
    write(repo, {".git/objects/info/alternates": f"{others}/.git/objects\n"})


def unchanged(_repo: Path) -> None:
    """As it is."""


RUN = "{program}"
KINDS: dict[str, tuple[dict[str, str], str, Callable[[Path], None]]] = {
    "fsmonitor": ({"core.fsmonitor": RUN}, "status", unchanged),
    "hooks": ({"core.hooksPath": "{hooks}"}, "checkout -f HEAD", unchanged),
    "clean": ({"filter.f.clean": RUN}, "hash-object a.txt", unchanged),
    "smudge": ({"filter.f.smudge": RUN}, "checkout-index --force a.txt", unchanged),
    "textconv": ({"diff.d.textconv": RUN}, "diff HEAD~1", unchanged),
    "diff driver": ({"diff.d.command": RUN}, "diff HEAD~1", unchanged),
    "external diff": ({"diff.external": RUN}, "diff HEAD~1", unchanged),
    "merge driver": ({"merge.m.driver": RUN}, "merge -m x other", merged),
    "ssh": ({"core.sshCommand": RUN, "remote.origin.url": "ssh://h/r"}, "fetch origin", unchanged),
    "proxy": ({"core.gitProxy": RUN, "remote.origin.url": "git://h/r"}, "fetch origin", unchanged),
    "ext": ({"remote.origin.url": f"ext::{RUN}", "protocol.ext.allow": "always"},
            "fetch origin", unchanged),
    "rewritten": ({f"url.ext::{RUN} .insteadOf": "https://", "protocol.ext.allow": "always"},
                  "ls-remote https://h/r", unchanged),
    "uploadpack": ({"remote.origin.uploadpack": RUN, "remote.origin.url": "."},
                   "fetch origin", unchanged),
    "receivepack": ({"remote.origin.receivepack": RUN, "remote.origin.url": "."},
                    "push origin HEAD:refs/heads/x", unchanged),
    "credentials": ({"credential.helper": f"!{RUN}"},
                    "-c protocol.http.allow=always ls-remote {server}/r", unchanged),
    "alias": ({"alias.x": f"!{RUN}"}, "x", unchanged),
    "editor": ({"core.editor": RUN}, "commit --amend", unchanged),
    "submodule": ({"submodule.sub.update": f"!{RUN}"}, "submodule update", with_submodule),
    "promisor": ({"remote.p.promisor": "true", "remote.p.url": "ssh://h/r", "core.sshCommand": RUN,
                  "core.repositoryformatversion": "1", "extensions.partialClone": "p"},
                 "cat-file -p 1111111111111111111111111111111111111111", unchanged),
    "alternates": ({"core.alternateRefsCommand": RUN},
                   "-c protocol.file.allow=always fetch ../others", borrowing),
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that wants a password."""

    class Closed(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Closed) as serving:
        thread = Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join(60)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["config", "include", "config.worktree"])
def test_the_command_that_runs_a_program_elsewhere_runs_none_here(
    repo: Path, canary: Canary, clients: SubprocessClients, server: str, place: str, kind: str
) -> None:
    if (kind, place) == ("alias", "config.worktree"):
        pytest.skip("git reads no alias there")
    settings, command, prepare = KINDS[kind]
    prepare(repo)
    SELECTIONS["info/attributes"](repo)
    named = {"program": str(canary.program), "hooks": str(canary.hooks)}
    filled = {key.format(**named): value.format(**named) for key, value in settings.items()}
    PLACES[place](repo, filled)
    words = shlex.split(command.replace("{server}", server))
    for env in ({}, USERS_CONFIGURATION):
        os.utime(repo / "a.txt", (1, 1))
        clients.run("git", words, cwd=repo, timeout_s=60, env=env)
        assert canary.take() == ""
    os.utime(repo / "a.txt", (2, 2))
    plainly(repo, *words, GIT_ASKPASS="true", GIT_ALLOW_PROTOCOL="file:ssh:git:ext:http")
    assert canary.take(), "plain git runs it"
