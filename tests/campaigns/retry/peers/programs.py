"""The peers: what each is given, and how it is run in a case's folder."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from fallback_eval.retry.tasks import Language, Task
from fallback_tier.execution import Sandbox
from fallback_tier.files.tree import FileTree
from tests.campaigns.retry.peers import inside
from tests.campaigns.retry.peers.model import CaseModel, StoppedError, served


class Peer(StrEnum):
    """Another way to use the same model."""

    BARE = "bare"
    AIDER = "aider"
    MINI = "mini-swe-agent"


#: The distribution of each peer that is a program, and its environment's folder.
DISTRIBUTIONS: Final = {
    Peer.AIDER: ("aider", "aider_chat"),
    Peer.MINI: ("mini", "mini_swe_agent"),
}

#: Steps of mini-swe-agent: as many as the budget has calls.
_MINI_STEPS: Final = 12

_BARE = """\
Fix this vulnerability: {title}.

{advisory}

This is {path}:
```
{code}
```

This test fails now, and must pass with your change:
{proof}

Everything else must work as before. Answer with the whole new file {path} in one code block, nothing else.
"""

_TASK = """\
Fix this vulnerability in {path}: {title}.

{advisory}

The test {proof_path} fails now, and must pass with your change:
{proof}

Everything else must work as before. Change no test. This command runs all tests: {command}
"""

_BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Environments:
    """Where the peers are installed: a virtual environment each, in ``root``, outside the project."""

    root: Path

    def folder(self, peer: Peer) -> Path:
        """Return a peer's environment."""
        return self.root / DISTRIBUTIONS[peer][0]

    def version(self, peer: Peer) -> str:
        """Return a peer's version, empty for the bare prompt. Raises FileNotFoundError: not installed."""
        if peer not in DISTRIBUTIONS:
            return ""
        stem = DISTRIBUTIONS[peer][1]
        for folder in self.folder(peer).glob(f"lib/python*/site-packages/{stem}-*.dist-info"):
            return folder.name.removeprefix(f"{stem}-").removesuffix(".dist-info")
        raise FileNotFoundError(f"{peer.value} is not installed in {self.folder(peer)}")

    def program(self, peer: Peer, name: str) -> list[str]:
        """Return the words that start a script of a peer's environment."""
        scripts = self.folder(peer) / "bin"
        return [str(scripts / "python"), str(scripts / name)]


def test_command(task: Task) -> str:
    """Return the command that runs base tests and proof in a peer's copy."""
    proof = task.proof_of(task.proof, "proof")
    base = "tests/test_base.py" if task.language is Language.PYTHON else "test/base.test.js"
    (path,) = proof.files
    words = [base if word == path else word for word in proof.command]
    return shlex.join([*words, path])


def ask_bare(task: Task, proof: str, tree: Path, model: CaseModel) -> str:
    """Ask once for the whole new file and write it. Return why it ended."""
    prompt = _BARE.format(
        title=f"{task.weakness} in {task.package}",
        advisory=task.advisory.strip(),
        path=task.path,
        code=task.code.strip("\n"),
        proof=proof.strip(),
    )
    try:
        answer = model.answer([{"role": "user", "content": prompt}]).text
    except StoppedError as stopped:
        return str(stopped)
    if (block := _BLOCK.search(answer)) is None:
        return "no code block"
    (tree / task.path).write_text(block[1], encoding="utf-8")
    return "answered"


def run_program(
    words: Sequence[str],
    tree: Path,
    model: CaseModel,
    sandbox: Sandbox,
    *,
    env: Mapping[str, str],
    readable: Sequence[Path],
) -> str:
    """Run a peer with the model at its loopback, and return why it ended: ``exit N``, ``time`` or why the
    model stopped. ``tree``: its repository, in a folder of its own. Raises SandboxError."""
    folder = tree.parent
    socket, stop = folder / "model.sock", folder / "stop"
    script = Path(inside.__file__)
    with served(model, socket, stop):
        result = sandbox.run(
            [words[0], str(script), str(socket), str(stop), str(tree), *words],
            worktree=FileTree(root=folder, is_disposable=True),
            timeout_s=model.budget.seconds,
            env=env,
            readable=[script, *readable],
        )
        stopped = model.stopped
    (folder / "log").write_text(result.output, encoding="utf-8", errors="replace")
    return stopped or ("time" if result.timed_out else f"exit {result.exit_code}")


def run_aider(
    task: Task, proof: str, tree: Path, model: CaseModel, sandbox: Sandbox, peers: Environments
) -> str:
    """Run aider on the module, with its reaction to failing tests. Return why it ended."""
    options = ["--model", f"openai/{model.name}", "--message", _text(task, proof)]
    options += ["--auto-test", "--test-cmd", test_command(task), "--yes-always"]
    options += ["--no-auto-commits", "--no-dirty-commits", "--no-gitignore", "--no-check-update"]
    options += ["--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes"]
    options += ["--no-pretty", "--no-stream", "--no-detect-urls", "--no-fancy-input"]
    words = [*peers.program(Peer.AIDER, "aider"), *options, task.path]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    readable = [peers.folder(Peer.AIDER)]
    return run_program(words, tree, model, sandbox, env=env, readable=readable)


def run_mini(
    task: Task, proof: str, tree: Path, model: CaseModel, sandbox: Sandbox, peers: Environments
) -> str:
    """Run mini-swe-agent with actions as text. Return its own word for why it ended, or as
    ``run_program``."""
    trajectory = tree.parent / "trajectory.json"
    options = ["--config", "mini_textbased.yaml", "--config", f"agent.step_limit={_MINI_STEPS}"]
    options += ["--model", f"openai/{model.name}", "--model-class", "litellm_textbased"]
    options += ["--agent-class", "default", "--yolo", "--exit-immediately"]
    options += ["--task", _text(task, proof), "--output", str(trajectory)]
    env = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_GLOBAL_CONFIG_DIR": str(tree.parent / "mini"),
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
    }
    words = [*peers.program(Peer.MINI, "mini"), *options]
    readable = [peers.folder(Peer.MINI)]
    ended = run_program(words, tree, model, sandbox, env=env, readable=readable)
    return _exit_status(trajectory) or ended if ended == "exit 0" else ended


def _text(task: Task, proof: str) -> str:
    (path,) = task.proof_of(task.proof, "proof").files
    return _TASK.format(
        title=f"{task.weakness} in {task.package}",
        advisory=task.advisory.strip(),
        path=task.path,
        proof_path=path,
        proof=proof.strip(),
        command=test_command(task),
    )


def _exit_status(trajectory: Path) -> str:
    """Return mini-swe-agent's exit status, empty if its file has none."""
    try:
        status = json.loads(trajectory.read_text(encoding="utf-8"))["info"]["exit_status"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return status if isinstance(status, str) and re.fullmatch(r"\w{1,40}", status) else ""
