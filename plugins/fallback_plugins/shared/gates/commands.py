"""Runs a command as somebody gave it: a proof, a gate of the user's own (``EcosystemPlugin.run``)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fallback_plugins.shared.gates.gating import command_in, relative_log
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext

#: Puts a folder first on the path that the sandbox gives, then becomes the command. The exit code is 127
#: where there is no such command, 126 where it can't be executed (POSIX.1-2017, XCU 2.8.2).
_WITH_PROGRAMS = 'PATH="$1:$PATH"; export PATH; shift; exec "$@"'


def with_programs(programs: Path, argv: Sequence[str]) -> list[str]:
    """The command, with a folder first on the path that the sandbox gives."""
    return ["sh", "-c", _WITH_PROGRAMS, "sh", str(programs), *argv]


def run_as_given(
    context: GateContext,
    tree: RepoContext,
    argv: Sequence[str],
    *,
    programs: Path,
    folder: str = ".",
    timeout_s: float | None = None,
    env: Mapping[str, str] | None = None,
    readable: Sequence[Path] = (),
) -> CommandResult:
    """Run it in a folder of the tree, its output's paths relative. ``programs``: looked through first."""
    result = context.sandbox.run(
        command_in(folder, with_programs(programs, argv)),
        worktree=tree.tree,
        timeout_s=context.timeout_s if timeout_s is None else timeout_s,
        env=env,
        readable=readable,
    )
    reported = {"argv": tuple(argv), "output": relative_log(result, tree.root)}
    return result.model_copy(update=reported)
