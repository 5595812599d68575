"""A real repository, a real patch on a real worktree, and the gates' view of it."""

import json
import os
import pwd
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest

from fallback_audit.vocabulary import PromptShape, ProofLevel, Tier
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.manifests import pythons
from fallback_plugins.shared.gates.gating import relative_log
from fallback_plugins.shared.installation import Installed, Level
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.errors import SandboxError
from fallback_tier.execution import CommandResult, Sandbox
from fallback_tier.files.tree import FileTree
from fallback_tier.gate_ports import GateContext, GateVerdict, SuiteTime
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.worktrees import RunnerWorktree, Worktrees
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import BubblewrapSandbox
from tests.fakes.repository import commit_all, git, write

TIMEOUT_S = 120.0

#: How the worktrees of tests lie: in layers, in plain checkouts; None: as the machine can.
LAYERED: bool | None = None

#: What was installed, and seen at base commits, for whoever needs the same again; None: each case its own.
CACHE: Path | None = None

#: By file system.
_MOUNTS_LAYERS: dict[int, bool] = {}

DIGEST = "0" * 64


@cache
def _sandbox_problem() -> str | None:
    try:
        BubblewrapSandbox().probe()
    except SandboxError as error:
        return error.problem
    return None


def clients_in(environ: Mapping[str, str]) -> SubprocessClients:
    """The same for whoever asks: other ones would ask npm and node for their versions again."""
    return _clients(tuple(sorted(it for it in environ.items() if it[0] != "PYTEST_CURRENT_TEST")))


@cache
def _clients(environ: tuple[tuple[str, str], ...]) -> SubprocessClients:
    return SubprocessClients(dict(environ))


@cache
def _sandbox(_path: str) -> BubblewrapSandbox:
    """One for all tests that find the same programs: each would try anew what can be had here."""
    return BubblewrapSandbox()


def _mounts_layers(sandbox: BubblewrapSandbox, folder: Path) -> bool:
    """Tried once for a file system: a test has all of its folders on one, as those before it."""
    device = folder.stat().st_dev
    if device not in _MOUNTS_LAYERS:
        _MOUNTS_LAYERS[device] = sandbox.mounts_layers(folder)
    return _MOUNTS_LAYERS[device]


class Numbered(BubblewrapSandbox):
    """Tells each command which run it is: what chance, a clock or a port is to a real test."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count()

    def run(
        self,
        argv: Sequence[str],
        *,
        worktree: FileTree | Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
        silent_s: float | None = None,
        servers: Sequence[str] = (),
    ) -> CommandResult:
        reported = {**(env or {}), "RUN": str(next(self.numbers))}
        return super().run(
            argv,
            worktree=worktree,
            timeout_s=timeout_s,
            env=reported,
            readable=readable,
            silent_s=silent_s,
            servers=servers,
        )


def needs_sandbox() -> None:
    """Skip, with the reason, where no sandbox can be had."""
    if problem := _sandbox_problem():
        pytest.skip(problem)


def older_python(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another Python of this machine, older than ours: of the user's own home folder, not the tests'. Skips
    where there is none."""
    here = pythons.installed(Path(pwd.getpwuid(os.getuid()).pw_dir))
    monkeypatch.setattr(
        pythons, "suited_once", lambda _, asked: pythons.suited(asked, lambda: here)
    )
    for python in here[1:]:
        if pythons.minor_of(python) < sys.version_info.minor:
            return python
    pytest.skip("this machine has no other Python that is older than the one that runs the tests")


#: No plugin that nobody asked for, and no ten rounds over all garbage at the end: a tenth of a start.
_LIGHT = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": "-p no:unraisableexception",
}


def our_pytest_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pytest of this very interpreter stands in for a target's own, which has none of our plugins:
    importing those is most of what one start takes. A target's options may name one."""

    def sandboxed(
        self: Environment, arguments: list[str], time: SuiteTime | None = None
    ) -> CommandResult:
        time = time or SuiteTime(self.context.timeout_s)
        result = self.context.sandbox.run(
            [sys.executable, *arguments],
            worktree=self.repo.tree,
            timeout_s=time.limit_s,
            silent_s=time.silent_s,
            env={**self.variables(), **_LIGHT},
            readable=[Path(sys.prefix)],
        )
        return result.model_copy(update={"output": relative_log(result, self.repo.root)})

    monkeypatch.setattr(Environment, "install", lambda _: Installed(Level.EVERYTHING))
    monkeypatch.setattr(Environment, "installed", lambda *_: ("9.0",))
    monkeypatch.setattr(Environment, "sandboxed", sandboxed)


def advisory(
    package: str = "left", ecosystem: str = "npm", fixed: str = "2.0.0", introduced: str = "0"
) -> Advisory:
    record = {
        "id": "GHSA-test-0000-0000",
        "affected": [
            {
                "package": {"ecosystem": ecosystem, "name": package},
                "ranges": [
                    {
                        "type": "SEMVER" if ecosystem == "npm" else "ECOSYSTEM",
                        "events": [{"introduced": introduced}, {"fixed": fixed}],
                    }
                ],
            }
        ],
    }
    return parse_advisory(json.dumps(record).encode(), "test")


def applied(diff: str = "", files: tuple[str, ...] = ()) -> Applied:
    return Applied(
        attempt=1,
        prompt_shape=PromptShape.NONE,
        tier=Tier.RECIPE,
        diff=diff,
        patch_sha256=sha256(diff.encode()).hexdigest(),
        edit_digest=DIGEST,
        files=files,
        proof_level=ProofLevel.SOURCE,
    )


def repository(
    root: Path, files: Mapping[str, str], manifests: tuple[str, ...] = ()
) -> RepoContext:
    """Commit ``files`` in a new repository."""
    root.mkdir(parents=True, exist_ok=True)
    write(root, dict(files))
    commit_all(root)
    facts = inspect_repository(root, SubprocessClients())
    return RepoContext(
        root=facts.root,
        base_commit=facts.base_commit,
        tracked_files=facts.tracked_files,
        manifests=manifests,
        fix_id="fix-1",
        gate_transition_id="gate-1",
    )


def diff_of(repo: RepoContext, changes: Mapping[str, str | None]) -> str:
    """The unified diff of a change, made by git; the repository is as before afterwards."""
    for path, text in changes.items():
        if text is None:
            (repo.root / path).unlink()
        else:
            write(repo.root, {path: text})
    git(repo.root, "add", "-A")
    diff = git(repo.root, "diff", "--cached", "--no-renames")
    git(repo.root, "reset", "-q", "--hard")
    return diff


def smuggle(worktree: RunnerWorktree, path: str, content: bytes) -> None:
    """Make a change part of the patch that is in no diff."""
    tree = worktree.tree
    place = (tree.lower[-1] if tree.lower else tree.root) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    if not tree.lower:
        git(tree.root, "add", path)


@dataclass(frozen=True)
class Case:
    context: GateContext
    worktree: RunnerWorktree

    def judge(self, gates: object) -> dict[str, GateVerdict]:
        """Verdicts by gate, up to and including the first failure, as the runner does it."""
        verdicts = {}
        for gate in gates:  # type: ignore[attr-defined]
            verdict = verdicts[gate.name] = gate.judge(self.context)
            if verdict.failure_kind is not None:
                break
        return verdicts

    def with_(self, **facts: object) -> "Case":
        return Case(replace(self.context, **facts), self.worktree)  # type: ignore[arg-type]


@contextmanager
def patched(
    place: Path,
    files: Mapping[str, str],
    changes: Mapping[str, str | None],
    *,
    about: Advisory,
    manifests: tuple[str, ...] = (),
    sandbox: Sandbox | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[Case]:
    repo = repository(place / "repo", files, manifests)
    diff = diff_of(repo, changes)
    clients = clients_in(os.environ)
    layered = LAYERED
    if sandbox is None:
        sandbox = _sandbox(os.environ["PATH"])
        layered = _mounts_layers(sandbox, place) if LAYERED is None else LAYERED
    with Worktrees(place / "state", clients, sandbox, layered=layered).open(repo) as worktree:
        worktree.apply(diff)
        yield Case(
            GateContext(
                advisory=about,
                repo=repo,
                application=applied(diff, tuple(sorted(changes))),
                worktree=worktree,
                cache=CACHE or place / "cache",
                sandbox=sandbox,
                clients=clients,
                timeout_s=timeout_s,
            ),
            worktree,
        )
